//! Clients behind HAProxy, which names them: `send-proxy` and `send-proxy-v2`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, find, skip, tool};
use crate::tree::noise;

/// Where the clients are.
const CLIENT: &str = "127.0.0.9";

/// The data ports. The server and the proxy have addresses of their own, on which all ports are there.
const PORTS: (u16, u16) = (20_100, 20_107);

/// What an administrator reads.
const TEXT: &str = include_str!("../../../../docs/limits.md");

/// How long HAProxy may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and an HAProxy before it that passes on the same ports.
struct Site {
    server: Server,
    address: Ipv4Addr,
    haproxy: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.haproxy.kill();
        let _ = self.haproxy.wait();
    }
}

/// Two addresses of this machine's that no other test uses: there are 16 million in 127.0.0.0/8.
fn own_addresses() -> [Ipv4Addr; 2] {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    [64, 128].map(|begin| Ipv4Addr::new(127, begin + number, high, low))
}

impl Site {
    /// `None` where there is no HAProxy.
    fn behind(option: &str) -> Option<Self> {
        let Some(program) = find("haproxy").or_else(|| Tool::at("/usr/sbin/haproxy")) else {
            skip("haproxy is not installed");
            return None;
        };
        let [own, address] = own_addresses();
        let (first, last) = PORTS;
        let configuration = format!(
            "proxy-from = \"{address}\"\npassive-ports = \"{first}-{last}\"\nhttp = \"{own}:0\"\nftps = \"{own}:0\"\n\
             https = \"{own}:0\"\ntls-self-signed = true\ntls-names = [\"{address}\"]\nstate = \"state\"\n"
        );
        let server = Server::configured_on(&format!("{own}:0"), &configuration, &[]);
        let doors = [Some(server.address), server.http, server.ftps, server.https];
        let ports = doors.into_iter().flatten().map(|door| door.port().to_string());
        let binds: String = ports.map(|port| format!("    bind {address}:{port}\n")).collect();
        let example = TEXT.split("```haproxy\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let here = [
            ("    bind 192.0.2.1:21\n".to_owned(), binds),
            ("192.0.2.1:50000-50999".to_owned(), format!("{address}:{first}-{last}")),
            ("10.0.0.20 send-proxy-v2".to_owned(), format!("{own} {option}\n    source {address}")),
        ];
        let listen = here.iter().fold(example.to_owned(), |text, (there, here)| {
            assert!(text.contains(there), "{there} is not in {text}");
            text.replace(there, here)
        });
        let times = "timeout connect 30s\n    timeout client 60s\n    timeout server 60s";
        let text = format!("global\n    maxconn 500\ndefaults\n    {times}\n{listen}");
        let (file, log) = (server.home().join("haproxy.cfg"), server.home().join("haproxy.log"));
        fs::write(&file, text).unwrap();
        let output = fs::File::create(&log).unwrap();
        let haproxy = Command::new(program.program())
            .args(["-db", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut site = Self { server, address, haproxy };
        let deadline = Instant::now() + PATIENCE;
        // A data port without a tenant: no session begins.
        while TcpStream::connect(SocketAddr::new(IpAddr::V4(address), first)).is_err() {
            let ended = site.haproxy.try_wait().unwrap();
            let log = || fs::read_to_string(&log).unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "haproxy does not begin: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(site)
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        let door = match scheme {
            "ftps" => self.server.ftps,
            "http" => self.server.http,
            "https" => self.server.https,
            _ => Some(self.server.address),
        };
        format!("{scheme}://{}:{}/{path}", self.address, door.unwrap().port())
    }

    fn curl(&self, curl: &Tool, arguments: &[&str]) -> String {
        let user = format!("{USER}:{PASSWORD}");
        let authority = self.server.authority().display().to_string();
        let common = [
            "--silent",
            "--show-error",
            "--fail",
            "--interface",
            CLIENT,
            "--user",
            &user,
            "--cacert",
            &authority,
        ];
        curl.run(&self.server, &[&common[..], arguments].concat())
    }

    /// Asserts that the log has every session as the client's.
    fn assert_all_are_the_clients(&self, sessions: usize) {
        let log = self.server.log_with(&format!(" connected proxy=\"{}:", self.address), sessions);
        let of_others = |line: &&str| {
            line.contains('#') && !line.contains(&format!(" {CLIENT}:")) && !line.contains(" #0 ")
        };
        let others: Vec<&str> = log.lines().filter(of_others).collect();
        assert!(others.is_empty(), "{others:#?}");
    }
}

fn curl_goes_both_ways(option: &str) {
    let (Some(curl), Some(site)) = (tool("curl"), Site::behind(option)) else { return };
    let content = noise(7, 300_000);
    fs::write(site.server.local().join("f"), &content).unwrap();
    let ways: [(&str, &str, &[&str]); 8] = [
        ("ftp", "epsv", &[]),
        // It connects to where the reply says.
        ("ftp", "pasv", &["--disable-epsv", "--no-ftp-skip-pasv-ip"]),
        ("ftp", "port", &["--ftp-port", CLIENT, "--disable-eprt"]),
        ("ftp", "explicit", &["--ssl-reqd"]),
        ("ftps", "implicit", &[]),
        ("http", "http", &[]),
        ("https", "https", &["--http1.1"]),
        ("https", "http-2", &["--http2"]),
    ];
    for (scheme, name, arguments) in ways {
        let url = site.url(scheme, name);
        site.curl(&curl, &[&["--upload-file", "f", &url], arguments].concat());
        assert_eq!(read(site.server.served().join(name)), content, "{name}");
        site.curl(&curl, &[&["--output", name, &url], arguments].concat());
        assert_eq!(read(site.server.local().join(name)), content, "{name}");
    }
    site.assert_all_are_the_clients(10);
}

#[test]
fn curl_goes_both_ways_by_every_door_behind_a_proxy_of_version_1() {
    curl_goes_both_ways("send-proxy");
}

#[test]
fn curl_goes_both_ways_by_every_door_behind_a_proxy_of_version_2() {
    curl_goes_both_ways("send-proxy-v2 proxy-v2-options crc32c,unique-id,ssl");
}

#[test]
fn lftp_mirrors_behind_a_proxy() {
    let (Some(lftp), Some(site)) = (tool("lftp"), Site::behind("send-proxy-v2")) else { return };
    crate::tree::make(&site.server.local().join("tree"), 40, &[]);
    let script = format!(
        "set cmd:fail-exit yes; set net:max-retries 2; set net:timeout 30; set net:socket-bind-ipv4 {CLIENT}; \
         set ftp:ssl-allow no; set mirror:parallel-transfer-count 4; open -u {USER},{PASSWORD} {}; \
         mirror -R tree up; mirror up back",
        site.url("ftp", "")
    );
    lftp.run(&site.server, &["-c", &script]);
    crate::tree::assert_same(
        &site.server.local().join("tree"),
        &site.server.local().join("back"),
        crate::tree::Times::Kept,
    );
    site.assert_all_are_the_clients(1);
}

/// A proxy that says nothing is not believed, and the log says which it was and what the matter is.
#[test]
fn a_proxy_that_does_not_say_whom_it_connects_for_is_refused() {
    let (Some(curl), Some(site)) = (tool("curl"), Site::behind("")) else { return };
    let url = site.url("http", "f");
    // By HTTP the client speaks first.
    let output = curl.attempt(&site.server, &["--silent", "--max-time", "60", &url], "");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("PROXY header"));
    let log = site.server.log_with("proxy-refused", 1);
    let expected = format!("proxy-refused from=\"{}:", site.address);
    assert!(log.contains(&expected) && log.contains("it does not begin with a PROXY header"), "{log}");
}
