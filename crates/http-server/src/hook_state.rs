//! What a connection has of hooks: what they have decided, and what goes on with their answer.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_blocking::Line;
use millrace_hooks::{Event, EventContext, HookVerdict};
use millrace_http::Head;
use millrace_process::Recall;
use millrace_vfs::VirtualPath;

use crate::dav_work::members::DavAnswer;
use crate::record::Record;
use crate::upload_outcome::{AnswerFields, UploadNaming};

/// This many events of a connection wait to be heard before its next request has to wait as well.
pub(crate) const MOST_UNHEARD: usize = 16;

/// A connection's part in the hooks; there is none where there are none.
#[derive(Debug, Default)]
pub(crate) struct Hooked {
    /// The user that they have accepted: as in the request.
    pub(crate) let_in: Option<Option<Vec<u8>>>,
    /// They have ruled on the request that is answered: it is about this path, where they said another.
    pub(crate) ruled: Option<Option<VirtualPath>>,
    /// What the request is about.
    pub(crate) about: Option<VirtualPath>,
    /// The command that they heard of, for those who hear how it was answered.
    pub(crate) command: Option<Box<EventContext>>,
    pub(crate) line: Arc<Line>,
    /// By which they hear that their word is not wanted any more.
    pub(crate) recall: Recall,
    /// Events that were told and are not heard yet.
    pub(crate) unheard: Arc<AtomicUsize>,
}

/// A connection's part in the hooks, which is made when they first hear of it.
#[derive(Debug, Default)]
pub(crate) struct HookState(OnceCell<Box<Hooked>>);

impl HookState {
    /// The state, where hooks have heard of the connection.
    pub(crate) fn get(&self) -> Option<&Hooked> {
        self.0.get().map(|hooked| &**hooked)
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut Hooked> {
        self.0.get_mut().map(|hooked| &mut **hooked)
    }

    /// The state, from the first thing on that hooks hear: all go through one line.
    pub(crate) fn state(&self) -> &Hooked {
        self.0.get_or_init(Box::default)
    }

    pub(crate) fn state_mut(&mut self) -> &mut Hooked {
        self.state();
        self.0.get_mut().expect("it was made just now")
    }

    /// Returns whether hooks have too much to hear of this connection for now.
    pub(crate) fn waits_to_be_heard(&self) -> bool {
        self.0.get().is_some_and(|hooked| hooked.unheard.load(Ordering::Relaxed) >= MOST_UNHEARD)
    }

    /// A new request: without a verdict.
    pub(crate) fn forget_ruling(&mut self) {
        if let Some(hooked) = self.0.get_mut() {
            (hooked.ruled, hooked.about, hooked.command) = (None, None, None);
        }
    }

    pub(crate) fn set_ruling(&mut self, user: Option<Vec<u8>>, path: Option<VirtualPath>) {
        let hooked = self.state_mut();
        if path.is_some() {
            hooked.about.clone_from(&path);
        }
        (hooked.let_in, hooked.ruled) = (Some(user), Some(path));
    }

    /// The client of a request that hooks are asked about is gone, so that it is not carried out: they hear of that,
    /// too, and whatever they are at is ended.
    pub(crate) fn give_up(&mut self) {
        if let Some(hooked) = self.0.get_mut() {
            hooked.recall.give();
            hooked.ruled.get_or_insert(None);
        }
    }

    /// Returns whether hooks have ruled on the request, or had no wish to.
    pub(crate) fn is_ruled(&self) -> bool {
        self.0.get().is_some_and(|hooked| hooked.ruled.is_some())
    }

    /// The path that hooks would have a request be about.
    pub(crate) fn ruled_path(&self) -> Option<&VirtualPath> {
        self.0.get()?.ruled.as_ref()?.as_ref()
    }
}

/// What goes on with the answer.
#[derive(Debug)]
pub(crate) enum Then {
    /// The connection; with TLS, where it came to this address for that.
    Begin(Option<SocketAddr>),
    /// The request of this head.
    Request(Arc<Head>),
    /// An answer without a body, with fields.
    Answer(Box<Record>, AnswerFields),
    /// That of WebDAV, to the request of this head.
    Dav(Arc<Head>, Box<DavAnswer>),
    /// That to an upload which has taken its name by then, or could not.
    Named(Box<Record>, UploadNaming, AnswerFields),
}

/// What hooks say, and of which event.
#[derive(Debug)]
pub struct Ruled {
    pub(crate) event: Event,
    /// What a refusal is about.
    pub(crate) about: Option<VirtualPath>,
    pub(crate) verdict: HookVerdict,
}
