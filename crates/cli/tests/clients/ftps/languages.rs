//! FTPS from libraries of other languages: PycURL (libcurl with GnuTLS), Java's Commons Net, Go's jlaffaye/ftp.

use std::path::Path;

use super::{DOORS, PREFER, REQUIRE, TRANSFERS, run, script};
use crate::server::{PASSWORD, Server, USER};
use crate::tool::{Tool, skip, tool};

/// Debian's own Python, whose PycURL is built with the libcurl that uses GnuTLS.
fn pycurl() -> Option<Tool> {
    let python =
        Path::new("/var/lib/dpkg/info/python3-pycurl.list").exists().then(|| Tool::at("/usr/bin/python3"));
    if python.is_none() {
        skip("Debian's python3-pycurl is not installed");
    }
    python.flatten()
}

fn pycurl_session(python: &Tool, server: &Server, door: &str, version: &str, level: &str) {
    script(server, "session.py", include_str!("session_pycurl.py"));
    let first = ["session.py", "127.0.0.1", &server.port_of(door)].map(str::to_owned);
    let rest = server.arguments(&[door, version, level, &TRANSFERS.to_string()]);
    run(python, server, &[&first[..], &rest].concat());
}

#[test]
fn libcurl_with_gnutls_resumes_for_a_hundred_transfers() {
    let Some(python) = pycurl() else { return };
    for policy in [REQUIRE, PREFER] {
        let server = Server::secure(policy);
        for door in DOORS {
            for (version, level) in [("1.2", "P"), ("1.2", "C"), ("1.3", "C")] {
                pycurl_session(&python, &server, door, version, level);
            }
            if policy == REQUIRE {
                // It would take TLS 1.3, without tickets: the server answers with 1.2.
                pycurl_session(&python, &server, door, "any", "P");
            }
        }
        let sessions = if policy == REQUIRE { 8 } else { 6 };
        let log = server.log_with(" disconnected", sessions);
        assert_eq!(log.matches(" connected").count(), sessions, "one control connection each");
        server.assert_all_resumed();
    }
}

/// It says in its hello that it takes no tickets (GNUTLS_NO_TICKETS).
#[test]
fn libcurl_with_gnutls_cannot_resume_under_tls_13() {
    let Some(python) = pycurl() else { return };
    let server = Server::secure(PREFER);
    for door in DOORS {
        pycurl_session(&python, &server, door, "1.3", "P");
    }
    server.log_with("tls-session-not-resumed", 2);
}

#[test]
fn commons_net_moves_files_and_resumes_where_it_is_made_to() {
    const LIBRARY: &str = "/usr/share/java/commons-net.jar";
    let Some(java) = tool("java") else { return };
    if !Path::new(LIBRARY).exists() {
        return skip("libcommons-net-java is not installed");
    }
    for (policy, sessions) in [(REQUIRE, "reuse"), (PREFER, "reuse"), (PREFER, "fresh")] {
        let server = Server::secure(policy);
        script(&server, "Session.java", include_str!("Session.java"));
        let (explicit, implicit, count) =
            (server.port_of("explicit"), server.port_of("implicit"), TRANSFERS.to_string());
        let open = ["--add-opens", "java.base/sun.security.ssl=ALL-UNNAMED", "--add-opens"];
        let more = ["java.base/sun.security.util=ALL-UNNAMED", "-cp", LIBRARY, "Session.java", "127.0.0.1"];
        let rest = [&explicit, &implicit, USER, PASSWORD, sessions, &count];
        let arguments: Vec<String> =
            [&open[..], &more, &rest].concat().into_iter().map(str::to_owned).collect();
        run(&java, &server, &arguments);
        let log = server.log_with(" disconnected", 8);
        assert_eq!(log.contains("tls-session-not-resumed"), sessions == "fresh", "{log}");
    }
}

/// It shakes hands on the data connection before it says what for, and closes it without reading.
#[test]
fn jlaffaye_ftp_resumes_for_a_hundred_transfers_and_loses_nothing() {
    let Some(go) = tool("go") else { return };
    if !Path::new("/usr/share/gocode/src/github.com/jlaffaye/ftp").exists() {
        return skip("golang-github-jlaffaye-ftp-dev is not installed");
    }
    let cache = std::env::temp_dir().join("millrace-go-cache");
    let go =
        [("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")]
            .into_iter()
            .fold(go, |go, (name, value)| go.variable(name, value))
            .variable("GOCACHE", cache.display().to_string());
    for policy in [REQUIRE, PREFER] {
        let server = Server::secure(policy);
        script(&server, "session.go", include_str!("session.go"));
        go.run(&server, &["build", "-o", "session", "session.go"]);
        let session = Tool::at(server.local().join("session")).unwrap();
        let (explicit, implicit) = (server.port_of("explicit"), server.port_of("implicit"));
        let first = ["127.0.0.1", &explicit, &implicit].map(str::to_owned);
        for (count, size) in [(TRANSFERS, "3000"), (20, "1300000")] {
            let rest = server.arguments(&[&count.to_string(), size]);
            run(&session, &server, &[&first[..], &rest].concat());
        }
        server.assert_all_resumed();
    }
}
