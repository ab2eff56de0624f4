//! The events of requests for hooks: before and after them. The transfer log is written here as well.

pub(crate) mod batch;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_accounts::{Account, KnownBy, plain_host};
use millrace_hooks::{Event, EventContext};
use millrace_http::target;
use millrace_log::{self as log, Direction, Subject, Transferred, Undecided};
use millrace_metrics::Waited;
use millrace_runtime::hook_line::end_of_transfer;
use millrace_vfs::Conversion;

use crate::connection::Connection;
use crate::record::Record;
use crate::worker::Core;

/// What logs and hooks are told of a connection.
pub(crate) struct Notices<'a> {
    pub(crate) connection: &'a Connection,
}

impl<'a> Notices<'a> {
    pub(crate) fn of(connection: &'a Connection) -> Self {
        Self { connection }
    }
}

/// The log entry of an upload that waits for the hooks' verdict.
pub(crate) fn undecided(connection: &Connection, core: &Core, waited: Waited) -> Box<Undecided> {
    Box::new(Undecided {
        log: core.server.log.clone(),
        by_http: true,
        ascii: false,
        first_byte: None,
        waited,
        since: Instant::now(),
        guest: None,
        transfer_log: transfer_log(connection, core).map(Arc::clone),
    })
}

/// The file that tells of transfers at the host that a client came by, where that has one of its own.
fn transfer_log<'a>(connection: &Connection, core: &'a Core) -> Option<&'a Arc<Path>> {
    let hosts = &core.server.config.hosts;
    if hosts.iter().all(|(_, log)| log.is_none()) {
        return None;
    }
    let name = connection.who.as_ref().map(|who| plain_host(&who.host)).unwrap_or_default();
    KnownBy::choose(hosts, |(known_by, _)| known_by, &name, connection.reached())?.1.as_ref()
}

impl Notices<'_> {
    /// A file was sent or received, or not to its end: the transfer log and the hooks hear of it. Uploads that are
    /// whole hooks were asked about.
    pub(crate) fn note_transfer(
        &self,
        core: &mut Core,
        direction: Direction,
        record: &Record,
        bytes: u64,
        failure: Option<&str>,
    ) {
        if !core.server.tells_of_transfers() {
            let waited = self.connection.waited(direction, record, core.now.instant);
            let elapsed = core.now.instant.saturating_duration_since(record.began);
            let (first_byte, has_failed) = (record.first_byte, failure.is_some());
            let measured = log::Measured { direction, bytes, elapsed, first_byte, waited, has_failed };
            return core.count_transfer(&measured);
        }
        let context = self.moment_of(core, Event::Download, record, bytes, failure);
        self.log_transferred(
            core,
            direction,
            &context,
            (bytes, record.first_byte, record.conversion),
            failure,
        );
        match end_of_transfer(direction, failure) {
            Some(Event::Upload) | None => {}
            Some(event) => self.tell(core, EventContext { event, ..context }),
        }
    }

    pub(crate) fn log_transferred(
        &self,
        core: &mut Core,
        direction: Direction,
        context: &EventContext,
        (bytes, first_byte, conversion): (u64, Option<Duration>, Conversion),
        failure: Option<&str>,
    ) {
        let Some(path) = &context.path else { return };
        let log = transfer_log(self.connection, core).map(Arc::clone);
        let transferred = Transferred {
            direction,
            path,
            bytes,
            elapsed: context.elapsed.unwrap_or_default(),
            first_byte,
            lag: Duration::ZERO,
            waited: context.waited,
            failure,
            hash: context.hash.as_deref(),
            ascii: false,
            conversion,
            guest: None,
            log: log.as_deref(),
        };
        // The name that FTP shows for an unnamed user.
        let subject = self.connection.subject();
        let subject = Subject { user: subject.user.or(Some(b"anonymous")), ..subject };
        core.log_transfer(&subject, &transferred);
    }

    /// A request was answered: hooks that were asked before get the reply.
    pub(crate) fn note_reply(&self, core: &Core, request: &log::Request<'_>) {
        let command = self.connection.hooked.get().and_then(|hooked| hooked.command.as_ref());
        if let Some(command) = command.filter(|_| self.connection.hooked.is_ruled()) {
            let EventContext { verb, argument, path, is_directory, to, .. } = (**command).clone();
            let context = self.context(core, Event::Reply, None);
            let code = Some(request.status);
            self.tell(core, EventContext { verb, argument, path, is_directory, to, code, ..context });
        }
    }

    /// Files were changed: the audit log hears of it, in the words that it has for changes by FTP.
    pub(crate) fn audit_change(&self, core: &mut Core, event: Event, record: &Record) {
        let verb = match event {
            Event::Delete => "remove",
            Event::RemoveDirectory => "remove-tree",
            Event::MakeDirectory => "make-directory",
            Event::MakeFile => "make-file",
            Event::Rename => "rename-to",
            Event::Copy => "copy-to",
            // An upload is a transfer.
            _ => return,
        };
        let moment = self.moment_of(core, event, record, 0, None);
        let (path, from) = match (moment.to, moment.path) {
            (Some(to), from) => (to, from),
            (None, Some(path)) => (path, None),
            (None, None) => return,
        };
        let changed = log::Event::Changed { verb, path: &path, from: from.as_ref() };
        core.audit(&self.connection.subject(), &changed);
    }

    /// Something was changed, if not all of it: hooks hear of that, and are not waited for.
    pub(crate) fn note_change(&self, core: &mut Core, event: Event, record: &Record) {
        let context = self.moment_of(core, event, record, 0, None);
        self.tell(core, context);
    }

    /// Something was refused or cut because a quota is used up.
    pub(crate) fn note_quota(&self, core: &Core, reason: String) {
        let context = self.context(core, Event::Quota, None);
        let about = self.connection.hooked.get().and_then(|hooked| hooked.about.clone());
        // The address of an upload is secret.
        let path = about.filter(|path| !core.server.tus.is_upload(path));
        self.tell(core, EventContext { path, reason: Some(reason), ..context });
    }

    /// Failed logins have led to a ban.
    pub(crate) fn note_ban(&self, core: &Core, user: Option<&[u8]>) {
        let context = self.context(core, Event::Ban, None);
        self.tell(core, EventContext { user: user.map(Arc::from), ..context });
    }

    /// A moment of a request that has been answered, or is about to be.
    pub(crate) fn moment_of(
        &self,
        core: &Core,
        event: Event,
        record: &Record,
        bytes: u64,
        failure: Option<&str>,
    ) -> EventContext {
        let ruled = self.connection.hooked.ruled_path().cloned();
        let sent = || target::parse_for_others(&record.target).ok().map(|target| target.path);
        let path = ruled.or_else(sent);
        let is_transfer =
            matches!(event, Event::Upload | Event::UploadFailed | Event::Download | Event::DownloadFailed);
        EventContext {
            path,
            to: record.destination.clone(),
            bytes: is_transfer.then_some(bytes),
            elapsed: is_transfer.then(|| core.now.instant.saturating_duration_since(record.began)),
            waited: match is_transfer {
                true => self.connection.waited(record.direction(), record, core.now.instant),
                false => Waited::default(),
            },
            hash: record.hash.clone(),
            reason: failure.map(str::to_owned),
            ..self.context(core, event, None)
        }
    }

    pub(crate) fn context(&self, core: &Core, event: Event, account: Option<&Account>) -> EventContext {
        let who = self.connection.who.as_deref();
        let account = account.or(who.map(|who| &who.account));
        let (number, peer) = (self.connection.number, self.connection.peer);
        EventContext {
            user: who.and_then(|who| who.user.as_deref()).map(Arc::from),
            storage: account.map(Account::for_hooks),
            ..core.context(event, number, peer, self.connection.local().unwrap_or(peer))
        }
    }
}

impl Notices<'_> {
    /// Tells the log of something that an operator should look at.
    pub(crate) fn warn(&self, core: &mut Core, text: &str) {
        core.log(&self.connection.subject_of(None), log::Event::Warning { text });
    }

    /// Tells the log what an application has said of errors.
    pub(crate) fn log_complaint(&self, core: &mut Core, text: &str) {
        core.log(&self.connection.subject_of(None), log::Event::ProgramSaid { text });
    }
}
