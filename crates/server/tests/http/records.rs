//! What the access log says of an answer is what was sent of it.

use std::os::unix::fs::PermissionsExt;

use millrace_server::Config;
use millrace_server::config::Programs;
use millrace_vfs::VirtualPath;

use crate::kit::http2::{DATA, INITIAL_WINDOW_SIZE, get, served_with};
use crate::kit::{Scratch, ServedHttp, eventually, http_config, pattern, serve_http_with};

/// A server, what it serves, and its access log.
struct Site {
    served: ServedHttp,
    scratch: Scratch,
    logs: Scratch,
}

impl Site {
    fn over(
        scratch: Scratch,
        serve: impl FnOnce(&Scratch, &mut dyn FnMut(&mut Config)) -> ServedHttp,
    ) -> Self {
        let logs = Scratch::new();
        let path = logs.path().join("access.log");
        let served = serve(&scratch, &mut |config| config.access_log = Some(path.clone()));
        Self { served, scratch, logs }
    }

    /// The line of a request, from its quotes on to the bytes that were sent, once it is there.
    #[track_caller]
    fn line_of(&self, request: &str) -> String {
        let wanted = format!("\"{request}\" ");
        let line = || {
            let log = std::fs::read_to_string(self.logs.path().join("access.log")).unwrap_or_default();
            let line = log.lines().find(|line| line.contains(&wanted))?.to_owned();
            line.split(" \"").nth(1).map(|part| part.replace("\" ", " "))
        };
        eventually("the line is there", || line().is_some());
        line().unwrap()
    }
}

fn serve(scratch: &Scratch, change: &mut dyn FnMut(&mut Config)) -> ServedHttp {
    let mut config = http_config(scratch.storage());
    change(&mut config);
    serve_http_with(config)
}

#[test]
fn a_page_in_chunks_counts_as_much_as_is_in_it() {
    let scratch = Scratch::new();
    // More than one chunk of them.
    scratch.crowd("d", 2_000, &"n".repeat(40));
    let site = Site::over(scratch, |scratch, change| served_with(scratch, |config| change(config)));
    let page = site.served.get("/d/", "");
    assert_eq!(page.field("transfer-encoding"), Some("chunked"));
    let length = page.body.len();
    assert_eq!(site.line_of("GET /d/ HTTP/1.1"), format!("GET /d/ HTTP/1.1 200 {length}"));
    assert_eq!(site.served.connect_http2(&[]).fetch(1, "/d/").1.len(), length);
    assert_eq!(site.line_of("GET /d/ HTTP/2.0"), format!("GET /d/ HTTP/2.0 200 {length}"));
}

#[test]
fn of_a_cut_http_2_answer_only_sent_bytes_count() {
    let scratch = Scratch::new();
    let site = Site::over(scratch, |scratch, change| served_with(scratch, |config| change(config)));
    let mut client = site.served.connect_http2(&[(INITIAL_WINDOW_SIZE, 20_000)]);
    client.send(get(1, "/large"));
    let mut came = 0;
    while came < 20_000 {
        came += client.expect(DATA, 1).content.len();
    }
    drop(client);
    let line = site.line_of("GET /large HTTP/2.0");
    assert_eq!(line, format!("GET /large HTTP/2.0 200 {came}"));
}

#[test]
fn an_internal_redirect_is_logged_with_the_requested_path() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.file("cgi")).unwrap();
    scratch.write("file.txt", b"a file");
    let script = scratch.file("cgi/on");
    std::fs::write(&script, "#!/bin/sh\nprintf 'Location: /file.txt\\n\\n'\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let folders = vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)];
    let site = Site::over(scratch, |scratch, change| {
        serve(scratch, &mut |config| {
            config.programs = Programs { folders: folders.clone(), ..Programs::default() };
            change(config);
        })
    });
    let mut client = site.served.connect();
    client.send("POST /cgi/on?x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().text(), "a file");
    assert_eq!(client.get("/file.txt").status, 200, "another request of the same connection");
    assert_eq!(site.line_of("POST /cgi/on?x HTTP/1.1"), "POST /cgi/on?x HTTP/1.1 200 6");
    assert_eq!(site.line_of("GET /file.txt HTTP/1.1"), "GET /file.txt HTTP/1.1 200 6");
}

#[test]
fn a_client_that_leaves_early_is_logged_without_an_answer() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("cgi")).unwrap();
    scratch.write("cgi/waits", b"#!/bin/sh\ntouch began; exec sleep 600\n");
    std::fs::set_permissions(scratch.file("cgi/waits"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = scratch.file("cgi").canonicalize().unwrap();
    let folders = vec![(VirtualPath::parse(b"/cgi").unwrap(), folder)];
    let site = Site::over(scratch, |scratch, change| {
        serve(scratch, &mut |config| {
            change(config);
            config.programs = Programs { folders: folders.clone(), ..Programs::default() };
        })
    });
    let mut client = site.served.connect();
    client.send("GET /cgi/waits HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("it has begun", || site.scratch.file("cgi/began").exists());
    drop(client);
    assert_eq!(site.line_of("GET /cgi/waits HTTP/1.1"), "GET /cgi/waits HTTP/1.1 400 0");
}

/// What a client has sent is no part of what it was sent.
#[test]
fn an_upload_that_is_cut_was_answered_nothing() {
    let site = Site::over(Scratch::new(), serve);
    let mut client = site.served.connect();
    let fields = "Host: h\r\nAuthorization: Basic dTpw\r\nContent-Length: 1000000";
    client.send(format!("PUT /up HTTP/1.1\r\n{fields}\r\n\r\n"));
    client.send(pattern(900_000));
    eventually("it is taken", || {
        site.served.running.sessions().iter().any(|one| one.transfer.as_ref().is_some_and(|it| it.bytes > 0))
    });
    drop(client);
    assert_eq!(site.line_of("PUT /up HTTP/1.1"), "PUT /up HTTP/1.1 400 0");
}

/// A client with the address could continue or abort the upload.
#[test]
fn the_address_of_an_upload_is_shown_to_its_client_only() {
    let site = Site::over(Scratch::new(), serve);
    let mut client = site.served.connect();
    let fields = "Host: h\r\nAuthorization: Basic dTpw\r\nTus-Resumable: 1.0.0";
    client.send(format!(
        "POST /up HTTP/1.1\r\n{fields}\r\nUpload-Length: 1000000\r\nContent-Length: 0\r\n\r\n"
    ));
    let address = client.response().field("location").unwrap().to_owned();
    let piece =
        "Content-Type: application/offset+octet-stream\r\nUpload-Offset: 0\r\nContent-Length: 1000000";
    client.send(format!("PATCH {address} HTTP/1.1\r\n{fields}\r\n{piece}\r\n\r\n"));
    client.send(pattern(900_000));
    let under_way = || site.served.running.sessions().into_iter().find_map(|one| one.transfer);
    eventually("it is taken", || under_way().is_some());
    assert_eq!(under_way().map(|it| it.path), Some(b"/up".to_vec()));
    drop(client);
    let shown =
        format!("PATCH {}... HTTP/1.1", &address[..address.len().min("/.millrace-uploads/".len() + 8)]);
    assert_eq!(site.line_of(&shown), format!("{shown} 400 0"));
}
