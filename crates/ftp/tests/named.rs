//! Who rules on paths is told of every path that a command touches: each row of the tables is given a line, what it
//! names is written down here, and what it then asks about has to be among that.

mod memory;

use millrace_ftp::commands::{COMMANDS, Command, Paths, SITE_COMMANDS};
use millrace_ftp::listing::DEPTH;
use millrace_ftp::listing::search::{Level, Searched};
use millrace_ftp::session::{self, Permission, Permissions, Request};
use millrace_vfs::VirtualPath;

use memory::Driver;

const EVERYTHING: Permissions = Permissions::READ_WRITE.with(Permission::Admin);

/// A line in the directory `/w`, behind `RNFR from` where it is about that; and what it names.
const LINES: &[(&str, &[&str])] = &[
    ("CWD", &["/"]),
    ("CWD d", &["/w/d"]),
    ("XCWD ..", &["/"]),
    ("CDUP", &["/"]),
    ("XCUP", &["/"]),
    ("RETR f", &["/w/f"]),
    ("STOR f", &["/w/f"]),
    ("APPE /f", &["/f"]),
    ("STOU", &["/w/upload"]),
    ("STOU n", &["/w/n"]),
    ("ALLO 5", &["/w"]),
    ("RNFR from", &["/w/from"]),
    ("RNTO to", &["/w/to", "/w/from"]),
    ("DELE f", &["/w/f"]),
    ("RMD d", &["/w/d"]),
    ("XRMD d", &["/w/d"]),
    ("MKD n", &["/w/n"]),
    ("XMKD n", &["/w/n"]),
    ("LIST", &["/w"]),
    ("LIST -la", &["/w"]),
    ("LIST -la d", &["/w/d"]),
    ("LIST d/x*", &["/w/d", "/w/d/x*"]),
    ("LIST d*/x*", &["/w", "/w/d*/x*"]),
    ("LIST *", &["/w", "/w/*"]),
    ("NLST", &["/w"]),
    ("NLST -l /d/*.txt", &["/d", "/d/*.txt"]),
    ("STAT", &[]),
    ("STAT -l", &["/w"]),
    ("STAT d", &["/w/d"]),
    ("SIZE f", &["/w/f"]),
    ("MDTM f", &["/w/f"]),
    ("MDTM 20200101000000 f", &["/w/20200101000000 f", "/w/f"]),
    ("MLST", &["/w"]),
    ("MLST f", &["/w/f"]),
    ("MLSD", &["/w"]),
    ("MLSD d", &["/w/d"]),
    ("HASH f", &["/w/f"]),
    ("XCRC f", &["/w/f"]),
    ("XMD5 \"a \"\"b\" 0 5", &["/w/a \"b"]),
    ("XSHA f 0", &["/w/f 0", "/w/f"]),
    ("XSHA1 f", &["/w/f"]),
    ("XSHA256 f 0 5", &["/w/f 0 5", "/w/f", "/w/f 0"]),
    ("XSHA512 f", &["/w/f"]),
    ("MD5 f", &["/w/f"]),
    ("MMD5 f, \"d,e\" ,/g", &["/w/f", "/w/d,e", "/g"]),
    ("XDIGEST SHA-1 f", &["/w/f"]),
    ("MFMT 20200101000000 f", &["/w/f"]),
    ("MFF Modify=20200101000000; f", &["/w/f"]),
    ("AVBL", &["/w"]),
    ("AVBL d", &["/w/d"]),
    ("COMB t \"a b\" /c", &["/w/t", "/w/a b", "/c"]),
    ("DSIZ", &["/w"]),
    ("RMDA d", &["/w/d"]),
    ("SITE CHMOD 644 f", &["/w/f"]),
    ("SITE CHOWN 5:6 f", &["/w/f"]),
    ("SITE CHGRP 6 f", &["/w/f"]),
    ("SITE UTIME 20200101000000 f", &["/w/f"]),
    ("SITE UTIME f 20200101000000 20200101000000 20200101000000 UTC", &["/w/f"]),
    ("SITE MKDIR n/m", &["/w/n/m"]),
    ("SITE RMDIR d", &["/w/d"]),
    ("SITE SYMLINK ../f d/n", &["/w/d/n", "/w/f"]),
    ("SITE COPY f \"t t\"", &["/w/f", "/w/t t"]),
    ("SITE CPFR from", &["/w/from"]),
    ("SITE CPTO to", &["/w/to", "/w/from"]),
    ("SITE NEWER 20200101000000", &["/w"]),
    ("SITE MINFO 20200101000000 d", &["/w/d"]),
    ("SITE CHECKSUM f", &["/w/f"]),
    ("SITE QUOTA", &["/w"]),
];

fn rows() -> impl Iterator<Item = (&'static str, &'static Command)> {
    let main = COMMANDS.iter().map(|command| ("", command));
    main.chain(SITE_COMMANDS.iter().map(|command| ("SITE ", command)))
}

/// Where a line is about to be given.
fn prepared(line: &str) -> Driver {
    let mut driver = Driver::logged_in_with(EVERYTHING);
    driver.tree.insert("/w/from", "content");
    for directory in ["/w", "/w/d", "/d"] {
        driver.tree.insert_directory(directory);
    }
    assert_eq!(driver.code("TYPE I"), 200);
    assert_eq!(driver.code("CWD w"), 250);
    match line {
        "RNTO to" => assert_eq!(driver.code("RNFR from"), 350),
        "SITE CPTO to" => assert_eq!(driver.code("SITE CPFR from"), 350),
        _ => {}
    }
    assert_eq!(driver.code("PASV"), 227);
    driver
}

fn paths_of(request: &Request) -> Vec<VirtualPath> {
    use Request::*;
    match request {
        LogIn(_)
        | Recognize(_)
        | Listen
        | Host(_)
        | Who
        | LimitBandwidth { .. }
        | RestoreBandwidth
        | ShutDown(_)
        | Progress => Vec::new(),
        Metadata(path)
        | Entry(path)
        | Look(path, _)
        | OpenRead(path)
        | OpenWrite(path, ..)
        | OpenUnique(path, _)
        | MakeDirectory(path, _)
        | RemoveDirectory(path)
        | RemoveTree(path)
        | RemoveFile(path)
        | Change(path, _)
        | MakeSymlink(_, path)
        | Digest(path, ..)
        | TreeSize(path)
        | Newer(path, _)
        | Space(path)
        | Notes(path) => vec![path.clone()],
        Rename(from, to) | Copy(from, to) => vec![from.clone(), to.clone()],
        Combine(target, parts, _) => std::iter::once(target).chain(parts).cloned().collect(),
        List(request) => std::iter::once(&request.path)
            .chain(request.literal.iter().map(|literal| &literal.path))
            .cloned()
            .collect(),
    }
}

/// Every path that a line asks about before it is answered for good.
fn asked(driver: &mut Driver, line: &str) -> Vec<VirtualPath> {
    let mut asked = Vec::new();
    driver.line(line);
    while let Some(request) = driver.question.take() {
        asked.extend(paths_of(&request));
        let answer = driver.answer_to(request);
        driver.answer(answer);
    }
    asked
}

#[test]
fn a_line_names_every_path_that_it_touches() {
    for (line, names) in LINES {
        let mut driver = prepared(line);
        let named = driver.session.named(line.as_bytes()).unwrap_or_else(|| panic!("{line} passes the gate"));
        let texts: Vec<_> = named.paths.iter().map(VirtualPath::to_string).collect();
        assert_eq!(texts, *names, "{line}");
        for path in asked(&mut driver, line) {
            // SITE MKDIR makes those above it, too.
            let is_above =
                |named: &VirtualPath| line.contains("MKDIR") && named.as_bytes().starts_with(path.as_bytes());
            assert!(
                named.paths.iter().any(|named| *named == path || is_above(named)),
                "{line} asks about {path}"
            );
        }
    }
}

#[test]
fn a_pattern_says_which_folders_it_leads_into() {
    let driver = prepared("");
    let searched = |line: &str| driver.session.named(line.as_bytes()).unwrap().searched;
    for line in ["LIST d", "LIST d*", "LIST d/x*", "STAT"] {
        assert_eq!(searched(line), None, "{line}");
    }
    for (line, folder, levels) in [
        ("LIST d*/x", "/w", &["d*"][..]),
        ("NLST -l /d/*/e/x*", "/d", &["*", "e"]),
        ("STAT d*/", "/w", &["d*"]),
        ("LIST d*/../e/x*", "/w", &["d*", "..", "e"]),
    ] {
        let Searched { folder: begins, levels: found } = searched(line).unwrap();
        assert_eq!(begins.to_string(), folder, "{line}");
        let levels: Vec<Level> = levels.iter().map(|text| Level::new(text.as_bytes())).collect();
        assert_eq!(found, levels, "{line}");
    }
    // No more than the listing goes into.
    let deep = searched(&format!("LIST {}x", "?/".repeat(3000))).unwrap();
    assert_eq!(deep.levels, vec![Level::new(b"?"); DEPTH]);
}

#[test]
fn every_row_that_names_paths_has_a_line_here() {
    for (prefix, command) in rows() {
        let verb = format!("{prefix}{}", command.verb);
        let has_line = LINES.iter().any(|(line, _)| *line == verb || line.starts_with(&format!("{verb} ")));
        let names = !matches!(command.paths, Paths::None);
        assert!(has_line == names || verb == "SITE", "{verb}");
    }
}

#[test]
fn a_row_that_names_no_path_asks_about_none() {
    for (prefix, command) in rows().filter(|(_, command)| matches!(command.paths, Paths::None)) {
        for line in [format!("{prefix}{}", command.verb), format!("{prefix}{} f", command.verb)] {
            let mut driver = prepared(&line);
            assert_eq!(asked(&mut driver, &line), [], "{line}");
        }
    }
}

#[test]
fn another_path_is_put_in_where_the_argument_is_one() {
    let path = VirtualPath::parse(b"/new name").unwrap();
    for (line, expected) in [
        ("stor a b", Some("stor /new name")),
        ("MLSD", Some("MLSD /new name")),
        ("RNTO x", Some("RNTO /new name")),
        ("SITE mkdir a", Some("SITE mkdir /new name")),
        ("SITE CPTO a", Some("SITE CPTO /new name")),
        ("SITE CHMOD 644 a", None),
        ("SITE", None),
        ("SITE NONSENSE a", None),
        ("LIST -la a", None),
        ("COMB a b", None),
        ("NOOP", None),
        ("PASS a", None),
        ("NONSENSE a", None),
    ] {
        let rewritten = session::rewritten(line.as_bytes(), &path);
        assert_eq!(rewritten.as_deref(), expected.map(str::as_bytes), "{line}");
    }
}

#[test]
fn a_refused_line_consumes_its_values() {
    use millrace_ftp::reply::Reply;
    use millrace_ftp::session::Input;

    for (first, refused, then, code) in [
        ("RNFR from", "RNTO x", "RNTO to", 503),
        ("SITE CPFR from", "SITE CPTO x", "SITE CPTO to", 503),
        ("RNFR from", "RNFR x", "RNTO to", 503),
        ("RNFR from", "SITE UMASK", "RNTO to", 250),
    ] {
        let mut driver = prepared("");
        assert_eq!(driver.code(first), 350, "{first}");
        driver.lines += 1;
        driver.handle(Input::Refused(refused.as_bytes(), Reply::new(550, "No.")));
        assert_eq!(driver.code(then), code, "{first}, {refused}, {then}");
    }
}
