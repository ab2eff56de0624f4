//! Input that is wrong, or meant to be: each gets a reply, and the session goes on. The tests that stand for a
//! published fault of another server carry its number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_ftp::commands::COMMANDS;
use millrace_server::{Accounts, Permissions};
use millrace_storage::MemoryStorage;

use crate::kit::{Client, Reply, Scratch, config, pattern, serve, serve_with};

fn memory() -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content").insert("/d/g", "deeper");
    Arc::new(storage)
}

/// Every way to name a path that reads, lists or changes it.
const PATH_COMMANDS: [&str; 24] = [
    "CWD",
    "SIZE",
    "MDTM",
    "MLST",
    "STAT",
    "RNFR",
    "DELE",
    "RMD",
    "MKD",
    "XSHA256",
    "HASH",
    "SITE CPFR",
    "SITE UTIME",
    "MFMT 20200101000000",
    "SITE CHMOD 777",
    "DSIZ",
    "RMDA",
    "AVBL",
    "RETR",
    "STOR",
    "APPE",
    "LIST",
    "NLST",
    "MLSD",
];

fn run(client: &mut Client, line: &[u8]) -> Reply {
    let transfers = [&b"RETR"[..], b"STOR", b"APPE", b"LIST", b"NLST", b"MLSD"];
    match transfers.iter().any(|verb| line.starts_with(verb)) {
        true => {
            let data = client.passive();
            let first = client.command(line);
            drop(data);
            if first.code == 150 { client.reply() } else { first }
        }
        false => client.command(line),
    }
}

/// 2007-6736, 2024-28995, 2024-4040, 2023-42657: traversal, in every verb.
#[test]
fn no_path_leads_out_of_the_tree() {
    let outside = Scratch::new();
    outside.write("secret", b"secret");
    let scratch = Scratch::new();
    scratch.write("f", b"inside");
    std::os::unix::fs::symlink(outside.path(), scratch.file("link")).unwrap();
    std::os::unix::fs::symlink(outside.file("secret"), scratch.file("link-to-file")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    let up = "../".repeat(40);
    let real = outside.path().display();
    let paths = [
        format!("{up}{real}/secret"),
        format!("/{up}{real}/secret"),
        format!("f/{up}{real}/secret"),
        format!("./.././../{real}/secret"),
        format!("/..{real}/secret"),
        "link/secret".to_owned(),
        "link-to-file".to_owned(),
        "link/../link/secret".to_owned(),
        "/../../../../../../etc/passwd".to_owned(),
        "//etc/passwd".to_owned(),
        "~root/.profile".to_owned(),
        "%2e%2e/%2e%2e/etc/passwd".to_owned(),
        ".../.../etc/passwd".to_owned(),
        "/proc/self/environ".to_owned(),
    ];
    // About an entry itself, which a link is, one may ask.
    let of_entries = ["MLST", "STAT", "LIST", "NLST", "RNFR", "DELE", "MKD", "AVBL", "SITE CPFR"];
    for path in &paths {
        for command in PATH_COMMANDS.into_iter().filter(|command| !of_entries.contains(command)) {
            let reply = run(&mut client, format!("{command} {path}").as_bytes());
            assert!(reply.code >= 400, "{command} {path}: {reply:?}");
        }
        assert_eq!(client.try_fetch(format!("RETR {path}")).0, b"");
        assert!(
            !String::from_utf8(client.try_fetch(format!("LIST {path}")).0).unwrap().contains("secret\r\n ")
        );
    }
    client.expect("SITE CPFR link-to-file", 550);
    for path in &paths {
        for command in of_entries {
            run(&mut client, format!("{command} {path}").as_bytes());
        }
    }
    client.expect("RNFR f", 350);
    assert!(client.command("RNTO link/stolen").code >= 500);
    assert_eq!(outside.names(), ["secret"]);
    assert_eq!(outside.read("secret").unwrap(), b"secret");
    assert_eq!(std::fs::metadata(outside.file("secret")).unwrap().len(), 6);
}

/// 2025-47812: NUL in a name passed the check. ProFTPD cuts passwords at it.
#[test]
fn a_nul_is_refused_in_every_argument() {
    let served = serve(memory());
    let mut client = served.connect();
    client.expect(b"USER u\0x", 501);
    client.expect("USER u", 331);
    client.expect(b"PASS p\0anything", 501);
    client.expect("PASS p", 230);
    for command in PATH_COMMANDS {
        client.expect([command.as_bytes(), b" f\0.jpg"].concat(), 501);
    }
    client.expect(b"RNFR f\0", 501);
    client.expect("SIZE f", 550);
    client.expect("TYPE I", 200);
    client.expect("SIZE f", 213);
}

/// 2003-0466: lengths around the system's limits. 2010-4221, 2019-18217: of the line.
#[test]
fn names_and_paths_of_every_length_get_a_reply() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for length in [1, 254, 255, 256, 257, 1_000, 4_000, 4_095, 4_096, 4_097, 8_000, 9_000] {
        let name = "n".repeat(length);
        let deep = "d/".repeat(length / 2);
        for path in [&name, &deep] {
            for command in PATH_COMMANDS {
                let reply = run(&mut client, format!("{command} {path}").as_bytes());
                assert!((200..600).contains(&reply.code), "{command} {length}: {reply:?}");
            }
            client.expect("CWD /", 250);
        }
        let made = client.command(format!("MKD {}", "m".repeat(length))).code;
        assert_eq!(made, if length <= 255 { 257 } else { 553 }, "{length}");
    }
    // Deeper than PATH_MAX, a step at a time: each is told, and the way back is open.
    let step = "s".repeat(200);
    let mut depth = 0;
    while client.command(format!("MKD {step}")).code == 257
        && client.command(format!("CWD {step}")).code == 250
    {
        depth += 1;
        assert!(depth < 1_000);
        client.expect("PWD", 257);
    }
    assert!(depth >= 10, "{depth}");
    client.expect("CWD /", 250);
    client.expect(format!("RMDA {step}"), 250);
}

#[test]
fn raw_bytes_in_names_are_kept_and_never_end_a_line() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    for byte in 1..=255u8 {
        if byte == b'/' {
            continue;
        }
        // As Telnet sends them.
        let wire: &[u8] = match byte {
            b'\r' => b"\r\0",
            255 => b"\xff\xff",
            b'\n' => continue,
            _ => &[byte],
        };
        let name = [b"a", wire, b"b"].concat();
        client.store([b"STOR ", &name[..]].concat(), &[byte]);
        assert_eq!(client.fetch([b"RETR ", &name[..]].concat()), [byte]);
        assert!(client.expect([b"MLST ", &name[..]].concat(), 250).text.lines().count() == 3, "{byte}");
        client.expect([b"SIZE ", &name[..]].concat(), 213);
        client.expect([b"DELE ", &name[..]].concat(), 250);
    }
    assert_eq!(scratch.names(), [""; 0]);
}

/// faults.md 10: CR LF in a file's name breaks the lines of vsftpd and pyftpdlib.
#[test]
fn a_name_with_a_line_end_forges_no_line() {
    let scratch = Scratch::new();
    scratch.write("a\r\n226 forged", b"x");
    scratch.write("b\x1b[2J", b"x");
    let served = serve(scratch.storage());
    let mut client = served.login();
    for (line, lines) in [("LIST", 2), ("NLST", 2), ("MLSD", 2), ("LIST -R", 3)] {
        let listing = String::from_utf8(client.fetch(line)).unwrap();
        assert_eq!(listing.matches("\r\n").count(), lines, "{line}: {listing:?}");
    }
    for line in ["STAT /", "STAT"] {
        let reply = client.command(line);
        assert!(!reply.text.contains("\n226 ") && !reply.text.contains('\x1b'), "{reply:?}");
    }
    client.expect_alive();
}

#[test]
fn every_verb_takes_every_kind_of_nonsense() {
    let served = serve(memory());
    let arguments: [&[u8]; 22] = [
        b"",
        b" ",
        b"  ",
        b"\t",
        b"-",
        b"--",
        b"-1",
        b"0",
        b"99999999999999999999999999",
        b"%s%n%x%d",
        b"\"",
        b"\\",
        b"'; DROP TABLE users;--",
        b"$(id)",
        b"|id",
        b"`id`",
        b"\x1b[31m",
        b"\x80\xfe",
        b"*",
        b"a b c d e f g h",
        b",,,,,",
        b"\xf0\x28\x8c\x28",
    ];
    for (number, command) in COMMANDS.iter().enumerate() {
        let mut client = served.login();
        for argument in arguments {
            let line = [command.verb.as_bytes(), b" ", argument].concat();
            if ["QUIT", "RMDA"].contains(&command.verb) {
                continue;
            }
            client.send([&line[..], b"\r\n"].concat());
            let mut reply = client.reply();
            if reply.code < 200 {
                reply = client.reply();
            }
            assert!(reply.code != 421, "{number} {}: {reply:?}", String::from_utf8_lossy(&line));
            if ["USER", "PASS", "REIN"].contains(&command.verb) {
                client.log_in("u", "p");
            }
        }
        client.send("ABOR\r\n");
        client.expect_reply(226);
        client.expect_alive();
    }
}

/// 2015-3306, 2019-12815: nothing but the login is open before the login, and no verb has a door of its own.
#[test]
fn before_the_login_every_verb_but_a_few_is_refused() {
    let served = serve(memory());
    let mut client = served.connect();
    let open = [
        "USER", "PASS", "ACCT", "REIN", "QUIT", "ABOR", "SYST", "HELP", "NOOP", "FEAT", "OPTS", "LANG",
        "CLNT", "CSID", "STAT", "AUTH", "ADAT", "PBSZ", "PROT", "MIC", "CONF", "ENC", "HOST",
    ];
    let site = [
        "CPFR f",
        "CPTO g",
        "EXEC id",
        "CHMOD 777 f",
        "UTIME f",
        "SYMLINK f g",
        "COPY f g",
        "MKDIR d",
        "RMDIR d",
        "HELP",
        "WHO",
    ];
    for command in COMMANDS.iter().filter(|command| !open.contains(&command.verb)) {
        client.expect(format!("{} f", command.verb), 530);
        client.expect(command.verb, 530);
    }
    for line in site {
        client.expect(format!("SITE {line}"), 530);
    }
    client.expect("USER u", 331);
    client.expect("RETR f", 530);
}

/// 2019-12815: one place decides what an account may do.
#[test]
fn a_reader_changes_nothing() {
    let scratch = Scratch::new();
    scratch.write("f", b"content");
    std::fs::create_dir(scratch.file("d")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.connect();
    client.log_in("r", "p");
    for line in [
        "STOR f",
        "STOR new",
        "APPE f",
        "STOU",
        "DELE f",
        "RMD d",
        "RMDA d",
        "MKD e",
        "XMKD e",
        "XRMD d",
        "RNFR f",
        "SITE CPTO g",
        "SITE COPY f g",
        "SITE CHMOD 777 f",
        "MFMT 20200101000000 f",
        "MFF Modify=20200101000000; f",
        "SITE UTIME 20200101000000 f",
        "SITE SYMLINK f g",
        "SITE MKDIR e",
        "SITE RMDIR d",
        "COMB g f",
    ] {
        let reply = run(&mut client, line.as_bytes());
        assert!(reply.code >= 500, "{line}: {reply:?}");
    }
    assert_eq!(scratch.names(), ["d", "f"]);
    assert_eq!(scratch.read("f").unwrap(), b"content");
    assert_eq!(client.fetch("RETR f"), b"content");
}

/// 2000-0573: no program is run, and text from the wire is never a format.
#[test]
fn nothing_is_executed_or_formatted() {
    let served = serve(memory());
    let mut client = served.login();
    assert!(client.command("SITE EXEC id").code >= 500);
    let reply = client.command("MKD %n%s%x{}{0}");
    assert!(reply.text.contains("%n%s%x{}{0}"), "{reply:?}");
    client.expect("SITE EXEC %08x %n", 500 + 2);
}

/// 2001-0550, 2001-1501, 2011-0418, 2011-0762: patterns have a budget, braces mean nothing.
#[test]
fn patterns_meant_to_burn_time_are_answered_soon() {
    let storage = MemoryStorage::new();
    for number in 0..50 {
        storage.insert(&format!("/{}{number}", "a".repeat(200)), "");
    }
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    let stars = "*a".repeat(100);
    for pattern in [
        format!("{stars}b"),
        "*".repeat(250),
        "~{".to_owned(),
        "{*,*,*,*,*,*,*}{*,*,*,*,*}".to_owned(),
        "../*/../*/../*".to_owned(),
        "[[[[[[[[[[".to_owned(),
        "[a-".to_owned(),
        "\\".to_owned(),
        "?".repeat(250),
        "[!".repeat(100),
    ] {
        for command in ["LIST", "NLST", "STAT", "LIST -R", "SITE CHMOD 777"] {
            let begin = Instant::now();
            let reply = run(&mut client, format!("{command} {pattern}").as_bytes());
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{command} {pattern}: {reply:?} after {:?}",
                begin.elapsed()
            );
        }
    }
    client.expect_alive();
}

/// 2015-1419: `deny` by name patterns was gone round. Here names are made canonical before anything is decided.
#[test]
fn every_spelling_of_a_path_is_the_same_path() {
    let served = serve(memory());
    let mut client = served.login();
    for spelling in ["d/g", "/d/g", "//d//g", "./d/./g", "d/../d/g", "/../d/g", "d/g/.", "d//g", "/./d/g"] {
        client.expect(format!("SIZE {spelling}"), 213);
        assert_eq!(client.fetch(format!("RETR {spelling}")), b"deeper", "{spelling}");
    }
    client.expect("CWD d//../d/./", 250);
    assert!(client.expect("PWD", 257).text.contains("\"/d\""));
}

/// 2006-5815, 2023-51713: quotes and backslashes in arguments.
#[test]
fn quotes_and_backslashes_are_bytes_of_a_name() {
    let served = serve(memory());
    let mut client = served.login();
    for name in ["\"", "\"\"", "a\"b", "\\", "\\\"", "a\\", "'", "\"unfinished", "%{env:HOME}"] {
        let reply = client.expect(format!("MKD {name}"), 257);
        let quoted = format!("\"/{}\"", name.replace('"', "\"\""));
        assert!(reply.text.contains(&quoted), "{reply:?}");
        client.expect(format!("CWD {name}"), 250);
        client.expect("CDUP", 250);
        client.expect(format!("RMD {name}"), 250);
    }
}

#[test]
fn an_invalid_path_begins_no_unique_name() {
    let scratch = Scratch::new();
    let served = serve(scratch.storage());
    let mut client = served.login();
    client.expect("PASV", 227);
    for name in ["/", "..", ".", "../.."] {
        client.expect(format!("STOU {name}"), 553);
    }
    assert_eq!(scratch.names(), [""; 0]);
}

/// faults.md 12: ProFTPD takes `~` as home and refuses a file of that name.
#[test]
fn a_tilde_is_a_name() {
    let served = serve(memory());
    let mut client = served.login();
    client.store("STOR ~", b"tilde");
    assert_eq!(client.fetch("RETR ~"), b"tilde");
    client.expect("MKD ~root", 257);
}

/// 2021-3618: a browser that was led here.
#[test]
fn a_web_request_closes_the_connection() {
    let served = serve(memory());
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 30\r\n\r\nUSER u\r\nPASS p\r\nDELE f\r\n",
    ] {
        let mut client = served.connect();
        client.send(request);
        client.expect_reply(421);
        client.expect_end();
    }
    assert_eq!(served.login().fetch("RETR f"), b"content");
}

/// 2019-20176: a deep tree exhausts no stack, neither when it is listed nor when the server ends.
#[test]
fn a_recursive_listing_of_a_deep_tree_ends() {
    for (depth, code) in [(20, 226), (300, 451)] {
        let storage = MemoryStorage::new();
        storage.insert(&format!("{}/f", "/d".repeat(depth)), "");
        let served = serve(Arc::new(storage));
        let mut client = served.login();
        let (listing, end) = client.try_fetch("LIST -R");
        // What was left out is not passed over in silence.
        assert_eq!(end.code, code, "{end:?}");
        assert!(listing.len() > 1_000);
        client.expect_alive();
    }
    // A thread with a small stack may be the last to have the tree.
    let deeper = MemoryStorage::new();
    deeper.insert(&format!("{}/f", "/d".repeat(500)), "");
    std::thread::Builder::new().stack_size(32 * 1024).spawn(move || drop(deeper)).unwrap().join().unwrap();
}

/// 2021-40524: sizes that overflow. 2005-0850: device names.
#[test]
fn offsets_and_sizes_at_the_edge_of_numbers_are_refused() {
    let served = serve(memory());
    let mut client = served.login();
    for offset in [
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "1e9",
        "0x10",
        "",
    ] {
        for line in ["RETR f", "STOR f", "APPE f"] {
            client.command(format!("REST {offset}"));
            let data = client.passive();
            let mut reply = client.command(line);
            drop(data);
            if reply.code == 150 {
                reply = client.reply();
            }
            assert!(reply.code == 226 || reply.code >= 400, "{offset} {line}: {reply:?}");
        }
        client.command(format!("ALLO {offset}"));
        client.command(format!("RANG {offset} {offset}"));
        client.command(format!("RANG 0 {offset}"));
        client.command("REST 0");
        client.store("STOR f", b"content");
    }
    let mut edge = served.login();
    edge.expect("RANG 0 9223372036854775807", 350);
    assert_eq!(edge.fetch("RETR f"), b"content");
    edge.expect("RANG 9223372036854775807 9223372036854775807", 350);
    assert_eq!(edge.try_fetch("RETR f").1.code, 554);
}

/// 2005-0850: MODE Z without an end; and a bomb.
#[test]
fn deflate_that_never_ends_and_deflate_that_explodes_are_bounded() {
    let storage = MemoryStorage::with_capacity(1_000_000);
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    client.expect("MODE Z", 200);
    client.expect("MODE S", 200);
    // Zeros, packed a thousandfold by the server itself, and sent back tenfold.
    client.store("STOR zeros", &vec![0; 900_000]);
    client.expect("MODE Z", 200);
    let packed = client.fetch("RETR zeros");
    assert!(packed.len() < 20_000);
    let reply = client.try_store("STOR more", &packed);
    assert_eq!(reply.code, 452, "{reply:?}");
    // Blocks that are empty, again and again.
    let endless = [&b"\x78\x9c"[..], &b"\x00\x00\x00\xff\xff".repeat(20_000)].concat();
    assert_eq!(client.try_store("STOR endless", &endless).code, 426);
    client.expect_alive();
}

/// 2024-48208 and ProFTPD's 2146: listings of odd arguments.
#[test]
fn listings_of_odd_arguments_are_answered() {
    let served = serve(memory());
    let mut client = served.login();
    for argument in [
        "",
        " ",
        "-",
        "-la",
        "-la ",
        "-la -la",
        "-laR d",
        "-\"",
        "--",
        "-- d",
        "-d",
        "-d d",
        "missing",
        "f",
        "d/",
        "-w 99999 d",
    ] {
        for command in ["LIST", "NLST", "MLSD", "MLST", "STAT"] {
            let reply = run(&mut client, format!("{command} {argument}").as_bytes());
            assert!((200..600).contains(&reply.code), "{command} {argument}: {reply:?}");
        }
    }
    // faults.md 11: rclone's tests need it, and an empty 226 hides an error.
    for command in ["LIST", "MLSD", "NLST"] {
        assert_eq!(run(&mut client, format!("{command} missing").as_bytes()).code, 550, "{command}");
    }
    // RFC 3659 section 7.2.1 distinguishes an entry that is not a directory from a missing one.
    assert_eq!(run(&mut client, b"MLSD f").code, 501);
    assert_eq!(run(&mut client, b"MLSD f/x").code, 550);
    client.store("STOR .hidden", b"");
    assert!(String::from_utf8(client.fetch("LIST")).unwrap().contains(".hidden"));
}

/// 2007-6737: the reply does not reveal whether a name exists.
#[test]
fn a_wrong_name_and_a_wrong_password_get_the_same_replies() {
    let served = serve(memory());
    let mut replies = BTreeSet::new();
    for user in ["u", "mallory", "u ", "", "U", "root", "\u{fc}"] {
        let mut client = served.connect();
        if user.is_empty() {
            client.expect("USER", 501);
            continue;
        }
        let first = client.command(format!("USER {user}"));
        let second = client.command("PASS wrong");
        replies.insert((first.text, second.text));
    }
    assert_eq!(replies.len(), 1, "{replies:?}");
}

#[test]
fn two_accounts_see_nothing_of_each_other() {
    let (one, two) = (MemoryStorage::new(), MemoryStorage::new());
    one.insert("/f", "of one");
    two.insert("/g", "of two");
    let accounts = Accounts::new().user("one", "1", Permissions::READ_WRITE, Arc::new(one)).user(
        "two",
        "2",
        Permissions::READ_ONLY,
        Arc::new(two),
    );
    let mut config = config(memory());
    config.accounts = Arc::new(accounts);
    let served = serve_with(config);
    let mut client = served.connect();
    client.log_in("one", "1");
    client.expect("CWD /", 250);
    client.expect("RNFR f", 350);
    client.expect("REST 3", 350);
    // 2024-48651: nothing of the one before survives, neither rights nor a rename in progress.
    client.log_in("two", "2");
    assert!(client.command("RNTO h").code >= 500);
    assert!(client.command("DELE g").code >= 500);
    assert_eq!(client.try_fetch("RETR f").1.code, 550);
    assert_eq!(client.fetch("RETR g"), b"of two");
}

/// 2020-9273: a transfer interrupted at any byte.
#[test]
fn a_transfer_may_be_aborted_at_any_byte() {
    use std::io::Read;
    let scratch = Scratch::new();
    scratch.write("f", &pattern(4 << 20));
    let served = serve(scratch.storage());
    let mut client = served.login();
    for byte in (0..200_000).step_by(9_973) {
        for line in ["TYPE I", "TYPE A"] {
            client.expect(line, 200);
            let data = client.passive();
            client.expect("RETR f", 150);
            let mut part = vec![0; byte];
            (&data).read_exact(&mut part).unwrap();
            if byte % 2 == 0 {
                client.send("ABOR\r\n");
                drop(data);
            } else {
                drop(data);
                client.send("ABOR\r\n");
            }
            // Where it ended first, ABOR had nothing to do.
            let first = client.reply();
            assert!(first.code == 426 || first.code == 226, "{first:?}");
            client.expect_reply(226);
        }
    }
    client.expect_alive();
}
