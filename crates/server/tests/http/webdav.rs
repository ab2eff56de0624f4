//! WebDAV: files, properties and locks. `litmus` has the rest.

use std::sync::Arc;

use millrace_server::{
    Account, Accounts, Attempt, Authenticator, Config, Decision, Permission, Permissions, Rules,
};

use crate::kit::{HttpClient, Response, Scratch, ServedHttp, http_config, serve_http_with};

/// `u:p`, `v:p`.
const U: &str = "Authorization: Basic dTpw\r\n";
const V: &str = "Authorization: Basic djpw\r\n";

const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/>\
                    </D:locktype><D:owner>me &amp; you</D:owner></D:lockinfo>";

/// Two users with the same files.
fn serve(scratch: &Scratch) -> ServedHttp {
    let accounts = Accounts::new()
        .anonymous(Permissions::READ_ONLY, scratch.storage())
        .user("u", "p", Permissions::READ_WRITE, scratch.storage())
        .user("v", "p", Permissions::READ_WRITE, scratch.storage());
    serve_http_with(Config { accounts: Arc::new(accounts), ..http_config(scratch.storage()) })
}

/// One whose rights differ from place to place, and others.
#[derive(Debug)]
struct Ruled {
    users: Accounts,
    name: &'static [u8],
    account: Account,
}

impl Authenticator for Ruled {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.user == self.name {
            true => Decision::Granted(self.account.clone()),
            false => self.users.authenticate(attempt),
        }
    }
}

fn request(method: &str, target: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

fn ask(client: &mut HttpClient, method: &str, target: &str, fields: &str, body: &str) -> Response {
    client.send(request(method, target, fields, body));
    client.response()
}

fn lock(client: &mut HttpClient, target: &str, fields: &str) -> (u16, String) {
    let answer = ask(client, "LOCK", target, fields, LOCK);
    (answer.status, answer.field("lock-token").unwrap_or_default().to_owned())
}

#[test]
fn a_folder_tells_of_itself_and_of_what_is_in_it() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path().join("d/e")).unwrap();
    scratch.write("d/a b.txt", b"text");
    let served = serve(&scratch);
    let mut client = served.connect();
    for (depth, responses) in [("0", 1), ("1", 3)] {
        let answer = ask(&mut client, "PROPFIND", "/d", &format!("Depth: {depth}\r\n"), "");
        assert_eq!(answer.status, 207);
        assert_eq!(answer.text().matches("<D:response>").count(), responses, "{}", answer.text());
    }
    let text = ask(&mut client, "PROPFIND", "/d", "Depth: 1\r\n", "").text();
    for part in [
        "<D:href>/d/</D:href>",
        "<D:href>/d/e/</D:href>",
        "<D:href>/d/a%20b.txt</D:href>",
        "<D:resourcetype><D:collection/></D:resourcetype>",
        "<D:getcontentlength>4</D:getcontentlength>",
        "<D:getcontenttype>text/plain; charset=utf-8</D:getcontenttype>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let tag = client.get("/d/a%20b.txt").field("etag").unwrap().replace('"', "&quot;");
    assert!(text.contains(&format!("<D:getetag>{tag}</D:getetag>")), "{tag} in {text}");
    assert_eq!(ask(&mut client, "PROPFIND", "/d", "Depth: infinity\r\n", "").status, 403);
    assert_eq!(ask(&mut client, "PROPFIND", "/nothing", "Depth: 0\r\n", "").status, 404);
    let all = client.get("/d/a%20b.txt");
    assert_eq!(all.status, 200, "the connection goes on");
}

#[test]
fn a_long_folder_is_streamed_whole() {
    let scratch = Scratch::new();
    for number in 0..600 {
        scratch.write(&format!("{number:04}"), b"");
    }
    let served = serve(&scratch);
    let mut client = served.connect();
    let answer = ask(&mut client, "PROPFIND", "/", "Depth: 1\r\n", "");
    assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    let text = answer.text();
    assert_eq!(text.matches("<D:href>/").count(), 601);
    assert!(text.ends_with("</D:multistatus>\n"));
    assert_eq!(client.get("/0000").status, 200, "the connection goes on");
}

/// One request of 240 KB ended a server: the answer says a namespace again for each name of each member.
#[test]
fn an_answer_is_not_much_longer_than_the_folder() {
    let scratch = Scratch::new();
    (0..300).for_each(|at| scratch.write(&format!("f{at}"), b""));
    let served = serve(&scratch);
    let names = (0..900).map(|at| format!("<a:b{at}/>")).collect::<String>();
    let asked = |space: &str| {
        format!("<propfind xmlns=\"DAV:\" xmlns:a=\"{space}\"><prop>{names}<a:b0/></prop></propfind>")
    };
    let ask = |body: &str| ask(&mut served.connect(), "PROPFIND", "/", "Depth: 1\r\n", body);
    assert_eq!(ask(&asked(&"u".repeat(10_000))).status, 413);
    let answer = ask(&asked("urn:u"));
    assert_eq!(answer.status, 207);
    let text = answer.text();
    assert_eq!((text.matches("<b0 ").count(), text.matches("<b899 ").count()), (301, 301));
    assert!(text.ends_with("</D:multistatus>\n"));
}

#[test]
fn a_lock_says_little_of_its_holder() {
    let scratch = Scratch::new();
    let served = serve(&scratch);
    let body = |length: usize| LOCK.replace("me", &"m".repeat(length));
    let lock = |length: usize| ask(&mut served.connect(), "LOCK", "/f", U, &body(length)).status;
    assert_eq!((lock(10_000), lock(1000)), (413, 201));
}

#[test]
fn malformed_requests_are_refused() {
    let scratch = Scratch::new();
    let served = serve(&scratch);
    let long = "x".repeat(300_000);
    for (method, fields, body, status) in [
        ("PROPFIND", "Depth: 2\r\n", "", 400),
        ("PROPFIND", "Depth: 0\r\n", "<D:propfind xmlns:D=\"DAV:\">", 400),
        ("PROPFIND", "Depth: 0\r\n", "<!DOCTYPE a [<!ENTITY b \"c\">]><D:propfind xmlns:D=\"DAV:\"/>", 400),
        ("PROPFIND", "Depth: 0\r\n", long.as_str(), 413),
        ("PROPPATCH", U, "text", 400),
        ("PROPPATCH", "", "", 401),
        ("LOCK", "", LOCK, 401),
        ("LOCK", U, "", 400),
        ("LOCK", &format!("{U}Depth: 1\r\n"), LOCK, 400),
        ("UNLOCK", U, "", 400),
        ("UNLOCK", &format!("{U}Lock-Token: <urn:uuid:1>\r\n"), "", 409),
        ("DELETE", &format!("{U}If: (<urn:uuid:1>\r\n"), "", 400),
    ] {
        let mut client = served.connect();
        let target = if method == "DELETE" { "/gone" } else { "/" };
        if method == "DELETE" {
            scratch.write("gone", b"");
        }
        let answer = ask(&mut client, method, target, fields, body);
        assert_eq!(answer.status, status, "{method} {fields} {}", &body[..body.len().min(80)]);
    }
}

/// The body may come with the head, behind it, or in pieces; what follows it is the next request.
#[test]
fn a_body_comes_as_it_likes() {
    let scratch = Scratch::new();
    let served = serve(&scratch);
    let body = "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/></D:prop></D:propfind>";
    let both =
        request("PROPFIND", "/", "Depth: 0\r\n", body) + &request("PROPFIND", "/", "Depth: 0\r\n", body);
    for cut in [0, 20, both.len() / 2 - 70, both.len() / 2 - 1, both.len() / 2, both.len() - 1] {
        let mut client = served.connect();
        client.send(&both[..cut]);
        client.send(&both[cut..]);
        assert_eq!([client.response().status, client.response().status], [207, 207], "{cut}");
    }
    let mut client = served.connect();
    let (half, rest) = body.split_at(30);
    client.send(format!(
        "PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 0\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{half}\r\n{:x}\r\n{rest}\r\n\
         0\r\n\r\n",
        half.len(),
        rest.len()
    ));
    assert_eq!(client.response().status, 207);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn properties_stay_with_a_file_that_moves_or_is_replaced() {
    let scratch = Scratch::new();
    scratch.write("a", b"one");
    let served = serve(&scratch);
    let mut client = served.connect();
    let set = "<D:propertyupdate xmlns:D=\"DAV:\" xmlns:z=\"urn:z\"><D:set><D:prop><z:colour>blue</z:colour></D:prop>\
               </D:set></D:propertyupdate>";
    assert_eq!(ask(&mut client, "PROPPATCH", "/a", U, set).status, 207);
    let wanted = "<D:propfind xmlns:D=\"DAV:\"><D:prop><colour xmlns=\"urn:z\"/></D:prop></D:propfind>";
    let mut has = |target: &str| {
        ask(&mut client, "PROPFIND", target, "Depth: 0\r\n", wanted).text().contains(">blue</colour>")
    };
    assert!(has("/a"));
    let mut other = served.connect();
    assert_eq!(ask(&mut other, "PUT", "/a", U, "two").status, 204);
    assert!(has("/a"), "an upload replaces the content only");
    assert_eq!(ask(&mut other, "COPY", "/a", &format!("{U}Destination: /b\r\n"), "").status, 201);
    assert_eq!(ask(&mut other, "MOVE", "/a", &format!("{U}Destination: /c\r\n"), "").status, 201);
    assert!(has("/b") && has("/c"));
    assert_eq!(ask(&mut other, "PUT", "/a", U, "three").status, 201);
    assert!(!has("/a"), "that is another file");
    assert_eq!(ask(&mut other, "DELETE", "/c", U, "").status, 204);
    assert_eq!(ask(&mut other, "PUT", "/c", U, "four").status, 201);
    assert!(!has("/c"));
    let forbidden =
        set.replace("<z:colour>blue</z:colour>", "<D:getetag>x</D:getetag><z:colour>red</z:colour>");
    let text = ask(&mut other, "PROPPATCH", "/b", U, &forbidden).text();
    assert!(text.contains(" 403 ") && text.contains(" 424 "), "{text}");
    assert!(has("/b"), "all of it or nothing");
}

#[test]
fn a_lock_keeps_others_out_by_every_way() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("d")).unwrap();
    scratch.write("d/f", b"text");
    scratch.write("other", b"text");
    let served = serve(&scratch);
    let (mut u, mut v) = (served.connect(), served.connect());
    let (status, token) = lock(&mut u, "/d/f", U);
    assert_eq!(status, 200);
    assert_eq!(lock(&mut v, "/d/f", V).0, 423);
    let shown = format!("If: ({token})\r\n");
    for (method, target, fields) in [
        ("PUT", "/d/f", ""),
        ("DELETE", "/d/f", ""),
        ("DELETE", "/d", ""),
        ("MOVE", "/d/f", "Destination: /x\r\n"),
        ("MOVE", "/d", "Destination: /x\r\n"),
        ("MOVE", "/other", "Destination: /d/f\r\n"),
        ("COPY", "/other", "Destination: /d/f\r\n"),
        ("PROPPATCH", "/d/f", ""),
    ] {
        let body = match method {
            "PROPPATCH" => "<D:propertyupdate xmlns:D=\"DAV:\"/>",
            "PUT" => "new",
            _ => "",
        };
        // Neither without the token, nor for another user with the token.
        for fields in [format!("{U}{fields}"), format!("{V}{fields}{shown}")] {
            let status = ask(&mut served.connect(), method, target, &fields, body).status;
            // Where the claim is about another path than the one that is locked, it does not hold: 412.
            assert!(matches!(status, 423 | 412), "{method} {target} {fields}: {status}");
        }
    }
    assert_eq!(v.get("/d/f").body, b"text", "to read is free");
    assert_eq!(ask(&mut v, "PUT", "/d/g", V, "beside it").status, 201);
    assert_eq!(ask(&mut u, "PUT", "/d/f", &format!("{U}{shown}"), "mine").status, 204);
    let wrong = format!("{U}If: (<urn:uuid:0>)\r\n");
    assert_eq!(ask(&mut served.connect(), "PUT", "/d/f", &wrong, "mine").status, 412);
    assert_eq!(ask(&mut v, "UNLOCK", "/d/f", &format!("{V}Lock-Token: {token}\r\n"), "").status, 403);
    assert_eq!(ask(&mut u, "LOCK", "/d/f", &format!("{U}{shown}Timeout: Second-5\r\n"), "").status, 200);
    assert_eq!(ask(&mut u, "UNLOCK", "/d/f", &format!("{U}Lock-Token: {token}\r\n"), "").status, 204);
    assert_eq!(ask(&mut v, "PUT", "/d/f", V, "yours").status, 204);
}

#[test]
fn a_deep_lock_reaches_all_beneath_and_what_comes() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path().join("d/e")).unwrap();
    let served = serve(&scratch);
    let (mut u, mut v) = (served.connect(), served.connect());
    let (status, token) = lock(&mut u, "/d", U);
    assert_eq!(status, 200);
    for (method, target) in [("PUT", "/d/e/f"), ("MKCOL", "/d/x"), ("DELETE", "/d/e")] {
        assert_eq!(ask(&mut v, method, target, V, "").status, 423, "{method} {target}");
        let shown = format!("{U}If: <http://h/d> ({token})\r\n");
        let status = ask(&mut u, method, target, &shown, "").status;
        assert!((200..300).contains(&status), "{method} {target}: {status}");
    }
    assert_eq!(lock(&mut v, "/d/new", V).0, 423);
}

/// No other user could write what they lock.
#[test]
fn a_user_without_write_permission_cannot_lock_or_set_properties() {
    let scratch = Scratch::new();
    for name in ["in", "d"] {
        std::fs::create_dir(scratch.file(name)).unwrap();
    }
    for name in ["f", "in/f", "d/f"] {
        scratch.write(name, b"text");
    }
    let box_only = Permissions::only(Permission::Write).with(Permission::List);
    let rules = Rules::new(Permissions::READ_ONLY)
        .tree(b"/in", Permissions::READ_WRITE)
        .tree(b"/in/box", box_only)
        .tree(b"/d", Permissions::NONE);
    std::fs::create_dir(scratch.file("in/box")).unwrap();
    scratch.write("in/box/f", b"text");
    let users = Accounts::new().anonymous(Permissions::NONE, scratch.storage()).user(
        "u",
        "p",
        Permissions::READ_WRITE,
        scratch.storage(),
    );
    let accounts = Ruled { users, name: b"v", account: Account::ruled(scratch.storage(), rules) };
    let served = serve_http_with(Config { accounts: Arc::new(accounts), ..http_config(scratch.storage()) });
    let deep = format!("{V}Depth: infinity\r\n");
    let flat = format!("{V}Depth: 0\r\n");
    for (target, fields, status) in [
        ("/", &deep, 403),
        ("/", &flat, 403),
        ("/f", &flat, 403),
        ("/d/f", &flat, 403),
        ("/new", &flat, 403),
        // Not all beneath may be written by them.
        ("/in", &deep, 403),
        ("/in/box/f", &flat, 403),
        ("/in/f", &flat, 200),
    ] {
        assert_eq!(lock(&mut served.connect(), target, fields).0, status, "{target}");
    }
    for target in ["/f", "/d/f", "/any"] {
        let put = ask(&mut served.connect(), "PUT", target, U, "new");
        assert!(matches!(put.status, 201 | 204), "{target}: {put:?}");
    }
    assert_eq!(ask(&mut served.connect(), "PUT", "/in/f", U, "new").status, 423);
    let set = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"x:\">1</x></D:prop></D:set>\
               </D:propertyupdate>";
    for (target, status) in [("/f", 403), ("/d/f", 403), ("/in/box/f", 403), ("/in", 207)] {
        assert_eq!(ask(&mut served.connect(), "PROPPATCH", target, V, set).status, status, "{target}");
    }
}

#[test]
fn a_name_that_is_locked_is_there() {
    let scratch = Scratch::new();
    let served = serve(&scratch);
    let mut client = served.connect();
    let (status, token) = lock(&mut client, "/new", U);
    assert_eq!(status, 201);
    assert_eq!(scratch.read("new"), Some(Vec::new()));
    assert_eq!(ask(&mut client, "DELETE", "/new", &format!("{U}If: ({token})\r\n"), "").status, 204);
    assert_eq!(lock(&mut client, "/new", V).0, 201, "the lock went with the file");
    assert_eq!(lock(&mut client, "/no/such", U).0, 409);
}

#[test]
fn options_tell_of_webdav() {
    let scratch = Scratch::new();
    let served = serve(&scratch);
    let answer = served.ask("OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(answer.field("dav"), Some("1, 2"));
    assert!(answer.field("allow").unwrap().contains("PROPFIND"));
}

#[test]
fn locks_and_properties_outlive_the_server() {
    let (scratch, state) = (Scratch::new(), Scratch::new());
    scratch.write("f", b"text");
    let serve = || {
        let accounts = Accounts::new().user("u", "p", Permissions::READ_WRITE, scratch.storage()).user(
            "v",
            "p",
            Permissions::READ_WRITE,
            scratch.storage(),
        );
        let dav = Some(state.file("deep/webdav.json"));
        serve_http_with(Config { dav, accounts: Arc::new(accounts), ..http_config(scratch.storage()) })
    };
    let served = serve();
    let mut client = served.connect();
    let set = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"urn:y\">kept</x></D:prop></D:set></D:propertyupdate>";
    assert_eq!(ask(&mut client, "PROPPATCH", "/f", U, set).status, 207);
    let (status, token) = lock(&mut client, "/f", &format!("{U}Timeout: Second-3000\r\n"));
    assert_eq!(status, 200);
    let (_, gone) = lock(&mut client, "/g", U);
    let unlocked = ask(&mut client, "UNLOCK", "/g", &format!("{U}Lock-Token: {gone}\r\n"), "");
    assert_eq!(unlocked.status, 204);
    drop((client, served));

    let served = serve();
    let mut client = served.connect();
    // A refused body ends its connection.
    let put = |target: &str, fields: &str| ask(&mut served.connect(), "PUT", target, fields, "new").status;
    assert_eq!((put("/f", V), put("/f", U), put("/g", V)), (423, 423, 204));
    let text = ask(&mut client, "PROPFIND", "/f", &format!("{U}Depth: 0\r\n"), "").text();
    assert!(text.contains(">kept</") && text.contains("me &amp; you"), "{text}");
    let token = format!("{U}If: ({token})\r\n");
    assert_eq!(put("/f", &token), 204);
    drop((client, served));

    // A foreign file does not prevent service.
    std::fs::write(state.file("deep/webdav.json"), b"{").unwrap();
    let served = serve();
    assert_eq!(ask(&mut served.connect(), "PUT", "/f", V, "yes").status, 204);
    // What it held is kept from being written over.
    assert_eq!(std::fs::read(state.file("deep/webdav.unread")).unwrap(), b"{");
}

/// A lock keeps out those too whose upload had begun before it (RFC 4918 section 7).
#[test]
fn a_lock_keeps_out_an_upload_that_is_under_way() {
    let scratch = Scratch::new();
    scratch.write("f", b"old");
    let served = serve(&scratch);
    let mut upload = served.connect();
    upload
        .send(format!("PUT /f HTTP/1.1\r\nHost: h\r\n{U}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(upload.response().status, 100);
    assert_eq!(lock(&mut served.connect(), "/f", V).0, 200);
    upload.send("mine");
    assert_eq!((upload.response().status, scratch.read("f").unwrap()), (423, b"old".to_vec()));
}

#[test]
fn conditions_and_slashes_mean_what_they_say_here_too() {
    const SET: &str = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><a xmlns=\"u\">1</a></D:prop></D:set>\
                       </D:propertyupdate>";
    let scratch = Scratch::new();
    scratch.write("f", b"");
    let served = serve(&scratch);
    let mut client = served.connect();
    for (method, target, fields, body, status) in [
        ("PROPPATCH", "/f", "If-Match: \"x\"\r\n", SET, 412),
        ("PROPPATCH", "/f/", "", SET, 404),
        ("PROPFIND", "/f/", "Depth: 0\r\n", "", 404),
        ("LOCK", "/f", "If-Match: \"x\"\r\n", LOCK, 412),
        ("LOCK", "/f", "If-None-Match: *\r\n", LOCK, 412),
        ("LOCK", "/n", "If-Match: *\r\n", LOCK, 412),
        ("LOCK", "/f/", "", LOCK, 404),
        ("LOCK", "/n/", "", LOCK, 409),
        ("LOCK", "/f", "If-Match: *\r\n", LOCK, 200),
    ] {
        let answer = ask(&mut client, method, target, &format!("{U}{fields}"), body);
        assert_eq!(answer.status, status, "{method} {target} {fields}");
    }
    assert_eq!(scratch.names(), ["f"]);
}
