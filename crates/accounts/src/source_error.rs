//! Errors of sources of accounts: of their settings, and of their answers.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_net::tls::RootsError;
use millrace_process::How;
use millrace_s3::SettingsError;

use crate::database_error::DatabaseError;
use crate::password::PasswordError;

/// Why a source cannot be made from its settings; a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A URL has another scheme, or no host.
    #[error("{url:?} is no URL of {schemes}")]
    Url {
        /// The value.
        url: String,
        /// The accepted schemes.
        schemes: &'static str,
    },
    /// StartTLS is set for a connection that cannot use it.
    #[error("StartTLS is for ldap://, not for {0}://")]
    StartTls(String),
    /// A search filter of LDAP is malformed.
    #[error("{key}: {value:?} is no filter, which is written as \"(objectClass=person)\"")]
    Filter {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// The connection string of a database is malformed.
    #[error("write {form}: {source}")]
    Connection {
        /// The accepted forms.
        form: &'static str,
        /// The parser's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The connection string lacks a part.
    #[error("it names no {0}")]
    Unnamed(&'static str),
    /// The query lacks the parameter that the user's name is put into.
    #[error("the query has no {0}, where the name goes")]
    NoParameter(&'static str),
    /// The trusted certificates cannot be read.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The settings of a store of objects.
    #[error(transparent)]
    Store(#[from] SettingsError),
    /// The system starts no thread.
    #[error("there can be no thread for it: {0}")]
    Thread(#[from] io::Error),
    /// This program was built without the back end.
    #[error(
        "this program was built without {what}; build it with the feature {feature}: \
         cargo build --release --features {feature}"
    )]
    NotBuilt {
        /// The back end.
        what: &'static str,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
}

/// Why a source cannot answer; follows "NAME cannot be asked:" in the log.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// All requests that may run at a time are running.
    #[error("too many logins wait for it")]
    Busy,
    /// There was no answer in time.
    #[error("it has not answered within {0:?}")]
    TimedOut(Duration),
    /// The task that asks has panicked.
    #[error("its answer cannot be read")]
    Panicked,
    /// The system starts no thread.
    #[error("there can be no thread for it: {0}")]
    Thread(#[source] io::Error),
    /// The last attempt to connect has failed, and the next one has not been made.
    #[error(transparent)]
    Away(Arc<Self>),
    /// A program gave no answer.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The request to a web service failed.
    #[error(transparent)]
    Call(Box<ureq::Error>),
    /// The answer of a program or web service is malformed.
    #[error("its answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    /// The stored hash of a user cannot be used.
    #[error("the password of {user}: {source}")]
    Password {
        /// The user.
        user: String,
        /// What is wrong with the hash.
        source: PasswordError,
    },
    /// The database of users in SQLite.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A directory, another database, PAM, or a source of the embedding program.
    #[error(transparent)]
    Backend(Box<dyn Error + Send + Sync>),
}

impl SourceError {
    /// Wraps the error of a back end.
    pub fn backend(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Backend(error.into())
    }
}

/// Why a program that knows accounts gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started.
    #[error("{program} cannot be run: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It was ended for its time.
    #[error("{program} was ended after {time:?} without an answer")]
    TimedOut {
        /// Its name.
        program: String,
        /// The time that it had.
        time: Duration,
    },
    /// It was ended for its output.
    #[error("{program} was ended because it answered more than {most} bytes")]
    TooLong {
        /// Its name.
        program: String,
        /// The most bytes that an answer may have.
        most: usize,
    },
    /// It failed, or a signal ended it.
    #[error("{program} {how}: {complaints:?}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        how: How,
        /// Its standard error.
        complaints: String,
    },
}

/// A source that cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("{name} cannot be asked: {source}")]
pub struct SourceUnavailable {
    /// The name of the source.
    pub name: String,
    /// The reason.
    pub source: SourceError,
}
