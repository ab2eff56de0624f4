//! Row 5: a live view of the sessions, as ncftpd's and betaftpd's administrators had it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use super::site::{Site, eventually, program};

/// A download that goes on while the limit lets little through.
fn busy_site(name: &str) -> Site {
    let site = Site::start(name, "session-download-limit = \"100k\"");
    std::fs::write(site.folder.0.join("files/large"), vec![b'x'; 50 << 20]).unwrap();
    site
}

#[test]
fn top_once_tells_scripts_who_does_what() {
    let site = busy_site("top-once");
    let mut bob = site.log_in("bob");
    bob.say("CWD /", "250");
    let mut eve = site.log_in("eve");
    let mut data = eve.data();
    eve.say("RETR large", "150");
    data.read_exact(&mut [0; 50_000]).unwrap();

    let answer = eventually("the download is limited", || {
        let answer = site.ask(&["top", "--once"]);
        let waits = of(&answer, "eve")["waits-for"] == "limit";
        waits.then_some(answer)
    });
    let (bob, eve) = (of(&answer, "bob"), of(&answer, "eve"));
    assert_eq!(
        (&bob["command"], &bob["place"], &bob["waits-for"]),
        (&"CWD".into(), &"/".into(), &"command".into())
    );
    assert_eq!((&eve["command"], &eve["transfer"]["path"]), (&"RETR".into(), &"/large".into()));
    let done = eve["transfer"]["done"].as_f64().unwrap();
    assert!(done > 0.0 && done < 0.9 && eve["transfer"]["rate"].as_u64().unwrap() > 0, "{eve}");
    assert!(
        eve["age"].as_f64().unwrap() >= 0.0 && bob["idle"].as_f64().unwrap() <= bob["age"].as_f64().unwrap()
    );

    let ctl = |arguments: &[&str]| {
        site.folder.tell(&[&["ctl", "--control", "control", "top", "--once"], arguments].concat())
    };
    let table = ctl(&["--sort", "rate"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("USER") && lines[0].contains("WAITS FOR"), "{table}");
    assert!(
        lines[1].contains(" eve ") && lines[1].contains(" down ") && lines[1].ends_with(" /large"),
        "{table}"
    );
    let table = ctl(&["--filter", "bob"]);
    assert!(table.lines().count() == 2 && table.contains(" bob "), "{table}");
}

fn of<'a>(answer: &'a Value, user: &str) -> &'a Value {
    answer["sessions"].as_array().unwrap().iter().find(|session| session["user"] == user).unwrap()
}

#[test]
fn top_without_a_terminal_says_so() {
    let site = Site::start("top-pipe", "");
    let output = site.ctl(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--once"), "{output:?}");
}

/// On a terminal of `script` (util-linux), which is 80 columns wide.
#[test]
fn top_on_a_terminal_follows_and_ends_a_session_and_writes_little() {
    let Some(script) = program("script", true) else { return };
    let site = busy_site("top-live");
    let mut eve = site.log_in("eve");
    let command = format!(
        "stty cols 80 rows 24; {} ctl --control control top --interval 200ms",
        env!("CARGO_BIN_EXE_millrace")
    );
    let mut child = Command::new(script)
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .current_dir(&site.folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let screen = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&screen);
    let reading = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut bytes) {
            seen.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&screen.lock().unwrap()).into_owned();
    let shows =
        |what: &str| eventually(&format!("no {what:?}: {}", text()), || text().contains(what).then_some(()));
    let mut press = |bytes: &str| keys.write_all(bytes.as_bytes()).unwrap();

    shows(" eve ");
    press("f");
    shows("-- session 1: eve from 127.0.0.1:");
    eve.say("CWD /", "250");
    shows(" CWD ");
    // What does not change is not written again: 20 looks write less than one screen.
    let before = text().len();
    eventually("it writes on", || (text().len() > before).then_some(()));
    let full = text().find("q quit").unwrap();
    assert!(text().len() - before < full.max(2000), "{} bytes", text().len() - before);
    press("k");
    shows("End session 1 (eve from 127.0.0.1)?");
    press("y");
    shows("Session 1 ended.");
    assert!(eve.reply().starts_with("421"));
    press("q");
    let status = eventually("it ends", || child.try_wait().unwrap());
    assert!(status.success());
    reading.join().unwrap();
    assert!(text().ends_with("\u{1b}[?1049l"), "the screen is as it was before");
}
