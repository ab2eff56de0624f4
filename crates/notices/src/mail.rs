//! Mail: a server that takes it by SMTP (RFC 5321), in clear, by STARTTLS (RFC 3207) or under TLS from the first byte (RFC 8314).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Message as Letter, SmtpTransport, Transport};
use thiserror::Error;

use super::message::Message;

/// How long the server may take for each answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MailEncryption {
    /// From STARTTLS on; a server that has none is refused.
    #[default]
    StartTls,
    /// From the first byte.
    Tls,
    /// Not at all.
    Off,
}

impl MailEncryption {
    /// The port that it usually has.
    fn port(self) -> u16 {
        match self {
            Self::StartTls => 587,
            Self::Tls => 465,
            Self::Off => 25,
        }
    }
}

/// A server that takes mail.
#[derive(Clone, Default)]
pub struct MailServer {
    /// Its name or address.
    pub host: String,
    /// Its port, where that is not the usual one.
    pub port: Option<u16>,
    /// How the connection is encrypted.
    pub encryption: MailEncryption,
    /// Certificates in PEM of which one has to have signed the server's, in place of those that browsers trust.
    pub ca: Option<Vec<u8>>,
    /// The user and the password to log in with.
    pub login: Option<(String, String)>,
}

/// Hides the password, because debug output is logged.
impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.as_ref().map(|(user, _)| user);
        f.debug_struct("MailServer").field("host", &self.host).field("user", &user).finish_non_exhaustive()
    }
}

/// Why mail cannot be sent.
#[derive(Debug, Error)]
pub enum MailError {
    /// A text that is no address.
    #[error("{0:?} is not a mail address; write ops@example.net, or \"Ops <ops@example.net>\"")]
    Address(String),
    /// Authorities that are none.
    #[error("the certificates of the mail server's authority cannot be read: {0}")]
    Authority(lettre::transport::smtp::Error),
    /// A password would be sent in clear to another computer.
    #[error("a password goes to another computer only by STARTTLS or TLS")]
    PasswordInClear,
    /// The letter cannot be made.
    #[error("the mail cannot be made: {0}")]
    Letter(#[from] lettre::error::Error),
    /// The server did not take it.
    #[error("{0}")]
    Sending(#[from] lettre::transport::smtp::Error),
}

/// Where mail goes.
#[derive(Clone)]
pub struct Mail {
    transport: SmtpTransport,
    from: Mailbox,
    to: Vec<Mailbox>,
    /// `smtp://mail.example.net:587`
    name: String,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("name", &self.name).field("to", &self.to).finish_non_exhaustive()
    }
}

impl Mail {
    /// Mail from one address to others, by this server.
    pub fn new(server: &MailServer, from: &str, to: &[String]) -> Result<Self, MailError> {
        let port = server.port.unwrap_or(server.encryption.port());
        if server.login.is_some()
            && server.encryption == MailEncryption::Off
            && !is_this_computer(&server.host)
        {
            return Err(MailError::PasswordInClear);
        }
        let tls = match server.encryption {
            MailEncryption::Off => Tls::None,
            MailEncryption::Tls => Tls::Wrapper(trust(server)?),
            MailEncryption::StartTls => Tls::Required(trust(server)?),
        };
        let transport =
            SmtpTransport::builder_dangerous(&*server.host).port(port).tls(tls).timeout(Some(PATIENCE));
        let transport = match &server.login {
            Some((user, password)) => transport.credentials(Credentials::new(user.clone(), password.clone())),
            None => transport,
        };
        let to = to.iter().map(|to| mailbox(to)).collect::<Result<_, _>>()?;
        let name = format!("smtp://{}:{port}", server.host);
        Ok(Self { transport: transport.build(), from: mailbox(from)?, to, name })
    }

    /// Returns what it is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends notices. Waits for the server.
    pub(crate) fn send(&self, message: &Message<'_>) -> Result<(), MailError> {
        let letter = Letter::builder().from(self.from.clone()).subject(message.subject());
        let letter = self.to.iter().fold(letter, |letter, to| letter.to(to.clone()));
        let domain = self.from.email.domain();
        let letter = letter
            .message_id(Some(message_id(domain)))
            .header(ContentType::TEXT_PLAIN)
            .body(message.text())?;
        self.transport.send(&letter)?;
        Ok(())
    }
}

/// Returns an identifier that no other letter has: mail systems keep one of those that have the same.
fn message_id(domain: &str) -> String {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let sent = SENT.fetch_add(1, Ordering::Relaxed);
    format!("<{}.{}.{sent}@{domain}>", millrace_limits::wall_seconds(), std::process::id())
}

fn trust(server: &MailServer) -> Result<TlsParameters, MailError> {
    let parameters = TlsParameters::builder(server.host.clone());
    let parameters = match &server.ca {
        None => parameters.certificate_store(CertificateStore::WebpkiRoots),
        Some(pem) => parameters
            .certificate_store(CertificateStore::None)
            .add_root_certificate(Certificate::from_pem(pem).map_err(MailError::Authority)?),
    };
    parameters.build().map_err(MailError::Authority)
}

fn mailbox(text: &str) -> Result<Mailbox, MailError> {
    text.parse().map_err(|_| MailError::Address(text.to_owned()))
}

fn is_this_computer(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(encryption: MailEncryption) -> MailServer {
        let login = Some(("u".to_owned(), "secret".to_owned()));
        MailServer { host: "mail.example.net".to_owned(), encryption, login, ..MailServer::default() }
    }

    #[test]
    fn a_password_goes_nowhere_in_clear_and_is_not_shown() {
        let to = ["ops@example.net".to_owned()];
        let clear = server(MailEncryption::Off);
        let refused = Mail::new(&clear, "m@example.net", &to).unwrap_err();
        assert!(matches!(refused, MailError::PasswordInClear));
        let here = MailServer { host: "127.0.0.1".to_owned(), ..clear.clone() };
        assert_eq!(Mail::new(&here, "m@example.net", &to).unwrap().name(), "smtp://127.0.0.1:25");
        let encrypted = Mail::new(&server(MailEncryption::StartTls), "m@example.net", &to).unwrap();
        assert_eq!(encrypted.name(), "smtp://mail.example.net:587");
        assert!(!format!("{clear:?} {encrypted:?}").contains("secret"));
    }

    #[test]
    fn two_letters_of_a_second_have_identifiers_of_their_own() {
        assert_ne!(message_id("example.net"), message_id("example.net"));
    }

    #[test]
    fn addresses_are_checked_at_once() {
        for (from, to) in [("m", "ops@example.net"), ("m@example.net", "ops@a\r\nBcc: x@b")] {
            let wrong = Mail::new(&server(MailEncryption::Tls), from, &[to.to_owned()]).unwrap_err();
            assert!(wrong.to_string().contains("is not a mail address"), "{wrong}");
        }
    }
}
