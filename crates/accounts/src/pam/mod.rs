//! Accounts that the system knows by way of PAM: a service says whether a password is right and the account in order.
//!
//! The privileged helper asks the service (`millrace_privsep`), whose modules may do anything, and take any time. So each
//! login waits on a thread of its own, which is abandoned when its time is over: the login is refused with 421, others are
//! not delayed, and the thread keeps its slot until the module returns, so that the number of threads is limited.
//!
//! Of PAM there is asked what a login needs: the password (`auth`) and the account (`account`). No session is opened
//! and no credentials are set. Where the system's own database counts, files are read and written with the rights of the
//! user, by a process that the helper starts; otherwise as the server's own user.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use millrace_privsep::{Entry, HelperError, Verdict, helper};

use super::profile::{Profile, User};
use super::recent::Recent;
use super::source::{Found, Needs, Proof, Source};
use super::source_error::SourceError;
use super::turns::Turns;
use super::{Attempt, Protocol};

/// The settings of a PAM service.
#[derive(Debug, Clone)]
pub struct Pam {
    /// Its name: that of a file in `/etc/pam.d`.
    pub service: String,
    /// The groups of every user that it accepts.
    pub groups: Vec<String>,
    /// The folder that is served, absolute and without links, where the home, the groups and the rights of the system's
    /// own database hold, too; homes have to lie within it.
    pub passwd: Option<PathBuf>,
    /// How long an answer may take, and a turn may be waited for.
    pub time: Duration,
    /// How long an accepted login is accepted again without asking the service.
    pub cache: Duration,
}

/// A service of PAM as a source of accounts. It is asked by way of the privileged helper of this process.
pub fn pam(settings: &Pam) -> impl Source + use<> {
    let name = format!("PAM, service {}", settings.service);
    Service { name, recent: Recent::new(settings.cache), settings: settings.clone(), turns: Arc::default() }
}

#[derive(Debug)]
struct Service {
    name: String,
    settings: Pam,
    /// Recent logins, accepted again without asking the service.
    recent: Recent<User>,
    turns: Arc<Turns>,
}

/// A login, as a service is asked about it.
struct Login {
    service: String,
    user: String,
    password: String,
    from: IpAddr,
    protocol: Protocol,
    wants_entry: bool,
}

impl Login {
    fn ask(&self) -> Result<Verdict, HelperError> {
        helper()?.check(&millrace_privsep::Question {
            service: &self.service,
            user: &self.user,
            password: &self.password,
            from: self.from,
            by_http: self.protocol == Protocol::Http,
            wants_entry: self.wants_entry,
        })
    }
}

impl Service {
    /// Asks, but not for longer than there is time.
    fn ask(&self, login: Login) -> Result<Verdict, SourceError> {
        let end = Instant::now() + self.settings.time;
        let turn = self.turns.wait(end).ok_or(SourceError::Busy)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let asking = move || {
            let verdict = login.ask();
            drop(turn);
            // The receiver may have given up waiting.
            let _ = answer.send(verdict);
        };
        let begun = thread::Builder::new().name("millrace-pam".to_owned()).spawn(asking);
        begun.map_err(SourceError::Thread)?;
        match answered.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(verdict) => verdict.map_err(SourceError::backend),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(SourceError::TimedOut(self.settings.time)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(SourceError::Panicked),
        }
    }

    /// A user whom the service knows.
    fn user(&self, name: &str) -> User {
        User { name: name.to_owned(), groups: self.settings.groups.clone(), profile: Profile::default() }
    }

    /// A user whom the service accepts, with what the system's own database says.
    fn accepted(&self, name: &str, entry: Option<Entry>) -> Result<User, HomePathError> {
        let mut user = self.user(name);
        if let (Some(Entry { home, groups }), Some(root)) = (entry, &self.settings.passwd) {
            user.groups.extend(groups);
            user.profile.directory = Some(within(&home, root)?);
            user.profile.is_system_account = true;
        }
        Ok(user)
    }
}

/// Why a home directory cannot be served.
#[derive(Debug, thiserror::Error)]
enum HomePathError {
    /// It cannot be found.
    #[error("the home {} cannot be found: {source}", home.display())]
    Missing { home: PathBuf, source: io::Error },
    /// It lies elsewhere.
    #[error("the home {} is not in {}, which is served", home.display(), root.display())]
    Outside { home: PathBuf, root: PathBuf },
    /// Its name is not UTF-8, or would be taken for a template.
    #[error("the home {} has a name that no directory here can have", .0.display())]
    Name(PathBuf),
}

/// The home directory, as a folder of the served tree. May block, because homes may be on network file systems.
fn within(home: &Path, root: &Path) -> Result<String, HomePathError> {
    let named = home.to_owned();
    // The served folder has no links in its path; a home may be written with some.
    let home = match home.canonicalize() {
        Ok(home) => home,
        Err(source) => return Err(HomePathError::Missing { home: named, source }),
    };
    let Ok(folder) = home.strip_prefix(root) else {
        return Err(HomePathError::Outside { home: named, root: root.to_owned() });
    };
    match folder.to_str() {
        // It would be taken for a template.
        Some(folder) if !folder.contains(['{', '}']) => Ok(folder.to_owned()),
        _ => Err(HomePathError::Name(named)),
    }
}

impl Source for Service {
    fn name(&self) -> &str {
        &self.name
    }

    /// Those of the system; those that the configuration names are looked for when it is read.
    fn has_groups_of_its_own(&self) -> bool {
        true
    }

    /// A name or password that is not UTF-8 belongs to no user.
    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        if let Some(found) = self.recent.found(attempt) {
            return Ok(found);
        }
        let (Ok(name), Ok(password)) = (str::from_utf8(attempt.user), str::from_utf8(attempt.password))
        else {
            return Ok(Found::Unknown);
        };
        let login = Login {
            service: self.settings.service.clone(),
            user: name.to_owned(),
            password: password.to_owned(),
            from: attempt.from,
            protocol: attempt.protocol,
            wants_entry: self.settings.passwd.is_some(),
        };
        Ok(match self.ask(login)? {
            Verdict::Unknown => Found::Unknown,
            Verdict::Wrong => Found::User(Box::new(self.user(name)), Proof::Wrong),
            Verdict::Refused(why) => Found::User(Box::new(self.user(name)), Proof::Refused(why)),
            Verdict::Right(entry) => {
                let user = self.accepted(name, entry).map_err(SourceError::backend)?;
                self.recent.let_in(attempt, user)
            }
        })
    }

    /// Recent logins only.
    fn find_at_once(&self, attempt: &Attempt<'_>) -> Option<Found> {
        self.recent.found(attempt)
    }

    /// Modules that count failures would count one at each check of a session.
    fn needs(&self) -> Needs {
        Needs::Password
    }

    fn holds_hashes(&self) -> bool {
        false
    }

    fn begin(&self) -> Result<(), SourceError> {
        helper().and_then(|helper| helper.begin(&self.settings.service)).map_err(SourceError::backend)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_home_is_a_folder_of_what_is_served_or_none() {
        let root = std::env::temp_dir().canonicalize().unwrap();
        let root = root.join(format!("millrace-pam-homes-{}", std::process::id()));
        fs::create_dir_all(root.join("served/home/alice")).unwrap();
        fs::create_dir_all(root.join("served/{user}")).unwrap();
        fs::create_dir_all(root.join("served-not")).unwrap();
        std::os::unix::fs::symlink("home/alice", root.join("served/link")).unwrap();
        let of = |home: &str| within(&root.join(home), &root.join("served"));
        assert_eq!(of("served/home/alice").unwrap(), "home/alice");
        assert_eq!(of("served/link").unwrap(), "home/alice");
        assert_eq!(of("served").unwrap(), "");
        for (home, told) in [
            ("served-not", "is not in"),
            ("served/../served-not", "is not in"),
            ("served/nowhere", "cannot be found"),
            ("served/{user}", "has a name that no directory here can have"),
        ] {
            let error = of(home).unwrap_err().to_string();
            assert!(error.contains(told), "{home}: {error}");
        }
        assert!(within(Path::new("/"), &root).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn without_a_helper_every_login_is_an_error_that_says_so() {
        let source = pam(&Pam {
            service: "millrace".to_owned(),
            groups: Vec::new(),
            passwd: None,
            time: Duration::from_secs(30),
            cache: Duration::ZERO,
        });
        for error in
            [source.find(&Attempt::new(b"alice", b"secret")).unwrap_err(), source.begin().unwrap_err()]
        {
            assert!(error.to_string().contains("has no privileged helper"), "{error}");
        }
        assert!(matches!(source.find(&Attempt::new(b"a\xff", b"secret")), Ok(Found::Unknown)));
    }
}
