//! Programs that answer requests (CGI/1.1, RFC 3875).

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::Config;
use millrace_server::config::{Peer, Programs, ProxyRoute, Upstream};
use millrace_storage::Archives;
use millrace_vfs::VirtualPath;

use crate::kit::{Scratch, ServedHttp, eventually, http_config, pattern, serve_http_with};

struct Site {
    scratch: Scratch,
    served: ServedHttp,
}

fn site(programs: &[(&str, &str)], change: impl FnOnce(&mut Programs)) -> Site {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("cgi")).unwrap();
    scratch.write("file.txt", b"a file");
    for (name, text) in programs {
        program(&scratch, name, text);
    }
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let mut marked =
        Programs { folders: vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)], ..Programs::default() };
    change(&mut marked);
    let served = serve_http_with(Config { programs: marked, ..http_config(scratch.storage()) });
    Site { scratch, served }
}

fn program(scratch: &Scratch, name: &str, text: &str) {
    let name = format!("cgi/{name}");
    scratch.write(&name, format!("#!/bin/sh\n{text}\n").as_bytes());
    std::fs::set_permissions(scratch.file(&name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The process that a program told the number of is gone.
fn is_gone(scratch: &Scratch, file: &str) -> bool {
    let Some(number) = scratch.read(file).filter(|number| number.ends_with(b"\n")) else { return false };
    let number = String::from_utf8(number).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/stat", number.trim()));
    // A zombie has ended, too; its parent may have ended before.
    status.map_or(true, |status| status.contains(") Z "))
}

const ECHO: &str = "echo 'Content-Type: text/plain'; echo; echo \"$REQUEST_METHOD|$SCRIPT_NAME|$PATH_INFO|$QUERY_STRING|\
                    $CONTENT_LENGTH|$REMOTE_ADDR|$HTTP_PROXY|$HTTP_X_A\"; cat";

#[test]
fn a_program_is_told_of_its_request_and_answers_it() {
    let site = site(&[("echo", ECHO)], |_| {});
    let answer = site.served.get("/cgi/echo/a%20b/c?q=1", "Proxy: http://evil/\r\nX-A: x\r\n");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), Some("text/plain"));
    assert_eq!(answer.text(), "GET|/cgi/echo|/a b/c|q=1||127.0.0.1||x\n");
    for (target, path_info) in [("/cgi/echo/a/", "/a/"), ("/cgi/echo/", "/"), ("/cgi/echo", "")] {
        let told = format!("GET|/cgi/echo|{path_info}|||127.0.0.1||\n");
        assert_eq!(site.served.get(target, "").text(), told, "{target}");
    }
    let post = "POST /cgi/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(site.served.ask(post).text(), "POST|/cgi/echo|||5|127.0.0.1||\nhello");
    assert_eq!(site.served.get("/file.txt", "").body, b"a file", "files beside it are files");
}

#[test]
fn a_program_in_a_folder_among_the_programs_is_one_too() {
    let site = site(&[], |_| {});
    std::fs::create_dir_all(site.scratch.file("cgi/a/b")).unwrap();
    program(&site.scratch, "a/b/echo", ECHO);
    assert_eq!(site.served.get("/cgi/a/b/echo/c", "").text(), "GET|/cgi/a/b/echo|/c|||127.0.0.1||\n");
    assert_eq!(site.served.get("/cgi/a/b", "").status, 403);
    assert_eq!(site.served.get("/cgi/a/nothing/echo", "").status, 404);
}

/// The first words are held back for a moment, not for the end.
#[test]
fn a_programs_output_is_streamed() {
    let slow = "echo 'Content-Type: a/b'; echo; echo first; \
                while ! test -e \"$PATH_TRANSLATED\"; do sleep 0.05; done; echo second";
    let site = site(&[("slow", slow)], |_| {});
    let mut client = site.served.connect();
    client.send("GET /cgi/slow/now HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\n6\r\nfirst\n\r\n") {
        let mut buffer = [0; 512];
        let count = client.stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&buffer[..count]);
    }
    site.scratch.write("now", b"");
    all.clear();
    client.stream.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"7\r\nsecond\n\r\n0\r\n\r\n");
}

#[test]
fn bodies_of_both_directions_stream_through_a_program() {
    let site = site(&[("cat", "echo 'Content-Type: a/b'; echo; cat")], |_| {});
    let content = pattern(3_000_000);
    let head = format!("POST /cgi/cat HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", content.len());
    let mut client = site.served.connect();
    let mut writer = client.stream.try_clone().unwrap();
    let (sent, body) = (head.into_bytes(), content.clone());
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        writer.write_all(&[sent, body].concat()).unwrap();
    });
    let answer = client.response();
    sender.join().unwrap();
    assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    assert!(answer.body == content);
    assert_eq!(client.get("/file.txt").body, b"a file", "the connection goes on");
}

#[test]
fn statuses_redirects_and_raw_answers_are_the_programs() {
    let site = site(
        &[
            ("status", "printf 'Status: 404 Nope\\nContent-Type: text/plain\\n\\nnope'"),
            ("client", "printf 'Location: http://example.org/x\\n\\n'"),
            ("local", "printf 'Location: /file.txt\\n\\n'"),
            ("circle", "printf 'Location: /cgi/circle\\n\\n'"),
            ("length", "printf 'Content-Type: a/b\\nContent-Length: 3\\n\\nabc and more'"),
            ("nph-raw", "printf 'HTTP/1.1 418 Teapot\\r\\nX-Raw: yes\\r\\n\\r\\ntea'"),
            ("empty", "printf 'Status: 204\\n\\n'"),
        ],
        |_| {},
    );
    let get = |name: &str| site.served.get(&format!("/cgi/{name}"), "");
    assert_eq!((get("status").status, get("status").text()), (404, "nope".to_owned()));
    assert_eq!((get("client").status, get("client").field("location")), (302, Some("http://example.org/x")));
    assert_eq!((get("local").status, get("local").text()), (200, "a file".to_owned()));
    assert_eq!(get("circle").status, 502);
    assert_eq!(get("length").text(), "abc", "no more than it announced");
    let raw = get("nph-raw");
    assert_eq!((raw.status, raw.field("x-raw"), raw.text()), (418, Some("yes"), "tea".to_owned()));
    let head = site.served.ask("HEAD /cgi/nph-raw HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.status, head.body), (418, b"".to_vec()));
    assert_eq!(get("empty").status, 204);
    let head = site.served.ask("HEAD /cgi/status HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.status, head.body), (404, b"".to_vec()));
}

/// Redirects are counted for each request, whatever they lead to.
#[test]
fn a_connection_may_be_led_to_a_file_as_often_as_it_asks() {
    let site = site(&[("local", "printf 'Location: /file.txt\\n\\n'")], |_| {});
    let mut client = site.served.connect();
    for _ in 0..8 {
        assert_eq!(client.get("/cgi/local").text(), "a file");
    }
}

#[test]
fn a_body_that_a_program_has_left_is_no_request_behind_its_redirect() {
    let site = site(&[("leaves", "printf 'Location: /file.txt\\n\\n'")], |_| {});
    let smuggled = "GET /file.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = smuggled.len();
    let mut client = site.served.connect();
    client.send(format!("POST /cgi/leaves HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"));
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("a file", Some("close")));
    client.send(smuggled);
    client.end_writing();
    client.expect_end();
}

/// RFC 9112 section 3.2.2.
#[test]
fn the_host_of_an_absolute_target_counts_behind_a_redirect_too() {
    let site = site(
        &[
            ("leads", "printf 'Location: /cgi/host\\n\\n'"),
            ("host", "echo 'Content-Type: a/b'; echo; echo \"$SERVER_NAME $HTTP_HOST\""),
        ],
        |_| {},
    );
    for target in ["/cgi/leads", "/cgi/host"] {
        let request = format!("GET http://other:8080{target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(site.served.ask(request).text(), "other other:8080\n", "{target}");
    }
}

#[test]
fn pipelined_requests_wait_for_a_program() {
    let site = site(&[("echo", ECHO)], |_| {});
    let mut client = site.served.connect();
    client.send(
        "GET /cgi/echo HTTP/1.1\r\nHost: h\r\n\r\nGET /file.txt HTTP/1.1\r\nHost: h\r\n\r\n\
         POST /cgi/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET /file.txt HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    assert!(client.response().text().starts_with("GET|"));
    assert_eq!(client.response().text(), "a file");
    assert!(client.response().text().ends_with("\nab"));
    assert_eq!(client.response().text(), "a file");
}

#[test]
fn a_program_that_does_not_answer_as_it_should_is_502() {
    let site = site(
        &[("mute", "exit 3"), ("noise", "echo this is no head"), ("half", "echo 'Content-Type: a/b'")],
        |_| {},
    );
    for name in ["mute", "noise", "half"] {
        assert_eq!(site.served.get(&format!("/cgi/{name}"), "").status, 502, "{name}");
    }
}

#[test]
fn a_file_that_is_not_executable_is_not_run() {
    let site = site(&[("echo", ECHO)], |_| {});
    site.scratch.write("cgi/data", b"#!/bin/sh\necho secret");
    assert_eq!(site.served.get("/cgi/data", "").status, 403, "its text is not shown either");
    assert_eq!(site.served.get("/cgi/nothing", "").status, 404);
    assert_eq!(site.served.get("/cgi/", "").status, 403);
    assert_eq!(site.served.get("/cgi", "").status, 403);
    let chunked = "POST /cgi/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(site.served.ask(chunked).status, 411);
}

#[test]
fn a_file_outside_the_program_folder_is_not_run_whatever_its_path() {
    let elsewhere = Scratch::new();
    let site = site(&[("echo", ECHO)], |programs| {
        programs.folders[0].1 = elsewhere.path().canonicalize().unwrap();
    });
    let answer = site.served.get("/cgi/echo", "");
    assert_eq!(answer.status, 200);
    assert!(answer.text().starts_with("#!/bin/sh"), "{}", answer.text());
    // Also for a request that needs the pool a second time.
    for (line, status) in [("PROPFIND /cgi/echo", 207), ("DELETE /cgi/echo", 204), ("GET /cgi/echo", 404)] {
        let head = format!("{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nDepth: 0\r\n\r\n");
        assert_eq!(site.served.ask(head).status, status, "{line}");
    }
}

/// RFC 9110 section 8.6: that of the answer to `GET`, or none.
#[test]
fn the_answer_to_head_has_the_length_that_the_program_says() {
    let site = site(
        &[
            ("silent", "echo 'Content-Type: a/b'; echo; test $REQUEST_METHOD = HEAD || echo text"),
            ("sized", "echo 'Content-Type: a/b'; echo 'Content-Length: 5'; echo; echo text"),
        ],
        |_| {},
    );
    for (name, length) in [("silent", None), ("sized", Some("5"))] {
        let head = site.served.ask(format!("HEAD /cgi/{name} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!((head.status, head.field("content-length")), (200, length), "{name}");
        assert_eq!(site.served.get(&format!("/cgi/{name}"), "").text(), "text\n", "{name}");
    }
}

#[test]
fn a_program_that_hangs_is_ended_with_its_children() {
    let hang = "sleep 600 & echo $! > \"$PATH_TRANSLATED.child\"; echo $$ > \"$PATH_TRANSLATED\"; wait";
    let site = site(&[("hang", hang)], |programs| programs.time = Duration::from_secs(1));
    assert_eq!(site.served.get("/cgi/hang/timed", "").status, 504);
    eventually("it is gone", || is_gone(&site.scratch, "timed") && is_gone(&site.scratch, "timed.child"));
}

/// As `nc -N` does: it has said all, and waits.
#[test]
fn a_client_that_ends_its_side_is_answered() {
    let taker = "cat > \"$PATH_TRANSLATED\"; echo >> \"$PATH_TRANSLATED.whole\"; \
                 echo 'Content-Type: a/b'; echo; echo taken";
    let site = site(&[("echo", ECHO), ("take", taker)], |_| {});
    let post = |target: &str, length| {
        format!("POST /cgi/{target} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nbody")
    };
    for (request, status, text) in [
        ("GET /cgi/echo HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 200, "GET|/cgi/echo||||127.0.0.1||\n"),
        ("GET /cgi/echo HTTP/1.0\r\n\r\n".to_owned(), 200, "GET|/cgi/echo||||127.0.0.1||\n"),
        (post("echo", 4), 200, "POST|/cgi/echo|||4|127.0.0.1||\nbody"),
        (post("take/all", 4), 200, "taken\n"),
        // The rest of its body will not come, and what came is not the whole.
        (post("take/part", 5), 400, ""),
    ] {
        let mut client = site.served.connect();
        client.send(&request);
        client.end_writing();
        let answer = client.response();
        assert_eq!(answer.status, status, "{request}");
        assert!(status != 200 || answer.text() == text, "{request}: {}", answer.text());
    }
    assert_eq!(site.scratch.read("all").as_deref(), Some(&b"body"[..]));
    assert_eq!(site.scratch.read("all.whole").as_deref(), Some(&b"\n"[..]));
    assert_eq!(site.scratch.read("part.whole"), None, "the program was ended before it heard of an end");
}

/// One that has gone looks the same until something is sent to it.
#[test]
fn a_client_that_ended_its_side_and_waits_for_long_is_asked_whether_it_is_there() {
    let slow = "while ! test -e \"$PATH_TRANSLATED\"; do sleep 0.05; done; echo 'Content-Type: a/b'; echo; echo late";
    let site = site(&[("slow", slow)], |_| {});
    let mut client = site.served.connect();
    client.send("GET /cgi/slow/now HTTP/1.1\r\nHost: h\r\n\r\n");
    client.end_writing();
    assert_eq!(client.response().status, 100);
    site.scratch.write("now", b"");
    let answer = std::iter::repeat_with(|| client.response()).find(|answer| answer.status != 100).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "late\n"));
}

#[test]
fn a_client_that_goes_takes_its_program_with_it() {
    let hang = "sleep 600 & echo $! > \"$PATH_TRANSLATED.child\"; echo $$ > \"$PATH_TRANSLATED\"; wait";
    let site = site(&[("hang", hang)], |_| {});
    let mut client = site.served.connect();
    client.send("GET /cgi/hang/left HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("it runs", || site.scratch.read("left").is_some_and(|number| number.ends_with(b"\n")));
    drop(client);
    eventually("it is gone", || is_gone(&site.scratch, "left") && is_gone(&site.scratch, "left.child"));
}

/// Of the end of its side nothing more is told when it comes with the last bytes.
#[test]
fn a_client_that_goes_with_the_end_of_its_body_takes_its_program_with_it() {
    let hang = "echo $$ > \"$PATH_TRANSLATED\"; cat > /dev/null; exec sleep 600";
    let site = site(&[("hang", hang)], |_| {});
    let mut client = site.served.connect();
    client.send("POST /cgi/hang/left HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
    eventually("it runs", || site.scratch.read("left").is_some_and(|number| number.ends_with(b"\n")));
    // Both in one segment.
    rustix::net::sockopt::set_tcp_cork(&client.stream, true).unwrap();
    client.send("body");
    drop(client);
    eventually("it is gone", || is_gone(&site.scratch, "left"));
}

#[test]
fn a_flood_is_taken_at_the_clients_pace_and_ends_with_it() {
    let flood = "echo $$ > \"$PATH_TRANSLATED\"; echo 'Content-Type: a/b'; echo; exec cat /dev/zero";
    let site = site(&[("flood", flood)], |_| {});
    let mut client = site.served.connect();
    client.send("GET /cgi/flood/flooding HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("it runs", || site.scratch.read("flooding").is_some_and(|number| number.ends_with(b"\n")));
    assert_eq!(site.served.get("/file.txt", "").body, b"a file", "others are served meanwhile");
    drop(client);
    eventually("it is gone", || is_gone(&site.scratch, "flooding"));
}

#[test]
fn requests_beyond_the_limit_wait_for_their_turn() {
    let site = site(&[("echo", ECHO)], |programs| programs.most = 1);
    let mut clients: Vec<_> = (0..20).map(|_| site.served.connect()).collect();
    for client in &mut clients {
        client.send("GET /cgi/echo HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn errors_that_a_program_writes_block_no_request() {
    let noisy = "i=0; while [ $i -lt 3000 ]; do echo 'a line of errors, and quite a long one at that' >&2; \
                 i=$((i+1)); done; printf 'Content-Type: a/b\\n\\ndone'";
    let site = site(&[("noisy", noisy)], |_| {});
    assert_eq!(site.served.get("/cgi/noisy", "").text(), "done");
}

/// Everything that comes; the error is a reset.
fn raw(served: &ServedHttp, target: &str, version: &str) -> std::io::Result<Vec<u8>> {
    let mut client = served.connect();
    client.send(format!("GET {target} HTTP/{version}\r\nHost: h\r\nConnection: close\r\n\r\n"));
    let mut all = Vec::new();
    client.stream.read_to_end(&mut all).map(|_| all)
}

/// Without a length, only the end of the process tells.
#[test]
fn output_of_a_killed_program_does_not_look_complete() {
    let head = "echo 'Content-Type: a/b'; echo";
    let (large, small) = (format!("{head}; head -c 300000 /dev/zero"), format!("{head}; echo half"));
    let killed = "kill -9 $$";
    let site = site(
        &[
            ("large", &format!("{large}; {killed}")),
            ("small", &format!("{small}; {killed}")),
            ("nph-raw", &format!("echo 'HTTP/1.0 200 OK'; {small}; {killed}")),
            ("failed", &format!("{large}; exit 1")),
            ("lives", &format!("{small}; exec >&- 2>&-; sleep 5")),
        ],
        |_| {},
    );
    let is_whole = |answer: std::io::Result<Vec<u8>>| match answer {
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            false
        }
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer);
            if text.contains("Transfer-Encoding: chunked\r\n") {
                text.ends_with("\r\n0\r\n\r\n")
            } else {
                !text.starts_with("HTTP/1.1 502")
            }
        }
    };
    for version in ["1.1", "1.0"] {
        for target in ["/cgi/large", "/cgi/small", "/cgi/nph-raw"] {
            assert!(!is_whole(raw(&site.served, target, version)), "{target} {version}");
        }
        for target in ["/cgi/failed", "/cgi/lives"] {
            assert!(is_whole(raw(&site.served, target, version)), "{target} {version}");
        }
    }
    let cut = raw(&site.served, "/cgi/large", "1.1").expect("what was sent arrives");
    assert!(cut.len() > 300_000, "{} bytes", cut.len());
    assert_eq!(site.served.get("/file.txt", "").body, b"a file");
}

/// By a link, by another host, or in an archive of a folder.
#[test]
fn the_text_of_a_program_is_never_sent_by_any_name() {
    const SECRET: &str = "echo 'Content-Type: a/b'; echo; echo secret";
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("site/cgi")).unwrap();
    scratch.write("site/page", b"a page");
    scratch.write("site/cgi/data", b"secret");
    std::os::unix::fs::symlink("site/cgi/data", scratch.file("alias")).unwrap();
    std::os::unix::fs::symlink("site/cgi", scratch.file("folder")).unwrap();
    let path = scratch.file("site/cgi").canonicalize().unwrap();
    let programs =
        Programs { folders: vec![(VirtualPath::parse(b"/site/cgi").unwrap(), path)], ..Programs::default() };
    let storage = Archives::new(scratch.storage()).without(programs.withheld(&[]));
    let served = serve_http_with(Config { programs, ..http_config(Arc::new(storage)) });
    std::fs::write(scratch.file("site/cgi/run"), format!("#!/bin/sh\n{SECRET}\n")).unwrap();
    std::fs::set_permissions(scratch.file("site/cgi/run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(served.get("/site/cgi/run", "").text(), "secret\n", "it runs");
    for target in ["/site/cgi/data", "/alias", "/folder/run", "/folder/data"] {
        let answer = served.get(target, "");
        assert!(answer.status == 403 && !answer.text().contains("secret"), "{target}: {}", answer.text());
    }
    for (target, packed) in [("/site.tar", true), ("/site.zip", true), ("/folder.tar", false)] {
        let answer = served.get(target, "");
        let holds = |text: &str| answer.body.windows(text.len()).any(|part| part == text.as_bytes());
        assert_eq!((answer.status, holds("site/page"), holds("secret")), (200, packed, false), "{target}");
    }
    let copy = |from: &str, to: &str| {
        let head = format!("COPY {from} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n");
        served.ask(format!("{head}Destination: {to}\r\n\r\n"))
    };
    for (from, to, status) in [("/alias", "/stolen", 403), ("/site", "/copied", 207)] {
        let answer = copy(from, to);
        assert_eq!(answer.status, status, "{from}: {}", answer.text());
    }
    assert_eq!((scratch.read("stolen"), scratch.read("copied/cgi/data")), (None, None));
    assert_eq!(scratch.read("copied/page").unwrap(), b"a page");
}

/// A copy would lie where it is not run, and its text would be sent.
#[test]
fn the_text_of_a_script_is_not_copied_by_http() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("app")).unwrap();
    scratch.write("app/a.php", b"secret");
    scratch.write("app/page", b"a page");
    let route = ProxyRoute {
        path: VirtualPath::parse(b"/app").unwrap(),
        suffix: Some(".php".to_owned()),
        root: Some(scratch.path().to_owned()),
        ..ProxyRoute::new(Upstream::FastCgi(Peer::Unix(scratch.file("socket"))))
    };
    let served = serve_http_with(Config { proxy_routes: vec![route], ..http_config(scratch.storage()) });
    let copy = |from: &str, to: &str| {
        let head = format!("COPY {from} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n");
        served.ask(format!("{head}Destination: {to}\r\n\r\n")).status
    };
    assert_eq!(copy("/app", "/copied"), 207);
    assert_eq!(scratch.read("copied/page").unwrap(), b"a page");
    assert_eq!(scratch.read("copied/a.php"), None);
}
