//! What connections of HTTP share on a server.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use millrace_gateway::forward::Kept;
use millrace_gateway::runtime::Side;
use millrace_runtime::services::Services;

use crate::config::{HttpConfig, Resumable};
use crate::dav_state::Dav;
use crate::tus_state::shared::Tus;
use crate::web::{CompiledWebConfig, LinkKeys, Web};

/// What all connections of HTTP share.
pub struct Http {
    /// Settings of connections.
    pub config: HttpConfig,
    /// What all protocols use.
    pub(crate) services: Arc<Services>,
    /// Whether anonymous logins are permitted; a reload may change it.
    is_open: AtomicBool,
    /// What is added to files; a reload may change it. Workers have it of their own.
    web: RwLock<Arc<CompiledWebConfig>>,
    /// The keys of links that expire.
    pub(crate) links: LinkKeys,
    /// The port of the first listener of HTTPS.
    pub(crate) https_port: Option<u16>,
    challenges: ChallengeAnswer,
    /// Locks and properties of WebDAV.
    pub dav: Dav,
    /// Uploads that go on where they were cut.
    pub(crate) tus: Tus,
    /// Connections to servers that requests are forwarded to, one for each proxy route.
    pub(crate) forwards: Vec<Arc<Kept>>,
    /// What has a runtime of its own beside the workers.
    pub(crate) side: Arc<Side>,
}

/// The path of a CA's HTTP challenges, in clear (RFC 8555 section 8.3).
pub(crate) const CHALLENGE_PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Answers a CA's request for a token (ACME), by the target of the request; `None` for a token that is not expected.
pub type ChallengeAnswer = Box<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// What [`Http::new`] puts together.
pub struct HttpParts {
    /// Settings of connections.
    pub config: HttpConfig,
    /// What all protocols use.
    pub services: Arc<Services>,
    /// Whether anonymous logins are permitted.
    pub anonymous: bool,
    /// What is added to files.
    pub web: Web,
    /// The port of the first listener of HTTPS.
    pub https_port: Option<u16>,
    /// Answers a CA's challenges.
    pub challenges: ChallengeAnswer,
    /// Locks and properties of WebDAV.
    pub dav: Dav,
    /// Resumable uploads.
    pub resumable: Resumable,
    /// The runtime on which other servers are asked.
    pub side: Arc<Side>,
}

impl Deref for Http {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Http {
    /// Puts the parts together.
    pub fn new(parts: HttpParts) -> Self {
        let HttpParts { config, services, anonymous, web, https_port, challenges, dav, resumable, side } =
            parts;
        let tus = Tus::new(resumable, services.cluster.clone());
        let withheld = config.programs.withheld(config.proxy_routes.iter().map(|route| &**route));
        Self {
            services,
            is_open: AtomicBool::new(anonymous),
            links: web.links.clone(),
            web: RwLock::new(CompiledWebConfig::new(web, withheld)),
            https_port,
            challenges,
            dav,
            tus,
            forwards: config.proxy_routes.iter().map(|_| Arc::default()).collect(),
            side,
            config,
        }
    }

    /// What is added to files now.
    pub fn web(&self) -> Arc<CompiledWebConfig> {
        Arc::clone(&self.web.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces what is added to files. The workers still have to be told, by [`Core::replace_web`](crate::Core).
    pub fn replace_web(&self, web: Web) -> Arc<CompiledWebConfig> {
        let mut now = self.web.write().unwrap_or_else(PoisonError::into_inner);
        // Links that are taken back are so at once.
        self.links.replace(&web.links);
        now.links.replace(&web.links);
        *now = now.next(web);
        Arc::clone(&now)
    }

    /// Returns the keys of links.
    pub fn link_keys(&self) -> &LinkKeys {
        &self.links
    }

    /// Permits anonymous logins from now on, or no longer.
    pub fn permit_anonymous(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
    }

    /// Returns whether anonymous logins are permitted.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Returns the answer to a CA that asks for a token at this target.
    pub(crate) fn challenge_answer(&self, target: &[u8]) -> Option<String> {
        target.starts_with(CHALLENGE_PATH).then(|| (self.challenges)(target)).flatten()
    }
}
