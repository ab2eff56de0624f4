//! What performs the orders of administrators, whether they come by the control socket or by HTTP.

mod everywhere;
mod request;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use serde_json::{Map, Value};

use millrace_server::cluster::TokenStore;
use millrace_server::{Administrator, Live, Running, cluster_of, share_tokens};

use super::error::{AdminError, ReloadFailure};
use super::tokens::Tokens;
use request::Request;

/// Reads the configuration again and applies it.
pub type Reload = Box<dyn Fn() -> Result<Reloaded, ReloadFailure> + Send + Sync>;

/// Looks at the text of a configuration file as a reload would, and applies nothing.
pub type Validate = Box<dyn Fn(&str) -> Result<(), ReloadFailure> + Send + Sync>;

/// The keys whose values a reload found changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Those that it applied.
    pub changed: Vec<&'static str>,
    /// Those that take effect at the next start only.
    pub next_start: Vec<&'static str>,
}

/// Makes the command that starts the successor: the program as it is now installed, with this process's arguments.
pub type Successor = Box<dyn Fn() -> Command + Send + Sync>;

/// Says that there are lines to be taken. It is called on any thread, and must not wait.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// Sends a trial to each receiver of notices. Returns what each is called, and why it did not take it.
pub type TestNotices = Box<dyn Fn() -> Vec<(String, Option<String>)> + Send + Sync>;

/// The actions that the program around the server performs.
pub struct Orders {
    /// Reads the configuration anew.
    pub reload: Reload,
    /// Looks at another text of it.
    pub validate: Validate,
    /// Sends a trial to each receiver of notices.
    pub test_notices: TestNotices,
    /// Starts another server.
    pub successor: Successor,
    /// That one, the process of this number, has taken over.
    pub relieved: Box<dyn Fn(u32) + Send + Sync>,
}

/// Performs orders on a server, which it does not keep alive.
pub struct Administration {
    running: Weak<Running>,
    begun: Instant,
    orders: Orders,
    /// Another server is being started.
    is_upgrading: AtomicBool,
    /// The name of the control socket is another server's.
    is_given: AtomicBool,
    tokens: Arc<Tokens>,
}

impl std::fmt::Debug for Administration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Administration").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Administration {
    /// Performs orders on this server.
    pub fn new(running: &Arc<Running>, orders: Orders, tokens: Tokens) -> Arc<Self> {
        everywhere::listen(running);
        let tokens = Arc::new(tokens);
        if cluster_of(running).is_some() {
            share_tokens(running, Arc::clone(&tokens) as Arc<dyn TokenStore>);
        }
        Arc::new(Self {
            running: Arc::downgrade(running),
            begun: Instant::now(),
            orders,
            is_upgrading: AtomicBool::new(false),
            is_given: AtomicBool::new(false),
            tokens,
        })
    }

    /// Returns the server, unless it has ended.
    pub fn running(&self) -> Option<Arc<Running>> {
        self.running.upgrade()
    }

    /// Returns the tokens of the admin API.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Looks at the text of a configuration file.
    pub fn validate(&self, text: &str) -> Result<(), ReloadFailure> {
        (self.orders.validate)(text)
    }

    /// Performs an order, and notes in the log what was changed, and by whom. May wait.
    pub fn perform(
        &self,
        order: Map<String, Value>,
        running: &Running,
        by: Option<Administrator<'_>>,
    ) -> Result<Value, AdminError> {
        let text = request::said(&order);
        let request: Request = serde_json::from_value(order.into())?;
        let (changes, ends) = (request.changes(), request.ends());
        if ends {
            running.note_administered(&text, None, by);
        }
        let result = request.perform(running, self);
        if changes && !ends {
            let failed = result.as_ref().err().map(ToString::to_string);
            running.note_administered(&text, failed.as_deref(), by);
        }
        result.map(|answer| match answer {
            Value::Object(mut answer) => {
                answer.insert("ok".to_owned(), true.into());
                answer.into()
            }
            _ => serde_json::json!({ "ok": true }),
        })
    }

    /// Begins to follow what an order names, and notes in the log who traces sessions. May wait.
    pub fn follow(
        &self,
        order: Map<String, Value>,
        running: &Running,
        by: Option<Administrator<'_>>,
        wake: Wake,
    ) -> Result<Live, AdminError> {
        let text = request::said(&order);
        let request: Request = serde_json::from_value(order.into())?;
        let is_told = request.changes();
        let followed = request.follow(running, wake);
        if is_told {
            let failed = followed.as_ref().err().map(ToString::to_string);
            running.note_administered(&text, failed.as_deref(), by);
        }
        followed
    }

    /// Gives the name of the control socket away.
    fn give(&self) {
        self.is_given.store(true, Ordering::Release);
    }

    /// Returns whether the name of the control socket is another server's.
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Acquire)
    }
}
