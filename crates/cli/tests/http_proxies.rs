//! The recipes of docs/http.md for proxies that end TLS: each proxy is run, and names its client.

#[path = "../../server/tests/kit/ports.rs"]
mod ports;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ports::free_port;

const TEXT: &str = include_str!("../../../docs/http.md");

/// Where the clients are; the proxies are at 127.0.0.1.
const CLIENT: &str = "127.0.0.9";

/// The hash of `password`: cheap.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// A server that trusts proxies at 127.0.0.1, and the folder of the test.
struct Site {
    folder: PathBuf,
    server: Child,
    address: SocketAddr,
}

impl Site {
    fn start(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("http-proxies-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("files")).unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        fs::write(folder.join("c.pem"), &certificate).unwrap();
        fs::write(folder.join("k.pem"), &key).unwrap();
        fs::write(folder.join("both.pem"), certificate + &key).unwrap();
        let keys = format!(
            "directory = \"files\"\nftp = \"off\"\nhttp = \"127.0.0.1:0\"\ntrusted-proxies = \"127.0.0.1\"\n\
             access-log = \"access.log\"\ncontrol = \"off\"\nlogin-delay = 0\nban-after = 2\n[[user]]\nname = \"alice\"\npassword = \"{HASH}\"\n\
             access = \"rw\"\n"
        );
        fs::write(folder.join("millrace.toml"), keys).unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--quiet", "--config"])
            .arg(folder.join("millrace.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find(|line| line.contains("http://")).unwrap();
        let authority = url.split("http://").nth(1).unwrap().split('/').next().unwrap();
        let address = authority.rsplit('@').next().unwrap().parse().unwrap();
        assert!(lines.any(|line| line.starts_with("Ready")));
        Self { folder, server, address }
    }

    /// A recipe, for this server and a port of this computer.
    fn recipe(&self, language: &str, changes: &[(&str, String)]) -> String {
        let recipe = TEXT.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let recipe = recipe.unwrap().replace("10.0.0.20:8080", &self.address.to_string());
        changes.iter().fold(recipe, |text, (there, here)| {
            assert!(text.contains(there), "{there} is not in {text}");
            text.replace(there, here)
        })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Runs curl from the client's address; returns the status.
    fn curl(&self, from: &str, port: u16, arguments: &[&str]) -> String {
        let url = format!("https://localhost:{port}/f");
        let output = Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "--interface", from])
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1"), "--max-time", "30"])
            .args(arguments)
            .arg(url)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns whether the access log has a line about a client with this text.
    fn has_logged(&self, client: &str, text: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let log = fs::read_to_string(self.folder.join("access.log")).unwrap_or_default();
            match log.lines().any(|line| line.starts_with(&format!("{client} ")) && line.contains(text)) {
                true => return true,
                false if Instant::now() > end => return false,
                false => std::thread::yield_now(),
            }
        }
    }

    /// What has to hold behind each of them.
    fn check(&self, port: u16) {
        fs::write(self.folder.join("body"), vec![b'x'; 3_000_000]).unwrap();
        let body = self.path("body");
        let status = self.curl(CLIENT, port, &["-u", "alice:password", "-T", &body]);
        assert_eq!(status, "201");
        assert!(self.has_logged(CLIENT, "PUT /f"));
        assert_eq!(fs::read(self.folder.join("files/f")).unwrap().len(), 3_000_000);
        // A client does not choose its address.
        let pretended =
            ["-H", "X-Forwarded-For: 192.0.2.66", "-H", "Forwarded: for=192.0.2.66", "-A", "spoofs"];
        assert_eq!(self.curl(CLIENT, port, &[&["-u", "alice:password"], &pretended[..]].concat()), "200");
        assert!(self.has_logged(CLIENT, "spoofs"));
        // Nor does it have others refused together with itself.
        for _guess in 0..3 {
            assert_eq!(self.curl("127.0.0.66", port, &["-u", "alice:wrong"]), "401");
        }
        assert_ne!(self.curl("127.0.0.66", port, &["-u", "alice:password"]), "200");
        assert_eq!(self.curl(CLIENT, port, &["-u", "alice:password"]), "200");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A proxy that runs.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a proxy, and waits until it accepts. `None` where it is not installed, unless `./test` has installed it.
fn start(command: &mut Command, port: u16) -> Option<Proxy> {
    let child = match command.stdin(Stdio::null()).spawn() {
        Err(error) if std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_none() => {
            eprintln!("left out: {command:?}: {error}");
            return None;
        }
        child => child.unwrap(),
    };
    let mut proxy = Proxy(child);
    let end = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(proxy.0.try_wait().unwrap().is_none() && Instant::now() < end, "{command:?} does not begin");
        std::thread::yield_now();
    }
    Some(proxy)
}

#[test]
fn clients_behind_nginx_are_known() {
    let (site, port) = (Site::start("nginx"), free_port());
    let server = site.recipe(
        "nginx",
        &[
            ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
            ("/etc/ssl/files.pem", site.path("c.pem")),
            ("/etc/ssl/files.key", site.path("k.pem")),
        ],
    );
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};\n", site.folder.display()))
        .concat();
    let whole = format!(
        "daemon off; master_process off; pid {0}/nginx.pid; error_log {0}/nginx.log;\nevents {{ }}\n\
         http {{ access_log off; {temporary} {server} }}\n",
        site.folder.display()
    );
    fs::write(site.folder.join("nginx.conf"), whole).unwrap();
    let mut command = Command::new("/usr/sbin/nginx");
    command.args(["-c", &site.path("nginx.conf"), "-e", &site.path("nginx.log"), "-p", &site.path("")]);
    if let Some(_proxy) = start(&mut command, port) {
        site.check(port);
    }
}

#[test]
fn clients_behind_haproxy_are_known() {
    let (site, port) = (Site::start("haproxy"), free_port());
    let recipe = site.recipe(
        "haproxy",
        &[
            ("bind :443 ssl", format!("bind 127.0.0.1:{port} ssl")),
            ("/etc/ssl/files.pem", site.path("both.pem")),
        ],
    );
    let times = "defaults\n    timeout connect 30s\n    timeout client 60s\n    timeout server 60s\n";
    fs::write(site.folder.join("haproxy.cfg"), format!("global\n    maxconn 100\n{times}{recipe}")).unwrap();
    let mut command = Command::new("/usr/sbin/haproxy");
    command.args(["-db", "-f", &site.path("haproxy.cfg")]);
    if let Some(_proxy) = start(&mut command, port) {
        site.check(port);
    }
}

#[test]
fn clients_behind_caddy_are_known() {
    let (site, port) = (Site::start("caddy"), free_port());
    let tls = format!("    tls {} {}\n", site.path("c.pem"), site.path("k.pem"));
    let recipe = site.recipe(
        "caddy",
        &[("files.example.org {\n", format!("https://localhost:{port} {{\n    bind 127.0.0.1\n{tls}"))],
    );
    let global = "{\n    admin off\n    auto_https disable_redirects\n}\n";
    fs::write(site.folder.join("Caddyfile"), format!("{global}{recipe}")).unwrap();
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config", &site.path("Caddyfile")])
        .env("HOME", &site.folder)
        .env("XDG_DATA_HOME", &site.folder)
        .env("XDG_CONFIG_HOME", &site.folder)
        .stderr(Stdio::null());
    if let Some(_proxy) = start(&mut command, port) {
        site.check(port);
    }
}

#[test]
fn a_password_needs_a_client_that_came_encrypted() {
    let site = Site::start("direct");
    fs::write(site.folder.join("files/f"), "text").unwrap();
    let status = |fields: &str| {
        let mut stream = TcpStream::connect(site.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!(
            "GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n{fields}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let of_client = "X-Forwarded-For: 192.0.2.7\r\n";
    assert_eq!(status(&format!("{of_client}X-Forwarded-Proto: https\r\n")), "200");
    assert_eq!(status(&format!("{of_client}X-Forwarded-Proto: http\r\n")), "403");
    assert_eq!(status(of_client), "403");
    // A client that the proxy does not name is not this computer.
    for unknown in ["", "X-Forwarded-For: unknown\r\n"] {
        assert_eq!(status(&format!("{unknown}X-Forwarded-Proto: http\r\n")), "403");
        assert_eq!(status(&format!("{unknown}X-Forwarded-Proto: https\r\n")), "200");
    }
    assert_eq!(status("X-Forwarded-For: unknown\r\n"), "403");
    // The proxy's own request, on this computer.
    assert_eq!(status(""), "200");
}
