//! `millrace bench` against something that is not a server, or that stops: it reports the error and its figures so far,
//! and ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    parts(bench(arguments).output().unwrap())
}

fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Something that listens; it answers where.
fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address.to_string()
}

/// A `millrace serve` that any user may write to; it is gone when dropped.
struct Serving {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Serving {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-bad-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", folder.to_str().unwrap(), "--ftp", "127.0.0.1:0", "--user", "me:pw", "--quiet"])
            .args(["--http", "off"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let place = lines.find_map(|line| Some(line.trim_start().split_once("ftp://me@")?.1.to_owned()));
        assert!(lines.any(|line| line.starts_with("Ready")));
        let url = format!("ftp://me:pw@{}", place.unwrap().split(' ').next().unwrap());
        Self { child, folder, url }
    }

    /// A preset of its own.
    fn preset(&self, text: &str) -> String {
        let path = self.folder.with_extension("toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.folder.with_extension("toml"));
    }
}

#[test]
fn a_target_that_is_not_a_server_is_reported_at_once() {
    let closes = listen(drop);
    let is_mute = listen(std::mem::forget);
    let is_ssh = listen(|mut socket| {
        let _ = socket.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = socket.read(&mut [0; 64]);
    });
    let is_endless = listen(|mut socket| while socket.write_all(&[b'x'; 4096]).is_ok() {});
    for (address, words) in [
        (closes, "closed the connection where its greeting was expected"),
        (is_mute, "said nothing for 300ms where its greeting was expected"),
        (is_ssh, "the server sent what is no reply; is it a server for ftp://?"),
        (is_endless, "is it a server for ftp://?"),
    ] {
        let (status, _, said) = run(&[&format!("ftp://{address}/"), "--timeout", "300ms"]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(words) && said.contains(&address), "{said}");
    }
}

#[test]
fn a_target_that_does_not_speak_http_is_reported_at_once() {
    let closes = listen(|mut socket| drop(socket.read(&mut [0; 4096])));
    let is_ftp = listen(|mut socket| {
        let _ = socket.write_all(b"220 Here is FTP.\r\n500 What?\r\n");
        let _ = socket.read(&mut [0; 4096]);
    });
    for (address, words) in [(closes, "closed the connection where a response"), (is_ftp, "where a response")]
    {
        let (status, _, said) = run(&[&format!("http://{address}/")]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(words) && said.contains("where a response of HTTP was expected"), "{said}");
    }
}

#[test]
fn missing_resources_are_reported_before_the_load() {
    let serving = Serving::start("lacks");
    for (flags, words) in [
        (["--server-pid", "2147483646"], "there is no such process"),
        (["--server-pid", "vsftpd"], "\"vsftpd\" is no process's number"),
        (["--source", "192.0.2.0/24"], "nothing can be sent from 192.0.2.1"),
        (["--users", "900000"], "--source 127.0.0.0/8 takes more addresses"),
        (["--ports", "2121,http"], "--ports: \"http\" is no port"),
        (["--think", "-1"], "--think: \"-1\" is not between 0 and "),
    ] {
        let (status, _, said) = run(&[&[serving.url.as_str(), "--ops", "noop"], &flags[..]].concat());
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    // Users are spread over processes, and bad users are not.
    let few = format!(
        "ulimit -n 100; exec {} bench {} --ops noop --users 50 --chaos 100%",
        env!("CARGO_BIN_EXE_millrace"),
        serving.url
    );
    let (status, _, said) = parts(Command::new("sh").args(["-c", &few]).output().unwrap());
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("50 bad users need more than the 100 descriptors"), "{said}");
    let (status, _, said) = run(&[&serving.url, "--json", "-", "--csv", "-"]);
    assert_eq!((status, said.contains("only one of --json")), (Some(2), true), "{said}");
}

#[test]
fn a_server_that_does_nothing_right_is_a_failure() {
    let serving = Serving::start("nothing");
    let flags = ["--ops", "retr", "--file", "nowhere", "--users", "2", "--count", "2", "--warm-up", "0"];
    let (status, table, _) = run(&[&[serving.url.as_str()], &flags[..]].concat());
    assert_eq!(status, Some(1), "{table}");
    assert!(table.contains("4 operations or logins failed, beside 0 that ended well."), "{table}");
}

#[test]
fn a_server_that_dies_in_mid_run_leaves_a_report() {
    let mut serving = Serving::start("dies");
    let preset = serving.preset(
        "users = 3\nwarm-up = '0s'\n[[step]]\nops = 'noop'\ncount = 5\n[[step]]\nops = 'noop'\nduration = '3s'\n\
         [[step]]\nops = 'retr'\n",
    );
    let mut run =
        bench(&[&serving.url, &preset]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("noop, 3 users: 15 operations"), "{line}");
    serving.child.kill().unwrap();
    let (status, table, _) = parts(run.wait_with_output().unwrap());
    assert_eq!(status, Some(1), "{table}");
    assert!(table.contains("\nnoop "), "{table}");
    assert!(table.contains("It did not end as it should: 127.0.0.1:"), "{table}");
}

#[test]
fn ctrl_c_ends_it_with_what_it_has() {
    let serving = Serving::start("stop");
    let preset = serving.preset(
        "users = 3\nwarm-up = '0s'\n[[step]]\nops = 'noop'\ncount = 5\n[[step]]\nops = 'stor'\nduration = '10m'\n",
    );
    let json = serving.folder.with_extension("json");
    let run = bench(&[&serving.url, &preset, "--json", json.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut run = run.unwrap();
    let mut line = String::new();
    BufReader::new(run.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let interrupted = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let (status, table, _) = parts(run.wait_with_output().unwrap());
    assert_eq!(status, Some(3), "{table}");
    assert!(table.contains("\nnoop ") && table.contains("It was interrupted"), "{table}");
    let report = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(&json).unwrap();
    assert!(report.contains("\"ending\": \"interrupted\""), "{report}");
    let left = std::fs::read_dir(&serving.folder).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name.as_encoded_bytes().starts_with(b".")), "{left:?}");
}

#[test]
fn a_full_disk_costs_one_report_and_not_the_others() {
    let serving = Serving::start("full");
    let csv = serving.folder.with_extension("csv");
    let flags = ["--ops", "noop", "--users", "2", "--count", "2", "--warm-up", "0", "--json", "/dev/full"];
    let (status, table, said) =
        run(&[&[serving.url.as_str()], &flags[..], &["--csv", csv.to_str().unwrap()]].concat());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("/dev/full cannot be written: No space left"), "{said}");
    assert!(table.contains("\nnoop "), "{table}");
    let lines = std::fs::read_to_string(&csv).unwrap();
    std::fs::remove_file(&csv).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
}
