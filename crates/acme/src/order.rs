//! One order (RFC 8555 section 7.1.3): the account, the names, the CA's questions, and the certificate in the end.

use std::fmt::{self, Display, Write};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeType, Error, HttpClient,
    Identifier, NewAccount, NewOrder, OrderStatus, Problem, RetryPolicy,
};
use millrace_net::tls::Acceptor;

use super::challenges::{Shown, Tokens};
use super::directory::{Directory, Last};
use super::off_thread::elsewhere;
use super::settings::{Acme, Challenge};

/// How long the CA may take to ask at our doors, and then to sign.
const WAIT: Duration = Duration::from_secs(120);

/// How long all of it may take.
const ALL: Duration = Duration::from_secs(600);

/// Characters of what the CA says that the log has.
const LONGEST: usize = 1000;

/// The parameters of an order.
pub(super) struct Order<'a> {
    pub(super) settings: &'a Arc<Acme>,
    pub(super) directory: Directory,
    pub(super) tokens: &'a Tokens,
    pub(super) acceptor: &'a Acceptor,
    /// The certificate whose place it takes, where the CA wants to know that (RFC 9773 section 5).
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
}

/// The result of an order, in PEM.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
}

/// Why nothing did.
#[derive(Debug)]
pub(super) struct Trouble {
    /// For people: what the CA has said, if it has.
    pub(super) why: String,
    /// The CA has understood, and says no.
    pub(super) is_refusal: bool,
    /// When it wants to be asked again; a week at the most.
    pub(super) retry_after: Option<Duration>,
}

impl Trouble {
    /// Trouble that is not the CA's answer.
    pub(super) fn of(why: impl Display) -> Self {
        Self { why: why.to_string(), is_refusal: false, retry_after: None }
    }
}

impl Display for Trouble {
    /// Escapes text from other servers for a line of the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |character: char| if character.is_control() { ' ' } else { character };
        self.why.chars().take(LONGEST).try_for_each(|character| f.write_char(plain(character)))
    }
}

/// Why an order is not fulfilled, before the whole is judged.
enum Failure {
    Said(String),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Order<'_> {
    /// From the beginning to the end.
    pub(super) async fn fulfil(self) -> Result<Issued, Trouble> {
        match tokio::time::timeout(ALL, self.begin()).await {
            Ok(Ok(issued)) => Ok(issued),
            Ok(Err(failure)) => Err(self.trouble(&failure).await),
            Err(_) => Err(Trouble::of("it takes too long")),
        }
    }

    async fn begin(&self) -> Result<Issued, Failure> {
        let account = self.account().await?;
        let mut order = self.order(&account).await?;
        let shown = self.answer(&mut order).await?;
        let retries = RetryPolicy::new().timeout(WAIT);
        match order.poll_ready(&retries).await {
            Ok(OrderStatus::Invalid) => return Err(refusal(&mut order, None).await),
            Err(Error::Api(problem)) => return Err(refusal(&mut order, Some(problem)).await),
            ready => ready?,
        };
        drop(shown);
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&retries).await?;
        Ok(Issued { chain, key })
    }

    async fn order(&self, account: &Account) -> Result<instant_acme::Order, Error> {
        let names: Vec<Identifier> = self.settings.domains.iter().cloned().map(Identifier::Dns).collect();
        if let Some(replaced) = self.replaces.clone() {
            match account.new_order(&NewOrder::new(&names).replaces(replaced)).await {
                // Another order has replaced it, or it is forgotten: then this is one like others.
                Err(Error::Api(problem)) if !is_about(&problem, "rateLimited") => {}
                done => return done,
            }
        }
        account.new_order(&NewOrder::new(&names)).await
    }

    /// The account that is kept, or a new one.
    async fn account(&self) -> Result<Account, Error> {
        let http: Box<dyn HttpClient> = Box::new(self.directory.clone());
        let builder = Account::builder_with_http(http);
        let settings = Arc::clone(self.settings);
        let kept = elsewhere(move || settings.account()).await;
        if let Some(kept) = kept.map_err(|error| unkept(self.settings, &error))? {
            return builder.from_credentials(kept).await;
        }
        let contacts: Vec<String> =
            self.settings.contacts.iter().map(|address| format!("mailto:{address}")).collect();
        let contacts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        let new =
            NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
        let (account, kept) = builder.create(&new, self.settings.directory.clone(), None).await?;
        let settings = Arc::clone(self.settings);
        let is_kept = elsewhere(move || settings.keep_account(&kept)).await;
        is_kept.map_err(|error| unkept(self.settings, &error))?;
        Ok(account)
    }

    /// Prepares the challenges of an order, and tells the CA that they are ready.
    async fn answer(&self, order: &mut instant_acme::Order) -> Result<Vec<Shown<'_>>, Failure> {
        let kind = match self.settings.challenge {
            Challenge::Http => ChallengeType::Http01,
            Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
        };
        let mut shown = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            // The CA caches a validation for a while.
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let Some(mut challenge) = authorization.challenge(kind.clone()) else {
                let kind = self.settings.challenge;
                return Err(Failure::Said(format!("it does not offer {kind} for {name}")));
            };
            shown.push(self.show(&name, &challenge)?);
            challenge.set_ready().await?;
        }
        Ok(shown)
    }

    fn show(&self, name: &str, challenge: &ChallengeHandle<'_>) -> Result<Shown<'_>, Failure> {
        let answer = challenge.key_authorization();
        match self.settings.challenge {
            Challenge::Http => Ok(Shown::token(self.tokens, &challenge.token, answer.as_str())),
            Challenge::TlsAlpn => {
                let shown = Shown::certificate(self.acceptor, name, answer.digest().as_ref());
                shown.map_err(|error| Failure::Said(error.to_string()))
            }
        }
    }

    async fn trouble(&self, failure: &Failure) -> Trouble {
        let Last { status, retry_after } = self.directory.last();
        match failure {
            Failure::Said(why) => Trouble { why: why.clone(), is_refusal: true, retry_after },
            Failure::Other(Error::Api(problem)) => {
                if is_about(problem, "accountDoesNotExist") {
                    let settings = Arc::clone(self.settings);
                    elsewhere(move || settings.forget_account()).await;
                }
                Trouble { why: told(problem), is_refusal: true, retry_after }
            }
            Failure::Other(Error::Json(error)) => {
                let status = status.unwrap_or_default();
                let why = format!("what it answers, with status {status}, is not understood: {error}");
                Trouble { why, is_refusal: false, retry_after }
            }
            Failure::Other(error) => Trouble { why: error.to_string(), is_refusal: false, retry_after },
        }
    }
}

/// The account's file can be neither read nor written.
fn unkept(settings: &Acme, error: &io::Error) -> Error {
    Error::Other(format!("{}: {error}", settings.account_path().display()).into())
}

/// The CA's error for the first name that it rejects; else its error about the order.
async fn refusal(order: &mut instant_acme::Order, problem: Option<Problem>) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let name = authorization.identifier().to_string();
        if let Some(problem) = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref())
        {
            return Failure::Said(format!("{name}: {}", told(problem)));
        }
    }
    match problem {
        Some(problem) => Failure::Other(Error::Api(problem)),
        None => Failure::Said("it says that the order is invalid, and not why".to_owned()),
    }
}

fn is_about(problem: &Problem, kind: &str) -> bool {
    problem.r#type.as_deref().and_then(|kind| kind.rsplit(':').next()) == Some(kind)
}

/// A problem in one line: `detail (kind)`, followed by those of single names.
fn told(problem: &Problem) -> String {
    let line = |detail: Option<&str>, kind: Option<&str>| {
        let kind = kind.and_then(|kind| kind.rsplit(':').next()).unwrap_or("no type");
        format!("{} ({kind})", detail.unwrap_or("it says no more"))
    };
    let mut text = line(problem.detail.as_deref(), problem.r#type.as_deref());
    for part in &problem.subproblems {
        text += &format!("; {}", line(part.detail.as_deref(), part.r#type.as_deref()));
    }
    text
}
