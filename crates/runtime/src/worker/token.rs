//! The tokens by which the reactor names sockets: whose one is, and what it is to its connection.
//!
//! The lowest two bits are the kind; the rest is a listener's number, or the key of a connection.

use mio::Token;

use crate::slab::Key;

pub(super) const INBOX: Token = Token(usize::MAX);

/// The pipe that all programs of a worker write errors to.
pub(super) const ERRORS: Token = Token(usize::MAX - 1);

const KIND: usize = 0b11;
const LISTENER: usize = 3;

/// What a descriptor is to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Role {
    /// The socket that the client connected to.
    Client = 0,
    /// Another one that is read or written: a data connection, a program's output.
    Side = 1,
    /// One whose events only have the connection go on: a program's input, a socket that a PROXY header is read from.
    Wake = 2,
}

/// What an event is of.
pub(super) enum Source {
    Listener(usize),
    Connection(Key, Role),
}

pub(super) fn token(key: Key, role: Role) -> Token {
    Token((key.generation as usize) << 32 | (key.index as usize) << 2 | role as usize)
}

pub(super) fn source(Token(token): Token) -> Source {
    let key = Key { index: (token as u32) >> 2, generation: (token >> 32) as u32 };
    match token & KIND {
        0 => Source::Connection(key, Role::Client),
        1 => Source::Connection(key, Role::Side),
        2 => Source::Connection(key, Role::Wake),
        _ => Source::Listener(token >> 2),
    }
}

pub(super) fn of_listener(index: usize) -> Token {
    Token(index << 2 | LISTENER)
}
