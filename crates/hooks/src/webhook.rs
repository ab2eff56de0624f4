//! A receiver of events over HTTP: JSON is posted to it, and it may answer in JSON.
//!
//! Where there is a secret a post is signed by [Standard Webhooks](https://www.standardwebhooks.com), so that the
//! receiver can verify its sender, and detect a replay.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use millrace_http::base64;
use millrace_limits::wall_seconds;
use ring::hmac;
use ring::rand::{self, SystemRandom};
use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue, Uri};

use super::facts::Template;
use super::setting_error::SettingError;

/// Of an answer, as much is read.
const ANSWER: u64 = 64 * 1024;

/// The shortest key in bytes: long enough not to be guessed.
const KEY: usize = 24;

/// Fields that are ours to say.
const OURS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Where events are posted to. Connections are kept between them.
#[derive(Debug, Clone)]
pub struct Webhook {
    url: String,
    agent: ureq::Agent,
}

/// The credentials of a post: header fields, and a signature.
#[derive(Clone, Default)]
pub struct Credentials {
    headers: Vec<(HeaderName, HeaderValue)>,
    key: Option<Vec<u8>>,
    /// Which of those that are shown at the same address. Given by [`Keyring::add`].
    number: usize,
}

/// The credentials of each address, and the programs that rules run. Queued events are stored without them: a secret must not be in the database, and
/// after a change waiting events must use the new one.
#[derive(Debug, Clone, Default)]
pub(super) struct Keyring(HashMap<String, Vec<Credentials>>, Vec<Vec<Template>>);

/// Why an event was not taken.
#[derive(Debug, Error)]
pub enum DeliveryError {
    /// It may be taken another time.
    #[error("{0}")]
    Retryable(String),
    /// It will not be: the receiver says that there is something wrong with it.
    #[error("the receiver refuses it with {0}")]
    Permanent(u16),
}

impl Credentials {
    /// Adds a header field.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, SettingError> {
        let wrong = |kind: fn(String) -> SettingError| Err(kind(name.to_owned()));
        let Ok(parsed) = name.parse::<HeaderName>() else { return wrong(SettingError::HeaderName) };
        let Ok(mut value) = value.parse::<HeaderValue>() else { return wrong(SettingError::HeaderValue) };
        if OURS.contains(&parsed.as_str()) {
            return wrong(SettingError::OwnHeader);
        }
        if self.headers.iter().any(|(name, _)| *name == parsed) {
            return wrong(SettingError::RepeatedHeader);
        }
        value.set_sensitive(true);
        self.headers.push((parsed, value));
        Ok(self)
    }

    /// Signs posts with this secret: a text, or `whsec_` and a key in base64.
    pub fn secret(self, secret: &str) -> Result<Self, SettingError> {
        let key = match secret.strip_prefix("whsec_") {
            None => secret.as_bytes().to_vec(),
            Some(text) => base64::decode(text.as_bytes()).ok_or(SettingError::SecretEncoding)?,
        };
        match key.len() >= KEY {
            true => Ok(Self { key: Some(key), ..self }),
            false => Err(SettingError::ShortSecret { least: KEY }),
        }
    }

    /// Returns the header fields.
    pub fn fields(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.headers.iter().map(|(name, value)| (name, value))
    }

    /// Its index in a [`Keyring`].
    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn shows_the_same(&self, other: &Self) -> bool {
        (&self.headers, &self.key) == (&other.headers, &other.key)
    }

    /// The signature of a body that is posted at a time, in seconds since 1970.
    fn signature(&self, id: &str, at: i64, body: &[u8]) -> Option<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_ref()?);
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{id}.{at}.").as_bytes());
        context.update(body);
        Some(format!("v1,{}", base64::encode(context.sign().as_ref())))
    }
}

/// Hides secrets, because debug output is logged.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Credentials").field("headers", &names).field("signs", &self.key.is_some()).finish()
    }
}

impl Keyring {
    /// Has these credentials shown at an address, and says so to them.
    pub(super) fn add(&mut self, url: &str, credentials: &mut Credentials) {
        let all = self.0.entry(url.to_owned()).or_default();
        credentials.number = all.iter().position(|one| one.shows_the_same(credentials)).unwrap_or(all.len());
        if credentials.number == all.len() {
            all.push(credentials.clone());
        }
    }

    /// A rule runs a program with these words.
    pub(super) fn add_program(&mut self, words: &[Template]) {
        self.1.push(words.to_vec());
    }

    /// Returns whether a rule posts to this address, and shows credentials of this number.
    pub(super) fn has_address(&self, url: &str, number: usize) -> bool {
        self.0.get(url).is_some_and(|all| number < all.len())
    }

    /// Returns whether a rule runs this program.
    pub(super) fn has_program(&self, name: &str) -> bool {
        let may_be = |word: &Template| word.may_be(OsStr::new(name));
        self.1.iter().any(|words| words.first().is_some_and(may_be))
    }

    /// Returns whether the words of a rule may have become these.
    pub(super) fn has_words(&self, of: &[OsString]) -> bool {
        let may_be = |words: &&Vec<Template>| {
            words.len() == of.len() && words.iter().zip(of).all(|(word, text)| word.may_be(text))
        };
        self.1.iter().any(|words| may_be(&words))
    }

    /// Those with a number among the ones of an address; where it has none of that number any more, the first.
    pub(super) fn find(&self, url: &str, number: usize) -> Credentials {
        let all = self.0.get(url).map_or(&[][..], Vec::as_slice);
        all.get(number).or(all.first()).cloned().unwrap_or_default()
    }
}

impl Webhook {
    /// Posts to this address, which may take so long for an answer.
    pub fn new(url: &str, time_limit: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(time_limit))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections_per_host(64)
            .max_idle_connections(64)
            .user_agent("millrace")
            .build();
        Self { url: url.to_owned(), agent: ureq::Agent::new_with_config(config) }
    }

    /// Returns the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Checks that events can be posted to this address.
    pub fn check(url: &str) -> Result<(), SettingError> {
        let wrong = || Err(SettingError::Url(url.to_owned()));
        let Ok(address) = url.parse::<Uri>() else { return wrong() };
        match (address.scheme_str(), address.host()) {
            _ if address.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
                Err(SettingError::UrlWithPassword)
            }
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(()),
            _ => wrong(),
        }
    }

    /// Posts a body, and returns the body of a successful response. The receiver recognises a repeated post by its
    /// `id`; a post without one is sent once.
    pub fn post(
        &self,
        credentials: &Credentials,
        id: Option<&str>,
        body: &[u8],
    ) -> Result<Vec<u8>, DeliveryError> {
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &credentials.headers {
            request = request.header(name, value);
        }
        let (id, at) = (id.map_or_else(once, str::to_owned), wall_seconds());
        if let Some(signature) = credentials.signature(&id, at, body) {
            let told =
                [("webhook-id", id), ("webhook-timestamp", at.to_string()), ("webhook-signature", signature)];
            request = told.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        }
        let mut response = request.send(body).map_err(|error| DeliveryError::Retryable(error.to_string()))?;
        let status = response.status().as_u16();
        // Read to its end also where it means nothing: the connection can then be used again.
        let answer = response.body_mut().with_config().limit(ANSWER).read_to_vec();
        match status {
            200..300 => answer.map_err(|error| DeliveryError::Retryable(error.to_string())),
            // Temporary refusals: missing credentials, too early, too many requests, and errors of gateways.
            401 | 407 | 408 | 425 | 429 => {
                Err(DeliveryError::Retryable(format!("the receiver answers {status}")))
            }
            400..500 => Err(DeliveryError::Permanent(status)),
            _ => Err(DeliveryError::Retryable(format!("the receiver answers {status}"))),
        }
    }
}

/// A name that no other post has.
fn once() -> String {
    let random =
        rand::generate::<[u8; 16]>(&SystemRandom::new()).expect("every Linux since 3.17 has getrandom");
    format!("{:032x}", u128::from_be_bytes(random.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_of_standard_webhooks() {
        // The example of its specification.
        let credentials = Credentials::default().secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            credentials.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{\"test\": 2432232314}");
        assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(Credentials::default().signature("a", 1, b""), None);
    }

    #[test]
    fn errors_about_credentials_do_not_contain_them() {
        let known = Credentials::default().header("X-One", "secret").unwrap();
        for (name, value, why) in [
            ("X-Two", "se\r\ncret", "no field can have"),
            ("X Two", "secret", "no name of a field"),
            ("", "secret", "no name of a field"),
            ("content-Type", "secret", "sends itself"),
            ("Content-Encoding", "gzip", "sends itself"),
            ("Webhook-Id", "secret", "sends itself"),
            ("x-one", "secret", "is there twice"),
        ] {
            let error = known.clone().header(name, value).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("cret"), "{name}: {error}");
        }
        for (secret, why) in
            [("secret", "too short"), ("whsec_c2VjcmV0", "too short"), ("whsec_secr!t", "no base64")]
        {
            let error = known.clone().secret(secret).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secr!t") && !error.contains("c2Vj"), "{error}");
        }
        let shown = format!("{:?}", known.secret("a secret of many letters, at last").unwrap());
        assert_eq!(shown, "Credentials { headers: [\"x-one\"], signs: true }");
    }

    #[test]
    fn credentials_of_an_address_are_told_apart_and_those_that_are_gone_give_way() {
        let of = |value: &str| Credentials::default().header("X-Of", value).unwrap();
        let (mut one, mut same, mut two, mut elsewhere) = (of("1"), of("1"), of("2"), of("2"));
        let mut keys = Keyring::default();
        for (url, credentials) in [
            ("http://a/", &mut one),
            ("http://a/", &mut same),
            ("http://a/", &mut two),
            ("http://b/", &mut elsewhere),
        ] {
            keys.add(url, credentials);
        }
        assert_eq!([&one, &same, &two, &elsewhere].map(Credentials::number), [0, 0, 1, 0]);
        assert!(keys.find("http://a/", 1).shows_the_same(&of("2")));
        assert!(keys.find("http://a/", 7).shows_the_same(&of("1")));
        assert!(keys.find("http://c/", 0).shows_the_same(&Credentials::default()));
    }
}
