//! Uploads that go on where they were cut (tus 1.0).

mod joining;
mod unnamed;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use millrace_server::config::Resumable;
use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::{LocalOptions, LocalStorage, MemoryStorage};
use millrace_vfs::VirtualPath;

use crate::kit::{HttpClient, Response, Scratch, ServedHttp, eventually, http_config, pattern};
use crate::kit::{serve_http, serve_http_with};

/// `u:p`, in the version that is spoken.
const USER: &str = "Authorization: Basic dTpw\r\nTus-Resumable: 1.0.0\r\n";

const PIECE: &str = "Content-Type: application/offset+octet-stream\r\n";

/// `filename d/f`...
fn named(name: &str) -> String {
    format!("Upload-Metadata: filename {}\r\n", base64(name.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    millrace_http::base64::encode_url(bytes)
}

fn send(client: &mut HttpClient, line: &str, fields: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\n{USER}{fields}Content-Length: {length}\r\n\r\n");
    client.send([head.as_bytes(), body].concat());
}

fn ask(served: &ServedHttp, line: &str, fields: &str, body: &[u8]) -> Response {
    let mut client = served.connect();
    send(&mut client, line, fields, body);
    client.response_to(line.starts_with("HEAD "))
}

/// Begins an upload; answers its address.
fn begin(served: &ServedHttp, line: &str, length: usize, fields: &str) -> String {
    let made = ask(served, line, &format!("Upload-Length: {length}\r\n{fields}"), b"");
    assert_eq!((made.status, made.field("tus-resumable")), (201, Some("1.0.0")), "{}", made.text());
    let waits = made.field("upload-expires").is_some_and(|text| text.ends_with("GMT"));
    assert!(waits || length == 0, "{made:?}");
    made.field("location").unwrap().to_owned()
}

fn piece(served: &ServedHttp, address: &str, offset: usize, fields: &str, body: &[u8]) -> Response {
    ask(served, &format!("PATCH {address}"), &format!("{PIECE}Upload-Offset: {offset}\r\n{fields}"), body)
}

fn offset(served: &ServedHttp, address: &str) -> Result<usize, u16> {
    let told = ask(served, &format!("HEAD {address}"), "", b"");
    match told.field("upload-offset") {
        Some(offset) => Ok(offset.parse().unwrap()),
        None => Err(told.status),
    }
}

#[test]
fn a_file_comes_in_pieces_and_is_seen_when_it_is_whole() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    scratch.write("f", b"old");
    let content = pattern(700_000);
    let address = begin(&served, "POST /", content.len(), &named("f"));
    assert_eq!(offset(&served, &address), Ok(0));
    let told = piece(&served, &address, 0, "", &content[..300_000]);
    assert_eq!((told.status, told.field("upload-offset")), (204, Some("300000")));
    assert!(told.field("upload-expires").is_some());
    assert_eq!(scratch.read("f").unwrap(), b"old");
    let told = ask(&served, &format!("HEAD {address}"), "", b"");
    assert_eq!((told.status, told.field("upload-length")), (200, Some("700000")));
    assert_eq!(told.field("upload-metadata"), Some("filename Zg"));
    assert_eq!(told.field("cache-control"), Some("no-store"));
    let told = piece(&served, &address, 300_000, "", &content[300_000..]);
    assert_eq!((told.status, told.field("upload-offset")), (204, Some("700000")));
    assert!(scratch.read("f").unwrap() == content);
    // A client that did not get the end asks again, and no other does.
    assert_eq!(offset(&served, &address), Ok(700_000));
    assert_eq!(piece(&served, &address, 700_000, "", b"").status, 204);
    assert_eq!(std::fs::read_dir(scratch.file(".millrace-staging")).map_or(0, |entries| entries.count()), 0);
}

#[test]
fn a_first_piece_may_come_with_the_request_for_the_upload() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    std::fs::create_dir(scratch.file("d")).unwrap();
    let fields = format!("Upload-Length: 6\r\n{}{PIECE}", named("f"));
    let made = ask(&served, "POST /d/", &fields, b"one");
    assert_eq!((made.status, made.field("upload-offset")), (201, Some("3")));
    let address = made.field("location").unwrap();
    assert_eq!(piece(&served, address, 3, "", b"two").status, 204);
    assert_eq!(scratch.read("d/f").unwrap(), b"onetwo");
    // All of it at once; none of it; and a path that says the name.
    assert_eq!(ask(&served, "POST /d", &fields, b"sixsix").field("upload-offset"), Some("6"));
    assert_eq!(scratch.read("d/f").unwrap(), b"sixsix");
    begin(&served, "POST /d/none", 0, "");
    assert_eq!(scratch.read("d/none").unwrap(), b"");
    // The next request on the connection is another.
    let mut client = served.connect();
    send(&mut client, "POST /d/", &fields, b"sixsix");
    assert_eq!((client.response().status, client.get("/d/f").status), (201, 200));
}

#[test]
fn received_data_survives_a_cut_connection_and_a_restart() {
    let scratch = Scratch::new();
    let secret = Scratch::new();
    let serve = || {
        let resumable = Resumable { secret: Some(secret.file("tus.key")), ..Resumable::default() };
        serve_http_with(Config { resumable, ..http_config(scratch.storage()) })
    };
    let served = serve();
    let content = pattern(1_000_000);
    let address = begin(&served, "POST /f", content.len(), "");
    let mut client = served.connect();
    let head = format!("{USER}{PIECE}Upload-Offset: 0\r\nContent-Length: 1000000\r\n");
    client.send(format!("PATCH {address} HTTP/1.1\r\nHost: h\r\n{head}\r\n"));
    client.send(&content[..400_001]);
    // Some of that is written and some collected; all of it counts once the connection has ended.
    client.end_writing();
    eventually("what came is kept", || offset(&served, &address) == Ok(400_001));
    drop(served);

    let served = serve();
    assert_eq!(offset(&served, &address), Ok(400_001));
    // 423 while the first server still has it open: its threads end behind it.
    let rest = || piece(&served, &address, 400_001, "", &content[400_001..]).status;
    eventually("the rest is taken", || match rest() {
        423 => false,
        status => {
            assert_eq!(status, 204);
            true
        }
    });
    assert!(scratch.read("f").unwrap() == content);

    // Another secret, another server.
    let other = serve_http(scratch.storage());
    let address = begin(&served, "POST /g", 5, "");
    assert_eq!(offset(&other, &address), Err(404));
}

#[test]
fn a_length_may_be_said_later_and_is_kept() {
    let scratch = Scratch::new();
    let secret = Scratch::new();
    let serve = || {
        let resumable = Resumable { secret: Some(secret.file("tus.key")), ..Resumable::default() };
        serve_http_with(Config { resumable, ..http_config(scratch.storage()) })
    };
    let served = serve();
    let deferred = "Upload-Defer-Length: 1\r\n";
    let address = |served: &ServedHttp, line: &str| {
        let made = ask(served, line, deferred, b"");
        assert_eq!(made.status, 201, "{}", made.text());
        made.field("location").unwrap().to_owned()
    };
    let lengths = |served: &ServedHttp, address: &str| {
        let told = ask(served, &format!("HEAD {address}"), "", b"");
        ["upload-offset", "upload-length", "upload-defer-length"]
            .map(|name| told.field(name).map(str::to_owned))
    };
    let told = |offset: &str, length: Option<&str>, deferred: Option<&str>| {
        [Some(offset), length, deferred].map(|value| value.map(str::to_owned))
    };
    // With the last piece.
    let last = address(&served, "POST /last");
    assert_eq!(lengths(&served, &last), told("0", None, Some("1")));
    assert_eq!(piece(&served, &last, 0, "", b"one ").status, 204);
    assert_eq!(lengths(&served, &last), told("4", None, Some("1")));
    assert!(scratch.read("last").is_none());
    assert_eq!(piece(&served, &last, 4, "Upload-Length: 3\r\n", b"").status, 413, "there is more than that");
    assert_eq!(piece(&served, &last, 4, "Upload-Length: 7\r\n", b"two").status, 204);
    assert_eq!(scratch.read("last").unwrap(), b"one two");
    assert_eq!(lengths(&served, &last), told("7", Some("7"), None));

    // With a piece of its own, in which there is nothing else.
    let empty = address(&served, "POST /empty");
    assert_eq!(piece(&served, &empty, 0, "", b"whole").status, 204);
    let end = piece(&served, &empty, 5, "Upload-Length: 5\r\n", b"");
    assert_eq!((end.status, end.field("upload-offset")), (204, Some("5")));
    assert_eq!(scratch.read("empty").unwrap(), b"whole");

    // In the middle: it holds from then on, also behind a restart.
    let middle = address(&served, "POST /middle");
    assert_eq!(piece(&served, &middle, 0, "Upload-Length: 10\r\n", b"12345").status, 204);
    let with_more = piece(&served, &middle, 5, "", b"6789012345");
    assert_eq!(with_more.status, 413, "it is not that long");
    let waits = address(&served, "POST /waits");
    drop(served);
    let served = serve();
    assert_eq!(lengths(&served, &middle), told("5", Some("10"), None));
    assert_eq!(piece(&served, &middle, 5, "Upload-Length: 11\r\n", b"67890").status, 400);
    assert_eq!(piece(&served, &middle, 5, "", b"67890").status, 204);
    assert_eq!(scratch.read("middle").unwrap(), b"1234567890");

    // Some was sent along; and one is given up.
    let fields = format!("{deferred}{PIECE}");
    let made = ask(&served, "POST /along", &fields, b"begun");
    assert_eq!((made.status, made.field("upload-offset")), (201, Some("5")));
    let along = made.field("location").unwrap().to_owned();
    assert_eq!(piece(&served, &along, 5, "Upload-Length: 9\r\n", b" end").status, 204);
    assert_eq!(scratch.read("along").unwrap(), b"begun end");
    assert_eq!(ask(&served, &format!("DELETE {waits}"), "", b"").status, 204);
    assert_eq!(offset(&served, &waits), Err(410));
    let said = ask(&served, "OPTIONS /", "", b"");
    assert!(said.field("tus-extension").unwrap().split(',').any(|name| name == "creation-defer-length"));
}

#[test]
fn all_bytes_that_came_become_the_file_though_the_server_was_killed_before_it_could_say_so() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let address = begin(&served, "POST /f", 5, "");
    let mut staged =
        std::fs::read_dir(scratch.file(".millrace-staging")).unwrap().map(|entry| entry.unwrap().path());
    let kept = staged.find(|path| path.extension().is_some_and(|extension| extension == "kept")).unwrap();
    std::fs::write(kept, b"whole").unwrap();
    assert_eq!(offset(&served, &address), Ok(5));
    assert_eq!(scratch.read("f").unwrap(), b"whole");
}

#[test]
fn a_piece_that_does_not_fit_changes_nothing() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let address = begin(&served, "POST /f", 6, "");
    assert_eq!(piece(&served, &address, 0, "", b"one").status, 204);
    let patch = format!("PATCH {address}");
    for (name, status, answer) in [
        ("a gap", 409, piece(&served, &address, 4, "", b"x")),
        ("again", 409, piece(&served, &address, 0, "", b"one")),
        ("more than there is", 413, piece(&served, &address, 3, "", b"four")),
        ("no offset", 400, ask(&served, &patch, PIECE, b"two")),
        ("no number", 400, ask(&served, &patch, &format!("{PIECE}Upload-Offset: -1\r\n"), b"two")),
        ("another type", 415, ask(&served, &patch, "Upload-Offset: 3\r\n", b"two")),
        ("another method", 405, ask(&served, &format!("PUT {address}"), "", b"two")),
        ("an unknown address", 404, piece(&served, "/.millrace-uploads/AAAA", 0, "", b"two")),
        ("no address", 404, piece(&served, "/.millrace-uploads", 0, "", b"two")),
    ] {
        assert_eq!(answer.status, status, "{name}");
        assert_eq!(offset(&served, &address), Ok(3), "{name}");
    }
    let plain = "Authorization: Basic dTpw\r\n";
    let old =
        served.ask(format!("HEAD {address} HTTP/1.1\r\nHost: h\r\n{plain}Tus-Resumable: 0.2.2\r\n\r\n"));
    assert_eq!((old.status, old.field("tus-version")), (412, Some("1.0.0")));
    assert_eq!(piece(&served, &address, 3, "", b"four").field("tus-resumable"), Some("1.0.0"));
    let endless = ask(&served, "POST /g", "Upload-Length: 9999999999999999999\r\n", b"");
    assert_eq!((endless.status, endless.field("tus-resumable")), (413, Some("1.0.0")));
    // Chunks do not announce their total.
    let mut client = served.connect();
    let head = format!("{USER}{PIECE}Upload-Offset: 3\r\nTransfer-Encoding: chunked\r\n");
    client.send(format!("{patch} HTTP/1.1\r\nHost: h\r\n{head}\r\n4\r\nfour\r\n0\r\n\r\n"));
    let refused = client.response();
    assert_eq!((refused.status, refused.field("tus-resumable")), (413, Some("1.0.0")));
    eventually("it is let go of", || piece(&served, &address, 3, "", b"two").status == 204);
    assert_eq!(scratch.read("f").unwrap(), b"onetwo");
    assert_eq!(piece(&served, &address, 6, "", b"").status, 204, "it is known to be whole");
    assert_eq!(piece(&served, &address, 6, "", b"more").status, 413);
    assert_eq!(scratch.read("f").unwrap(), b"onetwo");
}

#[test]
fn a_piece_is_checked_before_it_counts() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let address = begin(&served, "POST /f", 11, "");
    let sum = |algorithm: &str, bytes: &[u8]| {
        let mut hasher = millrace_ftp::digest::Hasher::new(
            millrace_ftp::digest::Algorithm::parse(algorithm.as_bytes()).unwrap(),
        );
        hasher.update(bytes);
        let hex = hasher.finish();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
        format!("Upload-Checksum: {algorithm} {}\r\n", base64(&bytes))
    };
    let right = piece(&served, &address, 0, &sum("sha1", b"hello "), b"hello ");
    assert_eq!((right.status, right.field("upload-offset")), (204, Some("6")));
    let mismatch = piece(&served, &address, 6, &sum("sha1", b"other"), b"world");
    assert_eq!((mismatch.status, mismatch.field("tus-resumable")), (460, Some("1.0.0")));
    assert_eq!(offset(&served, &address), Ok(6));
    assert_eq!(piece(&served, &address, 6, &sum("md5", b"x").replace("md5", "rot13"), b"world").status, 400);
    // One that is cut cannot be checked, and is gone.
    let mut client = served.connect();
    let head = format!("{USER}{PIECE}Upload-Offset: 6\r\n{}Content-Length: 5\r\n", sum("sha256", b"world"));
    client.send(format!("PATCH {address} HTTP/1.1\r\nHost: h\r\n{head}\r\nwor"));
    client.end_writing();
    client.expect_end();
    let mut last = 0;
    eventually("the last piece is taken", || {
        last = piece(&served, &address, 6, &sum("sha256", b"world"), b"world").status;
        last != 423
    });
    assert_eq!((last, scratch.read("f").unwrap()), (204, b"hello world".to_vec()));
    // And with the request for the upload.
    let fields = format!("Upload-Length: 2\r\n{PIECE}{}", sum("crc32", b"no"));
    assert_eq!(ask(&served, "POST /g", &fields, b"ok").status, 460);
    assert_eq!(scratch.read("g"), None);
}

/// Its client got no address: the upload could not be continued or ended.
#[test]
fn an_upload_refused_with_its_first_request_is_not_stored() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let staged = || std::fs::read_dir(scratch.file(".millrace-staging")).map_or(0, |entries| entries.count());
    for (fields, body, status) in
        [("Upload-Checksum: crc32 AAAAAA==\r\n", &b"ok"[..], 460), ("", b"longer than it said", 413)]
    {
        let fields = format!("Upload-Length: 2\r\n{PIECE}{fields}");
        assert_eq!(ask(&served, "POST /g", &fields, body).status, status);
        eventually("nothing is kept of it", || staged() == 0);
    }
}

/// As by `PUT`.
#[test]
fn a_name_that_was_locked_meanwhile_is_not_taken_by_a_last_piece() {
    const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/>\
                        </D:locktype></D:lockinfo>";
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    let served = serve_http(scratch.storage());
    let address = begin(&served, "POST /f", 6, "");
    let mut client = served.connect();
    let head = format!("{USER}{PIECE}Upload-Offset: 0\r\nContent-Length: 6\r\nExpect: 100-continue\r\n");
    client.send(format!("PATCH {address} HTTP/1.1\r\nHost: h\r\n{head}\r\n"));
    assert_eq!(client.response().status, 100, "it has begun");
    let locked = ask(&served, "LOCK /f", "Depth: 0\r\n", LOCK.as_bytes());
    assert_eq!(locked.status, 200);
    client.send("onetwo");
    assert_eq!(client.response().status, 423);
    assert_eq!(scratch.read("f").unwrap(), b"old");
    let token = format!("If: ({})\r\n", locked.field("lock-token").unwrap());
    eventually("it is let go of", || piece(&served, &address, 6, &token, b"").status == 204);
    assert_eq!(scratch.read("f").unwrap(), b"onetwo");
}

#[test]
fn an_upload_is_given_up_or_too_old_and_then_it_is_gone() {
    let scratch = Scratch::new();
    let options = LocalOptions { partial_age: Duration::ZERO, ..LocalOptions::default() };
    let storage = Arc::new(LocalStorage::open(scratch.path(), options).unwrap());
    let served = serve_http(Arc::clone(&storage) as Arc<_>);
    let address = begin(&served, "POST /f", 5, "");
    assert_eq!(
        ask(&served, &format!("POST {address}"), "X-HTTP-Method-Override: DELETE\r\n", b"").status,
        204
    );
    assert_eq!(
        (offset(&served, &address), piece(&served, &address, 0, "", b"whole").status),
        (Err(410), 410)
    );
    assert_eq!(ask(&served, &format!("DELETE {address}"), "", b"").status, 410);
    let address = begin(&served, "POST /f", 5, "");
    storage.sweep();
    assert_eq!(offset(&served, &address), Err(410));
    assert_eq!(scratch.read("f"), None);
}

#[test]
fn rights_names_and_conditions_are_those_of_any_upload() {
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    std::fs::create_dir(scratch.file("d")).unwrap();
    let storage = scratch.storage();
    let no_overwrite = Permissions::READ_WRITE.without(millrace_server::Permission::Overwrite);
    let accounts = Accounts::new()
        .anonymous(Permissions::READ_ONLY, Arc::clone(&storage) as Arc<_>)
        .user("u", "p", Permissions::READ_WRITE, Arc::clone(&storage) as Arc<_>)
        .user("v", "p", no_overwrite, storage);
    let base = http_config(Scratch::new().storage());
    let served = serve_http_with(Config { accounts: Arc::new(accounts), ..base });
    let create = |target: &str, fields: &str| {
        ask(&served, &format!("POST {target}"), &format!("Upload-Length: 5\r\n{fields}"), b"").status
    };
    for (name, status, answer) in [
        ("a name that leads away", 400, create("/", &named("../f"))),
        ("a name with a slash", 400, create("/", &named("a/f"))),
        ("no name", 400, create("/", "")),
        ("a directory's name", 409, create("/", &named("d"))),
        ("a directory that is not there", 409, create("/none/", &named("f"))),
        ("a reserved name", 403, create("/", &named(".millrace-x"))),
        ("what has to be new", 412, create("/f", "If-None-Match: *\r\n")),
        ("another version of it", 412, create("/f", "If-Match: \"x\"\r\n")),
        ("a length that is none", 400, create("/f", "Upload-Length: 5\r\n")),
        ("parts that have a length of their own", 400, create("/f", "Upload-Concat: final;/a\r\n")),
        (
            "too much to be in an address",
            431,
            create("/f", &format!("Upload-Metadata: a {}\r\n", "A".repeat(1100))),
        ),
    ] {
        assert_eq!(answer, status, "{name}");
    }
    // Of a program's POST nothing has changed, nor of a PATCH elsewhere.
    let plain = served.ask("POST /f HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(plain.status, 405);
    let unauthenticated =
        served.ask("POST /g HTTP/1.1\r\nHost: h\r\nTus-Resumable: 1.0.0\r\nUpload-Length: 5\r\n\r\n");
    assert_eq!(unauthenticated.status, 401);
    // The address of another user's upload is unknown; a user that may not replace cannot.
    let address = begin(&served, "POST /g", 5, "");
    let v = "Authorization: Basic djpw\r\nTus-Resumable: 1.0.0\r\n";
    let other = served.ask(format!("HEAD {address} HTTP/1.1\r\nHost: h\r\n{v}\r\n"));
    assert_eq!(other.status, 404);
    let kept = served.ask(format!("POST /f HTTP/1.1\r\nHost: h\r\n{v}Upload-Length: 5\r\n\r\n"));
    assert_eq!(kept.status, 403);
    let made = served.ask(format!("POST /h HTTP/1.1\r\nHost: h\r\n{v}Upload-Length: 5\r\n\r\n"));
    scratch.write("h", b"meanwhile");
    let head = format!("{v}{PIECE}Upload-Offset: 0\r\nContent-Length: 5\r\n\r\nwhole");
    let late = served.ask(format!("PATCH {} HTTP/1.1\r\nHost: h\r\n{head}", made.field("location").unwrap()));
    assert_eq!((late.status, scratch.read("h").unwrap()), (412, b"meanwhile".to_vec()));
}

#[test]
fn options_tell_what_is_spoken_and_nothing_where_it_is_not() {
    let scratch = Scratch::new();
    let served = serve_http(scratch.storage());
    let told = served.ask("OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((told.status, told.field("tus-version")), (204, Some("1.0.0")));
    assert!(told.field("tus-extension").is_some_and(|text| text.contains("creation-with-upload")));
    // A back end that keeps no such uploads says so.
    let served = serve_http(Arc::new(MemoryStorage::new()));
    assert_eq!(ask(&served, "POST /f", "Upload-Length: 5\r\n", b"").status, 501);
    let resumable = Resumable { is_on: false, ..Resumable::default() };
    let served = serve_http_with(Config { resumable, ..http_config(scratch.storage()) });
    assert_eq!(served.ask("OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n").field("tus-version"), None);
    assert_eq!(ask(&served, "POST /f", "Upload-Length: 5\r\n", b"").status, 405);
}

/// Writes down what it is asked, and answers what a test wants.
struct Ear {
    heard: Mutex<Vec<String>>,
    concerned: fn(Event) -> bool,
    rule: Box<dyn Fn(&EventContext) -> HookVerdict + Send + Sync>,
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl Hooks for Ear {
    fn concerns(&self, event: Event, _: &str) -> bool {
        (self.concerned)(event)
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        let path = context.path.as_ref().map_or(String::new(), ToString::to_string);
        let bytes = context.bytes.map_or(String::new(), |bytes| format!(" {bytes}"));
        self.heard.lock().unwrap().push(format!("{} {} {path}{bytes}", context.event, context.verb));
        (self.rule)(context)
    }
}

/// With hooks that are asked about these events.
fn heard(
    scratch: &Scratch,
    concerned: fn(Event) -> bool,
    rule: impl Fn(&EventContext) -> HookVerdict + Send + Sync + 'static,
) -> (ServedHttp, Arc<Ear>) {
    let ear = Arc::new(Ear { heard: Mutex::default(), concerned, rule: Box::new(rule) });
    let hooks: Arc<dyn Hooks> = ear.clone();
    (serve_http_with(Config { hooks: Some(hooks), ..http_config(scratch.storage()) }), ear)
}

fn is_asked(event: Event) -> bool {
    matches!(event, Event::Command | Event::Upload)
}

#[test]
fn hooks_are_asked_about_a_new_upload_and_about_the_file_once_it_is_whole() {
    let scratch = Scratch::new();
    let (served, ear) = heard(&scratch, is_asked, |_| HookVerdict::Pass);
    assert!(ask(&served, "OPTIONS /", "", b"").field("tus-version").is_some());
    let address = begin(&served, "POST /", 6, &named("f"));
    assert_eq!(piece(&served, &address, 0, "", b"one").status, 204);
    assert_eq!(piece(&served, &address, 3, "", b"two").status, 204);
    assert_eq!(scratch.read("f").unwrap(), b"onetwo");
    assert_eq!(offset(&served, &address), Ok(6));
    let fields = format!("Upload-Length: 6\r\n{}{PIECE}", named("g"));
    assert_eq!(ask(&served, "POST /", &fields, b"sixsix").status, 201);
    begin(&served, "POST /none", 0, "");
    let expected = "command OPTIONS /|command PUT /f 6|command PATCH /f|command PATCH /f|upload  /f 6|command HEAD /f\
                    |command PUT /g 6|upload  /g 6|command PUT /none 0|upload  /none 0";
    assert_eq!(ear.heard.lock().unwrap().join("|"), expected);
}

#[test]
fn there_is_no_way_round_what_hooks_say_of_uploads() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("in")).unwrap();
    let (served, _) =
        heard(&scratch, is_asked, |context| match (context.event, &*context.verb, &context.path) {
            (Event::Command, "PUT", Some(path)) if path.to_string() == "/in/not" => {
                HookVerdict::Refuse(Refusal::new("550 Not this one."))
            }
            (Event::Command, "PUT", Some(path)) if path.to_string() == "/here" => {
                HookVerdict::Rewrite(VirtualPath::parse(b"/in/there").unwrap())
            }
            (Event::Upload, _, Some(path)) if path.to_string() == "/virus" => {
                HookVerdict::Refuse(Refusal::new("552 A virus."))
            }
            _ => HookVerdict::Pass,
        });
    let new = |line: &str, fields: &str| ask(&served, line, &format!("Upload-Length: 4\r\n{fields}"), b"");
    for (line, fields) in [("POST /in/", named("not")), ("POST /in/not", String::new())] {
        let refused = new(line, &fields);
        assert!(refused.status == 403 && refused.text().contains("Not this one."), "{line}: {refused:?}");
    }
    // An upload named as a folder, without a file name, is refused, whatever hooks were asked.
    let no_names = [String::new(), named("../not"), named("a/b"), named("\0"), named(&"x".repeat(300))];
    for (line, fields) in no_names.iter().flat_map(|fields| [("POST /in/", fields), ("POST /new/", fields)]) {
        assert_eq!(new(line, fields).status, 400, "{line} {fields}");
    }
    assert_eq!((scratch.read("new"), scratch.read("not")), (None, None));
    // The path that hooks checked is the one that is created: a folder has a slash at its end.
    assert_eq!(new("POST /in", &named("not")).status, 409);

    let address = begin(&served, "POST /", 4, &named("here"));
    assert_eq!(piece(&served, &address, 0, "", b"1234").status, 204);
    assert_eq!((scratch.read("here"), scratch.read("in/there").unwrap()), (None, b"1234".to_vec()));

    let address = begin(&served, "POST /virus", 4, "");
    assert_eq!(piece(&served, &address, 0, "", b"12").status, 204);
    let refused = piece(&served, &address, 2, "", b"34");
    assert!(refused.status == 507 && refused.text().contains("A virus."), "{refused:?}");
    assert_eq!(offset(&served, &address), Err(410), "it is not taken for one that went well");
}

#[test]
fn requests_during_a_check_by_hooks_have_to_wait() {
    let scratch = Scratch::new();
    let (asked, is_asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel::<()>();
    let answered = Mutex::new(answered);
    let (served, _) = heard(
        &scratch,
        |event| event == Event::Upload,
        move |_| {
            let _ = asked.send(());
            // Until the test lets go of it.
            let _ = answered.lock().unwrap().recv();
            HookVerdict::Pass
        },
    );
    let address = begin(&served, "POST /f", 4, "");
    let mut client = served.connect();
    send(&mut client, &format!("PATCH {address}"), &format!("{PIECE}Upload-Offset: 0\r\n"), b"1234");
    is_asked.recv().unwrap();
    assert_eq!(offset(&served, &address), Err(423));
    // Also where the client that brought it does not wait.
    drop(client);
    drop(answer);
    eventually("it is known", || offset(&served, &address) == Ok(4));
    assert_eq!(scratch.read("f").unwrap(), b"1234");
}
