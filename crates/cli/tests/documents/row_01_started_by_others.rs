//! Row 1: start from inetd (wu-ftpd's usual way), and by socket activation.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::site::{Client, Folder, eventually, free_port, program};

/// A program that starts others. It ends with the test.
struct SuperServer(Child);

impl SuperServer {
    fn start(command: &mut Command, folder: &Folder) -> Self {
        let log = fs::File::create(folder.0.join("log")).unwrap();
        let child = command
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self(child)
    }
}

impl Drop for SuperServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn millrace() -> &'static str {
    env!("CARGO_BIN_EXE_millrace")
}

fn config(folder: &Folder) -> String {
    folder.0.join("millrace.toml").display().to_string()
}

/// Two sessions at once, which log in, and move a file in each direction.
fn serves_sessions(address: &str, folder: &Folder) {
    let connect = || eventually(&format!("no session: {}", folder.log()), || Client::try_connect(address));
    let (mut one, mut other) = (connect(), connect());
    for client in [&mut one, &mut other] {
        client.log_in("bob");
    }
    assert_eq!(one.get("f"), b"the content of a file");
    other.put("g", b"sent");
    assert_eq!(one.get("g"), b"sent");
    for mut client in [one, other] {
        client.say("QUIT", "221");
        assert!(client.has_ended(), "the process ends with its session, and closes the connection");
    }
}

#[test]
fn inetd_starts_a_process_for_each_session() {
    let Some(inetd) = program("inetd", true) else { return };
    let folder = Folder::new("inetd");
    folder.configure("");
    let port = free_port();
    let user = user();
    let line = format!(
        "127.0.0.1:{port} stream tcp nowait {user} {} millrace serve --inetd --config {}\n",
        millrace(),
        config(&folder)
    );
    fs::write(folder.0.join("inetd.conf"), line).unwrap();
    let mut command = Command::new(inetd);
    command.args(["-i", "-E"]).arg(folder.0.join("inetd.conf"));
    let _inetd = SuperServer::start(&mut command, &folder);
    serves_sessions(&format!("127.0.0.1:{port}"), &folder);
}

#[test]
fn xinetd_starts_a_process_for_each_session() {
    // Debian lets only one of the two be installed.
    let Some(xinetd) = program("xinetd", false) else { return };
    let folder = Folder::new("xinetd");
    folder.configure("");
    let port = free_port();
    let text = format!(
        "service millrace\n{{\n type = UNLISTED\n socket_type = stream\n protocol = tcp\n wait = no\n bind = 127.0.0.1\n \
         port = {port}\n user = {}\n server = {}\n server_args = serve --inetd --config {}\n}}\n",
        user(),
        millrace(),
        config(&folder)
    );
    fs::write(folder.0.join("xinetd.conf"), text).unwrap();
    let mut command = Command::new(xinetd);
    command
        .args(["-dontfork", "-filelog", "xinetd.log", "-pidfile", "xinetd.pid", "-f"])
        .arg(folder.0.join("xinetd.conf"));
    let _xinetd = SuperServer::start(&mut command, &folder);
    serves_sessions(&format!("127.0.0.1:{port}"), &folder);
}

/// As `Accept=yes` of a socket unit.
#[test]
fn systemd_starts_a_process_for_each_connection() {
    let Some(activate) = program("systemd-socket-activate", true) else { return };
    let folder = Folder::new("accept");
    folder.configure("");
    let port = free_port();
    let mut command = Command::new(activate);
    command.args(["--accept", "--inetd", "-l", &format!("127.0.0.1:{port}"), millrace(), "serve", "--inetd"]);
    command.args(["--config", &config(&folder)]);
    let _activate = SuperServer::start(&mut command, &folder);
    serves_sessions(&format!("127.0.0.1:{port}"), &folder);
}

/// As socket units with `FileDescriptorName=`: the sockets go with names, and none is opened beside them.
#[test]
fn systemd_hands_over_listeners_by_name() {
    let Some(activate) = program("systemd-socket-activate", true) else { return };
    let folder = Folder::new("activate");
    folder.configure("");
    let [ftp, http] = [free_port(), free_port()];
    let mut command = Command::new(activate);
    for port in [http, ftp] {
        command.args(["-l", &format!("127.0.0.1:{port}")]);
    }
    command.args([
        "--fdname=http:ftp",
        millrace(),
        "serve",
        "--config",
        &config(&folder),
        "--ready-file",
        "ready",
    ]);
    let _activate = SuperServer::start(&mut command, &folder);
    serves_sessions(&format!("127.0.0.1:{ftp}"), &folder);
    let ready = eventually("it is ready", || fs::read_to_string(folder.0.join("ready")).ok());
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((&ready["ftp"][0]["port"], &ready["http"][0]["port"]), (&ftp.into(), &http.into()), "{ready}");
    assert_eq!(ready["ftp"].as_array().unwrap().len() + ready["http"].as_array().unwrap().len(), 2);
    let page = http_get(&format!("127.0.0.1:{http}"), "/f");
    assert!(page.ends_with("the content of a file"), "{page}");
}

#[test]
fn an_activated_server_without_http_does_not_open_it() {
    let Some(activate) = program("systemd-socket-activate", true) else { return };
    let folder = Folder::new("only-ftp");
    folder.configure("control = \"control\"");
    let port = free_port();
    let mut command = Command::new(activate);
    command.args(["-l", &format!("127.0.0.1:{port}"), millrace(), "serve", "--config", &config(&folder)]);
    command.args(["--ready-file", "ready"]);
    let _activate = SuperServer::start(&mut command, &folder);
    serves_sessions(&format!("127.0.0.1:{port}"), &folder);
    let ready = eventually("it is ready", || fs::read_to_string(folder.0.join("ready")).ok());
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((&ready["ftp"][0]["port"], &ready["http"]), (&port.into(), &serde_json::json!([])));
    // The successor of an upgrade has the same listeners.
    let mut before = Client::connect(&format!("127.0.0.1:{port}"));
    let upgraded = folder.tell(&["ctl", "--control", "control", "--json", "upgrade"]);
    assert!(upgraded.contains("\"pid\""), "{upgraded}");
    before.say("USER bob", "331");
    serves_sessions(&format!("127.0.0.1:{port}"), &folder);
    folder.tell(&["ctl", "--control", "control", "stop"]);
}

#[test]
fn standard_input_that_is_no_connection_is_refused() {
    let folder = Folder::new("no-connection");
    folder.configure("");
    let output = folder.run(&["serve", "--inetd", "--config", "millrace.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("standard input is no connection"),
        "{output:?}"
    );
}

/// A server that cannot start tells its client so, and not why.
#[test]
fn a_client_hears_421_where_the_configuration_is_wrong() {
    let Some(activate) = program("systemd-socket-activate", true) else { return };
    let folder = Folder::new("wrong");
    fs::write(folder.0.join("millrace.toml"), "directory = \"nowhere\"\n").unwrap();
    let port = free_port();
    let mut command = Command::new(activate);
    command.args(["--accept", "--inetd", "-l", &format!("127.0.0.1:{port}"), millrace(), "serve", "--inetd"]);
    command.args(["--config", &config(&folder)]);
    let _activate = SuperServer::start(&mut command, &folder);
    let reply = eventually("a reply", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok()?;
        Some(text)
    });
    assert!(reply.starts_with("421 ") && !reply.contains("nowhere"), "{reply:?}");
    assert!(Path::new(&folder.0).join("log").exists());
}

fn user() -> String {
    let id = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_owned()
}

fn http_get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
