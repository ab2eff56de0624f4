//! Accounts of PAM: a real stack, with services of its own.
//!
//! The library looks for services in `/etc/pam.d`, which a test has no business with: `libpam_wrapper` lets it look
//! elsewhere, and brings a module with passwords in a file. Everything else is the system's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::sources::examples;
use super::{Serving, Site};

/// Of this many users the passwords, and the service that each may use.
const PASSWORDS: &str = "\
alice:password:millrace
bob:password:sshd
daemon:password:millrace
";

/// The folder of the system's libraries, with the wrapper in it; `None` where it is not there and need not be.
fn libraries() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let found = found.chain([PathBuf::from("/usr/lib")]).find(|path| path.join("libpam_wrapper.so").exists());
    if found.is_none() {
        let why = "there is no libpam_wrapper.so: install the package libpam-wrapper";
        assert!(std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none_or(|value| value == "0"), "{why}");
        eprintln!("passed over: {why}");
    }
    found
}

/// A site whose libraries find services in its folder.
struct Stack {
    site: Site,
    libraries: PathBuf,
}

impl Stack {
    fn new(name: &str) -> Option<Self> {
        let stack = Self { libraries: libraries()?, site: Site::new(name) };
        fs::create_dir(stack.site.0.join("pam.d")).unwrap();
        fs::write(stack.site.0.join("passwords"), PASSWORDS).unwrap();
        stack.service("other", "auth required pam_deny.so\naccount required pam_deny.so\n");
        Some(stack)
    }

    fn service(&self, name: &str, lines: &str) {
        fs::write(self.site.0.join("pam.d").join(name), lines).unwrap();
    }

    /// A line about the module that knows the passwords.
    fn knows(&self, kind: &str) -> String {
        let (module, folder) = (self.libraries.join("pam_wrapper/pam_matrix.so"), self.site.0.display());
        format!("{kind} required {} passdb={folder}/passwords\n", module.display())
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.site.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// What a command needs to find the services.
    fn lead(&self, command: &mut Command) {
        let wrapper = self.libraries.join("libpam_wrapper.so");
        command.env("LD_PRELOAD", wrapper).env("PAM_WRAPPER", "1");
        command.env("PAM_WRAPPER_SERVICE_DIR", self.site.0.join("pam.d"));
    }

    fn serve(&self) -> Serving {
        let log = fs::File::create(self.site.0.join("log")).unwrap();
        self.site.serve_with(&["--config", "m.toml"], |command| self.lead(command.stderr(log)))
    }

    /// Waits for the words, with the server still there: the log is written by a thread of its own.
    #[track_caller]
    fn has_logged(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let log = fs::read_to_string(self.site.0.join("log")).unwrap();
            if log.contains(words) {
                return;
            }
            assert!(Instant::now() < end, "{words}: {log}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Serving {
    #[track_caller]
    fn turns_away(&self, user: &str, password: &str, code: &str) {
        let mut client = self.connect();
        client.say(&format!("USER {user}"), "331");
        client.say(&format!("PASS {password}"), code);
    }
}

#[test]
fn users_of_pam_log_in_as_documented() {
    let Some(stack) = Stack::new("pam") else { return };
    let seen = stack.site.0.join("seen");
    let tell = stack
        .script("tell", &format!("echo $PAM_USER $PAM_RHOST $PAM_TTY $PAM_SERVICE >> {}", seen.display()));
    let account = stack.knows("account");
    stack.service(
        "millrace",
        &format!("{}{account}account required pam_exec.so {tell}\n", stack.knows("auth")),
    );
    let [own, _] = examples("Users of the system (PAM)", "toml")[..] else { panic!("two examples") };
    let own = own.replace("[[source]]", "[[source]]\ncache = 0");
    fs::create_dir(stack.site.0.join("files/customers")).unwrap();
    stack.site.configure(&own);
    let serving = stack.serve();
    assert!(serving.announced.contains("whom PAM, service millrace knows"), "{}", serving.announced);
    serving.log_in("alice").say("MKD x", "257");
    assert!(stack.site.0.join("files/customers/alice/x").is_dir(), "the group says where");
    assert_eq!(fs::read_to_string(seen).unwrap(), "alice 127.0.0.1 ftp millrace\n");
    serving.turns_away("alice", "Password", "530");
    serving.turns_away("alice", "", "530");
    serving.turns_away("no-such-user", "password", "530");
    serving.turns_away("bob", "password", "530");
    // If the password is right but the user may not use the service, the log says more than the reply.
    stack.has_logged("PAM says: Permission denied");
}

#[test]
fn an_account_that_is_not_in_order_is_refused() {
    let Some(stack) = Stack::new("pam-expired") else { return };
    for (code, told) in [
        ("acct_expired", "PAM says: User account has expired"),
        ("new_authtok_reqd", "PAM says: Authentication token is no longer valid; new one required"),
        ("perm_denied", "PAM says: Permission denied"),
    ] {
        let account = format!("account required pam_debug.so acct={code}\n");
        stack.service("millrace", &(stack.knows("auth") + &account));
        stack.site.configure("directory = \"files\"\nlogin-delay = 0\n[[source]]\npam = true\n");
        let serving = stack.serve();
        serving.turns_away("alice", "password", "530");
        stack.has_logged(told);
    }
}

#[test]
fn a_broken_or_hanging_service_refuses_logins_and_blocks_no_other_session() {
    let Some(stack) = Stack::new("pam-hangs") else { return };
    // Ends with the server.
    let hang = stack.script("hang", "while kill -0 $PPID; do sleep 0.1; done");
    stack.service("hangs", &format!("auth required pam_exec.so quiet {hang}\n"));
    stack.service("away", "auth required pam_debug.so auth=authinfo_unavail\n");
    stack.service("none", "auth required pam_debug.so auth=user_unknown\n");
    stack.service("millrace", &(stack.knows("auth") + &stack.knows("account")));
    let configure = |first: &str, second: &str| {
        let source = |service: &str| {
            let time = if service == "hangs" { "1s" } else { "30s" };
            format!("[[source]]\npam = \"{service}\"\ntimeout = \"{time}\"\n")
        };
        let hash = super::HASH;
        let listed = format!("[[user]]\nname = \"carol\"\npassword = \"{hash}\"\n");
        let sources = source(first) + &source(second);
        stack.site.configure(&format!("directory = \"files\"\nlogin-delay = 0\n{listed}{sources}"));
    };
    configure("hangs", "millrace");
    let serving = stack.serve();
    serving.turns_away("alice", "password", "421");
    serving.log_in("carol").say("NOOP", "200");
    stack.has_logged("PAM, service hangs cannot be asked: it has not answered within 1s");
    drop(serving);
    configure("away", "millrace");
    stack.serve().turns_away("alice", "password", "421");
    configure("none", "millrace");
    stack.serve().log_in("alice").say("NOOP", "200");
    configure("nowhere", "millrace");
    stack.serve().turns_away("alice", "password", "530");
}

#[test]
fn folders_and_groups_of_the_system_hold_where_that_is_said() {
    let Some(stack) = Stack::new("pam-passwd") else { return };
    stack.service("millrace", &(stack.knows("auth") + &stack.knows("account")));
    let text = "directory = \"/usr\"\nlogin-delay = 0\n[[group]]\nname = \"daemon\"\naccess = \"ro\"\n\
                [[source]]\npam = true\npasswd = true\n";
    stack.site.configure(text);
    let serving = stack.serve();
    // Debian's user daemon lives in /usr/sbin.
    let mut client = serving.log_in("daemon");
    client.say("PWD", "257 \"/\"");
    client.say("TYPE I", "200");
    client.say("SIZE nologin", "213");
    client.say("MKD x", "550");
    // Alice does not exist there.
    serving.turns_away("alice", "password", "421");
    stack.has_logged("the passwd entry of alice cannot be read: there is none");
    stack.site.configure(&text.replace("/usr", "files"));
    let serving = stack.serve();
    serving.turns_away("daemon", "password", "421");
    stack.has_logged("the home /usr/sbin is not in ");
}

#[test]
fn the_documented_service_is_understood_by_the_library() {
    let Some(stack) = Stack::new("pam-documented") else { return };
    stack.service("millrace", examples("Users of the system (PAM)", "pam")[0]);
    stack.site.configure("directory = \"files\"\nlogin-delay = 0\n[[source]]\npam = true\n");
    let serving = stack.serve();
    serving.turns_away("no-such-user", "password", "530");
    stack.has_logged("no-such-user");
    let log = fs::read_to_string(stack.site.0.join("log")).unwrap();
    assert!(!log.contains("cannot be asked"), "{log}");
}

#[test]
fn invalid_settings_of_pam_are_reported_at_their_place() {
    let site = Site::new("pam-nonsense");
    for (text, place, told) in [
        ("pam = false", "m.toml:2:7", "expected the name of a service"),
        ("pam = \"\"", "m.toml:2:7", "the name of a service is empty"),
        ("pam = \"/etc/pam.d/ftp\"", "m.toml:2:7", "is not the name of a service"),
        ("pam = true\ngroups = \"staff\"", "m.toml:3:10", "there is no group staff"),
        ("pam = true\nquery = \"x\"", "m.toml:3:9", "`query` means nothing to a source with `pam`"),
        (
            "program = \"x\"\npasswd = true",
            "m.toml:3:10",
            "`passwd` means nothing to a source with `program`",
        ),
    ] {
        site.configure(&format!("[[source]]\n{text}\n"));
        let (is_well, error) = site.ask(&["check", "m.toml"]);
        assert!(!is_well && error.contains(place), "{text}: {error}");
        assert!(error.to_lowercase().contains(&told.to_lowercase()), "{text}: {error}");
    }
}
