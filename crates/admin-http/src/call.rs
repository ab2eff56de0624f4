//! What the operations of the API share, and what one of them is called with.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use millrace_admin::{AdminError, Administration, Role, Wake};
use millrace_oidc::Pending;
use millrace_server::{Administrator, Live, Running};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::access::AdminAccess;
use super::configuration::{Configuration, ConfigurationFile};
use super::logins::{Logins, User};
use super::rates::Rates;
use super::reply::Problem;
use super::wrong_tokens::WrongTokens;

/// Calls at a time that wait for workers or a disk; more wait for these.
const WAITING: usize = 4;

/// Logins at a time, which are held back after a wrong password.
const GUESSES: usize = 4;

/// Cookies at a time that the database of the cluster is asked about: of those that this node knows, and of others.
const LOOKUPS: usize = 2;
const UNKNOWN_LOOKUPS: usize = 1;

/// Logins at a time that wait for a provider of OpenID Connect.
const AT_PROVIDER: usize = 2;

/// Streams of events at a time.
const STREAMS: usize = 8;

/// What the program around the server gives to the API.
#[derive(Debug)]
pub struct Setup {
    /// What performs orders.
    pub administration: Arc<Administration>,
    /// Who may log in.
    pub access: AdminAccess,
    /// The configuration file.
    pub configuration: Option<ConfigurationFile>,
}

/// The API of a server.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) administration: Arc<Administration>,
    /// Replaced by a reload.
    access: RwLock<AdminAccess>,
    pub(crate) logins: Logins,
    /// Logins that have begun at a provider. A reload keeps them.
    pub(crate) pending: Arc<Pending>,
    pub(crate) rates: Rates,
    pub(crate) wrong_tokens: WrongTokens,
    pub(crate) configuration: Option<Configuration>,
    waiting: Semaphore,
    pub(crate) guesses: Semaphore,
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) unknown_lookups: Arc<Semaphore>,
    pub(crate) at_provider: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        Ok(Self {
            administration: setup.administration,
            access: RwLock::new(setup.access),
            logins: Logins::default(),
            pending: Arc::new(Pending::new().map_err(io::Error::other)?),
            rates: Rates::default(),
            wrong_tokens: WrongTokens::default(),
            configuration: setup.configuration.map(Configuration::new),
            waiting: Semaphore::new(WAITING),
            guesses: Semaphore::new(GUESSES),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            unknown_lookups: Arc::new(Semaphore::new(UNKNOWN_LOOKUPS)),
            at_provider: Arc::new(Semaphore::new(AT_PROVIDER)),
            streams: Arc::new(Semaphore::new(STREAMS)),
        })
    }

    /// Has others log in from now on.
    pub(crate) fn configure(&self, access: AdminAccess) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = access;
    }

    /// Looks at who may log in.
    pub(crate) fn access<T>(&self, look: impl FnOnce(&AdminAccess) -> T) -> T {
        look(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has a thread do what may wait, a few at a time.
    pub(crate) async fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _permit = self.waiting.acquire().await.map_err(|_| Problem::failed("the server ends"))?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Problem::failed("the operation failed"))
    }
}

/// Who calls.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) by: Means,
}

/// What shows who calls.
#[derive(Debug, Clone)]
pub(crate) enum Means {
    Token(String),
    Cookie(String),
    /// A cookie of a user of a provider.
    Provided(String),
    /// A certificate, whose names these are.
    Certificate(Arc<[String]>),
}

impl Means {
    /// Returns the cookie that was shown, if it was one.
    pub(crate) fn cookie(&self) -> Option<&str> {
        match self {
            Self::Cookie(cookie) | Self::Provided(cookie) => Some(cookie),
            Self::Token(_) | Self::Certificate(_) => None,
        }
    }
}

impl Who {
    /// Returns whether what was shown is still good, for the role that it had.
    pub(crate) fn is_still_let_in(&self, api: &Api) -> bool {
        let role = match &self.by {
            Means::Token(token) => return api.administration.tokens().find(token).is_some(),
            Means::Cookie(cookie) | Means::Provided(cookie) => {
                let role = |user: &User| api.access(|access| access.role_of_user(user));
                api.logins.look(cookie, Instant::now(), role).flatten()
            }
            Means::Certificate(names) => {
                api.access(|access| access.role_of_certificate(names)).map(|(role, _)| role)
            }
        };
        role >= Some(self.role)
    }
}

/// A call of an operation.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    pub(crate) running: Arc<Running>,
    /// `None` where everyone may.
    pub(crate) who: Option<Who>,
    pub(crate) peer: SocketAddr,
    /// It came by TLS.
    pub(crate) is_encrypted: bool,
    pub(crate) fields: HeaderMap,
    pub(crate) arguments: Map<String, Value>,
}

impl Call {
    /// Returns an argument that is a text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }

    /// Returns an argument that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.arguments.get(name).and_then(Value::as_u64)
    }

    /// Returns a field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the name of who calls, as the log has it.
    pub(crate) fn name(&self) -> String {
        match &self.who {
            Some(Who { name, by: Means::Token(_), .. }) => format!("token {name}"),
            Some(Who { name, by: Means::Certificate(_), .. }) => format!("certificate {name}"),
            Some(Who { name, by: Means::Provided(_), .. }) => format!("oidc {name}"),
            Some(Who { name, by: Means::Cookie(_), .. }) => name.clone(),
            None => String::new(),
        }
    }

    /// Does something in the name of who calls, for the log.
    pub(crate) fn as_administrator<T>(&self, act: impl FnOnce(Administrator<'_>) -> T) -> T {
        act(Administrator::Remote { name: &self.name(), from: self.peer.ip().to_canonical() })
    }

    /// Performs an order of `millrace ctl`, in the name of who calls.
    pub(crate) async fn order(&self, name: &str, order: Map<String, Value>) -> Result<Value, Problem> {
        self.tell(name, order, |api, order, running, by| api.administration.perform(order, running, Some(by)))
            .await
    }

    /// Begins to follow what an order with the arguments names, in the name of who calls.
    pub(crate) async fn follow(&self, name: &str, wake: Wake) -> Result<Live, Problem> {
        let order = self.arguments.clone();
        self.tell(name, order, |api, order, running, by| {
            api.administration.follow(order, running, Some(by), wake)
        })
        .await
    }

    async fn tell<T: Send + 'static>(
        &self,
        name: &str,
        mut order: Map<String, Value>,
        perform: impl FnOnce(&Api, Map<String, Value>, &Running, Administrator<'_>) -> Result<T, AdminError>
        + Send
        + 'static,
    ) -> Result<T, Problem> {
        let (api, running) = (Arc::clone(&self.api), Arc::clone(&self.running));
        let (by, from) = (self.name(), self.peer.ip().to_canonical());
        order.insert("do".to_owned(), name.into());
        let perform = move || perform(&api, order, &running, Administrator::Remote { name: &by, from });
        Ok(self.api.wait_for(perform).await??)
    }
}

/// What is refused for now.
pub(crate) fn too_many(what: &str, seconds: u64) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, what).with(RETRY_AFTER, seconds.max(1).to_string())
}
