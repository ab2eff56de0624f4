//! Others that answer: PHP by FastCGI, and Python's `http.server` behind the server; asked by curl and wget.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{PASSWORD, Server, USER, read};
use crate::tool::{Tool, skip, tool};
use crate::tree::noise;

/// How long a test waits for a program to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with the test, and its socket with it.
struct Daemon(Child, Option<PathBuf>);

impl Drop for Daemon {
    fn drop(&mut self) {
        // With the processes that it has started.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
        if let Some(socket) = &self.1 {
            let _ = fs::remove_file(socket);
        }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|part| part.join(program).is_file());
    if !is_there {
        skip(&format!("{program} is not installed"));
    }
    is_there
}

/// PHP at a socket.
fn php(socket: &Path) -> Daemon {
    let _ = fs::remove_file(socket);
    let mut command = Command::new("php-cgi");
    command
        .process_group(0)
        .arg("-b")
        .arg(socket)
        .env("PHP_FCGI_CHILDREN", "4")
        .env("PHP_FCGI_MAX_REQUESTS", "0");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let daemon = Daemon(child, Some(socket.to_owned()));
    let end = Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(Instant::now() < end, "php-cgi does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon
}

fn curl(curl: &Tool, server: &Server, arguments: &[&str]) -> String {
    let login = format!("{USER}:{PASSWORD}");
    curl.run(server, &[&["--silent", "--show-error", "--user", &login], arguments].concat())
}

const SCRIPT: &str = r#"<?php
error_log("php was here");
header("X-Made-By: php");
http_response_code(203);
echo $_SERVER["REQUEST_METHOD"], " ", $_SERVER["PATH_INFO"] ?? "", " ", $_GET["q"] ?? "", " ", $_SERVER["REMOTE_USER"], " ",
    $_POST["field"] ?? "", " ", md5_file("php://input"), " ", $_SERVER["HTTP_PROXY"] ?? "no proxy";
"#;

#[test]
fn php_answers_by_fastcgi() {
    if !is_installed("php-cgi") {
        return;
    }
    let socket = std::env::temp_dir().join(format!("millrace-php-{}.sock", std::process::id()));
    let _php = php(&socket);
    for keep in [false, true] {
        let pass =
            format!("[[proxy]]\nsuffix = \".php\"\nkeep = {keep}\nto = \"fastcgi:{}\"\n", socket.display());
        let server = Server::configured_with(&pass, &[("served/d/a.php", SCRIPT.as_bytes())]);
        let Some(tool) = tool("curl") else { return };
        let url = server.http_url("d/a.php/more?q=1");
        let ask = |arguments: &[&str]| curl(&tool, &server, arguments);
        let empty = "d41d8cd98f00b204e9800998ecf8427e";
        assert_eq!(ask(&["-H", "Proxy: evil", &url]), format!("GET /more 1 alice  {empty} no proxy"));
        let told = ask(&["-i", "-d", "field=a%20b", &url]);
        assert!(told.starts_with("HTTP/1.1 203") && told.contains("X-Made-By: php"), "{told}");
        assert!(told.contains("POST /more 1 alice a b "), "{told}");
        let big = noise(5, 3_000_000);
        fs::write(server.local().join("big"), &big).unwrap();
        let there = ask(&["-H", "Content-Type: a/b", "--data-binary", "@big", &url]);
        fs::write(server.served().join("d/sum.php"), "<?php echo md5_file($_GET['f']);").unwrap();
        let file = server.local().join("big").display().to_string();
        let sum = ask(&[&server.http_url(&format!("d/sum.php?f={file}"))]);
        assert_eq!(there, format!("POST /more 1 alice  {sum} no proxy"));
        assert_eq!(ask(&["-o", "none", "-w", "%{http_code}", &server.http_url("none.php")]), "404");
        server.log_with("php was here", 3);
    }
}

#[test]
fn another_server_is_fetched_from_as_if_it_were_this_one() {
    if !is_installed("python3") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("millrace-behind-{}", std::process::id()));
    fs::create_dir_all(folder.join("app/d")).unwrap();
    let contents = noise(8, 4_000_000);
    fs::write(folder.join("app/d/big"), &contents).unwrap();
    fs::write(folder.join("app/page.html"), "<a href=\"d/big\">big</a>").unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
        .current_dir(&folder)
        .process_group(0);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // "Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ..."
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _daemon = Daemon(child, None);
    let port = line.split_whitespace().skip_while(|word| *word != "port").nth(1).expect("it says its port");

    let pass = format!("[[proxy]]\npath = \"/app\"\nto = \"http://127.0.0.1:{port}\"\n");
    let server = Server::configured_with(&pass, &[("served/own", b"own")]);
    let Some(tool) = tool("curl") else { return };
    let (url, own) = (server.http_url("app/d/big"), server.http_url("own"));
    for _ in 0..2 {
        assert_eq!(curl(&tool, &server, &["-o", "back", "-w", "%{http_code}", &url]), "200");
        assert!(read(server.local().join("back")) == contents);
    }
    assert_eq!(curl(&tool, &server, &[&own]), "own");
    assert_eq!(
        curl(&tool, &server, &["-o", "none", "-w", "%{http_code}", &server.http_url("app/none")]),
        "404"
    );
    assert!(curl(&tool, &server, &["-I", &url]).contains("Content-Length: 4000000"));
    server.log_with("\"GET /app/d/big HTTP/1.1\" 200 4000000", 2);
    if let Some(wget) = self::tool("wget") {
        let login = [format!("--user={USER}"), format!("--password={PASSWORD}")];
        let options = ["-q", "-r", "-np", "-nH", &login[0], &login[1], "--auth-no-challenge"];
        wget.run(&server, &[&options[..], &[&server.http_url("app/page.html")]].concat());
        assert!(read(server.local().join("app/d/big")) == contents);
    }
    fs::remove_dir_all(folder).unwrap();
}
