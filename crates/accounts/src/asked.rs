//! Accounts that an external program or web service knows: each login is a request and an answer in JSON.
//!
//! The question, on standard input or as the body of a POST:
//!
//! ```json
//! {"user": "alice", "password": "secret", "address": "203.0.113.7", "protocol": "ftp", "encrypted": false,
//!  "certified": false}
//! ```
//!
//! The answer; for an accepted user it may have the keys of a table of the configuration:
//!
//! ```json
//! {"result": "right", "groups": ["staff"], "settings": {"directory": "home/alice", "access": "ro"}}
//! ```
//!
//! `"wrong"` is a wrong password, `"unknown"` leaves the name to the next sources. Anything else (another exit status
//! than 0, another HTTP status than 200, a late or malformed answer) is an error: the login is refused, and no other
//! source is asked. A hanging request is abandoned after a time, and their number is limited.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_net::tls::RootsError;
use serde::Deserialize;
use serde_json::json;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::Attempt;
use super::profile::{Profile, User};
use super::recent::Recent;
use super::source::{Found, Needs, Proof, Source, mark_of};
use super::source_error::{ProgramError, SetupError, SourceError};
use super::turns::Turns;
use millrace_process::{Ended, How, Program, Purpose};

/// Bytes of an answer.
const LONGEST: usize = 64 * 1024;

/// A program or a web service that knows accounts.
#[derive(Debug)]
pub struct Asked {
    name: String,
    mark: u64,
    oracle: Oracle,
    /// How long an answer may take, and a turn may be waited for.
    time: Duration,
    /// Recent logins, accepted again without a request.
    recent: Recent<User>,
    /// Each question is a process, or a connection.
    turns: Arc<Turns>,
}

#[derive(Debug)]
enum Oracle {
    Program(Program),
    Call(Call),
}

/// Where a question is sent.
struct Call {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(String, String)>,
}

/// The settings of a web service.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// `http://` or `https://`.
    pub url: String,
    /// Names and values that go with each question, such as a key.
    pub headers: Vec<(String, String)>,
    /// Certificates in PEM that the service's has to be signed by, instead of those that browsers trust.
    pub roots: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Answer {
    result: Verdict,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    settings: Profile,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Right,
    Wrong,
    Unknown,
}

impl Asked {
    /// A program and its arguments, which is run for each login.
    pub fn program(words: Vec<String>, time: Duration, cache: Duration) -> Self {
        let name = format!("the program {}", words.first().map_or("", String::as_str));
        let mark = mark_of(&words);
        let words = words.into_iter().map(Into::into).collect();
        let (environment, purpose) = (Vec::new(), Purpose::Answer);
        // Without them it starts all the same, if slower.
        let _ = millrace_process::keep_descriptors();
        let program = Program { words, environment, time, most: LONGEST, purpose };
        Self::new(name, mark, Oracle::Program(program), time, cache)
    }

    /// A web service, which gets a POST for each login.
    pub fn call(service: Service, time: Duration, cache: Duration) -> Result<Self, SetupError> {
        let Service { url, headers, roots } = service;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(SetupError::Url { url, schemes: "http:// or https://" });
        }
        let roots = match roots {
            None => RootCerts::WebPki,
            Some(pem) => {
                let certificates = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                });
                let certificates: Vec<Certificate<'static>> = certificates.collect();
                if certificates.is_empty() {
                    return Err(RootsError::Empty.into());
                }
                RootCerts::new_with_certs(&certificates)
            }
        };
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(time))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        let name = format!("the call to {}", url.split('?').next().unwrap_or(&url));
        let mark = mark_of(&url);
        Ok(Self::new(name, mark, Oracle::Call(Call { agent: config.into(), url, headers }), time, cache))
    }

    fn new(name: String, mark: u64, oracle: Oracle, time: Duration, cache: Duration) -> Self {
        Self { name, mark, oracle, time, recent: Recent::new(cache), turns: Arc::default() }
    }

    fn ask(&self, question: &str) -> Result<Answer, SourceError> {
        let end = Instant::now() + self.time;
        let _turn = self.turns.wait(end).ok_or(SourceError::Busy)?;
        let answer = match &self.oracle {
            Oracle::Program(program) => run(program, question)?,
            Oracle::Call(call) => call.ask(question).map_err(|error| SourceError::Call(Box::new(error)))?,
        };
        Ok(serde_json::from_slice(&answer)?)
    }
}

/// Runs the program with the question as its input, and returns its output.
fn run(program: &Program, question: &str) -> Result<Vec<u8>, ProgramError> {
    let name = program.name().to_string();
    match program.run(question.as_bytes()) {
        Err(source) => Err(ProgramError::Start { program: name, source }),
        Ok(Ended { how: How::Exited(0), output, .. }) => Ok(output),
        Ok(Ended { how: How::OutOfTime, .. }) => {
            Err(ProgramError::TimedOut { program: name, time: program.time })
        }
        Ok(Ended { how: How::TooLong, .. }) => Err(ProgramError::TooLong { program: name, most: LONGEST }),
        Ok(Ended { how, complaints, .. }) => {
            let complaints = String::from_utf8_lossy(&complaints).trim_end().to_owned();
            Err(ProgramError::Failed { program: name, how, complaints })
        }
    }
}

impl Call {
    fn ask(&self, question: &str) -> Result<Vec<u8>, ureq::Error> {
        let mut request = self.agent.post(&self.url).header("Content-Type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = request.send(question)?;
        match response.status().as_u16() {
            200 => response.body_mut().with_config().limit(LONGEST as u64).read_to_vec(),
            status => Err(ureq::Error::StatusCode(status)),
        }
    }
}

impl Source for Asked {
    fn name(&self) -> &str {
        &self.name
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    /// A name or password that is not UTF-8 cannot be put in JSON: no user has it.
    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        if let Some(found) = self.recent.found(attempt) {
            return Ok(found);
        }
        let (Ok(name), Ok(password)) = (str::from_utf8(attempt.user), str::from_utf8(attempt.password))
        else {
            return Ok(Found::Unknown);
        };
        let question = json!({
            "user": name,
            "password": password,
            "address": attempt.from,
            "protocol": attempt.protocol,
            "encrypted": attempt.encrypted,
            "certified": attempt.certified,
        });
        let Answer { result, groups, settings } = self.ask(&format!("{question}\n"))?;
        let user = User { name: name.to_owned(), groups, profile: settings };
        Ok(match result {
            Verdict::Unknown => Found::Unknown,
            Verdict::Wrong => Found::User(Box::new(user), Proof::Wrong),
            Verdict::Right => self.recent.let_in(attempt, user),
        })
    }

    /// Recent logins only.
    fn find_at_once(&self, attempt: &Attempt<'_>) -> Option<Found> {
        self.recent.found(attempt)
    }

    fn needs(&self) -> Needs {
        Needs::Proof
    }

    fn holds_hashes(&self) -> bool {
        false
    }
}

/// Headers may hold a key.
impl Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({})", self.url)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str, cache: Duration) -> Asked {
        Asked::program(["sh", "-c", script].map(str::to_owned).to_vec(), LONG, cache)
    }

    fn describe(found: Result<Found, SourceError>) -> String {
        match found {
            Ok(Found::Unknown) => "unknown".to_owned(),
            Ok(Found::User(user, proof)) => format!("{} {:?} {proof:?}", user.name, user.groups),
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn a_program_decides_by_its_answer() {
        for (script, expected) in [
            (
                r#"cat > /dev/null; echo '{"result": "right", "groups": ["staff"]}'"#,
                r#"alice ["staff"] Right"#,
            ),
            (r#"echo '{"result": "wrong"}'"#, "alice [] Wrong"),
            (r#"echo '{"result": "unknown"}'"#, "unknown"),
            (r#"grep -q '"password":"secret"' && echo '{"result": "right"}'"#, "alice [] Right"),
            ("exit 7", "error: sh exited with status 7: \"\""),
            ("echo broken >&2; exit 1", "error: sh exited with status 1: \"broken\""),
            ("echo yes", "error: its answer is not understood"),
            (
                r#"echo '{"result": "right", "settings": {"acess": "ro"}}'"#,
                "error: its answer is not understood",
            ),
            (r#"echo '{"result": "sure"}'"#, "error: its answer is not understood"),
            ("yes", "error: sh was ended because it answered more than 65536 bytes"),
        ] {
            let found = describe(shell(script, Duration::ZERO).find(&Attempt::new(b"alice", b"secret")));
            assert!(found.starts_with(expected), "{script}: {found}");
        }
    }

    #[test]
    fn one_that_hangs_is_given_up() {
        let asked =
            Asked::program(["sleep", "1000"].map(str::to_owned).to_vec(), Duration::from_millis(200), LONG);
        let found = describe(asked.find(&Attempt::new(b"alice", b"secret")));
        assert!(found.starts_with("error: sleep was ended after 200ms"), "{found}");
    }

    #[test]
    fn only_who_was_let_in_is_remembered_and_only_so() {
        let asked = shell(
            r#"grep -q '"password":"secret"' && echo '{"result": "right"}' || echo '{"result": "wrong"}'"#,
            LONG,
        );
        let right = Attempt::new(b"alice", b"secret");
        let wrong = Attempt::new(b"alice", b"Secret");
        assert_eq!(describe(asked.find(&wrong)), "alice [] Wrong");
        assert!(asked.find_at_once(&wrong).is_none() && asked.find_at_once(&right).is_none());
        assert_eq!(describe(asked.find(&right)), "alice [] Right");
        assert!(asked.find_at_once(&right).is_some() && asked.find_at_once(&wrong).is_none());
        assert!(asked.find_at_once(&Attempt { encrypted: true, ..right }).is_none());
        assert!(asked.find_at_once(&Attempt { from: "10.0.0.1".parse().unwrap(), ..right }).is_none());
    }

    #[test]
    fn names_that_are_not_utf_8_are_unknown() {
        let asked = shell(r#"echo '{"result": "right"}'"#, LONG);
        assert_eq!(describe(asked.find(&Attempt::new(b"al\xffce", b"secret"))), "unknown");
        assert_eq!(describe(asked.find(&Attempt::new(b"alice", b"s\xff"))), "unknown");
    }

    /// A web service that answers so, once; its URL, and what it is sent.
    fn service(answer: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/login", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let (mut request, mut buffer) = (String::new(), [0; 4096]);
            while !request.contains("}\n") {
                let count = stream.read(&mut buffer).unwrap();
                assert_ne!(count, 0, "{request}");
                request.push_str(str::from_utf8(&buffer[..count]).unwrap());
            }
            // It may have hung up by now.
            let _ = stream.write_all(answer.as_bytes());
            request
        });
        (url, thread)
    }

    #[test]
    fn a_web_service_decides_by_its_answer() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"result\": \"right\"}", "alice [] Right"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"result\": \"unknown\"}", "unknown"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"result\": \"right\"}", "error: "),
            (
                "HTTP/1.1 403 No\r\nContent-Length: 19\r\n\r\n{\"result\": \"right\"}",
                "error: http status: 403",
            ),
            ("HTTP/1.1 302 No\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "error: "),
            ("SSH-2.0-nonsense\r\n", "error: "),
        ] {
            let (url, thread) = service(answer);
            let headers = vec![("X-Key".to_owned(), "k".to_owned())];
            let asked = Asked::call(Service { url, headers, roots: None }, LONG, Duration::ZERO).unwrap();
            let found = describe(asked.find(&Attempt::new(b"alice", b"secret")));
            assert!(found.starts_with(expected), "{answer}: {found}");
            let request = thread.join().unwrap();
            assert!(request.to_lowercase().contains("x-key: k\r\n"), "{request}");
            assert!(request.contains(r#""user":"alice""#), "{request}");
        }
    }

    #[test]
    fn a_web_service_that_is_not_there_or_silent_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let service = Service { url, ..Service::default() };
        let asked = Asked::call(service.clone(), Duration::from_millis(200), LONG).unwrap();
        let found = describe(asked.find(&Attempt::new(b"alice", b"secret")));
        assert!(found.starts_with("error: timeout"), "{found}");
        drop(listener);
        let asked = Asked::call(service, LONG, LONG).unwrap();
        let found = describe(asked.find(&Attempt::new(b"alice", b"secret")));
        assert!(found.starts_with("error: "), "{found}");
        assert!(
            Asked::call(Service { url: "ftp://x".to_owned(), ..Service::default() }, LONG, LONG).is_err()
        );
    }
}
