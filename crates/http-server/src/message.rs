//! What other threads tell a connection.

use millrace_accounts::Decision;
use millrace_runtime::transfer::Sender;
use millrace_vfs::FileError;

use crate::hook_state::Ruled;
use crate::lookup::Found;
use crate::receiving::Written;

/// What other threads tell a connection; each with the number of the question that it answers.
#[derive(Debug)]
pub enum Message {
    /// A login of this user was decided, by this edition of the accounts.
    Login(u64, Vec<u8>, Decision, u64),
    /// What a path stands for.
    Found(u64, Result<Found, FileError>),
    /// More of the body that is sent is ready.
    Filled(u64, Option<Sender>, Result<(), FileError>),
    /// A part of a body that a client sent was written, or not.
    Written(u64, Written),
    /// Hooks have answered.
    Ruled(u64, Ruled),
    /// Hooks have heard what they were told.
    Heard,
    /// The account of this user was looked at again.
    Reviewed(Vec<u8>, Decision),
}
