//! A browser: reads a directory's page, follows its link, and from a page of another origin sends and gets files.

use std::fs;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::tool;

/// What the page does, one line each; `THERE` is another origin than its own.
const SCRIPT: &str = r#"<!doctype html><meta charset="utf-8"><body>waiting<script>
const login = { Authorization: 'Basic ' + btoa('USER:PASSWORD') };
const lines = [];
async function run() {
  const put = await fetch('THERE/up.txt', { method: 'PUT', headers: login, body: 'from a browser' });
  lines.push('put ' + put.status + ' ' + (put.headers.get('ETag') !== null));
  const part = await fetch('THERE/up.txt', { headers: { ...login, Range: 'bytes=5-8' } });
  lines.push('part ' + part.status + ' ' + await part.text() + ' ' + part.headers.get('Content-Range'));
  lines.push('none ' + (await fetch('THERE/none', { headers: login })).status);
  const removed = fetch('THERE/up.txt', { method: 'DELETE', headers: login });
  lines.push('delete ' + await removed.then(answer => answer.status, () => 'kept from it'));
  const page = new DOMParser().parseFromString(await (await fetch('/')).text(), 'text/html');
  const link = [...page.querySelectorAll('a')].find(one => one.textContent === 'ä b&.txt');
  const followed = await fetch(new URL(link.getAttribute('href'), location.href));
  lines.push('link ' + await followed.text());
}
run().catch(error => lines.push('failed: ' + error))
  .then(() => { document.body.textContent = lines.join('; '); });
</script>
"#;

/// The document as the browser has it when the page's scripts have come to rest.
fn document(server: &Server, url: &str) -> Option<String> {
    let profile = format!("--user-data-dir={}", server.local().join("profile").display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        &profile,
        // Scripts see no time pass while an answer is awaited, however slow this machine is.
        "--virtual-time-budget=10000",
        "--dump-dom",
        url,
    ];
    Some(tool("chromium")?.run(server, &arguments))
}

#[test]
fn a_browser_reads_a_directory_and_sends_and_gets_files_from_another_origin() {
    let there = Server::configured_with("[[cors]]\norigins = \"*\"\nmethods = [\"GET\", \"PUT\"]\n", &[]);
    // Its page is the operator's, not a user's.
    let here = Server::configured_with("anonymous = \"ro\"\nhttp-sandbox = false\n", &[]);
    let script = SCRIPT.replace("THERE", there.http_url("").trim_end_matches('/'));
    let script = script.replace("USER", USER).replace("PASSWORD", PASSWORD);
    fs::write(here.served().join("page.html"), script).unwrap();
    fs::write(here.served().join("ä b&.txt"), "some text").unwrap();

    let Some(listing) = document(&here, &here.http_url("")) else { return };
    assert!(listing.contains("<a href=\"./%C3%A4%20b%26.txt\">ä b&amp;.txt</a>"), "{listing}");
    let done = document(&here, &here.http_url("page.html")).unwrap_or_default();
    for line in
        ["put 201 true", "part 206 a br bytes 5-8/14", "none 404", "delete kept from it", "link some text"]
    {
        assert!(done.contains(line), "{line}: {done}\n{}", there.log());
    }
    assert_eq!(read(there.served().join("up.txt")), b"from a browser");
}

/// What each writes where its script runs.
const UPLOADED: [(&str, &str); 3] = [
    ("page.html", "<!doctype html><body>shown<script>document.body.textContent = 'it ' + 'ran'</script>"),
    (
        "image.svg",
        "<svg xmlns='http://www.w3.org/2000/svg'><text>shown</text><script>document.documentElement.textContent = 'it ' + 'ran'</script></svg>",
    ),
    (
        "page.xhtml",
        "<html xmlns='http://www.w3.org/1999/xhtml'><body>shown<script>document.body.textContent = 'it ' + 'ran'</script></body></html>",
    ),
];

#[test]
fn a_browser_runs_nothing_of_what_users_uploaded() {
    for (setting, runs) in [("", false), ("http-sandbox = false\n", true)] {
        let server = Server::configured_with(&format!("anonymous = \"ro\"\n{setting}"), &[]);
        for (name, content) in UPLOADED {
            fs::write(server.served().join(name), content).unwrap();
            let Some(document) = document(&server, &server.http_url(name)) else { return };
            let expected = if runs { "it ran" } else { "shown" };
            assert!(document.contains(expected), "{name}, {setting:?}: {document}\n{}", server.log());
            assert_eq!(document.contains("it ran"), runs, "{name}, {setting:?}: {document}");
        }
    }
}

/// Users log in at `127.0.0.1`; `localhost`, at the same port, is the origin for downloads.
#[test]
fn a_browser_runs_uploaded_scripts_at_the_origin_for_downloads() {
    let configuration = "anonymous = \"ro\"\nhttp-link-keys = \"keys\"\ncontrol = \"socket\"\n";
    let server = Server::configured_with(configuration, &[("keys", b"0123456789abcdef0123456789abcdef")]);
    let folder = server.served().parent().unwrap().to_owned();
    let port = server.http_url("").rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let with_origin = format!("{configuration}http-download-origin = \"http://localhost:{port}\"\n");
    fs::write(folder.join("millrace.toml"), with_origin).unwrap();
    server.reload(&folder.join("socket"));
    let show_origin = "<script>document.body.textContent = 'ran at ' + location.origin</script>";
    fs::write(server.served().join("page.html"), format!("<!doctype html><body>shown{show_origin}")).unwrap();
    let Some(document) = document(&server, &server.http_url("page.html")) else { return };
    assert!(document.contains(&format!("ran at http://localhost:{port}")), "{document}\n{}", server.log());
}
