//! Row 3: wu-ftpd's classes with limits by time of day, its message files, and the cookies in them.

use std::fs;

use super::site::{Client, Folder, Site, eventually};

const KEYS: &str = "
greeting-file = \"greeting\"
welcome-file = \"welcome\"
limit-file = \"full\"
contact = \"root@files.test\"
messages = true
sessions = 6
[[class]]
name = \"guests\"
from = [\"10.0.0.0/8\", \"127.0.0.0/8\"]
anonymous = true
sessions = \"5; 00:00-12:00 UTC 1; 12:00-00:00 UTC 1\"
limit-file = \"guests\"
[[class]]
name = \"others\"
";

/// A server with these texts.
fn start(name: &str) -> Site {
    let folder = Folder::new(name);
    for (file, text) in [
        ("greeting", "Welcome, %R, at %T.\nYou are one of %N of %M.\n"),
        ("welcome", "Hello, %U (%u)!\nMail %E. 100%% of %F kB are free in %C.\n"),
        ("full", "%M sessions are enough.\n"),
        ("guests", "One guest at a time, %U.\nMail %E.\n"),
        ("files/.message", "The folder of %U\n"),
    ] {
        fs::write(folder.0.join(file), text).unwrap();
    }
    Site::start_in(folder, KEYS)
}

#[test]
fn greetings_and_messages_have_several_lines_and_all_cookies() {
    let site = start("texts");
    let mut client = Client::open(&site.ftp).unwrap();
    let greeting = client.reply();
    assert!(greeting.starts_with("220-Welcome, 127.0.0.1, at "), "{greeting}");
    assert!(greeting.contains("\r\nYou are one of 1 of 6.\r\n220 Millrace ready.\r\n"), "{greeting}");
    client.say("USER bob", "331");
    let welcome = client.say("PASS password", "230");
    assert!(
        welcome.starts_with("230-Hello, bob ([unknown])!\r\nMail root@files.test. 100% of "),
        "{welcome}"
    );
    let free = welcome.split(" of ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(free.parse::<u64>().unwrap() > 0, "{welcome}");
    assert!(welcome.contains(" kB are free in /.\r\nThe folder of bob\r\n230 Logged in.\r\n"), "{welcome}");
}

#[test]
fn counts_in_texts_are_of_the_class_or_of_the_limit_that_is_reached() {
    let folder = Folder::new("counts");
    fs::write(folder.0.join("welcome"), "You are one of %N of %M.\n").unwrap();
    fs::write(folder.0.join("full"), "%N of %M were before you.\n").unwrap();
    let keys = "sessions = 9\nwelcome-file = \"welcome\"\nlimit-file = \"full\"\n\
                [[class]]\nname = \"guests\"\nanonymous = true\nsessions = 1\n";
    let site = Site::start_in(folder, keys);
    let log_in = |user| {
        let mut client = Client::connect(&site.ftp);
        client.say(&format!("USER {user}"), "331");
        client.send("PASS password");
        let reply = client.reply();
        (client, reply.lines().next().unwrap().to_owned())
    };
    let told = [log_in("bob"), log_in("anonymous"), log_in("anonymous")];
    let lines = told.each_ref().map(|(_, line)| &**line);
    assert_eq!(
        lines,
        ["230-You are one of 1 of 9.", "230-You are one of 1 of 1.", "421-1 of 1 were before you."]
    );
}

#[test]
fn a_class_that_is_full_shows_its_message_and_others_come_in() {
    let site = start("classes");
    let guest = || {
        let mut client = Client::connect(&site.ftp);
        client.say("USER anonymous", "331");
        client.send("PASS guest@");
        let reply = client.reply();
        (client, reply)
    };
    let (first, reply) = guest();
    assert!(reply.contains("230 "), "{reply}");
    let (_, reply) = guest();
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!(lines[..2], ["421-One guest at a time, anonymous.", "Mail root@files.test."], "{reply}");
    assert!(lines[2].starts_with("421 Too many sessions of your group"), "{reply}");
    site.log_in("bob");
    let limits = site.ask(&["limits"]);
    let class =
        limits["limits"].as_array().unwrap().iter().find(|scope| scope["scope"] == "group class guests");
    assert_eq!(class.unwrap()["sessions-at-most"], 1, "{limits}");
    drop(first);
    eventually("the place is free again", || guest().1.contains("230 ").then_some(()));
}

#[test]
fn a_class_is_of_clients_whose_hosts_have_a_name() {
    for (hosts, class) in [("\"LOCALHOST\"", "named"), ("[\"*.localhost\", \"else.test\"]", "others")] {
        let keys = format!(
            "[[class]]\nname = \"named\"\nhosts = {hosts}\nsessions = 1\n[[class]]\nname = \"others\"\nsessions = 1"
        );
        let site = Site::start("named", &keys);
        let first = site.log_in("bob");
        let mut second = Client::connect(&site.ftp);
        second.say("USER anonymous", "331");
        second.say("PASS guest@", "421");
        let limits = site.ask(&["limits"]);
        let mut scopes = limits["limits"].as_array().unwrap().iter();
        let name = format!("group class {class}");
        assert!(scopes.any(|scope| scope["scope"] == name.as_str()), "{hosts}: {limits}");
        drop(first);
    }
}

#[test]
fn a_full_server_shows_its_message() {
    let site = start("full");
    let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(&site.ftp)).collect();
    let reply = Client::open(&site.ftp).unwrap().reply();
    assert!(reply.starts_with("421-6 sessions are enough.\r\n421 Too many sessions"), "{reply}");
    clients.clear();
}
