//! Hooks inside the server's own process: what they are asked and told, in which order, and who waits.

use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_server::{BanRules, Config};
use millrace_storage::MemoryStorage;
use millrace_vfs::VirtualPath;

use crate::kit::{PATIENCE, Scratch, Served, config, eventually, serve_with};

type Rule = Box<dyn Fn(&EventContext) -> HookVerdict + Send + Sync>;

/// Writes down what it hears, and answers what a test wants.
pub(crate) struct Told {
    heard: Mutex<Vec<String>>,
    concerns: fn(Event, &str) -> bool,
    rule: Rule,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

impl Hooks for Told {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        (self.concerns)(event, verb)
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        let path =
            |path: &Option<VirtualPath>| path.as_ref().map_or(String::new(), |path| format!(" {path}"));
        let code = context.code.map_or(String::new(), |code| format!(" {code}"));
        let line =
            format!("{} {}{}{}{code}", context.event, context.verb, path(&context.path), path(&context.to));
        self.heard.lock().unwrap().push(line.replace("  ", " ").trim().to_owned());
        (self.rule)(context)
    }
}

impl Told {
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

pub(crate) fn serve(
    concerns: fn(Event, &str) -> bool,
    rule: impl Fn(&EventContext) -> HookVerdict + Send + Sync + 'static,
) -> (Served, Arc<Told>) {
    let told = told(concerns, rule);
    let storage = Arc::new(MemoryStorage::new());
    let hooks: Arc<dyn Hooks> = told.clone();
    (serve_with(Config { hooks: Some(hooks), ..config(storage) }), told)
}

pub(crate) fn told(
    concerns: fn(Event, &str) -> bool,
    rule: impl Fn(&EventContext) -> HookVerdict + Send + Sync + 'static,
) -> Arc<Told> {
    Arc::new(Told { heard: Mutex::default(), concerns, rule: Box::new(rule) })
}

/// A rule that waits where it is told to: the test hears that it does, and lets it go on.
pub(crate) fn waiting(
    at: Event,
) -> (impl Fn(&EventContext) -> HookVerdict + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let (arrived, at_it) = channel();
    let (go, may_go) = channel::<()>();
    let both = Mutex::new((arrived, may_go));
    let rule = move |context: &EventContext| {
        if context.event == at {
            let both = both.lock().unwrap();
            let _ = both.0.send(());
            let _ = both.1.recv_timeout(PATIENCE);
        }
        HookVerdict::Pass
    };
    (rule, at_it, go)
}

#[test]
fn all_that_a_session_does_is_asked_or_told_in_its_order() {
    let (served, told) = serve(|_, _| true, |_| HookVerdict::Pass);
    let mut client = served.login();
    client.store("STOR a", b"12345");
    client.fetch("RETR a");
    client.expect("RNFR a", 350);
    client.expect("RNTO b", 250);
    client.expect("SITE COPY b c", 250);
    client.expect("SITE CPFR b", 350);
    client.expect("SITE CPTO e", 250);
    client.expect("SITE COPY none c", 550);
    client.expect("DELE b", 250);
    client.expect("DELE b", 550);
    client.expect("MKD d", 257);
    client.expect("RMD d", 250);
    client.expect("SITE UMASK", 200);
    client.expect("NONSENSE", 500);
    client.expect("QUIT", 221);
    eventually("it has heard of the end", || told.heard().last().is_some_and(|last| last == "disconnect"));
    let expected = "connect|command USER|reply USER 331|command PASS|login|reply PASS 230|command TYPE|reply TYPE 200\
        |command PASV|reply PASV 227|command STOR /a|upload /a|reply STOR /a 226\
        |command PASV|reply PASV 227|command RETR /a|download /a|reply RETR /a 226\
        |command RNFR /a|reply RNFR /a 350|command RNTO /b|rename /a /b|reply RNTO /b 250\
        |command SITE COPY /b|copy /b /c|reply SITE COPY /b 250|command SITE CPFR /b|reply SITE CPFR /b 350\
        |command SITE CPTO /e|copy /b /e|reply SITE CPTO /e 250|command SITE COPY /none|reply SITE COPY /none 550\
        |command DELE /b|delete /b|reply DELE /b 250|command DELE /b|reply DELE /b 550\
        |command MKD /d|make-directory /d|reply MKD /d 257|command RMD /d|remove-directory /d|reply RMD /d 250\
        |command SITE UMASK|reply SITE UMASK 200|command QUIT|reply QUIT 221|logout|disconnect";
    let expected: Vec<&str> = expected.split('|').map(str::trim_end).collect();
    assert_eq!(told.heard(), expected);
}

#[test]
fn a_command_is_refused_or_rewritten_before_it_runs() {
    let concerns =
        |event, verb: &str| event == Event::Command && ["DELE", "STOR", "RETR", "RNTO"].contains(&verb);
    let (served, told) = serve(concerns, |context| match (&*context.verb, &*context.argument) {
        ("STOR", b"here") => HookVerdict::Rewrite(VirtualPath::parse(b"/there").unwrap()),
        ("DELE" | "RNTO", _) => HookVerdict::Refuse(Refusal::new("552 Keep it.\nmore")),
        ("RETR", b"secret") => HookVerdict::Refuse(Refusal::new("Not this one.")),
        _ => HookVerdict::Pass,
    });
    let mut client = served.login();
    client.store("STOR here", b"12345");
    client.expect("SIZE here", 550);
    client.expect("SIZE there", 213);
    assert_eq!(client.expect("DELE there", 552).text, "552 Keep it.\r\n");
    client.expect("REST 3", 350);
    assert_eq!(client.try_fetch("RETR secret").1.code, 550);
    assert_eq!(client.fetch("RETR there"), b"12345", "the REST was the refused command's");
    client.expect("RNFR there", 350);
    client.expect("RNTO x", 552);
    client.expect("RNTO x", 552);
    client.send("DELE there\r\nNOOP\r\nDELE there\r\nSIZE there\r\n");
    assert_eq!([552, 200, 552, 213].map(|_| client.reply().code), [552, 200, 552, 213], "pipelined");
    // A user without the permission is refused before hooks are asked.
    let asked = told.heard().len();
    let mut reader = served.connect();
    reader.expect("DELE there", 530);
    reader.log_in("r", "p");
    reader.expect("DELE there", 550);
    assert_eq!(told.heard().len(), asked);
}

#[test]
fn connections_logins_and_uploads_can_be_refused() {
    let concerns = |event, _: &str| event != Event::Command && event != Event::Reply;
    let (served, told) = serve(concerns, |context| match (context.event, context.user.as_deref()) {
        (Event::Connect, _) if context.session % 2 == 0 => {
            HookVerdict::Refuse(Refusal::new("Only the odd ones."))
        }
        (Event::Login, Some(b"r")) => HookVerdict::Refuse(Refusal::new("Not today.")),
        (Event::Upload, _) => {
            assert_eq!(context.bytes, Some(5));
            let storage = context.storage.as_ref().unwrap();
            storage.remove_file(context.path.as_ref().unwrap()).unwrap();
            HookVerdict::Refuse(Refusal::new("451 It has a virus."))
        }
        _ => HookVerdict::Pass,
    });
    let mut client = served.connect();
    let mut even = crate::kit::Client::connect(served.address);
    assert_eq!(even.expect_reply(421).text, "421 Only the odd ones.\r\n");
    even.expect_end();
    client.expect("USER r", 331);
    assert_eq!(client.expect("PASS p", 530).text, "530 Not today.\r\n");
    client.log_in("u", "p");
    assert_eq!(client.try_store("STOR f", b"12345").text, "451 It has a virus.\r\n");
    client.expect("SIZE f", 550);
    client.expect_alive();
    let heard = told.heard();
    assert!(!heard.contains(&"upload-failed /f".to_owned()), "it was told as an upload: {heard:?}");
}

#[test]
fn replies_wait_until_the_hooks_have_heard_of_what_they_tell() {
    let (rule, at_it, go) = waiting(Event::Delete);
    let (served, _) = serve(|event, _| event == Event::Delete, rule);
    let mut client = served.login();
    client.store("STOR f", b"1");
    client.send("DELE f\r\nNOOP\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    let mut other = served.login();
    other.expect("SIZE f", 550);
    client.stream.set_nonblocking(true).unwrap();
    assert_eq!(client.stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    go.send(()).unwrap();
    client.expect_reply(250);
    client.expect_reply(200);
}

#[test]
fn a_hook_that_hangs_delays_no_other_session() {
    let (rule, at_it, go) = waiting(Event::Command);
    let (served, _) = serve(|event, verb| event == Event::Command && verb == "MKD", rule);
    let mut held_up = served.login();
    held_up.send("MKD d\r\nRMD d\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    // More than there are workers: each of them has one.
    for _ in 0..6 {
        let mut client = served.login();
        client.store("STOR f", b"12345");
        client.expect("MDTM d", 550);
    }
    go.send(()).unwrap();
    held_up.expect_reply(257);
    held_up.expect_reply(250);
}

#[test]
fn commands_before_a_hang_up_are_executed_after_the_hooks_verdict() {
    let (rule, at_it, go) = waiting(Event::Command);
    let (served, told) = serve(|event, verb| verb == "MKD" || event == Event::MakeDirectory, rule);
    let mut client = served.login();
    client.send("MKD d\r\n");
    at_it.recv_timeout(PATIENCE).unwrap();
    drop(client);
    go.send(()).unwrap();
    eventually("the directory is made and told of", || {
        told.heard().contains(&"make-directory /d".to_owned())
    });
}

#[test]
fn a_hook_that_panics_refuses_and_the_server_lives() {
    let (served, _) = serve(
        |event, verb| event == Event::Command && verb == "DELE",
        |_| panic!("on purpose: a hook that is wrong"),
    );
    let mut client = served.login();
    client.store("STOR f", b"1");
    client.expect("DELE f", 451);
    client.expect("SIZE f", 213);
}

#[test]
fn a_ban_and_a_failed_transfer_are_told() {
    let concerns = |event, _: &str| matches!(event, Event::Ban | Event::UploadFailed | Event::DownloadFailed);
    let told = Arc::new(Told { heard: Mutex::default(), concerns, rule: Box::new(|_| HookVerdict::Pass) });
    let bans = BanRules { after: 2, ..BanRules::default() };
    let hooks: Arc<dyn Hooks> = told.clone();
    let config = Config { hooks: Some(hooks), bans, ..config(Arc::new(MemoryStorage::new())) };
    let served = serve_with(config);
    let mut client = served.connect();
    for _ in 0..2 {
        client.expect("USER eve", 331);
        client.expect("PASS x", 530);
    }
    client.log_in("u", "p");
    let data = client.passive();
    client.expect("STOR f", 150);
    client.send("ABOR\r\n");
    client.expect_reply(426);
    client.expect_reply(226);
    drop(data);
    assert_eq!(told.heard(), ["ban", "upload-failed /f"]);
}

#[test]
fn programs_that_hang_delay_no_session_without_programs() {
    use millrace_server::hooks::{Action, PathPattern, Rule, Rules, Template};
    let scratch = Scratch::new();
    let rule = |path: &str, action: Action| Rule {
        on: vec![Event::Command],
        verbs: vec!["MKD".to_owned()],
        users: Vec::new(),
        paths: vec![PathPattern::new(path)],
        larger_than: None,
        smaller_than: None,
        action,
        wait: None,
        time_limit: 2 * PATIENCE,
        refuses_on_failure: true,
        refused_to: None,
    };
    let go = scratch.file("go").display().to_string();
    let waits = ["/bin/sh", "-c", "until test -e \"$1\"; do sleep 0.05; done", "sh", &go];
    let program = waits.map(|word| Template::parse(word).unwrap()).to_vec();
    let rules = vec![
        rule("/slow", Action::Run(program)),
        rule("/no", Action::Refuse("553 Not here.".to_owned())),
        rule("/other", Action::Rewrite(Template::parse("/else").unwrap())),
    ];
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(rules, None));
    let storage = Arc::new(MemoryStorage::new());
    let served = serve_with(Config { hooks: Some(hooks), hook_threads: 1, ..config(storage) });
    let (mut slow, mut quick) = (served.login(), served.login());
    slow.send("MKD slow\r\n");
    for _ in 0..3 {
        quick.expect("MKD no", 553);
    }
    quick.expect("MKD other", 257);
    quick.expect("SIZE else", 550);
    scratch.write("go", b"");
    slow.expect_reply(257);
}
