//! The secrets that all nodes share, from which they derive keys: of TLS tickets, and of what they give to browsers to keep.
//!
//! The database has them. The first node makes one, and each node looks once a minute for what there is; where the newest is six
//! hours old, the one that looks makes the next. The clock of the database decides.
//!
//! The invariant: no secret is kept anywhere for longer than thirteen hours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};

use crate::lock::lock;
use crate::member::Member;
use crate::places::Shared;
use crate::shared_secret::SharedSecret;
use crate::table::{Epoch, TableError};

/// How often a node looks for new ones.
const PAUSE: Duration = Duration::from_secs(60);

/// When the keeper looks for secrets.
#[derive(Debug, Default)]
pub(crate) struct SecretSync {
    next: Option<Instant>,
}

impl SecretSync {
    /// Forgets what is too old, also while the database is away, and has the server forget what it has derived.
    pub(crate) fn forget_old(shared: &Shared, member: &dyn Member, now: Instant) {
        let mut secrets = lock(&shared.secrets);
        if !secrets.iter().all(|secret| secret.is_young(now)) {
            *secrets = secrets.iter().filter(|secret| secret.is_young(now)).copied().collect();
            let left = Arc::clone(&secrets);
            drop(secrets);
            member.use_secrets(&left);
        }
    }

    /// Looks for secrets, where it is time, and has the server use them.
    pub(crate) fn turn(
        &mut self,
        shared: &Shared,
        member: &dyn Member,
        epoch: Epoch,
        now: Instant,
    ) -> Result<(), TableError> {
        if self.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        let mut fresh = [0; 32];
        // Without random numbers those of other nodes will do.
        let fresh = SystemRandom::new().fill(&mut fresh).is_ok().then_some(&fresh);
        let made = |(bytes, age)| SharedSecret { bytes, made: now.checked_sub(age).unwrap_or(now) };
        let secrets: Arc<[_]> = shared.table.secrets(epoch, fresh)?.into_iter().map(made).collect();
        if secrets.is_empty() {
            // The registration has lapsed, or there are no random numbers yet: what the node has is good.
            return Ok(());
        }
        self.next = Some(now + PAUSE);
        member.use_secrets(&secrets);
        *lock(&shared.secrets) = secrets;
        Ok(())
    }
}
