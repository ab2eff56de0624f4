//! What other threads tell a worker.

use std::fmt;
use std::sync::Arc;

use super::{Doors, Worker};
use crate::slab::Key;

/// What a worker does when it is told to.
type Work<D> = dyn FnOnce(&mut Worker<D>) + Send;

/// What is done with each connection.
type EachWork<D> = dyn Fn(&mut <D as Doors>::Client, &mut D) + Send + Sync;

/// Something for a worker.
pub enum Message<D: Doors> {
    /// Something for the connection with this key.
    Client(Key, D::Message),
    /// Do this with every connection that is worth a report.
    Each(Errand<D>),
    /// Do this with the worker itself.
    Worker(Box<Work<D>>),
    /// End at once.
    Stop,
}

impl<D: Doors> fmt::Debug for Message<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(key, message) => f.debug_tuple("Client").field(key).field(message).finish(),
            Self::Each(_) => f.write_str("Each"),
            Self::Worker(_) => f.write_str("Worker"),
            Self::Stop => f.write_str("Stop"),
        }
    }
}

/// Something to be done with connections. All results are there when the last copy is dropped.
pub struct Errand<D: Doors>(pub(super) Arc<EachWork<D>>);

impl<D: Doors> Errand<D> {
    /// Does this with each connection.
    pub fn new(work: impl Fn(&mut D::Client, &mut D) + Send + Sync + 'static) -> Self {
        Self(Arc::new(work))
    }
}

impl<D: Doors> Clone for Errand<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The way from any thread to the connections of one worker that speak one protocol.
pub struct Post<M>(Arc<dyn Fn(Key, M) + Send + Sync>);

impl<M> Post<M> {
    /// Sends by `send`.
    pub fn new(send: impl Fn(Key, M) + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    /// Sends a message to a connection. It is dropped where the connection is gone.
    pub fn send(&self, to: Key, message: M) {
        (self.0)(to, message);
    }
}

impl<M> Clone for Post<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Post<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Post")
    }
}

/// Sends its message when it is dropped: also when the job that was to keep it panics.
#[derive(Debug)]
pub struct Promise<M> {
    post: Post<M>,
    to: Key,
    message: Option<M>,
}

impl<M> Promise<M> {
    /// Promises a message to a connection: `otherwise`, unless another is [kept](Self::keep).
    pub fn new(post: Post<M>, to: Key, otherwise: M) -> Self {
        Self { post, to, message: Some(otherwise) }
    }

    /// Sends this message.
    pub fn keep(mut self, message: M) {
        self.message = Some(message);
    }
}

impl<M> Drop for Promise<M> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.post.send(self.to, message);
        }
    }
}
