//! A provider, as this server uses it.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_http::base64;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::claims::{Claims, Expected, accept};
use super::endpoint::{Client, check, with_query};
use super::error::{LoginError, MetadataError, SetupError};
use super::keys::Keys;
use super::pending::{Begun, Login, Pending};
use super::sealed::Seals;

/// How long the metadata of a provider is used without a look, in seconds.
const METADATA_AGE: u64 = 600;

/// The longest sentence of a provider that is repeated, in characters.
const LONGEST_REASON: usize = 200;

/// A provider, and how this server is known there.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The provider: `https://id.example.net/realms/staff`.
    pub issuer: String,
    /// What this server is called there.
    pub client: String,
    /// What shows that it is this server. A public client has none.
    pub secret: Option<String>,
    /// The claim that has the groups of a user.
    pub groups: String,
    /// What is asked for, beside `openid`.
    pub scopes: Vec<String>,
    /// Certificates in PEM that the provider's has to be signed by, instead of those that browsers trust.
    pub roots: Option<Vec<u8>>,
}

/// A user, as a provider names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The provider.
    pub issuer: String,
    /// The user's name there, which does not change.
    pub subject: String,
    /// The user's mail address, if the provider has verified it.
    pub email: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Identity {
    /// Returns what the user is called in logs: the mail address, or else the name at the provider.
    pub fn name(&self) -> &str {
        self.email.as_deref().unwrap_or(&self.subject)
    }
}

/// What a browser brings back from a provider (RFC 6749, section 4.1.2, and RFC 9207).
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// Which login it is of.
    pub state: String,
    /// What is exchanged for a token.
    pub code: Option<String>,
    /// Who says so.
    pub issuer: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
}

/// The metadata of a provider.
#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
#[serde(untagged)]
enum Exchanged {
    Tokens { id_token: String, access_token: Option<String> },
    Refused { error: String, error_description: Option<String> },
}

/// A provider of OpenID Connect.
#[derive(Debug)]
pub struct Provider {
    settings: Settings,
    http: Client,
    /// The metadata, and when it was read. Locked for a copy.
    metadata: Mutex<Option<(u64, Arc<Metadata>)>>,
}

impl Provider {
    /// Makes a client of a provider, which is asked nothing yet.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        check(&settings.issuer)?;
        let http = Client::new(settings.roots.as_deref())?;
        Ok(Self { settings, http, metadata: Mutex::default() })
    }

    /// Returns the issuer.
    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Begins a login, which `pending` seals, or `seals`, so that any server that has them may finish it. At its end the provider
    /// sends the browser to `redirect`. `now` is in seconds since 1970. It waits for the provider.
    pub fn begin(
        &self,
        (pending, seals): (&Pending, &Seals),
        redirect: &str,
        now: u64,
    ) -> Result<Begun, LoginError> {
        let metadata = self.metadata(now)?;
        let login = Login::new(redirect, now)?;
        let challenge = base64::encode_url(digest(&SHA256, login.verifier.as_bytes()).as_ref());
        let scopes: Vec<&str> =
            ["openid"].into_iter().chain(self.settings.scopes.iter().map(String::as_str)).collect();
        let url = with_query(
            &metadata.authorization_endpoint,
            &[
                ("response_type", "code"),
                ("client_id", &self.settings.client),
                ("redirect_uri", redirect),
                ("scope", &scopes.join(" ")),
                ("state", &login.state),
                ("nonce", &login.nonce),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
            ],
        );
        let cookie = match seals.seal(&self.name(), &login)? {
            Some(cookie) => cookie,
            None => pending.seal(&login, &self.name())?,
        };
        Ok(Begun { url, cookie })
    }

    /// Finishes a login with what the browser of this cookie has brought back. Returns the user, and where the browser was sent.
    /// It waits for the provider.
    pub fn finish(
        &self,
        (pending, seals): (&Pending, &Seals),
        response: &Response,
        cookie: &str,
        now: u64,
    ) -> Result<(Identity, String), LoginError> {
        let login = match seals.open(cookie, &self.name(), &response.state, now) {
            Some(login) => login,
            None => pending.open(cookie, &response.state, &self.name(), now)?,
        };
        let metadata = self.metadata(now)?;
        match &response.issuer {
            Some(issuer) if *issuer != self.settings.issuer => return Err(LoginError::OtherIssuer),
            None if metadata.authorization_response_iss_parameter_supported => {
                return Err(LoginError::OtherIssuer);
            }
            _ => {}
        }
        if let Some(error) = &response.error {
            return Err(LoginError::Refused(shortened(error)));
        }
        let code = response.code.as_deref().ok_or(LoginError::Unknown)?;
        let (token, access) = self.exchange(&metadata, &login, code)?;
        let keys: Keys = self.http.get(&metadata.jwks_uri, None)?;
        let Settings { issuer, client, .. } = &self.settings;
        let claims = accept(&token, &keys, Expected { issuer, client, nonce: &login.nonce, now })?;
        Ok((self.identity(claims, &metadata, access.as_deref())?, login.redirect))
    }

    /// Returns what a login is sealed for: one of another provider, or of another client, is not finished here.
    fn name(&self) -> String {
        format!("{} {}", self.settings.issuer, self.settings.client)
    }

    /// Exchanges a code for an ID token and an access token.
    fn exchange(
        &self,
        metadata: &Metadata,
        login: &Login,
        code: &str,
    ) -> Result<(String, Option<String>), LoginError> {
        let client = &*self.settings.client;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &login.redirect),
            ("code_verifier", &login.verifier),
        ];
        // The specification has `client_secret_basic` where the metadata says nothing.
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let is_known = |name: &str| methods.iter().any(|method| method == name);
        let takes_basic = methods.is_empty() || is_known("client_secret_basic");
        let mut basic = None;
        match self.settings.secret.as_deref() {
            Some(secret) if takes_basic => basic = Some((client, secret)),
            Some(secret) => form.extend([("client_id", client), ("client_secret", secret)]),
            None => form.push(("client_id", client)),
        }
        match self.http.post(&metadata.token_endpoint, &form, basic)? {
            Exchanged::Tokens { id_token, access_token } => Ok((id_token, access_token)),
            Exchanged::Refused { error, error_description } => {
                Err(LoginError::Refused(shortened(&error_description.unwrap_or(error))))
            }
        }
    }

    /// Returns the user of a token. Where the token has no groups, the user information may (section 5.3).
    fn identity(
        &self,
        claims: Claims,
        metadata: &Metadata,
        access: Option<&str>,
    ) -> Result<Identity, LoginError> {
        let Claims { sub: subject, more, .. } = claims;
        let further: Map<String, Value> = match (&metadata.userinfo_endpoint, access) {
            (Some(url), Some(token))
                if [&*self.settings.groups, "email"].iter().any(|name| said(&more, name).is_none()) =>
            {
                self.http.get(url, Some(token))?
            }
            _ => Map::new(),
        };
        if !further.is_empty() && further.get("sub").is_none_or(|sub| *sub != subject) {
            return Err(LoginError::OtherUser);
        }
        let claim = |name: &str| said(&more, name).or_else(|| said(&further, name));
        // Who says the address says whether it is verified.
        let is_verified =
            |from: &&Map<String, Value>| said(from, "email_verified") == Some(&Value::Bool(true));
        let email =
            [&more, &further].into_iter().filter(is_verified).find_map(|from| said(from, "email")?.as_str());
        let email = email.map(str::to_owned);
        let groups = match claim(&self.settings.groups) {
            Some(Value::String(group)) => vec![group.clone()],
            Some(Value::Array(groups)) => {
                groups.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Ok(Identity { issuer: self.settings.issuer.clone(), subject, email, groups })
    }

    /// Returns the metadata, which is read anew from time to time.
    fn metadata(&self, now: u64) -> Result<Arc<Metadata>, LoginError> {
        let kept = self.metadata.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, metadata)) =
            kept.filter(|(read, _)| now.checked_sub(*read).is_some_and(|age| age < METADATA_AGE))
        {
            return Ok(metadata);
        }
        let issuer = &self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let metadata: Metadata = self.http.get(&url, None)?;
        metadata.check(issuer)?;
        let metadata = Arc::new(metadata);
        *self.metadata.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(&metadata)));
        Ok(metadata)
    }
}

impl Metadata {
    /// Refuses the metadata of another issuer, and addresses that are not safe.
    fn check(&self, issuer: &str) -> Result<(), MetadataError> {
        if self.issuer != issuer {
            return Err(MetadataError::Issuer(self.issuer.clone()));
        }
        let urls = [&self.authorization_endpoint, &self.token_endpoint, &self.jwks_uri];
        urls.into_iter().chain(&self.userinfo_endpoint).try_for_each(|url| Ok(check(url)?))
    }
}

/// Returns a claim, unless it is `null`.
fn said<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims.get(name).filter(|value| !value.is_null())
}

/// Returns as much of a provider's words as fits in a line.
fn shortened(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(LONGEST_REASON).collect()
}
