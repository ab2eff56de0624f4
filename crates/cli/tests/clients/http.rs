//! HTTP clients: curl with ranges, resuming and uploads, wget, and aria2, which asks for many ranges at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use millrace_server::web::{Gives, Link, LinkKeys};
use millrace_vfs::VirtualPath;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, tool};
use crate::tree::noise;

fn curl(curl: &Tool, server: &Server, arguments: &[&str]) -> String {
    let login = format!("{USER}:{PASSWORD}");
    curl.run(server, &[&["--silent", "--show-error", "--fail", "--user", &login], arguments].concat())
}

#[test]
fn curl_moves_files_both_ways_by_http() {
    let server = Server::start();
    let Some(tool) = tool("curl") else { return };
    for (name, length) in [("some", 3_000_000), ("none", 0)] {
        let contents = noise(length as u64, length);
        fs::write(server.local().join(name), &contents).unwrap();
        let url = server.http_url(name);
        curl(&tool, &server, &["-T", name, &url]);
        assert!(read(server.served().join(name)) == contents, "{name} went up");
        // From a pipe: chunked, with 100-continue.
        curl(&tool, &server, &["-T", "-", "-X", "PUT", &server.http_url("piped")]);
        curl(&tool, &server, &["-o", "back", &url]);
        assert!(read(server.local().join("back")) == contents, "{name} came back");
    }
    assert_eq!(read(server.served().join("piped")), b"");
    let refused = tool.attempt(&server, &["--fail", "-T", "some", &server.http_url("x")], "");
    assert_eq!(refused.status.code(), Some(22), "without a login");
}

#[test]
fn curl_asks_for_parts_goes_on_and_skips_what_it_has() {
    let server = Server::start();
    let Some(tool) = tool("curl") else { return };
    let contents = noise(7, 1_000_000);
    fs::write(server.served().join("f"), &contents).unwrap();
    let url = server.http_url("f");
    curl(&tool, &server, &["-r", "1000-1999", "-o", "part", &url]);
    assert!(read(server.local().join("part")) == contents[1000..2000]);
    let parts = curl(&tool, &server, &["-r", "0-0,500000-500000", "-D", "-", "-o", "parts", &url]);
    assert!(parts.contains("multipart/byteranges"), "{parts}");
    fs::write(server.local().join("rest"), &contents[..400_000]).unwrap();
    curl(&tool, &server, &["-C", "-", "-o", "rest", &url]);
    assert!(read(server.local().join("rest")) == contents);
    // An existing file is not sent again: 304, and so no content.
    curl(&tool, &server, &["--etag-save", "tag", "-o", "whole", &url]);
    curl(&tool, &server, &["--etag-compare", "tag", "-o", "again", &url]);
    assert!(!server.local().join("again").exists());
    // An upload is resumed where the server's copy ends.
    fs::write(server.served().join("up"), &contents[..300_000]).unwrap();
    curl(&tool, &server, &["-C", "300000", "-T", "rest", &server.http_url("up")]);
    assert!(read(server.served().join("up")) == contents);
}

#[test]
fn curl_makes_moves_copies_and_removes() {
    let server = Server::start();
    let Some(tool) = tool("curl") else { return };
    curl(&tool, &server, &["-X", "MKCOL", &server.http_url("d")]);
    fs::write(server.local().join("f"), "text").unwrap();
    curl(&tool, &server, &["-T", "f", &server.http_url("d/")]);
    let to = format!("Destination: {}", server.http_url("e"));
    curl(&tool, &server, &["-X", "COPY", "-H", &to, &server.http_url("d")]);
    curl(&tool, &server, &["-X", "DELETE", &server.http_url("d")]);
    assert!(!server.served().join("d").exists());
    assert_eq!(read(server.served().join("e/f")), b"text");
}

#[test]
fn curl_runs_a_program() {
    let server = Server::configured_with("cgi = \"cgi-bin\"\n", &[("served/cgi-bin/.keep", b"")]);
    let Some(tool) = tool("curl") else { return };
    let program = server.served().join("cgi-bin/upper");
    fs::write(&program, "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; tr a-z A-Z\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(curl(&tool, &server, &["-d", "hello", &server.http_url("cgi-bin/upper")]), "HELLO");
}

/// By FTP it is a file, alone and in an archive.
#[test]
fn curl_packs_no_program_and_no_script_by_http() {
    let configuration = "archives = true\ncgi = \"site/bin\"\n[[proxy]]\npath = \"/site/app\"\nsuffix = \".php\"\n\
                         to = \"fastcgi://127.0.0.1:9\"\n";
    let files: [(&str, &[u8]); 3] = [
        ("served/site/page", b"a page"),
        ("served/site/bin/program", b"text of a program"),
        ("served/site/app/script.php", b"text of a script"),
    ];
    let server = Server::configured_with(configuration, &files);
    let Some(tool) = tool("curl") else { return };
    for (url, shows) in [(server.http_url("site.tar"), false), (server.url("site.tar"), true)] {
        let login = format!("{USER}:{PASSWORD}");
        tool.run(&server, &["--silent", "--user", &login, "-o", "site.tar", &url]);
        let packed = read(server.local().join("site.tar"));
        let holds = |text: &str| packed.windows(text.len()).any(|part| part == text.as_bytes());
        assert_eq!(
            [holds("a page"), holds("of a program"), holds("of a script")],
            [true, shows, shows],
            "{url}"
        );
    }
}

#[test]
fn wget_mirrors_a_tree_by_http() {
    let server = Server::start();
    let Some(tool) = tool("wget") else { return };
    fs::create_dir_all(server.served().join("a/b c")).unwrap();
    for (name, length) in [("a/one", 100), ("a/b c/two & three", 200_000)] {
        fs::write(server.served().join(name), noise(length as u64, length)).unwrap();
    }
    let login = [format!("--user={USER}"), format!("--password={PASSWORD}")];
    let options = ["-q", "-r", "-np", "-nH", &login[0], &login[1], "--auth-no-challenge"];
    tool.run(&server, &[&options[..], &[&server.http_url("a/")]].concat());
    for name in ["a/one", "a/b c/two & three"] {
        assert!(read(server.local().join(name)) == read(server.served().join(name)), "{name}");
    }
}

#[test]
fn curl_moves_files_both_ways_in_tls() {
    let server = Server::secure("prefer");
    let Some(tool) = tool("curl") else { return };
    let authority = server.authority().display().to_string();
    for versions in ["1.2", "1.3"] {
        for length in [0, 1_666, 3_000_000] {
            let contents = noise(length as u64, length);
            fs::write(server.local().join("f"), &contents).unwrap();
            let url = server.https_url("f");
            let trust = ["--http1.1", "--cacert", &authority, "--tlsv1.2", "--tls-max", versions];
            curl(&tool, &server, &[&trust[..], &["-T", "f", &url]].concat());
            // The second on the connection of the first.
            let url = format!("{url}?[1-2]");
            let said = curl(
                &tool,
                &server,
                &[&trust[..], &["-o", "back#1", "-w", "%{num_connects}", &url]].concat(),
            );
            assert_eq!(said, "10", "new connections");
            assert!(read(server.local().join("back1")) == contents, "{length} by TLS {versions}");
            assert!(read(server.local().join("back2")) == contents, "{length} by TLS {versions}");
        }
    }
}

/// `--http2`, and the certificate to trust.
fn by_http_2(server: &Server) -> [String; 3] {
    ["--http2".to_owned(), "--cacert".to_owned(), server.authority().display().to_string()]
}

#[test]
fn a_connection_of_http_2_connects_and_disconnects_once_and_its_users_log_in_and_out() {
    let Some(tool) = tool("curl") else { return };
    let told = std::env::temp_dir().join(format!("millrace-http-2-events-{}", std::process::id()));
    let configuration = format!(
        "tls-self-signed = true\nstate = \"state\"\nhooks-queue = \"queue.db\"\nhttps = \"127.0.0.1:0\"\n[[hook]]\n\
         on = [\"connect\", \"login\", \"download\", \"logout\", \"disconnect\"]\n\
         run = [\"/bin/sh\", \"-c\", \"echo $MILLRACE_EVENT >> {}\"]\n",
        told.display()
    );
    let server = Server::configured_with(&configuration, &[]);
    fs::write(server.served().join("f"), b"content").unwrap();
    let url = server.https_url("f");
    assert_eq!(curl(&tool, &server, &["--http2", "--insecure", &url, &url, &url]), "content".repeat(3));
    let heard = || fs::read_to_string(&told).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(30);
    while heard().lines().count() < 7 {
        assert!(Instant::now() < end, "{}", heard());
        std::thread::sleep(Duration::from_millis(5));
    }
    let heard = heard();
    let counts = ["connect", "login", "download", "logout", "disconnect"]
        .map(|event| heard.lines().filter(|line| *line == event).count());
    assert_eq!(counts, [1, 1, 3, 1, 1], "{heard}");
    fs::remove_file(told).unwrap();
}

#[test]
fn curl_does_by_http_2_what_it_does_by_http_1() {
    let server = Server::secure("prefer");
    let Some(tool) = tool("curl") else { return };
    let options = by_http_2(&server);
    let ask = |arguments: &[&str]| {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        curl(&tool, &server, &[&options, arguments].concat())
    };
    for length in [0, 1_666, 100_000, 3_000_000] {
        let contents = noise(length as u64, length);
        fs::write(server.local().join("f"), &contents).unwrap();
        let url = server.https_url("f");
        let code = ["-w", "%{http_version} %{http_code}"];
        ask(&["-T", "f", &url]);
        assert_eq!(ask(&[&code[..], &["-T", "f", &url]].concat()), "2 204", "{length}");
        assert_eq!(ask(&[&code[..], &["-o", "back", &url]].concat()), "2 200", "{length}");
        assert!(read(server.local().join("back")) == contents, "{length}");
    }
    let url = server.https_url("f");
    let contents = read(server.served().join("f"));
    ask(&["-r", "1000-1999", "-o", "part", &url]);
    assert!(read(server.local().join("part")) == contents[1000..2000]);
    let head = ask(&["-I", &url]);
    assert!(head.starts_with("HTTP/2 200") && head.contains("content-length: 3000000"), "{head}");
    ask(&["--etag-save", "tag", "-o", "whole", &url]);
    ask(&["--etag-compare", "tag", "-o", "again", &url]);
    assert!(!server.local().join("again").exists());
    ask(&["-X", "MKCOL", &server.https_url("d")]);
    ask(&["-X", "MOVE", "-H", &format!("Destination: {}", server.https_url("d/g")), &url]);
    assert!(read(server.served().join("d/g")) == contents);
    ask(&["-X", "DELETE", &server.https_url("d")]);
    assert!(!server.served().join("d").exists());
    server.log_with("\"DELETE /d HTTP/2.0\" 204", 1);
}

#[test]
fn an_upload_by_http_2_that_is_cut_leaves_nothing() {
    let server = Server::secure("prefer");
    let Some(tool) = tool("curl") else { return };
    fs::write(server.local().join("f"), noise(3, 5_000_000)).unwrap();
    let options = by_http_2(&server);
    let login = format!("{USER}:{PASSWORD}");
    // 50 KB in a second, then curl gives up.
    let cut = ["-s", "--user", &login, "--limit-rate", "50k", "--max-time", "1", "-T", "f"];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let url = server.https_url("cut");
    let output = tool.attempt(&server, &[&options[..], &cut, &[url.as_str()]].concat(), "");
    assert_eq!(output.status.code(), Some(28), "curl's own time is over");
    let log = curl(
        &tool,
        &server,
        &[&options, &["-o", "list", "-w", "%{http_code}", &server.https_url("")][..]].concat(),
    );
    assert_eq!(log, "200");
    assert!(!server.served().join("cut").exists());
}

#[test]
fn h2load_opens_many_streams_at_a_time() {
    let server = Server::secure("prefer");
    let Some(tool) = tool("h2load") else { return };
    fs::write(server.served().join("f"), noise(1, 1_666)).unwrap();
    let login = "authorization: Basic YWxpY2U6czNjcmV0";
    let said = tool.run(&server, &["-n", "2000", "-c", "4", "-m", "50", "-H", login, &server.https_url("f")]);
    assert!(said.contains("2000 succeeded, 0 failed, 0 errored"), "{said}");
    assert!(said.contains("Application protocol: h2"), "{said}");
}

#[test]
fn wget_fetches_a_tree_in_tls() {
    let server = Server::secure("prefer");
    let Some(tool) = tool("wget") else { return };
    fs::create_dir(server.served().join("d")).unwrap();
    for (name, length) in [("a", 10), ("d/b", 300_000)] {
        fs::write(server.served().join(name), noise(length as u64, length)).unwrap();
    }
    let (authority, url) = (server.authority().display().to_string(), server.https_url(""));
    let login =
        [format!("--user={USER}"), format!("--password={PASSWORD}"), format!("--ca-certificate={authority}")];
    let options = ["-q", "-r", "-nH", "--auth-no-challenge", &login[0], &login[1], &login[2]];
    tool.run(&server, &[&options[..], &[&url]].concat());
    for name in ["a", "d/b"] {
        assert!(read(server.local().join(name)) == read(server.served().join(name)), "{name}");
    }
}

#[test]
fn aria2_puts_a_file_together_from_many_ranges() {
    let server = Server::start();
    let Some(tool) = tool("aria2c") else { return };
    let contents = noise(9, 20_000_000);
    fs::write(server.served().join("f"), &contents).unwrap();
    let login = [format!("--http-user={USER}"), format!("--http-passwd={PASSWORD}")];
    let options = ["-q", "--no-conf", "-x", "8", "-s", "8", "-k", "1M", &login[0], &login[1]];
    tool.run(&server, &[&options[..], &["--http-auth-challenge=false", &server.http_url("f")]].concat());
    assert!(read(server.local().join("f")) == contents);
}

/// Runs `millrace link` over the configuration that a server was started with.
fn link(server: &Server, arguments: &[&str]) -> String {
    let config = server.served().parent().unwrap().join("millrace.toml");
    let url = server.http_url("");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["link", "--config", config.to_str().unwrap(), "--url", url.trim_end_matches('/')])
        // The user is a flag of the server's.
        .arg("--force")
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A link that was good until the second 1 of 1970.
fn expired_link(server: &Server, path: &str, key: &str) -> String {
    let path = VirtualPath::parse(path.as_bytes()).unwrap();
    let link = Link { path, gives: Gives::File, user: USER.into(), expires: 1 };
    let target = LinkKeys::parse(key).unwrap().sign(&link).unwrap();
    format!("{}{target}", server.http_url("").trim_end_matches('/'))
}

#[test]
fn curl_uses_a_link_without_a_login_until_its_key_is_taken_away() {
    const KEYS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
    let configuration = "http-link-keys = \"keys\"\ncontrol = \"socket\"\n";
    let server = Server::configured_with(configuration, &[("keys", KEYS[0].as_bytes())]);
    let Some(tool) = tool("curl") else { return };
    fs::write(server.served().join("a b.txt"), "0123456789").unwrap();
    fs::write(server.served().join("other.txt"), "other").unwrap();
    fs::write(server.local().join("up"), "sent by a link").unwrap();
    let status = |arguments: &[&str]| {
        let write_out = ["--silent", "-o", "got", "-w", "%{http_code}"];
        let output = tool.attempt(&server, &[&write_out, arguments].concat(), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let get = link(&server, &["/a b.txt", "--user", USER]);
    assert_eq!(status(&[&get]), "200");
    assert_eq!(read(server.local().join("got")), b"0123456789");
    assert_eq!(status(&["-r", "2-3", &get]), "206");
    assert_eq!(status(&["--head", &get]), "200");
    // Both on one connection: a link does not authenticate the next request.
    assert_eq!(status(&[&get, "-o", "second", &server.http_url("other.txt")]), "200401");
    for refused in [
        get.replace("a%20b", "other"),
        get.replace("user=alice", "user=anonymous"),
        expired_link(&server, "/a b.txt", KEYS[0]),
    ] {
        assert_eq!(status(&[&refused]), "403", "{refused}");
    }
    assert_eq!(status(&["-T", "up", &get]), "403", "it is for getting");
    assert_eq!(status(&["-X", "DELETE", &get]), "403", "it is for getting");
    let put = link(&server, &["/new.txt", "--user", USER, "--put"]);
    assert_eq!(status(&["-T", "up", &put]), "201");
    assert_eq!(read(server.served().join("new.txt")), b"sent by a link");
    assert_eq!(status(&[&put]), "403", "it is for sending");

    fs::write(server.served().parent().unwrap().join("keys"), KEYS[1]).unwrap();
    server.reload(&server.served().parent().unwrap().join("socket"));
    assert_eq!(status(&[&get]), "403", "its key is gone");
    assert_eq!(status(&[&link(&server, &["/a b.txt", "--user", USER])]), "200");
}

#[test]
fn each_name_of_the_server_shows_its_tree_by_http_and_ftp() {
    use std::io::{BufRead, BufReader, Write};
    let configuration = "[[host]]\nnames = [\"files.test\", \"*.sites.test\"]\ndirectory = \"site\"\n\
                         [[error-page]]\nhosts = \"files.test\"\nfile = \"lost\"\n";
    let files: [(&str, &[u8]); 2] = [("site/who", b"the host's"), ("lost", b"lost here")];
    let server = Server::configured_with(configuration, &files);
    let Some(tool) = tool("curl") else { return };
    fs::write(server.served().join("who"), "everybody's").unwrap();
    let hosts = [
        ("files.test", "the host's"),
        ("Files.Test:8080", "the host's"),
        ("a.sites.test", "the host's"),
        ("other.test", "everybody's"),
    ];
    for (host, expected) in hosts {
        let field = format!("Host: {host}");
        assert_eq!(curl(&tool, &server, &["-H", &field, &server.http_url("who")]), expected, "{host}");
    }
    // On one connection, one after the other.
    let url = server.http_url("who");
    let both = ["-H", "Host: files.test", &url, "--next", "--silent", "--user", "alice:s3cret", &url];
    assert_eq!(curl(&tool, &server, &both), "the host'severybody's");
    let lost = server.http_url("lost");
    let login = format!("{USER}:{PASSWORD}");
    let page = tool.attempt(&server, &["-s", "--user", &login, "-H", "Host: files.test", &lost], "");
    assert_eq!(String::from_utf8_lossy(&page.stdout), "lost here");

    for (host, expected) in [("files.test", "213 10"), ("", "213 11")] {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        let mut reply = || {
            let mut line = String::new();
            replies.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        assert!(reply().starts_with("220"));
        let mut ask = |command: String| {
            stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            reply()
        };
        if !host.is_empty() {
            assert!(ask(format!("HOST {host}")).starts_with("220"), "{host}");
        }
        assert!(ask(format!("USER {USER}")).starts_with("331"));
        assert!(ask(format!("PASS {PASSWORD}")).starts_with("230"));
        assert!(ask("TYPE I".to_owned()).starts_with("200"));
        assert_eq!(ask("SIZE who".to_owned()), expected, "{host}");
    }
}
