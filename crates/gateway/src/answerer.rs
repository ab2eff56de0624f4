//! Who answers a request in the server's place: a program, or what a conversation is with.

use std::io;
use std::sync::Arc;

use crate::conversation::Conversation;
use crate::program::Program;
use crate::upstream::ProxyRoute;

/// Takes the body of a request, and says an answer as a program of CGI does.
#[derive(Debug)]
pub enum Answerer {
    /// A CGI program.
    Program(Program),
    /// An application, or another server.
    Conversation(Box<Conversation>),
}

impl Answerer {
    /// Which one it is, for the log.
    pub fn name(&self, proxy_routes: &[Arc<ProxyRoute>]) -> String {
        match self {
            Self::Program(program) => program.name(),
            Self::Conversation(conversation) => proxy_routes[conversation.route].to_string(),
        }
    }

    /// Returns whether it takes more of the request's body.
    pub fn takes_input(&self) -> bool {
        match self {
            Self::Program(program) => program.input.is_some(),
            Self::Conversation(conversation) => conversation.takes_input(),
        }
    }

    /// Gives it what it takes of the body.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Program(program) => program.write(bytes),
            Self::Conversation(conversation) => conversation.write(bytes),
        }
    }

    /// The body has ended, or the rest is not needed.
    pub fn end_input(&mut self) {
        match self {
            Self::Program(program) => program.input = None,
            Self::Conversation(conversation) => conversation.end_input(),
        }
    }

    /// Reads what it says; 0 is the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Program(program) => program.read(buffer),
            Self::Conversation(conversation) => conversation.read(buffer),
        }
    }
}
