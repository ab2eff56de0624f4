//! Receivers of webhooks: whose post they have, and what becomes of what they do not take.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use crate::site::{PATIENCE, Receiver, SECRET, Site, blocks, eventually};

/// The receiver of the document, in Python, as it stands there but for its port, and this many seconds ahead.
struct Documented {
    child: Child,
    port: u16,
    /// What it takes.
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Documented {
    fn start(site: &Site, ahead: u32) -> Self {
        let program = blocks("python")[0]
            .replace("9000", "0")
            .replace("time.time()", &format!("time.time() + {ahead}"))
            .replace(
                "server.serve_forever()",
                "print(server.server_port, flush=True)\nserver.serve_forever()",
            );
        let mut child = Command::new("python3")
            .args(["-c", &program])
            .current_dir(&site.folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is needed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        Self { child, port, lines }
    }

    /// The status of its answer.
    fn post(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

impl Drop for Documented {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request as it is sent; it is answered that it was taken.
fn take_one(listener: &TcpListener) -> Vec<u8> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        assert!(reader.read_until(b'\n', &mut request).unwrap() > 0);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 204 Taken\r\nconnection: close\r\n\r\n").unwrap();
    [request, body].concat()
}

/// The example with a secret, for a receiver at a port.
fn signed_example(port: u16) -> String {
    let example = blocks("toml").into_iter().find(|example| example.contains("secret-file")).unwrap();
    example.replace("127.0.0.1:9000", &format!("127.0.0.1:{port}"))
}

#[test]
fn a_post_shows_whose_it_is_and_the_documented_receiver_takes_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut site = Site::new("signed", &signed_example(listener.local_addr().unwrap().port()));
    fs::create_dir(site.folder.join("files")).unwrap();
    fs::write(site.folder.join("webhook.secret"), SECRET).unwrap();
    site.start();
    assert!(site.log_in().store("one", b"x").starts_with("226"));
    let request = take_one(&listener);
    let text = String::from_utf8(request.clone()).unwrap();
    let head = text.to_ascii_lowercase();
    assert!(head.contains("authorization: bearer 5e9f\r\n") && head.contains("x-site: east\r\n"), "{head}");
    let (now, late) = (Documented::start(&site, 0), Documented::start(&site, 301));
    assert_eq!(now.post(&request), "204");
    assert_eq!(late.post(&request), "401", "an old one is not taken again");
    assert_eq!(now.post(text.replace("/one", "/two").as_bytes()), "401");
    assert_eq!(now.post(text.replace("webhook-signature", "x-signature").as_bytes()), "401");
    assert_eq!(now.post(text.replace("webhook-timestamp: 1", "webhook-timestamp: 2").as_bytes()), "401");
    for file in ["events.db", "events.db-wal"] {
        let kept = fs::read(site.folder.join(file)).unwrap_or_default();
        let kept = String::from_utf8_lossy(&kept);
        assert!(!kept.contains(SECRET.trim()) && !kept.contains("5e9f"), "{file}");
    }
}

#[test]
fn waiting_events_are_signed_with_the_reloaded_secret() {
    let mut site = Site::new("resigned", "");
    fs::create_dir(site.folder.join("files")).unwrap();
    fs::write(site.folder.join("webhook.secret"), SECRET).unwrap();
    let mut receiver = Documented::start(&site, 0);
    fs::write(site.folder.join("webhook.secret"), "not the one that the receiver has\n").unwrap();
    let file = site.folder.join("millrace.toml");
    let users = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{}{users}", signed_example(receiver.port))).unwrap();
    site.start();
    assert!(site.log_in().store("one", b"x").starts_with("226"));
    fs::write(site.folder.join("webhook.secret"), SECRET).unwrap();
    let id = site.child.as_ref().unwrap().id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    let taken = receiver.lines.next().unwrap().unwrap();
    assert!(taken.contains("\"path\":\"/one\""), "{taken}");
}

/// What `millrace ctl` prints, or of a failure says.
fn ctl(site: &Site, arguments: &[&str]) -> (bool, String) {
    let told = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .arg("ctl")
        .arg("--control")
        .arg(site.folder.join("control"))
        .args(arguments)
        .output()
        .unwrap();
    let text = if told.status.success() { told.stdout } else { told.stderr };
    (told.status.success(), String::from_utf8(text).unwrap())
}

/// The same of its JSON.
#[track_caller]
fn events(site: &Site) -> serde_json::Value {
    let (is_well, text) = ctl(site, &["--json", "events"]);
    assert!(is_well, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn undelivered_events_are_listed_retried_or_dropped_one_or_all() {
    let receiver = Receiver::start();
    let keys = format!(
        "directory = \".\"\nhttp = \"off\"\ncontrol = \"control\"\nhooks-queue = \"queue.db\"\n[[hook]]\non = \"upload\"\n\
         wait = false\nwebhook = \"http://127.0.0.1:{}/\"\n",
        receiver.port
    );
    let mut site = Site::new("backlog", &keys);
    site.start();
    let mut client = site.log_in();
    receiver.picky.store(true, Ordering::Relaxed);
    for name in ["one", "two", "three"] {
        assert!(client.store(name, b"x").starts_with("226"));
    }
    eventually("three are parked", || events(&site)["parked"] == 3);
    receiver.picky.store(false, Ordering::Relaxed);
    receiver.busy.store(true, Ordering::Relaxed);
    assert!(client.store("four", b"x").starts_with("226"));
    eventually("it is known why one waits", || {
        events(&site)["events"][3]["error"] != serde_json::Value::Null
    });
    let told = events(&site);
    let told = told["events"].as_array().unwrap();
    for (event, (path, state, error)) in told.iter().zip([
        ("/one", "parked", "the receiver refuses it with 422"),
        ("/two", "parked", "the receiver refuses it with 422"),
        ("/three", "parked", "the receiver refuses it with 422"),
        ("/four", "waiting", "the receiver answers 503"),
    ]) {
        assert_eq!([&event["path"], &event["state"], &event["error"]], [path, state, error], "{event}");
        assert_eq!([&event["event"], &event["user"]], ["upload", "alice"], "{event}");
    }
    let id = |at: usize| told[at]["id"].as_str().unwrap();
    // One is tried again, behind no one who waits for longer; one is dropped.
    assert_eq!(ctl(&site, &["events", "retry", id(1)]), (true, "1 event retried.\n".to_owned()));
    assert_eq!(ctl(&site, &["events", "drop", id(0)]), (true, "1 event dropped.\n".to_owned()));
    let (is_well, text) = ctl(&site, &["events", "drop", id(2), id(0)]);
    assert!(!is_well && text.contains(&format!("there is no event {} in the queue", id(0))), "{text}");
    assert_eq!((&events(&site)["waiting"], &events(&site)["parked"]), (&2.into(), &1.into()), "all or none");
    receiver.busy.store(false, Ordering::Relaxed);
    assert!(ctl(&site, &["events", "retry", id(3)]).0, "it need not wait for its time");
    eventually("both come", || receiver.events().len() == 2);
    assert_eq!(receiver.events()[id(1)]["path"], "/two", "with the id that it had");
    assert!(receiver.events().contains_key(id(3)));
    eventually("they are gone from the queue", || events(&site)["waiting"] == 0);
    // Events parked by an earlier server are the same events.
    site.kill();
    let _ = fs::remove_file(site.folder.join("control"));
    site.start();
    assert_eq!(events(&site)["parked"], 1);
    assert_eq!(
        ctl(&site, &["events", "retry", "--all", "--to", "http://elsewhere/"]).1,
        "0 events retried.\n"
    );
    assert_eq!(ctl(&site, &["events", "retry", "--all"]).1, "1 event retried.\n");
    eventually("the last one comes", || receiver.paths("upload").contains("/three"));
    eventually("and nothing is left", || events(&site)["waiting"] == 0);
    assert_eq!(receiver.bodies.lock().unwrap().len(), 3, "each came once");
    // An event that no receiver accepts.
    receiver.busy.store(true, Ordering::Relaxed);
    assert!(site.log_in().store("five", b"x").starts_with("226"));
    assert_eq!(ctl(&site, &["events", "drop", "--all"]).1, "0 events dropped.\n");
    assert_eq!(ctl(&site, &["events", "drop", "--all", "--waiting"]).1, "1 event dropped.\n");
    assert_eq!(ctl(&site, &["events"]), (true, "0 waiting, 0 parked.\n".to_owned()));
}

#[test]
fn a_server_without_a_queue_says_so_and_the_documented_lines_are_understood() {
    let mut site = Site::new("no-queue", "directory = \".\"\nhttp = \"off\"\ncontrol = \"control\"\n");
    site.start();
    for line in blocks("console").iter().flat_map(|block| block.lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], ["millrace", "ctl"], "{line}");
        let (is_well, text) = ctl(&site, &words[2..]);
        assert!(!is_well && text.contains("there is no queue"), "{line}: {text}");
    }
    for wrong in
        [&["events", "retry"][..], &["events", "drop", "1", "--all"], &["events", "drop", "1", "--waiting"]]
    {
        let (is_well, text) = ctl(&site, wrong);
        assert!(!is_well && (text.contains("Usage") || text.contains("say which")), "{wrong:?}: {text}");
    }
}
