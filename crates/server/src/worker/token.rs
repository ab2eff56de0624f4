//! The names by which the reactor tells of sockets: whose one is, and what it is to whom.
//!
//! The lowest two bits are the kind; the rest is a listener's number, or the key of a connection.

use mio::Token;

use crate::slab::Key;

pub(super) const INBOX: Token = Token(usize::MAX);
pub(super) const KIND: usize = 0b11;
pub(super) const CONTROL: usize = 0;
pub(super) const DATA: usize = 1;
pub(super) const LISTENER: usize = 2;
/// What a program reads from; of FTP, a connection that a proxy has yet to say whose it is.
pub(super) const PROGRAM: usize = 3;

/// What all programs of a worker write errors to.
pub(super) const ERRORS: Token = Token(usize::MAX - 1);

pub(super) fn token(key: Key, kind: usize) -> Token {
    Token((key.generation as usize) << 32 | (key.index as usize) << 2 | kind)
}

pub(super) fn key(token: usize) -> Key {
    Key { index: (token as u32) >> 2, generation: (token >> 32) as u32 }
}

pub(super) fn of_listener(index: usize) -> Token {
    Token(index << 2 | LISTENER)
}

pub(super) fn listener(token: usize) -> usize {
    token >> 2
}
