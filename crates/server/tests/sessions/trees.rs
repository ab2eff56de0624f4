//! Commands about more than one folder: patterns with folders in them, sums and searches over trees.

use std::sync::Arc;

use millrace_storage::{Fault, FaultStorage, MemoryStorage};

use crate::kit::{Client, Scratch, serve};

fn tree(files: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for file in files {
        let path = scratch.file(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file).unwrap();
    }
    scratch
}

/// The last words of a listing's lines.
fn names(client: &mut Client, line: &str) -> Vec<String> {
    let listing = String::from_utf8(client.fetch(line)).unwrap();
    listing.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_pattern_may_have_folders_in_it() {
    let scratch = tree(&["d1/x1", "d1/y", "d2/x2", "d2/sub/x3", "e/x4", ".hidden/x5", "x6"]);
    let served = serve(scratch.storage());
    let mut client = served.login();
    for (pattern, expected) in [
        ("d*/x*", &["d1/x1", "d2/x2"][..]),
        ("*/x*", &["d1/x1", "d2/x2", "e/x4"]),
        ("/d?/x*", &["/d1/x1", "/d2/x2"]),
        ("*/sub/*", &["d2/sub/x3"]),
        ("*/sub/x3", &["d2/sub/x3"]),
        ("d[12]/../x*", &["d1/../x6", "d2/../x6"]),
        (
            "*/../../../../../e*/*",
            &["d1/../../../../../e/x4", "d2/../../../../../e/x4", "e/../../../../../e/x4"],
        ),
        (".h*/*", &[".hidden/x5"]),
        ("nothing*/x*", &[]),
        ("x*/x*", &[]),
    ] {
        assert_eq!(names(&mut client, &format!("NLST {pattern}")), expected, "{pattern}");
        assert_eq!(names(&mut client, &format!("LIST {pattern}")), expected, "{pattern}");
        let status = client.command(format!("STAT {pattern}")).text;
        let shown: Vec<_> = status.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert!(expected.iter().all(|name| shown.contains(name)), "{status}");
    }
    // What a shell says of names is what can be fetched.
    for name in names(&mut client, "NLST d*/x*") {
        assert_eq!(client.fetch(format!("RETR {name}")), name.as_bytes());
    }
    assert_eq!(client.try_fetch("LIST nowhere/d*/x*").1.code, 550);
}

#[test]
fn a_pattern_does_not_lead_out_by_a_link() {
    let (scratch, outside) = (tree(&["d1/x1"]), tree(&["x9"]));
    std::os::unix::fs::symlink(outside.path(), scratch.file("d2")).unwrap();
    std::os::unix::fs::symlink("d1", scratch.file("d3")).unwrap();
    let served = serve(scratch.storage());
    let mut client = served.login();
    assert_eq!(names(&mut client, "NLST d*/x*"), ["d1/x1", "d3/x1"]);
}

/// Ten files of a byte each, in folders.
fn faulty() -> FaultStorage<MemoryStorage> {
    let storage = FaultStorage::new(MemoryStorage::new());
    for number in 0..10 {
        storage.inner().insert(&format!("/t/{}/{number}", number / 3), "x");
    }
    storage
}

#[test]
fn unreadable_folders_are_reported_and_do_not_break_a_sum_or_a_search() {
    let storage = faulty();
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    let found = |text: &str| text.lines().filter(|line| line.starts_with(" /t/")).count();
    for (line, whole) in [("DSIZ t", 10), ("SITE NEWER 19700102000000 t", 10)] {
        faults.reset();
        let reply = client.expect(line, 213);
        let of = |text: &str| match line.starts_with("DSIZ") {
            true => text.lines().last().unwrap()[4..].parse().unwrap(),
            false => found(text),
        };
        assert_eq!(of(&reply.text), whole, "{reply:?}");
        let calls = faults.calls();
        let mut partial = 0;
        for call in 1..=calls {
            faults.reset();
            faults.once(call, Fault::Io);
            let reply = client.command(line);
            match reply.code {
                213 if reply.text.contains("1 folder(s)") => {
                    assert!((7..=10).contains(&of(&reply.text)), "{reply:?}");
                    partial += 1;
                }
                213 => assert_eq!(of(&reply.text), whole, "call {call}: {reply:?}"),
                451 => assert!(call <= 4, "only the top is a failure: call {call} of {calls}"),
                _ => panic!("{reply:?}"),
            }
        }
        assert!(partial >= 4, "{line}: {partial} of {calls}");
    }
}

#[test]
fn a_tree_that_cannot_be_read_whole_is_not_removed() {
    let storage = faulty();
    let faults = storage.faults();
    let served = serve(Arc::new(storage));
    let mut client = served.login();
    faults.reset();
    client.expect("DSIZ t", 213);
    let last = faults.calls();
    faults.reset();
    faults.once(last, Fault::Io);
    client.expect("RMDA t", 451);
    client.expect("DSIZ t", 213);
}

#[test]
fn a_line_feed_in_a_name_makes_no_line() {
    let scratch = tree(&["a\nb/c\r\nd"]);
    let served = serve(scratch.storage());
    let mut client = served.login();
    assert_eq!(client.fetch("NLST -R"), b"a\\012b\r\na\\012b/c\\015\\012d\r\n");
    assert_eq!(names(&mut client, "NLST */*"), ["a\\012b/c\\015\\012d"]);
    for (line, lines) in [("LIST", 1), ("LIST -R", 5), ("LIST */c*", 1), ("LIST a*", 1)] {
        let listing = String::from_utf8(client.fetch(line)).unwrap();
        assert_eq!(listing.matches('\n').count(), lines, "{line}: {listing:?}");
        assert!(listing.contains("a\\012b"), "{line}: {listing:?}");
    }
    let newer = client.expect("SITE NEWER 19700102000000", 213).text;
    assert!(newer.contains("\r\n /a\\012b/c\\015\\012d\r\n"), "{newer:?}");
    // What a listing shows is what other commands take back.
    let listing = String::from_utf8(client.fetch("MLSD")).unwrap();
    assert!(listing.ends_with("; a\\012b\r\n") && !listing.replace("\r\n", "").contains('\n'), "{listing:?}");
    let listing = String::from_utf8(client.fetch("MLSD a\\012b")).unwrap();
    assert!(listing.ends_with("; c\\015\\012d\r\n"), "{listing:?}");
    let facts = client.expect("MLST a\\012b/c\\015\\012d", 250).text;
    assert!(facts.contains("; /a\\012b/c\\015\\012d\r\n"), "{facts:?}");
    assert_eq!(names(&mut client, "NLST a\\012b"), ["a\\012b/c\\015\\012d"]);
    assert_eq!(names(&mut client, "NLST a\\012b/c*"), ["a\\012b/c\\015\\012d"]);
    client.fetch("RETR a\\012b/c\\015\\012d");
    client.expect("DELE a\\012b/c\\015\\012d", 250);
    // A name that looks escaped is another.
    std::fs::write(scratch.file("e\\012"), "literal").unwrap();
    std::fs::write(scratch.file("e\n"), "line feed").unwrap();
    assert_eq!(client.fetch("RETR e\\134012"), b"literal");
    assert_eq!(client.fetch("RETR e\\012"), b"line feed");
}
