//! How an upload that is whole becomes a file: what commits it, and what is done once hooks have decided.

use millrace_runtime::hook_line::Naming;
use millrace_vfs::{Upload, VirtualPath};

use crate::refused::Refused;
use crate::tus_state::OF_REFUSALS;

/// How an upload becomes a file; its tag, where that could be had.
pub(crate) type Committing = dyn FnOnce(Box<dyn Upload>) -> Result<Option<String>, Refused> + Send;

/// What came of it.
pub(crate) type UploadNaming = Naming<Result<Option<String>, Refused>>;

/// What is done after the hooks' verdict, which may refuse or rename the upload.
pub(crate) type Settling = dyn FnOnce(Settled) + Send;

/// What hooks have made of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Refused,
    /// They have moved it away before it had a name.
    Taken,
    /// It has its name, or could not take it.
    Tried,
}

/// A file that has come whole, and has no name yet.
pub(crate) struct Unnamed {
    pub(crate) upload: Box<dyn Upload>,
    /// What it is to be called, where that is not the request's path.
    pub(crate) path: Option<VirtualPath>,
    pub(crate) bytes: u64,
    pub(crate) commit: Box<Committing>,
    pub(crate) settle: Option<Box<Settling>>,
    /// Those of the answer.
    pub(crate) fields: AnswerFields,
}

/// AnswerFields of an answer.
pub(crate) type AnswerFields = Vec<(&'static str, String)>;

/// AnswerFields as heads are written with.
pub(crate) fn lent<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// Those fields of an answer that belong to a refusal, too.
pub(crate) fn of_refusals(fields: &AnswerFields) -> Vec<(&str, &str)> {
    let said = |name: &str| OF_REFUSALS.iter().any(|(of, _)| *of == name);
    lent(fields).into_iter().filter(|(name, _)| said(name)).collect()
}
