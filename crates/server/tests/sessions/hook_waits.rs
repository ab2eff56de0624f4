//! What a client may send while hooks are asked, and what happens when it does not wait.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millrace_net::stream;
use millrace_net::tls::Versions;
use millrace_server::Config;
use millrace_server::hooks::{Action, Event, EventContext, HookVerdict, Hooks, Rule, Rules, Template};
use millrace_storage::{Fault, FaultStorage, MemoryStorage};

use crate::hooks::{Told, serve, told, waiting};
use crate::kit::{
    Client, PATIENCE, Scratch, Served, TlsClient, config, connector, eventually, policy, serve_with,
};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A server with one thread for programs, and one that never ends of itself about each `verb`. It and its child write
/// down their numbers: each is told by a line in the file `pids`.
fn serve_program(event: Event, verb: &str, scratch: &Scratch) -> Served {
    let pids = scratch.file("pids").display().to_string();
    let script = "sleep 3600 & echo $! >> \"$1\"; echo $$ >> \"$1\"; wait";
    let program = ["/bin/sh", "-c", script, "sh", &pids].map(|word| Template::parse(word).unwrap());
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(vec![run(event, verb, &program)], None));
    let storage = Arc::new(MemoryStorage::new());
    serve_with(Config { hooks: Some(hooks), hook_threads: 1, ..config(storage) })
}

fn run(event: Event, verb: &str, program: &[Template]) -> Rule {
    Rule {
        on: vec![event],
        verbs: vec![verb.to_owned()],
        users: Vec::new(),
        paths: Vec::new(),
        larger_than: None,
        smaller_than: None,
        action: Action::Run(program.to_vec()),
        wait: None,
        time_limit: FOR_EVER,
        refuses_on_failure: true,
        refused_to: None,
    }
}

/// Waits until this many programs have begun; the processes of the last of them.
fn programs(scratch: &Scratch, count: usize) -> Vec<String> {
    let lines = || String::from_utf8(scratch.read("pids").unwrap_or_default()).unwrap();
    eventually("the program runs", || lines().lines().count() >= 2 * count);
    lines().lines().skip(2 * (count - 1)).map(str::to_owned).collect()
}

fn expect_gone(processes: &[String]) {
    let is_there = |process: &String| {
        let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    eventually("the program is killed, with what it started", || !processes.iter().any(is_there));
}

#[test]
fn abor_ends_the_wait_for_a_program_and_the_program() {
    let scratch = Scratch::new();
    let served = serve_program(Event::Command, "MKD", &scratch);
    let mut client = served.login();
    // Alone, behind other lines, and as the others do: with the Telnet part urgent.
    for (number, (behind, codes)) in
        [("", &[226][..]), ("PWD\r\nSTAT\r\n", &[257, 211, 226])].into_iter().enumerate()
    {
        client.send("MKD d\r\n");
        let processes = programs(&scratch, number + 1);
        client.send(format!("{behind}ABOR\r\n"));
        let aborted = client.expect_reply(426);
        assert_eq!(aborted.text, "426 Aborted before it had begun.\r\n");
        codes.iter().for_each(|&code| drop(client.expect_reply(code)));
        expect_gone(&processes);
        client.expect("CWD d", 550);
    }
    client.send("MKD d\r\n");
    let processes = programs(&scratch, 3);
    client.send_urgent(b"\xff\xf4\xff");
    client.send(b"\xf2ABOR\r\n");
    client.expect_reply(426);
    client.expect_reply(226);
    expect_gone(&processes);
}

/// Hooks that are asked about an upload before it takes its name.
#[derive(Debug)]
struct Beforehand(Arc<Told>);

impl Hooks for Beforehand {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        self.0.concerns(event, verb)
    }

    fn asks_beforehand(&self) -> bool {
        true
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        self.0.call(context)
    }
}

/// By then nothing is left to be aborted, and the worker has others to serve.
#[test]
fn abor_comes_too_late_for_an_upload_that_takes_its_name() {
    let storage = FaultStorage::new(MemoryStorage::new());
    let faults = storage.faults();
    let (rule, at_it, go) = waiting(Event::Upload);
    let hooks = Arc::new(Beforehand(told(|event, _| event == Event::Upload, rule)));
    let served = serve_with(Config { hooks: Some(hooks), workers: 1, ..config(Arc::new(storage)) });
    let (mut client, mut other) = (served.login(), served.login());
    let mut data = client.passive();
    client.expect("STOR f", 150);
    data.write_all(b"content").unwrap();
    drop(data);
    at_it.recv_timeout(PATIENCE).unwrap();
    faults.from(faults.calls() + 1, Fault::Stuck);
    go.send(()).unwrap();
    eventually("the upload takes its name", || faults.stuck() > 0);
    client.send("PWD\r\nABOR\r\n");
    other.expect("NOOP", 200);
    faults.release();
    [226, 257, 226].iter().for_each(|&code| drop(client.expect_reply(code)));
    assert_eq!(client.fetch("RETR f"), b"content");
}

#[test]
fn nothing_is_heard_before_a_hook_has_let_a_connection_in() {
    let (rule, at_it, go) = waiting(Event::Connect);
    let (served, _) = serve(|event, _| event == Event::Connect, rule);
    let mut client = Client::connect(served.address);
    at_it.recv_timeout(PATIENCE).unwrap();
    client.send("ABOR\r\nUSER u\r\n");
    client.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(client.stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    go.send(()).unwrap();
    [220, 226, 331].iter().for_each(|&code| drop(client.expect_reply(code)));
    // A client that leaves before the answer is gone.
    let client = Client::connect(served.address);
    at_it.recv_timeout(PATIENCE).unwrap();
    drop(client);
    eventually("the other session is over", || served.running.sessions().len() == 1);
    go.send(()).unwrap();
}

#[test]
fn a_client_of_implicit_tls_may_wait_for_a_hook_about_its_connection() {
    let (rule, at_it, go) = waiting(Event::Connect);
    let certificates = Scratch::new();
    let served = serve_with(Config {
        hooks: Some(told(|event, _| event == Event::Connect, rule)),
        ftps: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        tls: Some(policy(&certificates)),
        ..config(Arc::new(MemoryStorage::new()))
    });
    let address = served.running.ftps_addresses()[0];
    thread::scope(|scope| {
        // It says what begins TLS at once.
        let client = scope.spawn(move || TlsClient::implicit(address, connector(Versions::All)).ready());
        at_it.recv_timeout(PATIENCE).unwrap();
        thread::sleep(Duration::from_millis(50));
        go.send(()).unwrap();
        client.join().unwrap();
    });
}

#[test]
fn abor_ends_the_wait_for_a_login() {
    let (rule, at_it, go) = waiting(Event::Login);
    let (served, _) = serve(|event, _| event == Event::Login, rule);
    let mut client = served.connect();
    client.expect("USER u", 331);
    client.send("PASS p\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    client.send("ABOR\r\n");
    client.expect_reply(530);
    client.expect_reply(226);
    client.expect("PWD", 530);
    // The hook's late verdict is ignored.
    go.send(()).unwrap();
    client.expect("USER u", 331);
    client.send("PASS p\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    go.send(()).unwrap();
    client.expect_reply(230);
}

#[test]
fn abor_of_an_upload_has_it_refused_and_its_program_killed() {
    let scratch = Scratch::new();
    let served = serve_program(Event::Upload, "STOR", &scratch);
    let mut client = served.login();
    let data = client.passive();
    client.expect("STOR f", 150);
    drop(data);
    let processes = programs(&scratch, 1);
    client.expect("STAT", 211);
    client.send("ABOR\r\n");
    client.expect_reply(426);
    client.expect_reply(226);
    expect_gone(&processes);
    client.expect("SIZE f", 550);
}

/// The old file survives an abort, and an unchecked file does not stay.
#[test]
fn abor_of_an_upload_in_place_waits_for_the_hooks_word() {
    let (rule, at_it, go) = waiting(Event::Upload);
    let (served, _) = serve(|event, _| event == Event::Upload, rule);
    let mut client = served.login();
    for (line, size) in [("STOR f", "3"), ("APPE f", "6")] {
        let mut data = client.passive();
        client.expect(line, 150);
        data.write_all(b"abc").unwrap();
        drop(data);
        at_it.recv_timeout(PATIENCE).unwrap();
        let status = client.expect("STAT", 211).text;
        assert!(status.contains("All has come, and is being checked:\r\n 3 bytes in "), "{status}");
        if line == "APPE f" {
            client.send("ABOR\r\n");
            client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            assert_eq!(client.stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        go.send(()).unwrap();
        client.expect_reply(226);
        if line == "APPE f" {
            client.expect_reply(226);
        }
        assert_eq!(client.expect("SIZE f", 213).text, format!("213 {size}\r\n"));
    }
}

#[test]
fn a_warning_names_the_program_the_file_and_the_session() {
    let rule = run(Event::Upload, "STOR", &[Template::parse("/nowhere/scan").unwrap()]);
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(vec![rule], None));
    let (warned, warnings) = std::sync::mpsc::channel();
    // The server's own comes too late.
    hooks.begin(Arc::new(move |text: &str| _ = warned.send(text.to_owned()))).unwrap();
    let served = serve_with(Config { hooks: Some(hooks), ..config(Arc::new(MemoryStorage::new())) });
    let mut client = served.login();
    let data = client.passive();
    client.expect("STOR f", 150);
    drop(data);
    client.expect_reply(451);
    let warning = warnings.recv_timeout(PATIENCE).unwrap();
    let session = served.running.sessions()[0].number;
    let expected = format!("hooks: /nowhere/scan, upload of /f in session {session}: it cannot be run: ");
    assert!(warning.starts_with(&expected), "{warning}");
}

#[test]
fn stat_tells_what_is_waited_for_and_pipelined_lines_keep_their_order() {
    let (rule, at_it, go) = waiting(Event::Command);
    let (served, told) = serve(|event, verb| event == Event::Reply || verb == "MKD", rule);
    let mut client = served.login();
    client.send("MKD d\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    for _ in 0..3 {
        let status = client.expect("STAT", 211).text;
        assert!(status.contains(" MKD: "), "{status}");
    }
    client.send("NOOP\r\n");
    client.send("STAT\r\n");
    client.stream.set_nonblocking(true).unwrap();
    assert_eq!(client.stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    go.send(()).unwrap();
    [257, 200, 211].iter().for_each(|&code| drop(client.expect_reply(code)));
    client.send("MKD e\r\nSTAT\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    go.send(()).unwrap();
    [257, 211].iter().for_each(|&code| drop(client.expect_reply(code)));
    let heard = told.heard();
    let replies = heard.iter().filter(|line| line.starts_with("reply MKD"));
    assert!(replies.eq(["reply MKD /d 257", "reply MKD /e 257"]), "{heard:?}");
}

#[test]
fn quit_is_answered_behind_the_command_that_waits() {
    let (rule, at_it, go) = waiting(Event::Command);
    let (served, _) = serve(|event, verb| event == Event::Command && verb == "MKD", rule);
    let mut client = served.login();
    client.send("MKD d\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    client.send("QUIT\r\n");
    go.send(()).unwrap();
    client.expect_reply(257);
    client.expect_reply(221);
    client.expect_end();
}

#[test]
fn a_client_that_goes_away_gives_back_its_place() {
    let scratch = Scratch::new();
    let served = serve_program(Event::Command, "MKD", &scratch);
    for (number, is_cut) in [true, false].into_iter().enumerate() {
        let mut client = served.login();
        client.send("MKD d\r\n");
        let processes = programs(&scratch, number + 1);
        // A client that vanishes, and one that closes its socket.
        if is_cut {
            stream::reset_on_close(&client.stream);
        }
        drop(client);
        // The only thread for programs is free for the next.
        expect_gone(&processes);
        eventually("the session is over", || served.running.sessions().is_empty());
    }
    let mut next = served.login();
    next.send("MKD d\r\n");
    programs(&scratch, 3);
}

#[test]
fn a_line_that_comes_in_pieces_while_a_hook_is_asked_is_whole() {
    let (rule, at_it, go) = waiting(Event::Command);
    let (served, _) = serve(|event, verb| event == Event::Command && verb == "NOOP", rule);
    let mut client = served.login();
    client.send("NOOP\r\nPA");
    at_it.recv_timeout(PATIENCE).unwrap();
    client.send("SV\r\nABOR\r\n");
    client.expect_reply(426);
    client.expect_reply(227);
    client.expect_reply(226);
    go.send(()).unwrap();
}
