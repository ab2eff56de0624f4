//! What other threads tell a connection.

use millrace_accounts::Decision;
use millrace_ftp::session::Answer;
use millrace_hooks::HookVerdict;
use millrace_runtime::passive::Lease;
use millrace_runtime::transfer::JobDone;

use super::reviews::Reviewed;

/// What a connection is told; numbers are those of the questions that it has asked.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a message is moved twice; a box would be allocated for each job"
)]
pub enum Message {
    /// The answer to a session's question.
    Answer(u64, Answer),
    /// A login was decided.
    Login(u64, Decision),
    /// The account of the user who is logged in was looked at again.
    Reviewed(Box<Reviewed>),
    /// A transfer's job is done.
    Job(JobDone),
    /// The passive port that the session waited for.
    Port(Lease),
    /// A hook has answered.
    Ruled(u64, HookVerdict),
    /// The session's data connection was accepted by another session.
    Wake,
}
