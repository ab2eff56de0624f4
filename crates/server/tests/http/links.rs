//! Links that expire: their permissions, and their entries in the logs.

use std::sync::Arc;

use millrace_server::auth::{Attempt, Decision};
use millrace_server::limits::LoginRates;
use millrace_server::web::{DownloadOrigin, FieldRule, Fields, Gives, IsolatedOrigin, Link, LinkKeys, Web};
use millrace_server::{Authenticator, Config};
use millrace_vfs::VirtualPath;

use crate::kit::{Response, Scratch, ServedHttp, eventually, http_config, serve_http_with};

/// Accounts that can look up a user without a password, like those of a configuration file.
#[derive(Debug)]
struct Knowing(Arc<dyn Authenticator>);

impl Authenticator for Knowing {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        self.0.authenticate(attempt)
    }

    fn current(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        Some(self.0.authenticate(&Attempt { password: b"p", ..*attempt }))
    }
}

/// Accounts that know the user no more.
#[derive(Debug)]
struct Forgetful;

impl Authenticator for Forgetful {
    fn authenticate(&self, _: &Attempt<'_>) -> Decision {
        Decision::Denied
    }

    fn current(&self, _: &Attempt<'_>) -> Option<Decision> {
        Some(Decision::Denied)
    }
}

/// A page may have any number of them.
#[test]
fn a_link_of_a_removed_user_does_not_count_as_a_failed_login() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let keys = LinkKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let path = VirtualPath::parse(b"/f").unwrap();
    let link = Link { path, gives: Gives::File, user: b"ghost".to_vec(), expires: 4_000_000_000 };
    let target = keys.sign(&link).unwrap();
    let served = serve_http_with(Config {
        accounts: Arc::new(Forgetful),
        web: Web { links: keys, ..Web::default() },
        // Longer than any client would wait.
        login_delay: std::time::Duration::from_secs(3600),
        ..http_config(scratch.storage())
    });
    for _ in 0..50 {
        let refused = served.get(&target, "");
        assert_eq!((refused.status, refused.field("www-authenticate")), (403, None));
    }
}

#[test]
fn requests_by_link_lock_no_user_out_and_are_logged_without_it() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    let (logs, keys) = (Scratch::new(), LinkKeys::parse("0123456789abcdef0123456789abcdef").unwrap());
    let path = VirtualPath::parse(b"/f").unwrap();
    let link = Link { path, gives: Gives::File, user: b"u".to_vec(), expires: 4_000_000_000 };
    let target = keys.sign(&link).unwrap();
    let config = http_config(scratch.storage());
    let access_log = logs.path().join("access.log");
    let served = serve_http_with(Config {
        accounts: Arc::new(Knowing(config.accounts.clone())),
        web: Web { links: keys, ..Web::default() },
        logins: LoginRates { user: "1/hour".parse().unwrap(), ..LoginRates::default() },
        access_log: Some(access_log.clone()),
        ..config
    });
    for _ in 0..3 {
        assert_eq!(served.get(&target, "").body, b"content");
    }
    // What only looks like one.
    for query in ["signature", "signature&b", "a;signature", "signature=", "&signature&"] {
        assert_eq!(served.get(&format!("/f?{query}"), "").status, 403, "{query}");
        let referer = format!("Referer: http://h/?{query}\r\n");
        assert_eq!(served.get("/f", &referer).status, 200, "{query}");
    }
    // A page sends its own address along with what it asks for; so does one that is not there.
    let referer = format!("Authorization: Basic dTpw\r\nReferer: http://h{target}\r\n");
    assert_eq!(served.get("/f", &referer).status, 200, "the user's first login");
    assert_eq!(served.get("/f", &referer).status, 429, "the second");
    let read = || std::fs::read_to_string(&access_log).unwrap_or_default();
    eventually("all is written", || read().lines().count() >= 15);
    let signature = target.split("signature=").nth(1).unwrap();
    assert!(!read().contains(signature), "{}", read());
    assert!(read().contains("http://h/f?expires=4000000000&user=u&signature=..."), "{}", read());
}

/// Serves `/d/`, with `downloads.test` as the origin for downloads; returns a link to that folder, too.
fn serve_with_download_origin(scratch: &Scratch) -> (ServedHttp, String) {
    folder_link(scratch, |config| {
        let rule = |value: &str| FieldRule {
            fields: vec![("Content-Security-Policy".to_owned(), value.to_owned())],
            types: vec!["*".to_owned()],
            ..FieldRule::default()
        };
        config.web.fields = Fields::new(vec![rule("sandbox")], false).unwrap();
        let origin = DownloadOrigin::parse("http://downloads.test").unwrap();
        let fields = Fields::new(Vec::new(), false).unwrap().private();
        config.web.download_origin = Some(IsolatedOrigin { origin, fields });
    })
}

/// What a browser says that opens a document.
const OPENS: &str = "Sec-Fetch-Dest: document\r\n";
/// The login of the user.
const LOGIN: &str = "Authorization: Basic dTpw\r\n";

/// The answer of the origin for downloads.
fn get_there(served: &ServedHttp, target: &str, fields: &str) -> Response {
    served.ask(format!("GET {target} HTTP/1.1\r\nHost: downloads.test\r\n{fields}\r\n"))
}

#[test]
fn a_browser_opens_files_at_the_origin_for_downloads() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/page.html", b"<script>");
    scratch.write("d/image.png", b"png");
    let (served, of_folder) = serve_with_download_origin(&scratch);
    let sent_on = served.get("/d/page.html", &[OPENS, LOGIN].concat());
    assert_eq!((sent_on.status, sent_on.field("cache-control")), (307, Some("no-store")));
    let location = sent_on.field("location").unwrap().to_owned();
    let target = location.strip_prefix("http://downloads.test").unwrap();
    // There without a login, without a sandbox, for this file only.
    let opened = get_there(&served, target, OPENS);
    assert_eq!((opened.status, &opened.body[..]), (200, &b"<script>"[..]));
    assert_eq!(opened.field("content-security-policy"), None);
    assert_eq!(opened.field("cache-control"), Some("private"));
    let other = target.replace("page.html", "image.png");
    assert_eq!(get_there(&served, &other, "").status, 403);
    // A part of a page, and what no browser asks for, stay where they are, in the sandbox.
    for asks in ["Sec-Fetch-Dest: image\r\n", "Accept: */*\r\n", ""] {
        let shown = served.get("/d/page.html", &[asks, LOGIN].concat());
        assert_eq!((shown.status, shown.field("content-security-policy")), (200, Some("sandbox")), "{asks}");
    }
    // One who came by a link may be logged in as well, and the new link is no longer good than that one.
    let query = of_folder.split('?').nth(1).unwrap();
    let sent_on = served.get(&format!("/d/page.html?{query}"), OPENS);
    assert_eq!(sent_on.status, 307);
    let location = sent_on.field("location").unwrap();
    assert!(!location.contains("beneath"), "{location}");
    // The page of the folder is ours.
    assert_eq!(served.get("/d/", &[OPENS, LOGIN].concat()).status, 200);
}

#[test]
fn the_origin_for_downloads_answers_links_only() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/page.html", b"<script>");
    let (served, of_folder) = serve_with_download_origin(&scratch);
    for target in ["/d/page.html", "/d/", "/d/page.html?expires=4000000000", "/"] {
        let refused = get_there(&served, target, LOGIN);
        assert_eq!((refused.status, refused.field("www-authenticate")), (403, None), "{target}");
    }
    assert_eq!(get_there(&served, &of_folder, "").status, 200);
}

/// Serves these files, with a link to `/d/`; returns that link, too.
fn folder_link(scratch: &Scratch, change: impl FnOnce(&mut Config)) -> (ServedHttp, String) {
    let keys = LinkKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let path = VirtualPath::parse(b"/d").unwrap();
    let link = Link { path, gives: Gives::Folder, user: b"u".to_vec(), expires: 4_000_000_000 };
    let target = keys.sign(&link).unwrap();
    let config = http_config(scratch.storage());
    let accounts = Arc::new(Knowing(config.accounts.clone()));
    let web = Web { links: keys, ..Web::default() };
    let mut config = Config { accounts, anonymous: false, web, ..config };
    change(&mut config);
    (serve_http_with(config), target)
}

/// The links of a page, as a browser understands them there.
fn links_of(page: &str, at: &str) -> Vec<String> {
    let at = at.split('?').next().unwrap();
    let anchors = page.split("<a ").skip(1).filter_map(|rest| rest.split_once("href=\""));
    let links = anchors.map(|(_, rest)| rest.split('"').next().unwrap());
    links
        .map(|link| link.replace("&amp;", "&"))
        .map(|link| match link.strip_prefix("./") {
            Some(name) => format!("{at}{name}"),
            None if link.starts_with("../") => {
                let above = at.trim_end_matches('/').rsplit_once('/').unwrap().0;
                format!("{above}/{}", &link[3..])
            }
            None => format!("{at}{link}"),
        })
        .collect()
}

#[test]
fn a_link_to_a_folder_leads_to_all_beneath_it_by_its_page() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("d/a & b/deep")).unwrap();
    for name in ["beside", "d/index.html", "d/f", "d/a & b/g"] {
        scratch.write(name, name.as_bytes());
    }
    let (served, target) = folder_link(&scratch, |_| {});
    let page = served.get(&target, "");
    assert!(page.status == 200 && !page.text().contains("../"), "{}", page.text());
    let links = links_of(&page.text(), &target);
    let find = |links: &[String], path: &str| {
        let found = links.iter().find(|link| link.starts_with(&format!("{path}?")));
        found.unwrap_or_else(|| panic!("{path}: {links:?}")).clone()
    };
    assert_eq!(served.get(&find(&links, "/d/f"), "").body, b"d/f");
    assert_eq!(served.get(&find(&links, "/d/index.html"), "").body, b"d/index.html");
    let by_size = links.iter().find(|link| link.ends_with("&sort=size")).unwrap();
    assert_eq!(served.get(by_size, "").status, 200);
    let folder = find(&links, "/d/a%20%26%20b/");
    // Without its slash it is sent on with all that the link says.
    let sent_on = served.get(&folder.replacen("b/?", "b?", 1), "");
    assert_eq!((sent_on.status, sent_on.field("location")), (301, Some(folder.as_str())));
    let links = links_of(&served.get(&folder, "").text(), &folder);
    assert_eq!(served.get(&find(&links, "/d/a%20%26%20b/g"), "").body, b"d/a & b/g");
    assert_eq!(served.get(&find(&links, "/d/"), "").status, 200, "up again");
    let json = served.get(&folder, "Accept: application/json\r\n").text();
    let query = target.split_once('?').unwrap().1;
    assert!(json.contains(&format!("\"href\":\"./g?{query}\"")), "{json}");
    for (line, status) in [
        (format!("GET /beside?{query}"), 403),
        (format!("GET /?{query}"), 403),
        (format!("GET /d/../beside?{query}"), 403),
        (format!("GET /d/none?{query}"), 404),
        (format!("DELETE /d/f?{query}"), 403),
        (format!("PROPFIND /d/?{query}"), 403),
        (format!("PUT /d/new?{query}"), 403),
        ("GET /d/f".to_owned(), 401),
    ] {
        let answer = served.ask(format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(answer.status, status, "{line}");
    }
    assert!(scratch.read("d/f").is_some());
}

#[test]
fn a_link_leads_to_no_program() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("d/cgi")).unwrap();
    scratch.write("d/cgi/secret", b"#!/bin/sh\necho secret");
    let folder = scratch.file("d/cgi").canonicalize().unwrap();
    let (served, target) = folder_link(&scratch, |config| {
        config.programs.folders = vec![(VirtualPath::parse(b"/d/cgi").unwrap(), folder)];
    });
    let refused = served.get(&target.replacen("/d/", "/d/cgi/secret", 1), "");
    assert!(refused.status == 403 && !refused.text().contains("echo"), "{}", refused.text());
}
