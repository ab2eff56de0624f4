//! Hooks of a configuration file, in the binary: every example of `docs/hooks.md`, programs that misbehave, and
//! events that outlive a `kill -9`.

mod receivers;
mod site;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;

use site::{Client, Receiver, SECRET, SUMS, Site, blocks, eventually, names};

#[test]
fn every_example_is_a_configuration() {
    let site = Site::new("examples", "");
    fs::create_dir(site.folder.join("files")).unwrap();
    site.script("check", blocks("sh")[0]);
    fs::write(site.folder.join("webhook.secret"), SECRET).unwrap();
    for example in blocks("toml") {
        fs::write(site.folder.join("example.toml"), example).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["check", site.folder.join("example.toml").to_str().unwrap()])
            .output()
            .unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let told = String::from_utf8_lossy(&check.stdout);
        assert!(!told.contains("the server's own"), "{example}");
        assert!(!told.contains(SECRET.trim()) && !told.contains("5e9f"), "{told}");
        assert_eq!(
            example.contains("secret-file"),
            told.contains("tell http://127.0.0.1:9000/events, signed")
        );
    }
    for example in blocks("json").iter().flat_map(|block| block.lines()) {
        assert!(serde_json::from_str::<serde_json::Value>(example).is_ok());
    }
}

#[test]
fn rules_are_read_again_for_sessions_that_run_and_the_queue_stays() {
    let receiver = Receiver::start();
    let told = format!(
        "directory = \".\"\nhttp = \"off\"\nhooks-queue = \"queue.db\"\n[[hook]]\non = \"upload\"\nwait = false\n\
         webhook = \"http://127.0.0.1:{}/\"\n",
        receiver.port
    );
    let refused = "[[hook]]\non = \"command\"\nverbs = \"DELE\"\nrefuse = \"Keep it.\"\n";
    let mut site = Site::new("again", &format!("{told}{refused}"));
    site.start();
    let mut client = site.log_in();
    receiver.busy.store(true, Ordering::Relaxed);
    assert!(client.store("in/before", b"x").starts_with("226"));
    assert!(client.say("DELE in/before").starts_with("550 Keep it."));
    let file = site.folder.join("millrace.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(refused, "")).unwrap();
    let id = site.child.as_ref().unwrap().id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    eventually("the rule is gone", || client.say("DELE in/before").starts_with("250"));
    assert!(client.store("in/after", b"x").starts_with("226"));
    // An error leaves everything as it was.
    fs::write(&file, text.replace("DELE", "DELE\nnonsense")).unwrap();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    receiver.busy.store(false, Ordering::Relaxed);
    let expected = BTreeSet::from(["/in/before", "/in/after"].map(str::to_owned));
    eventually("both uploads are told", || receiver.paths("upload") == expected);
    assert!(client.store("in/last", b"x").starts_with("226"));
    eventually("and the next", || receiver.paths("upload").contains("/in/last"));
}

#[test]
fn the_gateway_checks_moves_and_reports_every_upload() {
    let receiver = Receiver::start();
    let example = blocks("toml")[0].replace("127.0.0.1:9000", &format!("127.0.0.1:{}", receiver.port));
    let mut site = Site::new("gateway", &example);
    site.script("check", blocks("sh")[0]);
    let files = site.folder.join("files");
    fs::create_dir_all(files.join("in")).unwrap();
    site.start();
    let mut client = site.log_in();
    // Of each pair, the second: after its hash, before it, with something bad in it, and with the hash of another.
    let waits = |client: &mut Client, name: &str, content: &[u8]| {
        assert!(client.store(name, content).starts_with("226"), "{name} waits for the other");
        assert!(files.join(name).exists(), "{name}");
    };
    waits(&mut client, "in/good", b"all is well");
    assert!(client.store("in/good.sha256", SUMS[0]).starts_with("226"));
    waits(&mut client, "in/better.sha256", SUMS[0]);
    assert!(client.store("in/better", b"all is well").starts_with("226"));
    waits(&mut client, "in/bad.sha256", SUMS[1]);
    assert_eq!(client.store("in/bad", b"an EICAR file"), "550 This file has a virus in it.\r\n");
    waits(&mut client, "in/worse", b"an EICAR file");
    assert_eq!(client.store("in/worse.sha256", SUMS[1]), "550 This file has a virus in it.\r\n");
    waits(&mut client, "in/other.sha256", &[b'0'; 64]);
    assert!(client.store("in/other", b"all is well").starts_with("550 The SHA-256 of the file"));
    // A folder outside the tree is not reachable by another door, nor is the folder of checked files.
    assert!(client.store("outside", b"an EICAR file").starts_with("226"));
    assert!(client.store("checked/outside", b"an EICAR file").starts_with("553"));
    for to in ["in/renamed", "checked/renamed"] {
        assert!(client.say("RNFR outside").starts_with("350"));
        assert!(client.say(&format!("RNTO {to}")).starts_with("553"), "{to}");
    }
    let checked = ["better", "better.sha256", "good", "good.sha256"];
    let names = |folder: &str| names(&files.join(folder));
    assert_eq!(names("checked/alice"), checked.map(String::from).into());
    assert_eq!(names("quarantine/alice"), ["bad", "worse"].map(String::from).into());
    assert_eq!(names("in"), ["bad.sha256", "other.sha256"].map(String::from).into());
    let paths: BTreeSet<String> = checked.iter().map(|name| format!("/checked/alice/{name}")).collect();
    eventually("the receiver is told", || receiver.paths("upload") == paths);
    let failed = ["bad", "other", "worse", "worse.sha256"].map(|name| format!("/in/{name}"));
    eventually("of what failed, too", || receiver.paths("upload-failed") == failed.clone().into());
    let events = receiver.events();
    let good = events.values().find(|event| event["path"] == "/checked/alice/good").unwrap();
    assert_eq!((&good["user"], &good["bytes"]), (&"alice".into(), &11.into()));
    assert!(good["file"].as_str().unwrap().ends_with("/checked/alice/good"), "{good}");
}

#[test]
fn two_halves_of_a_pair_that_come_at_once_go_on_together() {
    let rules = "directory = \".\"\n[[hook]]\non = \"upload\"\nverify = \"sha256\"\n\
                 [[hook]]\non = \"upload\"\nmove = \"/checked/{name}\"\n";
    let mut site = Site::new("at-once", rules);
    site.start();
    let (mut one, mut other) = (site.log_in(), site.log_in());
    for round in 0..20 {
        let file = format!("in/{round}");
        let sum = format!("{file}.sha256");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| other.store(&sum, SUMS[0]));
            assert!(one.store(&file, b"all is well").starts_with("226"), "{round}");
            assert!(second.join().unwrap().starts_with("226"), "{round}");
        });
    }
    assert_eq!(fs::read_dir(site.folder.join("in")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(site.folder.join("checked")).unwrap().count(), 40);
}

#[test]
fn programs_that_hang_die_or_shout_refuse_or_pass_as_it_was_said() {
    let rule = |name: &str, script: &str, more: &str| {
        format!(
            "[[hook]]\non = \"command\"\nverbs = \"DELE\"\npaths = \"/{name}\"\nrun = [\"/bin/sh\", \"-c\", \"{script}\", \"sh\", \"{{path}}\"]\n{more}\n"
        )
    };
    let rules = [
        rule("hangs", "sleep 600", "time-limit = \"200ms\""),
        rule("hangs-pass", "sleep 600", "time-limit = \"200ms\"\non-failure = \"pass\""),
        rule("dies", "kill -9 $$", ""),
        rule("shouts", "head -c 3000000 /dev/zero; exit 1", ""),
        rule("quoted", "test $1 = /quoted && echo 553 no: $MILLRACE_USER; exit 7", ""),
    ];
    let mut site = Site::new("programs", &format!("directory = \".\"\n{}", rules.concat()));
    site.start();
    let mut client = site.log_in();
    for (name, code) in [
        ("hangs", "451"),
        ("hangs-pass", "250"),
        ("dies", "451"),
        ("shouts", "550"),
        ("quoted", "553 no: alice"),
    ] {
        fs::write(site.folder.join(name), "").unwrap();
        let reply = client.say(&format!("DELE {name}"));
        assert!(reply.starts_with(code) && reply.len() < 500, "{name}: {reply}");
        assert_eq!(site.folder.join(name).exists(), code != "250", "{name}");
    }
}

#[test]
fn hashes_are_verified_whichever_file_comes_second() {
    let keys = "directory = \".\"\n[[hook]]\non = \"upload\"\nverify = \"sha256\"\n";
    let mut site = Site::new("hashes", keys);
    site.start();
    let mut client = site.log_in();
    let right = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n";
    assert!(client.store("abc", b"abc").starts_with("226"));
    assert!(client.store("abc.sha256", right).starts_with("226"));
    assert!(client.store("abc", b"abd").starts_with("550"));
    assert_eq!(fs::read(site.folder.join("abc")).unwrap(), b"abc", "what is refused replaces nothing");
    assert!(client.store("abc", b"abc").starts_with("226"));
    assert!(client.store("abc.sha256", b"0000000000000000000000000000000000000000\n").starts_with("550"));
    assert!(client.store("abc.sha256", b"see above").starts_with("550"));
}

#[test]
fn a_refused_upload_leaves_the_file_that_had_its_name() {
    let rule = |folder: &str, more: &str| {
        format!(
            "[[hook]]\non = \"upload\"\npaths = \"/{folder}/**\"\nrun = [\"./look\", \"{{file}}\"]\n{more}\n"
        )
    };
    let rules = rule("in", "") + &rule("aside", "refused-to = \"/bad/{name}\"");
    for (uploads, is_staged) in [("staged", true), ("in-place", false)] {
        let keys = format!("directory = \".\"\nuploads = \"{uploads}\"\n{rules}");
        let mut site = Site::new(&format!("refused-{uploads}"), &keys);
        fs::create_dir(site.folder.join("aside")).unwrap();
        site.script("look", "#!/bin/sh\ntest -s \"$1\" || exit 7\n! grep -q EICAR \"$1\"\n");
        site.start();
        let mut client = site.log_in();
        let read = |name: &str| fs::read(site.folder.join(name)).ok();
        for folder in ["in", "aside"] {
            let file = format!("{folder}/f");
            assert!(client.store(&file, b"old").starts_with("226"));
            assert!(client.store(&file, b"an EICAR file").starts_with("550"));
            // In place, the old file was overwritten before any hook could refuse.
            assert_eq!(read(&file), is_staged.then(|| b"old".to_vec()), "{uploads} {file}");
            assert!(client.store(&format!("{folder}/g"), b"another EICAR file").starts_with("550"));
            assert!(client.store(&file, b"new").starts_with("226"));
            assert_eq!(names(&site.folder.join(folder)), BTreeSet::from(["f".to_owned()]));
            assert_eq!(read(&file).unwrap(), b"new");
        }
        assert_eq!(read("bad/f").unwrap(), b"an EICAR file");
        assert_eq!(read("bad/g").unwrap(), b"another EICAR file");
    }
}

#[test]
fn an_upload_has_no_name_while_a_program_looks_at_it_though_the_server_is_killed() {
    let receiver = Receiver::start();
    let keys = format!(
        "directory = \".\"\nhooks-queue = \"events.db\"\n[[hook]]\non = \"upload\"\nwait = false\n\
         webhook = \"http://127.0.0.1:{}/\"\n[[hook]]\non = \"upload\"\npaths = \"/in/f\"\nrun = [\"./wait\"]\n",
        receiver.port
    );
    let mut site = Site::new("looked-at", &keys);
    // Without a client to wait for it ends as well.
    let wait = "touch asked; until test -e go || ! test -d in; do sleep 0.05; done";
    site.script("wait", &format!("#!/bin/sh\ncd {}\n{wait}\n", site.folder.display()));
    fs::write(site.folder.join("in/f"), b"old").unwrap();
    let read = |site: &Site| fs::read(site.folder.join("in/f")).unwrap();
    for is_killed in [true, false] {
        site.start();
        let mut client = site.log_in();
        let uploading = std::thread::spawn(move || client.try_store("in/f", b"new"));
        eventually("the program is asked", || site.folder.join("asked").exists());
        assert_eq!(read(&site), b"old");
        if is_killed {
            site.kill();
        }
        fs::write(site.folder.join("go"), b"").unwrap();
        let reply = uploading.join().unwrap();
        assert_eq!(reply.is_some_and(|reply| reply.starts_with("226")), !is_killed);
        assert_eq!(read(&site), if is_killed { b"old" } else { b"new" });
        fs::remove_file(site.folder.join("go")).unwrap();
        fs::remove_file(site.folder.join("asked")).unwrap();
    }
    let is_swept = || names(&site.folder.join("in")) == BTreeSet::from(["f".to_owned()]);
    eventually("what was left is gone", is_swept);
    eventually("the one that was accepted is told", || receiver.events().len() == 1);
    let event = receiver.events().into_values().next().unwrap();
    assert!(event["file"].as_str().unwrap().ends_with("/in/f"), "told with its name: {event}");
}

#[test]
fn a_program_may_take_an_upload_away_and_the_file_that_had_its_name_stays() {
    let keys = "directory = \".\"\n[[hook]]\non = \"upload\"\nrun = [\"./take\", \"{file}\", \"{name}\"]\n\
                [[hook]]\non = \"upload\"\nmove = \"/moved/{name}\"\n";
    let mut site = Site::new("taken", keys);
    let taken = site.folder.join("taken");
    let says = "test $2 = said && echo '{\"path\": \"/taken/said\"}'; exit 0";
    site.script("take", &format!("#!/bin/sh\nmkdir -p {0}\nmv \"$1\" {0}/$2\n{says}\n", taken.display()));
    site.start();
    let mut client = site.log_in();
    for name in ["said", "unsaid"] {
        fs::write(site.folder.join("in").join(name), b"old").unwrap();
        assert!(client.store(&format!("in/{name}"), b"new").starts_with("226"), "{name}");
        assert_eq!(fs::read(site.folder.join("in").join(name)).unwrap(), b"old", "{name}");
    }
    assert_eq!(fs::read(site.folder.join("moved/said")).unwrap(), b"new", "the next rule has it where it is");
    assert_eq!(fs::read(taken.join("unsaid")).unwrap(), b"new");
}

#[test]
fn a_file_that_cannot_be_checked_now_does_not_remove_a_waiting_one() {
    let keys = "directory = \".\"\n[[hook]]\non = \"upload\"\nverify = \"sha256\"\n\
                [[hook]]\non = \"upload\"\nrun = [\"./look\"]\nrefused-to = \"/bad/{name}\"\n\
                [[hook]]\non = \"upload\"\nmove = \"/checked/{name}\"\n";
    let mut site = Site::new("passing", keys);
    site.script("look", "#!/bin/sh\nkill -9 $$\n");
    site.start();
    let mut client = site.log_in();
    assert!(client.store("in/a", b"all is well").starts_with("226"));
    assert!(client.store("in/a.sha256", SUMS[0]).starts_with("451"));
    assert_eq!(names(&site.folder.join("in")), BTreeSet::from(["a".to_owned()]), "it was acknowledged");
    site.script("look", "#!/bin/sh\nexit 0\n");
    assert!(client.store("in/a.sha256", SUMS[0]).starts_with("226"));
    assert_eq!(names(&site.folder.join("checked")).len(), 2);
    assert!(!site.folder.join("in/a").exists());
}

#[test]
fn no_event_is_lost_when_the_server_is_killed() {
    let receiver = Receiver::start();
    let keys = format!(
        "directory = \".\"\nhooks-queue = \"events.db\"\n[[hook]]\non = [\"upload\", \"interrupted\", \"delete\", \"copy\"]\npaths = \"/in/**\"\nwebhook = \"http://127.0.0.1:{}/\"\nwait = false\nbatch = 10\n",
        receiver.port
    );
    let mut site = Site::new("killed", &keys);
    fs::create_dir(site.folder.join("copies")).unwrap();
    let (mut acknowledged, mut acknowledged_copies) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..3 {
        site.start();
        // Away for a while, so that events are in the queue when the server dies.
        receiver.busy.store(round < 2, Ordering::Relaxed);
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let mut client = site.log_in();
                std::thread::spawn(move || {
                    let (mut stored, mut copied) = (Vec::new(), Vec::new());
                    for upload in 0.. {
                        let name = format!("{round}-{number}-{upload}");
                        match client.try_store(&format!("in/{name}"), b"content") {
                            Some(reply) if reply.starts_with("226") => stored.push(format!("/in/{name}")),
                            _ => break,
                        }
                        match client.try_say(&format!("SITE COPY in/{name} copies/{name}")) {
                            Some(reply) if reply.starts_with("250") => copied.push(format!("/in/{name}")),
                            _ => break,
                        }
                    }
                    (stored, copied)
                })
            })
            .collect();
        // In the middle of it: some files are there.
        let prefix = format!("{round}-");
        eventually("some uploads are done", || {
            let names = fs::read_dir(site.folder.join("in")).unwrap().flatten();
            names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count() > 20
        });
        site.kill();
        for client in clients {
            let (stored, copied) = client.join().unwrap();
            acknowledged.extend(stored);
            acknowledged_copies.extend(copied);
        }
    }
    assert!(acknowledged.len() > 20);
    site.start();
    eventually("every acknowledged upload is told", || acknowledged.is_subset(&receiver.paths("upload")));
    assert!(!acknowledged_copies.is_empty());
    eventually("every acknowledged copy is told", || acknowledged_copies.is_subset(&receiver.paths("copy")));
    let in_folder = |folder: &str| -> BTreeSet<String> {
        names(&site.folder.join(folder)).into_iter().map(|name| format!("/in/{name}")).collect()
    };
    let (there, copies) = (in_folder("in"), in_folder("copies"));
    // What was not acknowledged may stand behind the others in the queue.
    eventually("every file that is there is told", || {
        let told: BTreeSet<String> =
            receiver.paths("upload").union(&receiver.paths("interrupted")).cloned().collect();
        let copied = &receiver.paths("copy") | &receiver.paths("interrupted");
        there.is_subset(&told) && copies.is_subset(&copied)
    });
    assert!(receiver.paths("copy").is_subset(&copies), "told and not there");
    for path in receiver.paths("upload") {
        assert!(there.contains(&path), "told and not there: {path}");
    }
}

#[test]
fn a_queue_has_one_server_and_what_cannot_be_is_said() {
    let site = Site::new("wrong", "");
    let error = |keys: &str| {
        fs::write(site.folder.join("wrong.toml"), format!("directory = \".\"\n{keys}\n")).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["check", site.folder.join("wrong.toml").to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(check.status.code(), Some(2), "{keys}");
        String::from_utf8(check.stderr).unwrap()
    };
    for (keys, expected) in [
        ("[[hook]]\non = \"uplaod\"\nrefuse = \"no\"", "There is no event \"uplaod\"; there are connect, "),
        ("[[hook]]\non = \"upload\"", "Say what is to be done"),
        ("[[hook]]\nrefuse = \"no\"", "A [[hook]] table needs `on`"),
        ("[[hook]]\non = \"delete\"\nrefuse = \"no\"", "What has happened cannot be refused"),
        ("[[hook]]\non = \"delete\"\nrun = [\"true\"]", "name a file for it with hooks-queue"),
        ("[[hook]]\non = \"upload\"\nrun = [\"true\", \"{fiel}\"]", "There is no {fiel}"),
        ("[[hook]]\non = \"upload\"\nrun = [\"./nothere\"]", "wrong.toml:4:8: There is no program "),
        ("[[hook]]\non = \"upload\"\nrun = [\"no-such-program\"]", "No program no-such-program in PATH"),
        ("[[hook]]\non = \"upload\"\nrun = \"./a {file}\"", "is written run = [\"./a\", \"{file}\"]"),
        ("[[hook]]\non = \"upload\"\nrun = [\"./wrong.toml\"]", "wrong.toml cannot be executed; chmod +x"),
        ("[[hook]]\non = \"upload\"\nwebhook = \"ftp://x\"", "is no address of a receiver"),
        ("[[hook]]\non = \"upload\"\nwebhook = \"http://a:hush@x/\"", "write an Authorization in `headers`"),
        ("[[hook]]\non = \"upload\"\nrefuse = \"a\"\nrewrite = \"/b\"", "does one thing"),
        ("[[hook]]\non = \"upload\"\nrewrite = \"/b\"", "only a command can be rewritten"),
        (
            "[[hook]]\non = \"command\"\nverbs = [\"STOR\", \"COMB\"]\nrewrite = \"/b\"",
            "COMB takes more than one path, or more than a path, so it cannot be rewritten",
        ),
        (
            "[[hook]]\non = \"command\"\nverbs = \"site chmod\"\nrewrite = \"/b\"",
            "SITE CHMOD takes more than",
        ),
        ("[[hook]]\non = \"command\"\nverbs = \"SITE\"\nrewrite = \"/b\"", "name them, as in"),
        ("[[hook]]\non = \"command\"\nverbs = \"NOOP\"\nrewrite = \"/b\"", "NOOP is about no path"),
        ("[[hook]]\non = \"upload\"\nrunn = [\"x\"]", "did you mean `run`?"),
        (
            "[[hook]]\non = \"command\"\nverbs = [\"STOR\", \"STRO\"]\nrefuse = \"no\"",
            "There is no command or method \"STRO\"",
        ),
        ("[[hook]]\non = \"command\"\nverbs = \"SITE STOR\"\nrefuse = \"no\"", "method \"SITE STOR\""),
        ("[[hook]]\non = \"command\"\nrefuse = \"226 ok\"", "226 is no code of a refusal"),
        (
            "[[hook]]\non = \"upload\"\nrefuse = \"no\"\nsecret = \"hush\"",
            "`secret` means nothing to a hook without `webhook`",
        ),
        ("[[hook]]\non = \"upload\"\nwebhook = \"http://x/\"\nsecret = \"hush\"", "the secret is too short"),
        (
            "[[hook]]\non = \"upload\"\nwebhook = \"http://x/\"\nsecret-file = \"nothere\"",
            "nothere cannot be read",
        ),
        (
            "[[hook]]\non = \"upload\"\nwebhook = \"http://x/\"\nheaders = { Host = \"hush\" }",
            "\"Host\" is a field that the server sends itself",
        ),
        (
            "[[hook]]\non = \"upload\"\nwebhook = \"http://x/\"\nheaders = { X-A = [\"hush\"] }",
            "is not shown",
        ),
        ("[[hook]]\non = \"upload\"\nsercet = \"hush\"", "did you mean `secret`?"),
    ] {
        let error = error(keys);
        assert!(error.to_lowercase().contains(&expected.to_lowercase()), "{keys}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
