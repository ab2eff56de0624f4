//! The tables of quotas of a simulated cluster: in memory, what `postgres/schema.rs` does in SQL for one tree. Each function is one
//! statement, and so atomic; `now` is the clock of the database.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use millrace_storage::{Share, Telling, TreeState, Wish};
use millrace_vfs::Counted;

use crate::table::{Epoch, Locking, Told};

/// The row of `tree`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TreeRow {
    pub(super) bytes: i64,
    pub(super) files: i64,
    pub(super) lost_bytes: u64,
    lost_files: u64,
    changes: u64,
    pub(super) is_counted: bool,
    pub(super) is_doubtful: bool,
}

/// The sums of all shares, and those of the others.
#[derive(Debug, Default)]
struct Sums {
    bytes: i64,
    files: i64,
    changes: u64,
    others: u64,
    others_bytes: u64,
    others_files: u64,
}

/// The tables `node`, `tree`, `share` and `name_lock`.
#[derive(Debug, Default)]
pub(super) struct QuotaTable {
    pub(super) nodes: BTreeMap<Epoch, Instant>,
    pub(super) tree: TreeRow,
    pub(super) shares: BTreeMap<Epoch, Share>,
    pub(super) locks: BTreeMap<Vec<u8>, (Epoch, u64)>,
    epochs: i64,
}

impl QuotaTable {
    fn is_alive(&self, epoch: Epoch, lease: Duration, now: Instant) -> bool {
        self.nodes.get(&epoch).is_some_and(|renewed| *renewed + lease > now)
    }

    /// Stands for `register`: locks and shares go over to the new epoch.
    pub(super) fn register(&mut self, replaces: Option<Epoch>, now: Instant) -> Epoch {
        self.epochs += 1;
        let epoch = Epoch(self.epochs);
        self.nodes.insert(epoch, now);
        let Some(replaced) = replaces else { return epoch };
        if self.nodes.remove(&replaced).is_some() {
            let of_it = self.locks.values_mut().filter(|(holder, _)| *holder == replaced);
            of_it.for_each(|(holder, _)| *holder = epoch);
        }
        if let Some(share) = self.shares.remove(&replaced) {
            self.shares.insert(epoch, share);
        }
        epoch
    }

    /// Stands for `renew`. False: the epoch has ended.
    pub(super) fn renew(&mut self, epoch: Epoch, now: Instant) -> bool {
        self.nodes.get_mut(&epoch).map(|renewed| *renewed = now).is_some()
    }

    /// Stands for `reap`. Returns what has ended.
    pub(super) fn reap(&mut self, lease: Duration, now: Instant) -> Vec<Epoch> {
        let is_over = |renewed: &Instant| *renewed + lease < now;
        let over: Vec<Epoch> =
            self.nodes.iter().filter(|(_, renewed)| is_over(renewed)).map(|(epoch, _)| *epoch).collect();
        self.nodes.retain(|epoch, _| !over.contains(epoch));
        self.locks.retain(|_, (holder, _)| !over.contains(holder));
        over
    }

    /// Stands for `end_shares`.
    fn end_shares(&mut self) {
        let gone: Vec<Epoch> =
            self.shares.keys().filter(|epoch| !self.nodes.contains_key(epoch)).copied().collect();
        for share in gone.iter().filter_map(|epoch| self.shares.remove(epoch)) {
            let tree = &mut self.tree;
            tree.bytes += share.bytes;
            tree.files += share.files;
            tree.lost_bytes += share.reserved_bytes;
            tree.lost_files += share.reserved_files;
            tree.changes += share.changes + 1;
            tree.is_doubtful = true;
        }
    }

    fn sums(&self, mine: Epoch) -> Sums {
        let mut sums = Sums::default();
        for (epoch, share) in &self.shares {
            sums.bytes += share.bytes;
            sums.files += share.files;
            sums.changes += share.changes;
            if *epoch != mine {
                sums.others += 1;
                sums.others_bytes += share.reserved_bytes;
                sums.others_files += share.reserved_files;
            }
        }
        sums
    }

    /// Stands for `tell_share`.
    pub(super) fn tell(
        &mut self,
        mine: Epoch,
        telling: &Telling,
        wish: Option<Wish>,
        (lease, now): (Duration, Instant),
    ) -> Told {
        if !self.is_alive(mine, lease, now) {
            return Told::Fenced;
        }
        self.end_shares();
        if !telling.is_new && !self.shares.contains_key(&mine) {
            return Told::Ended;
        }
        let own = telling.share;
        if telling.is_last {
            self.shares.remove(&mine);
            self.tree.bytes += own.bytes;
            self.tree.files += own.files;
            self.tree.changes += own.changes;
        } else {
            self.shares.insert(mine, own);
        }
        self.tree.is_doubtful |= telling.is_doubtful;
        let (tree, sums) = (self.tree, self.sums(mine));
        let mut state = TreeState {
            bytes: tree.bytes + sums.bytes,
            files: tree.files + sums.files,
            others_bytes: tree.lost_bytes + sums.others_bytes,
            others_files: tree.lost_files + sums.others_files,
            changes: tree.changes + sums.changes,
            has_others: sums.others > 0,
            is_counted: tree.is_counted,
            is_doubtful: tree.is_doubtful,
            ..TreeState::default()
        };
        if let Some(wish) = wish {
            self.grant(mine, &own, &wish, &mut state);
        }
        Told::Known(state)
    }

    fn grant(&mut self, mine: Epoch, own: &Share, wish: &Wish, state: &mut TreeState) {
        let left = |most: Option<u64>, held: i64, others: u64, reserved: u64| {
            most.map(|most| most.cast_signed() - held - others.cast_signed() - reserved.cast_signed())
        };
        let bytes = left(wish.most.bytes, state.bytes, state.others_bytes, own.reserved_bytes);
        let files = left(wish.most.files, state.files, state.others_files, own.reserved_files);
        let is_over = |wanted: u64, left: Option<i64>| {
            wanted > 0 && left.is_some_and(|left| wanted.cast_signed() > left)
        };
        if is_over(wish.files, files) {
            state.over = Some(Counted::Files);
        } else if is_over(wish.bytes, bytes) {
            state.over = Some(Counted::Bytes);
        } else {
            let eighth = |left: Option<i64>, otherwise: u64| {
                left.map_or(otherwise, |left| u64::try_from((left + 7) / 8).unwrap_or(0))
            };
            state.granted_bytes = wish.bytes.max(eighth(bytes, 16 << 20).min(wish.ahead));
            state.granted_files = wish.files.max(eighth(files, 64).min(64));
            if let Some(share) = self.shares.get_mut(&mine) {
                share.reserved_bytes += state.granted_bytes;
                share.reserved_files += state.granted_files;
            }
        }
    }

    /// Stands for `count_tree`.
    pub(super) fn count(
        &mut self,
        mine: Epoch,
        found: (u64, u64),
        seen: u64,
        (lease, now): (Duration, Instant),
    ) -> bool {
        if !self.is_alive(mine, lease, now) {
            return false;
        }
        self.end_shares();
        let sums = self.sums(mine);
        let tree = &mut self.tree;
        if tree.is_counted && (sums.others > 0 || tree.changes + sums.changes != seen) {
            return false;
        }
        tree.bytes = found.0.cast_signed() - sums.bytes;
        tree.files = found.1.cast_signed() - sums.files;
        (tree.lost_bytes, tree.lost_files) = (0, 0);
        (tree.is_counted, tree.is_doubtful) = (true, false);
        true
    }

    /// Stands for `lock_name`.
    pub(super) fn lock(
        &mut self,
        mine: Epoch,
        name: &[u8],
        number: u64,
        (lease, now): (Duration, Instant),
    ) -> Locking {
        if !self.is_alive(mine, lease, now) {
            return Locking::Fenced;
        }
        match self.locks.get(name) {
            Some((holder, _)) if *holder != mine => Locking::Busy,
            _ => {
                self.locks.insert(name.to_vec(), (mine, number));
                Locking::Locked
            }
        }
    }

    /// Stands for the statement of `unlock_names`.
    pub(super) fn unlock(&mut self, mine: Epoch, numbers: &[u64]) {
        self.locks.retain(|_, (holder, number)| *holder != mine || !numbers.contains(number));
    }
}
