//! Hooks get the events of HTTP, and can refuse or change requests.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use millrace_net::tls::Versions;
use millrace_server::Config;
use millrace_server::hooks::{
    Action, Event, EventContext, HookVerdict, Hooks, PathPattern, Refusal, Rule, Rules, Template,
};
use millrace_server::limits::{Limit, Limits, ServerLimits};
use millrace_vfs::VirtualPath;

use crate::kit::{Response, Scratch, Secured, ServedHttp, connector, eventually};
use crate::kit::{http_config, https_config, pattern, serve_http_with};

/// Writes down what it hears, and answers what a test wants.
struct Told {
    heard: Mutex<Vec<String>>,
    rule: fn(&EventContext) -> HookVerdict,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

impl Hooks for Told {
    fn concerns(&self, _: Event, _: &str) -> bool {
        true
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        let path =
            |path: &Option<VirtualPath>| path.as_ref().map_or(String::new(), |path| format!(" {path}"));
        let number = |number: Option<u64>| number.map_or(String::new(), |number| format!(" {number}"));
        let verb = if context.verb.is_empty() { String::new() } else { format!(" {}", context.verb) };
        let (from, to) = (path(&context.path), path(&context.to));
        let numbers = number(context.bytes) + &number(context.code.map(u64::from));
        self.heard.lock().unwrap().push(format!("{}{verb}{from}{to}{numbers}", context.event));
        (self.rule)(context)
    }
}

fn serve(scratch: &Scratch, rule: fn(&EventContext) -> HookVerdict) -> (ServedHttp, Arc<Told>) {
    let told = Arc::new(Told { heard: Mutex::default(), rule });
    let hooks: Arc<dyn Hooks> = told.clone();
    (serve_http_with(Config { hooks: Some(hooks), ..http_config(scratch.storage()) }), told)
}

fn ask(served: &ServedHttp, line: &str, fields: &str, body: &[u8]) -> Response {
    let mut client = served.connect();
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n{fields}");
    client
        .send([head.as_bytes(), format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat());
    client.response()
}

#[test]
fn all_that_is_done_by_http_is_asked_or_told_in_its_order() {
    let scratch = Scratch::new();
    let (served, told) = serve(&scratch, |_| HookVerdict::Pass);
    let mut client = served.connect();
    let mut ask = |line: &str, fields: &str, body: &[u8]| {
        let head = format!("{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n{fields}");
        let length = format!("Content-Length: {}\r\n\r\n", body.len());
        client.send([head.as_bytes(), length.as_bytes(), body].concat());
        client.response().status
    };
    assert_eq!(ask("PUT /a", "", b"12345"), 201);
    assert_eq!(ask("GET /a", "", b""), 200);
    assert_eq!(ask("MOVE /a", "Destination: /b\r\n", b""), 201);
    assert_eq!(ask("COPY /b", "Destination: /c\r\n", b""), 201);
    assert_eq!(ask("DELETE /b", "", b""), 204);
    assert_eq!(ask("DELETE /b", "", b""), 404);
    assert_eq!(ask("MKCOL /d", "", b""), 201);
    let lock =
        b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
    assert_eq!(ask("LOCK /l", "", lock), 201);
    assert_eq!(ask("LOCK /c", "", lock), 200);
    assert_eq!(ask("DELETE /d", "", b""), 204);
    let expected = "connect|login|command PUT /a 5|upload /a 5|reply PUT /a 201\
        |command GET /a|download /a 5|reply GET /a 200\
        |command MOVE /a /b|rename /a /b|reply MOVE /a /b 201|command COPY /b /c|copy /b /c|reply COPY /b /c 201\
        |command DELETE /b|delete /b|reply DELETE /b 204|command DELETE /b|reply DELETE /b 404\
        |command MKCOL /d|make-directory /d|reply MKCOL /d 201\
        |command LOCK /l|make-file /l|reply LOCK /l 201|command LOCK /c|reply LOCK /c 200\
        |command DELETE /d|remove-directory /d|reply DELETE /d 204|logout|disconnect";
    let expected: Vec<&str> = expected.split('|').collect();
    drop(client);
    eventually("the last is heard", || told.heard.lock().unwrap().len() >= expected.len());
    assert_eq!(*told.heard.lock().unwrap(), expected);
}

#[test]
fn a_hook_that_panics_refuses_and_the_connection_goes_on() {
    let scratch = Scratch::new();
    let (served, _) = serve(&scratch, |context| match &*context.verb {
        "DELETE" if context.event == Event::Command => panic!("on purpose: a hook that is wrong"),
        _ => HookVerdict::Pass,
    });
    let mut client = served.connect();
    let mut ask = |line: &str| {
        client.send(format!(
            "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nContent-Length: 0\r\n\r\n"
        ));
        client.response().status
    };
    assert_eq!([ask("PUT /a"), ask("DELETE /a"), ask("GET /a")], [201, 503, 200]);
}

#[test]
fn a_request_is_refused_or_rewritten_before_it_is_carried_out() {
    let scratch = Scratch::new();
    let (served, _) = serve(&scratch, |context| match (context.event, &*context.verb, &*context.argument) {
        (Event::Command, "PUT", b"/here") => HookVerdict::Rewrite(VirtualPath::parse(b"/there").unwrap()),
        (Event::Command, "PUT", b"/full") => HookVerdict::Refuse(Refusal::new("552 It is full.")),
        (Event::Command, "DELETE" | "PROPFIND", _) => HookVerdict::Refuse(Refusal::new("550 Keep <it>.")),
        _ => HookVerdict::Pass,
    });
    assert_eq!(ask(&served, "PUT /here", "", b"content").status, 201);
    assert_eq!((scratch.read("here"), scratch.read("there")), (None, Some(b"content".to_vec())));
    let refused = ask(&served, "DELETE /there", "", b"");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("Keep &lt;it&gt;."), "{}", refused.text());
    assert!(scratch.read("there").is_some());
    assert_eq!(ask(&served, "PUT /full", "", &pattern(100_000)).status, 507);
    assert_eq!(ask(&served, "PROPFIND /", "Depth: 0\r\n", b"").status, 403);
    assert_eq!(scratch.read("full"), None);
}

/// The address of an upload is secret; its pieces may come by POST.
#[test]
fn the_reply_event_has_the_same_facts_as_the_request() {
    let scratch = Scratch::new();
    let (served, told) = serve(&scratch, |_| HookVerdict::Pass);
    let tus = "Tus-Resumable: 1.0.0\r\n";
    let begun = ask(&served, "POST /up", &format!("{tus}Upload-Length: 4\r\n"), b"");
    let address = begun.field("location").unwrap().to_owned();
    let piece = format!(
        "{tus}X-HTTP-Method-Override: PATCH\r\nUpload-Offset: 0\r\n\
         Content-Type: application/offset+octet-stream\r\n"
    );
    assert_eq!(ask(&served, &format!("POST {address}"), &piece, b"1234").status, 204);
    let heard = || -> Vec<String> {
        let heard = told.heard.lock().unwrap();
        heard.iter().filter(|line| !line.contains("connect") && !line.contains("log")).cloned().collect()
    };
    let expected = "command PUT /up 4|reply PUT /up 201|command PATCH /up|upload /up 4|reply PATCH /up 204";
    eventually("all is heard", || heard().len() >= 5);
    assert_eq!(heard().join("|"), expected);
}

#[test]
fn a_login_survives_a_refused_command_and_malformed_requests_have_no_event() {
    let scratch = Scratch::new();
    scratch.write("a", b"content");
    let (served, told) = serve(&scratch, |context| match &*context.verb {
        "DELETE" => HookVerdict::Refuse(Refusal::new("550 Keep it.")),
        _ => HookVerdict::Pass,
    });
    let mut client = served.connect();
    for (line, status) in [("DELETE /a", 403), ("DELETE /a", 403), ("GET /a", 200)] {
        client.send(format!("{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n\r\n"));
        assert_eq!(client.response().status, status);
    }
    client.send("no request\r\n\r\n");
    assert_eq!(client.response().status, 400);
    client.end_writing();
    client.expect_end();
    let heard = || told.heard.lock().unwrap().join("|");
    eventually("the end is heard", || heard().ends_with("|disconnect"));
    let expected = "connect|login|command DELETE /a|command DELETE /a|command GET /a|download /a 7|reply GET /a 200\
                    |logout|disconnect";
    assert_eq!(heard(), expected);
}

#[test]
fn a_refused_login_gets_nothing_by_http_either() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let (served, told) = serve(&scratch, |context| match context.event {
        Event::Login if context.user.as_deref() == Some(b"u") => {
            HookVerdict::Refuse(Refusal::new("Not today."))
        }
        _ => HookVerdict::Pass,
    });
    let refused = ask(&served, "GET /f", "", b"");
    assert!(refused.status == 403 && refused.text().contains("Not today."), "{refused:?}");
    assert_eq!(served.get("/f", "").body, b"content", "anonymous may");
    let heard = told.heard.lock().unwrap();
    let commands: Vec<&String> = heard.iter().filter(|line| line.starts_with("command")).collect();
    assert_eq!(commands, ["command GET /f"], "nothing was asked for by who was not let in");
}

#[test]
fn a_connection_logs_in_once_for_each_user_and_out_when_it_ends_or_is_another_users() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let (served, told) = serve(&scratch, |_| HookVerdict::Pass);
    let mut client = served.connect();
    let user = "Authorization: Basic dTpw\r\n";
    for fields in [user, user, "", user] {
        client.send(format!("GET /f HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        assert_eq!(client.response().body, b"content");
    }
    drop(client);
    let logins = || -> Vec<String> {
        let heard = told.heard.lock().unwrap();
        heard.iter().filter(|line| line.contains("log") || line.contains("connect")).cloned().collect()
    };
    eventually("the end is heard", || logins().last().is_some_and(|line| line == "disconnect"));
    let expected = "connect|login|logout|login|logout|login|logout|disconnect";
    assert_eq!(logins(), expected.split('|').collect::<Vec<_>>());
}

#[test]
fn a_connection_that_is_not_wanted_hears_why_or_hears_nothing_where_it_came_for_tls() {
    let scratch = Scratch::new();
    let hooks: Arc<dyn Hooks> = Arc::new(Told {
        heard: Mutex::default(),
        rule: |context| match context.event {
            Event::Connect => HookVerdict::Refuse(Refusal::new("Not <today>.")),
            _ => HookVerdict::Pass,
        },
    });
    let served = serve_http_with(Config { hooks: Some(hooks), ..https_config(&scratch) });
    let refused = served.get("/", "");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("Not &lt;today&gt;."), "{}", refused.text());
    let stream = TcpStream::connect(served.running.https_addresses()[0]).unwrap();
    assert!(Secured::over(stream, &connector(Versions::All)).is_err());
}

#[test]
fn an_upload_that_is_refused_is_put_away_and_the_client_hears_why() {
    let scratch = Scratch::new();
    let rule = |on, action| Rule {
        on: vec![on],
        verbs: Vec::new(),
        users: Vec::new(),
        paths: vec![PathPattern::new("/in/**")],
        larger_than: None,
        smaller_than: None,
        action,
        wait: None,
        time_limit: crate::kit::PATIENCE,
        refuses_on_failure: true,
        refused_to: Some(Template::parse("/quarantine/{name}").unwrap()),
    };
    let words = |words: &[&str]| words.iter().map(|word| Template::parse(word).unwrap()).collect();
    let check = "if grep -q EICAR \"$1\"; then echo '552 A virus.'; exit 1; fi";
    let rules = vec![
        Rule {
            verbs: vec!["RETR".to_owned()],
            ..rule(Event::Command, Action::Refuse("Not yet.".to_owned()))
        },
        Rule { larger_than: Some(1000), ..rule(Event::Command, Action::Refuse("Too large.".to_owned())) },
        rule(Event::Upload, Action::Run(words(&["/bin/sh", "-c", check, "sh", "{file}"]))),
        rule(Event::Upload, Action::Move(Template::parse("/checked/{user}/{name}").unwrap())),
    ];
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(rules, None));
    let served = serve_http_with(Config { hooks: Some(hooks), ..http_config(scratch.storage()) });
    assert_eq!(ask(&served, "MKCOL /in", "", b"").status, 201);
    assert_eq!(ask(&served, "PUT /in/good", "", b"fine").status, 201);
    assert_eq!(scratch.read("checked/u/good").unwrap(), b"fine");
    let bad = ask(&served, "PUT /in/bad", "", b"EICAR");
    assert_eq!((bad.status, bad.text().contains("A virus.")), (507, true));
    assert_eq!((scratch.read("in/bad"), scratch.read("quarantine/bad").unwrap()), (None, b"EICAR".to_vec()));
    assert_eq!(ask(&served, "PUT /in/large", "", &pattern(2000)).status, 403, "before a byte of it came");
    assert_eq!(ask(&served, "GET /in/good", "", b"").status, 403, "a rule about RETR");
    assert_eq!(ask(&served, "GET /checked/u/good", "", b"").body, b"fine");
}

#[test]
fn a_rule_about_a_command_holds_for_every_method_that_does_the_same() {
    let scratch = Scratch::new();
    for folder in ["list", "mlsd", "nlst", "in"] {
        std::fs::create_dir(scratch.file(folder)).unwrap();
        scratch.write(&format!("{folder}/f"), b"content");
    }
    let rule = |verb: &str, path: &str| Rule {
        on: vec![Event::Command],
        verbs: vec![verb.to_owned()],
        users: Vec::new(),
        paths: vec![PathPattern::new(path)],
        larger_than: None,
        smaller_than: None,
        action: Action::Refuse("Not this way.".to_owned()),
        wait: None,
        time_limit: crate::kit::PATIENCE,
        refuses_on_failure: true,
        refused_to: None,
    };
    let rules = vec![
        rule("LIST", "/list/**"),
        rule("MLSD", "/mlsd/**"),
        rule("NLST", "/nlst/**"),
        rule("STOR", "/in/**"),
        rule("RETR", "/in/f"),
    ];
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(rules, None));
    let served = serve_http_with(Config { hooks: Some(hooks), ..http_config(scratch.storage()) });
    let status = |line: &str| {
        let lock = "<lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope>\
                    <locktype><write/></locktype></lockinfo>";
        let body = if line.starts_with("LOCK") { lock } else { "" };
        let head = format!("{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nDepth: 0\r\n");
        served.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).status
    };
    for folder in ["/list", "/mlsd", "/nlst"] {
        for (line, expected) in [
            (format!("PROPFIND {folder}"), 403),
            (format!("GET {folder}/"), 403),
            (format!("HEAD {folder}/"), 403),
            (format!("GET {folder}/?sort=size"), 403),
            (format!("GET {folder}/f"), 200),
            (format!("LOCK {folder}/new"), 201),
        ] {
            assert_eq!(status(&line), expected, "{line}");
        }
    }
    for (line, expected) in
        [("LOCK /in/new", 403), ("PUT /in/new", 403), ("HEAD /in/f", 403), ("GET /in/", 200)]
    {
        assert_eq!(status(line), expected, "{line}");
    }
    assert_eq!(scratch.read("in/new"), None);
}

#[test]
fn the_transfer_log_has_what_http_moves() {
    let scratch = Scratch::new();
    let logs = Scratch::new();
    let xferlog = logs.path().join("xferlog");
    let served = serve_http_with(Config { xferlog: Some(xferlog.clone()), ..http_config(scratch.storage()) });
    let content = pattern(2_000_000);
    assert_eq!(ask(&served, "PUT /large", "", &content).status, 201);
    assert_eq!(ask(&served, "GET /large", "", b"").body.len(), content.len());
    assert_eq!(ask(&served, "PUT /small", "", b"12345").status, 201);
    assert_eq!(served.get("/small", "Range: bytes=1-2\r\n").body, b"23");
    assert_eq!(served.get("/", "").status, 200, "a page of a directory is no transfer");
    let read = || std::fs::read_to_string(&xferlog).unwrap();
    eventually("it is written", || read().lines().count() >= 4);
    let log = read();
    let ends: Vec<&str> = log.lines().map(|line| line.split_once("127.0.0.1 ").unwrap().1).collect();
    let expected = [
        "2000000 /large b _ i r u http 0 * c",
        "2000000 /large b _ o r u http 0 * c",
        "5 /small b _ i r u http 0 * c",
        "2 /small b _ o a anonymous http 0 * c",
    ];
    assert_eq!(ends, expected);
}

#[test]
fn the_program_of_a_request_whose_client_is_gone_is_killed() {
    let scratch = Scratch::new();
    let pids = scratch.file("pids").display().to_string();
    let program = ["/bin/sh", "-c", "echo $$ >> \"$1\"; exec sleep 3600", "sh", &pids];
    let rule = Rule {
        on: vec![Event::Command],
        verbs: vec!["DELETE".to_owned()],
        users: Vec::new(),
        paths: Vec::new(),
        larger_than: None,
        smaller_than: None,
        action: Action::Run(program.map(|word| Template::parse(word).unwrap()).to_vec()),
        wait: None,
        time_limit: std::time::Duration::from_secs(3600),
        refuses_on_failure: true,
        refused_to: None,
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(vec![rule], None));
    let config = Config { hooks: Some(hooks), hook_threads: 1, ..http_config(scratch.storage()) };
    let served = serve_http_with(config);
    scratch.write("f", b"it stays");
    for number in 0..2 {
        let mut client = served.connect();
        client.send("DELETE /f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n\r\n");
        let pid = || {
            let lines = String::from_utf8(scratch.read("pids").unwrap_or_default()).unwrap();
            lines.lines().nth(number).filter(|_| lines.ends_with('\n')).map(str::to_owned)
        };
        eventually("the program runs", || pid().is_some());
        // Cut off, or only closed.
        if number == 0 {
            millrace_net::stream::reset_on_close(&client.stream);
        }
        drop(client);
        let stat = format!("/proc/{}/stat", pid().unwrap());
        let is_there = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        eventually("it is killed", || !is_there());
    }
    assert!(scratch.read("f").is_some());
}

#[test]
fn a_refused_put_leaves_the_file_that_was_there() {
    let scratch = Scratch::new();
    let program = ["/bin/sh", "-c", "if grep -q EICAR \"$1\"; then exit 1; fi", "sh", "{file}"];
    let rule = Rule {
        on: vec![Event::Upload],
        verbs: Vec::new(),
        users: Vec::new(),
        paths: Vec::new(),
        larger_than: None,
        smaller_than: Some(100),
        action: Action::Run(program.map(|word| Template::parse(word).unwrap()).to_vec()),
        wait: None,
        time_limit: crate::kit::PATIENCE,
        refuses_on_failure: true,
        refused_to: None,
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Rules::new(vec![rule], None));
    let served = serve_http_with(Config { hooks: Some(hooks), ..http_config(scratch.storage()) });
    let tag = |response: &Response| response.field("etag").map(str::to_owned);
    let first = ask(&served, "PUT /f", "", b"old");
    assert_eq!((first.status, tag(&first).is_some()), (201, true));
    assert_eq!(ask(&served, "PUT /f", "", b"EICAR").status, 403);
    assert_eq!(scratch.read("f").unwrap(), b"old");
    assert_eq!(ask(&served, "PUT /g", "", b"EICAR").status, 403);
    assert_eq!(scratch.read("g"), None);
    let again = ask(&served, "PUT /f", "", b"new");
    assert_eq!((again.status, tag(&again).is_some()), (204, true));
    assert_eq!(scratch.read("f").unwrap(), b"new");
    // A request outside the rule is measured by its body, not by the file.
    assert_eq!(ask(&served, "PUT /f", "", &b"EICAR".repeat(40)).status, 204);
}

/// For longer than hooks may take then: its body is let in slowly.
#[test]
fn a_client_that_ended_its_side_long_ago_hears_what_hooks_say_of_its_upload() {
    let scratch = Scratch::new();
    let rule = |context: &EventContext| {
        let pause = u64::from(context.event == Event::Upload);
        std::thread::sleep(std::time::Duration::from_secs(pause));
        HookVerdict::Pass
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Told { heard: Mutex::default(), rule });
    let session = Limits { upload: Some(Limit::of(100_000)), ..Limits::default() };
    let limits = ServerLimits { session, ..ServerLimits::default() };
    let served = serve_http_with(Config { hooks: Some(hooks), limits, ..http_config(scratch.storage()) });
    let mut client = served.connect();
    let head = "PUT /a HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nContent-Length: 800000\r\n\r\n";
    client.send([head.as_bytes(), &pattern(800_000)].concat());
    client.end_writing();
    assert_eq!(client.response().status, 201);
}
