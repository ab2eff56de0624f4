//! What the anonymous user, and an own account, see of names that begin with a dot.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::{CHEAP, Scratch, Serving, reply};

/// A server of a folder with `seen`, `.env`, `.git/config` and `.well-known/x`.
fn serve(name: &str, keys: &str) -> (Scratch, Serving, String) {
    let folder = Scratch::new(name);
    for (path, content) in
        [("seen", "seen"), (".env", "s3cret"), (".git/config", "x"), (".well-known/x", "x")]
    {
        let path = folder.path("files").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let config = folder.path("m.toml");
    let users = format!("[[user]]\nname = \"al\"\npassword = \"{CHEAP}\"\n");
    fs::write(&config, format!("anonymous = \"ro\"\nhttp = \"127.0.0.1:0\"\n{keys}\n{users}")).unwrap();
    let served = folder.path("files");
    let serving = Serving::start_in(served.to_str().unwrap(), &["--config", config.to_str().unwrap()]);
    let url = serving.announced.iter().find_map(|line| line.split_once("http://")).unwrap().1;
    let http = url.split('/').next().unwrap().to_owned();
    (folder, serving, http)
}

fn ask(client: &mut BufReader<TcpStream>, line: &str) -> String {
    write!(client.get_mut(), "{line}\r\n").unwrap();
    reply(client)
}

/// The names that a listing has.
fn listed(client: &mut BufReader<TcpStream>, command: &str) -> Vec<String> {
    let passive = ask(client, "EPSV");
    let port: u16 = passive.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(client.get_mut(), "{command}\r\n").unwrap();
    let mut text = String::new();
    data.read_to_string(&mut text).unwrap();
    while !reply(client).starts_with("226 ") {}
    let mut names: Vec<String> =
        text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    names.retain(|name| !["", ".", ".."].contains(&name.as_str()));
    names.sort();
    names
}

fn http(address: &str, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "{request} HTTP/1.0\r\nHost: h\r\nDepth: 1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn dotfiles_are_hidden_from_the_anonymous_user_alone_and_by_every_way() {
    for (keys, user, sees) in [
        ("", "anonymous", false),
        ("archives = true\nconversions = true", "anonymous", false),
        ("[[group]]\nname = \"anonymous\"\nsessions = 9", "anonymous", false),
        ("anonymous-dotfiles = true", "anonymous", true),
        ("", "al", true),
    ] {
        let (_folder, serving, address) = serve("dotfiles", keys);
        let mut client = serving.connect();
        ask(&mut client, &format!("USER {user}"));
        assert!(ask(&mut client, "PASS password").starts_with("230 "), "{keys} {user}");
        assert!(ask(&mut client, "TYPE I").starts_with("200 "));
        let expected: &[&str] = match sees {
            true => &[".env", ".git", ".well-known", "seen"],
            false => &[".well-known", "seen"],
        };
        for command in ["LIST -a", "NLST -a", "MLSD"] {
            assert_eq!(listed(&mut client, command), expected, "{keys} {user} {command}");
        }
        for (command, code) in [("SIZE .env", "213"), ("CWD .git", "250"), ("MDTM /.git/config", "213")] {
            let code = if sees { code } else { "550" };
            assert!(ask(&mut client, command).starts_with(code), "{keys} {user} {command}");
        }
        assert!(ask(&mut client, "SIZE /.well-known/x").starts_with("213"));
        if user != "anonymous" {
            continue;
        }
        // Twice: the second may be answered with what was kept of the first.
        for _ in 0..2 {
            for request in ["GET /", "PROPFIND /"] {
                let answer = http(&address, request);
                assert!(answer.contains("seen") && answer.contains(".well-known"), "{answer}");
                assert_eq!((answer.contains(".env"), answer.contains(".git")), (sees, sees), "{answer}");
            }
            for path in ["/.env", "/.git/config", "/.git/"] {
                let found = http(&address, &format!("GET {path}")).starts_with("HTTP/1.1 200 ");
                assert_eq!(found, sees, "{keys} {path}");
            }
            assert!(http(&address, "GET /.well-known/x").starts_with("HTTP/1.1 200 "));
        }
    }
}
