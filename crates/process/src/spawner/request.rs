//! What a server asks a spawner for.

use std::ffi::CStr;
use std::io;

use super::wire::{Reader, Writer, malformed};
use crate::Start;

const PROGRAM: u64 = 0;
const SUCCESSOR: u64 = 1;

/// A request as the spawner reads it. Its descriptors come beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Start a program: the fields are those of [`Start`].
    Program {
        /// Its file.
        program: &'a CStr,
        /// Where it runs.
        folder: &'a CStr,
        /// Its arguments, each ended by a NUL byte.
        arguments: &'a [u8],
        /// Its variables, each ended by a NUL byte.
        environment: &'a [u8],
    },
    /// Start the server that takes the place of this one, by the command of the policy.
    Successor,
}

impl<'a> Request<'a> {
    pub(super) fn of(start: &Start<'a>) -> Self {
        let Start { program, arguments, environment, folder, .. } = *start;
        Self::Program { program, folder, arguments, environment }
    }

    /// Reads a request. Every byte of the message has to belong to it.
    pub fn read(message: &'a [u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let request = match reader.number()? {
            PROGRAM => Self::Program {
                program: reader.path()?,
                folder: reader.path()?,
                arguments: reader.block()?,
                environment: reader.block()?,
            },
            SUCCESSOR => Self::Successor,
            _ => return Err(malformed()),
        };
        reader.end()?;
        Ok(request)
    }

    /// Writes it as [`Request::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.written().into_bytes()
    }

    pub(super) fn written(&self) -> Writer {
        let mut message = Writer::default();
        match self {
            Self::Program { program, folder, arguments, environment } => {
                message.number(PROGRAM);
                message.block(program.to_bytes_with_nul());
                message.block(folder.to_bytes_with_nul());
                message.block(arguments);
                message.block(environment);
            }
            Self::Successor => message.number(SUCCESSOR),
        }
        message
    }
}
