//! Listings of directories that are made up.

use std::collections::BTreeMap;

use millrace_vfs::{
    Change, FileKind, Link, Metadata, Owner, ReadHandle, Space, Storage, Timestamp, Upload, VirtualPath,
    Wait, WriteMode,
};

use super::super::Facts;
use super::super::search::{self, Level};
use super::*;

const NOW: Timestamp = Timestamp { seconds: 1_709_210_096, nanoseconds: 0 };

fn entry(name: &str, kind: FileKind, size: u64) -> DirEntry {
    let metadata = Metadata {
        kind,
        size,
        modified: Timestamp { seconds: size as i64, nanoseconds: 0 },
        created: None,
        changed: None,
        mode: 0o644,
        owner: Owner::default(),
        links: 1,
        identity: (1, size),
    };
    DirEntry { name: name.as_bytes().to_vec(), metadata, link: None }
}

fn files(names: &[&str]) -> Vec<DirEntry> {
    names.iter().zip(1..).map(|(name, size)| entry(name, FileKind::File, size)).collect()
}

/// A directory that gives its entries in the order in which they stand here.
#[derive(Debug)]
struct Fixed(std::vec::IntoIter<DirEntry>);

impl Fixed {
    fn boxed(entries: Vec<DirEntry>) -> Box<dyn Directory> {
        Box::new(Self(entries.into_iter()))
    }
}

impl Directory for Fixed {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        entries.extend(self.0.by_ref().take(most));
        // As of a folder in which names may be read, and nothing else.
        match entries.iter().any(|entry| entry.name == b"dark") {
            true => Err(FileError::PermissionDenied),
            false => Ok(()),
        }
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        Ok(self.0.by_ref().take(most).map(|entry| visit(&entry.name)).count())
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        Ok(entry(".", FileKind::Directory, 0).metadata)
    }
}

/// Directories by path; no other question is asked of it.
/// Those without entries that are said here are forbidden.
#[derive(Debug, Default)]
struct Forest(BTreeMap<&'static str, Vec<DirEntry>>, &'static [&'static str]);

impl Storage for Forest {
    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let path = std::str::from_utf8(path.as_bytes()).unwrap();
        if self.1.contains(&path) {
            return Err(FileError::PermissionDenied);
        }
        self.0.get(path).cloned().map(Fixed::boxed).ok_or(FileError::NotFound)
    }
    fn open_read(&self, _: &VirtualPath, _: Wait) -> Result<ReadHandle, FileError> {
        Err(FileError::Unsupported)
    }
    fn open_write_with(
        &self,
        _: &VirtualPath,
        _: WriteMode,
        _: Option<u32>,
        _: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        Err(FileError::Unsupported)
    }
    fn metadata(&self, _: &VirtualPath, _: Wait) -> Result<Metadata, FileError> {
        Err(FileError::Unsupported)
    }
    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let parent = path.parent();
        let parent = std::str::from_utf8(parent.as_bytes()).unwrap();
        if self.1.contains(&parent) {
            return Err(FileError::PermissionDenied);
        }
        let entries = self.0.get(parent);
        let entry = entries.into_iter().flatten().find(|entry| entry.name == path.name());
        entry.cloned().ok_or(FileError::NotFound)
    }
    fn make_directory_with(&self, _: &VirtualPath, _: Option<u32>) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn remove_directory(&self, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn remove_file(&self, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn rename(&self, _: &VirtualPath, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn change(&self, _: &VirtualPath, _: Change) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn make_symlink(&self, _: &[u8], _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn copy(
        &self,
        _: &VirtualPath,
        _: &VirtualPath,
        _: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        Err(FileError::Unsupported)
    }
    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    fn space(&self, _: &VirtualPath) -> Result<Space, FileError> {
        Err(FileError::Unsupported)
    }
}

fn listing(format: Format, argument: &str) -> Listing {
    Listing { options: ListOptions::parse(argument.as_bytes()).0, ..Listing::new(format, NOW) }
}

fn all(mut lister: Lister) -> String {
    let mut out = Vec::new();
    while lister.fill(&mut out, 1).unwrap() {}
    String::from_utf8(out).unwrap()
}

/// The names in a listing of `entries`, in order.
fn names(listing: Listing, entries: Vec<DirEntry>) -> Vec<String> {
    let text = all(Lister::new(Fixed::boxed(entries), listing));
    assert!(text.is_empty() || text.ends_with("\r\n"));
    text.split_terminator("\r\n").map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn every_format_lists_every_entry_and_dot_files_too() {
    for format in [Format::Unix, Format::Names, Format::Facts(Facts::DEFAULT)] {
        assert_eq!(names(listing(format, ""), files(&[".a", "b", "c"])), [".a", "b", "c"]);
        assert_eq!(names(listing(format, ""), Vec::new()), [""; 0]);
    }
}

#[test]
fn a_listing_is_sorted_as_asked() {
    for format in [Format::Unix, Format::Names] {
        for (argument, expected) in [
            ("", ["a", "b", "c"]),
            ("-r", ["c", "b", "a"]),
            ("-U", ["b", "a", "c"]),
            ("-t", ["c", "a", "b"]),
            ("-S", ["c", "a", "b"]),
            ("-Sr", ["b", "a", "c"]),
        ] {
            assert_eq!(names(listing(format, argument), files(&["b", "a", "c"])), expected, "{argument}");
        }
    }
    assert_eq!(names(listing(Format::Facts(Facts::TYPE), ""), files(&["b", "a"])), ["b", "a"]);
}

#[test]
fn a_listing_over_the_bound_is_complete_and_unsorted() {
    let many: Vec<String> = (0..2000).rev().map(|number| format!("{number:04}")).collect();
    let entries = || files(&many.iter().map(String::as_str).collect::<Vec<_>>());
    for format in [Format::Unix, Format::Names] {
        let bounded = Listing { sort_bound: 1000, ..listing(format, "") };
        assert_eq!(names(bounded, entries()), many);
        let bounded = Listing { sort_bound: 2000, ..listing(format, "-r") };
        assert_eq!(names(bounded, entries()), many);
        let bounded = Listing { sort_bound: 2000, ..listing(format, "") };
        assert_eq!(names(bounded, entries()), many.iter().rev().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn a_listing_comes_in_pieces_of_about_the_size_asked_for() {
    let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let entries = files(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let mut lister = Lister::new(Fixed::boxed(entries), listing(Format::Unix, ""));
    let (mut out, mut total) = (Vec::new(), 0);
    loop {
        out.clear();
        let more = lister.fill(&mut out, 10_000).unwrap();
        assert!(out.len() < 10_100);
        total += out.iter().filter(|byte| **byte == b'\n').count();
        if !more {
            break;
        }
        assert!(out.len() >= 10_000);
    }
    assert_eq!(total, 5000);
    assert!(!lister.fill(&mut out, 1).unwrap());
}

#[test]
fn all_shows_the_directory_itself() {
    assert_eq!(names(listing(Format::Unix, "-a"), files(&["a"])), [".", "..", "a"]);
    assert_eq!(names(listing(Format::Unix, "-A"), files(&["a"])), ["a"]);
    assert_eq!(names(listing(Format::Names, "-a"), files(&["a"])), ["a"]);
}

#[test]
fn a_pattern_picks_names_and_hidden_ones_only_where_asked_for() {
    let pick = |pattern: &str, argument: &str| {
        let listing = Listing {
            search: vec![Level::Pattern(Glob::new(pattern.as_bytes()))],
            ..listing(Format::Names, argument)
        };
        names(listing, files(&[".a.txt", "b.txt", "c.rs"]))
    };
    assert_eq!(pick("*.txt", ""), ["b.txt"]);
    assert_eq!(pick("*.txt", "-a"), [".a.txt", "b.txt"]);
    assert_eq!(pick(".*", ""), [".a.txt"]);
    assert_eq!(pick("*", "-t"), ["c.rs", "b.txt"]);
    assert_eq!(pick("x", ""), [""; 0]);
}

#[test]
fn a_pattern_visits_no_more_than_its_budget() {
    for format in [Format::Names, Format::Unix] {
        let many = files(&["b"; 1000]);
        let listing = Listing { search: vec![Level::new(b"a*")], budget: 600, ..listing(format, "") };
        let mut lister = Lister::new(Fixed::boxed(many), listing);
        let mut out = Vec::new();
        while lister.fill(&mut out, 1).unwrap() {}
        assert!(out.is_empty());
        assert_eq!(lister.cut(), Some(Cut::Budget(600)));
    }
}

#[test]
fn a_search_that_just_uses_its_budget_up_is_whole() {
    for (format, text) in [(Format::Names, ""), (Format::Unix, ""), (Format::Names, "-t")] {
        for (budget, expected) in [(600, None), (599, Some(Cut::Budget(599)))] {
            let search = vec![Level::new(b"a*")];
            let listing = Listing { search, budget, ..listing(format, text) };
            let mut lister = Lister::new(Fixed::boxed(files(&["a"; 600])), listing);
            let mut out = Vec::new();
            while lister.fill(&mut out, 1).unwrap() {}
            assert_eq!(out.split(|&byte| byte == b'\n').count() as u64, budget + 1);
            assert_eq!(lister.cut(), expected);
        }
    }
}

fn forest() -> (Vec<DirEntry>, Arc<dyn Storage>) {
    let directory = |name| entry(name, FileKind::Directory, 0);
    let mut link = directory("link");
    link.link = Some(Link { text: b"sub".to_vec(), metadata: link.metadata });
    let root =
        vec![directory("sub"), entry("z", FileKind::File, 1), directory("empty"), link, directory("gone")];
    let forest = Forest(forest_of(&root), &[]);
    (root, Arc::new(forest))
}

fn forest_of(root: &[DirEntry]) -> BTreeMap<&'static str, Vec<DirEntry>> {
    let deep = entry("deep", FileKind::Directory, 0);
    BTreeMap::from([
        ("/pub", root.to_vec()),
        ("/pub/sub", vec![deep, entry("x", FileKind::File, 1)]),
        ("/pub/sub/deep", vec![entry("y", FileKind::File, 1)]),
        ("/pub/empty", Vec::new()),
    ])
}

fn recursive(listing: Listing) -> Lister {
    let (root, storage) = forest();
    Lister::new(Fixed::boxed(root), listing).in_tree(storage, VirtualPath::parse(b"/pub").unwrap())
}

#[test]
fn recursive_listings_go_down_in_order_and_not_through_links() {
    let text = all(recursive(listing(Format::Unix, "-R")));
    let shape: Vec<&str> = text.split("\r\n").map(|line| line.rsplit(' ').next().unwrap()).collect();
    // The link's name is before its arrow.
    let expected = [
        ".:",
        "empty",
        "gone",
        "sub",
        "sub",
        "z",
        "",
        "./empty:",
        "",
        "./sub:",
        "deep",
        "x",
        "",
        "./sub/deep:",
        "y",
        "",
    ];
    assert_eq!(shape, expected);
    let listing = Listing { prefix: b"pub/".to_vec(), ..listing(Format::Names, "-R") };
    assert_eq!(
        all(recursive(listing)),
        "pub/empty\r\npub/gone\r\npub/link\r\npub/sub\r\npub/z\r\npub/sub/deep\r\npub/sub/x\r\npub/sub/deep/y\r\n"
    );
}

#[test]
fn a_folder_of_which_only_names_may_be_read_ends_no_listing_of_a_tree() {
    let (root, _) = forest();
    let mut folders = forest_of(&root);
    folders.insert("/pub/empty", files(&["a", "dark"]));
    let mut lister = Lister::new(Fixed::boxed(root), listing(Format::Unix, "-Ra"))
        .in_tree(Arc::new(Forest(folders, &[])), VirtualPath::parse(b"/pub").unwrap());
    let mut out = Vec::new();
    while lister.fill(&mut out, 1).unwrap() {}
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("./sub/deep:") && !text.contains("./empty:") && !text.contains("dark"), "{text}");
    assert_eq!(lister.take_unread().unwrap().path.as_bytes(), b"/pub/empty");
    // Asked about itself, it is no empty folder.
    let mut itself = Lister::new(Fixed::boxed(files(&["dark"])), listing(Format::Unix, ""));
    assert!(matches!(itself.fill(&mut Vec::new(), 1), Err(FileError::PermissionDenied)));
}

/// The names that a search in the forest lists: the last word of each line.
fn search(format: Format, options: &str, pattern: &str) -> String {
    let listing = listing(format, options);
    let (_, search) = search::split(pattern.as_bytes(), listing.options).unwrap();
    let only_directories = listing.options.directory && pattern.ends_with('/');
    let text = all(recursive(Listing { search, only_directories, ..listing }));
    let words = text.lines().map(|line| line.rsplit(' ').next().unwrap());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_pattern_with_folders_in_it_is_looked_for_level_by_level() {
    for (pattern, expected) in [
        ("*/x", "sub/x"),
        ("s*/*", "sub/deep sub/x"),
        ("*/deep/*", "sub/deep/y"),
        ("[s]ub/deep/y", "sub/deep/y"),
        ("*/*/*", "sub/deep/y"),
        ("s*/", "sub/deep sub/x"),
        ("z*/*", ""),
        ("*/nothing", ""),
        ("*/nothing/*", ""),
        ("*/*/*/*", ""),
    ] {
        assert_eq!(search(Format::Names, "", pattern), expected, "{pattern}");
        assert_eq!(search(Format::Unix, "", pattern), expected, "{pattern}");
    }
    assert_eq!(search(Format::Names, "-r", "s*/*"), "sub/x sub/deep");
    assert_eq!(search(Format::Names, "-R", "s*/*"), "sub/deep sub/x sub/deep/y");
    assert_eq!(search(Format::Unix, "-R", "s*/*"), "sub/deep sub/x  ./sub/deep: y");
}

#[test]
fn a_slash_behind_a_pattern_with_d_asks_for_the_folders_themselves() {
    for (pattern, expected) in [
        ("*/", "empty/ gone/ link/ sub/"),
        ("[ls]*/", "link/ sub/"),
        ("z*/", ""),
        ("s*/*/", "sub/deep/"),
        ("s*/deep/", "sub/deep/"),
        ("s*/x/", ""),
    ] {
        assert_eq!(search(Format::Names, "-d", pattern), expected, "{pattern}");
        assert_eq!(search(Format::Unix, "-d", pattern), expected, "{pattern}");
    }
    assert_eq!(search(Format::Names, "-d", "[sz]*"), "sub z");
}

#[test]
fn unreadable_folders_are_skipped_and_reported_and_removed_ones_are_not() {
    let unread = |forbidden, argument: &str, pattern: &str| {
        let (root, _) = forest();
        let forest = Forest(forest_of(&root), forbidden);
        let options = ListOptions::parse(argument.as_bytes()).0;
        let search = search::split(pattern.as_bytes(), options).map_or_else(Vec::new, |(_, search)| search);
        let listing = Listing { search, ..listing(Format::Unix, argument) };
        let mut lister = Lister::new(Fixed::boxed(root), listing)
            .in_tree(Arc::new(forest), VirtualPath::parse(b"/pub").unwrap());
        let mut out = Vec::new();
        while lister.fill(&mut out, 1).unwrap() {}
        assert_eq!(lister.cut(), None);
        let unread = lister.take_unread().map(|unread| {
            assert!(matches!(unread.why, FileError::PermissionDenied));
            (String::from_utf8_lossy(unread.path.as_bytes()).into_owned(), unread.more)
        });
        (unread, String::from_utf8(out).unwrap())
    };
    let (all, text) = unread(&[], "-R", "");
    assert!(all.is_none() && text.contains("./sub/deep:"), "a removed folder is not among them");
    let (one, text) = unread(&["/pub/sub"], "-R", "");
    assert_eq!(one, Some(("/pub/sub".to_owned(), 0)));
    // An unreadable folder is not shown as empty.
    assert!(!text.contains("./sub:") && text.contains("./empty:"), "{text}");
    assert_eq!(unread(&["/pub/empty", "/pub/sub"], "-R", "").0, Some(("/pub/empty".to_owned(), 1)));
    assert_eq!(unread(&["/pub/sub"], "", "s*/*").0, Some(("/pub/sub".to_owned(), 0)));
    assert_eq!(unread(&["/pub/sub"], "", "s*/x").0, Some(("/pub/sub".to_owned(), 0)));
    assert_eq!(unread(&["/pub/sub"], "", "e*/*").0, None);
}

#[test]
fn recursion_ends_at_its_depth_and_its_budget() {
    let cut = |listing| {
        let mut lister = recursive(listing);
        let mut out = Vec::new();
        while lister.fill(&mut out, 1).unwrap() {}
        (lister.cut(), String::from_utf8(out).unwrap())
    };
    assert_eq!(cut(listing(Format::Names, "-R")).0, None);
    assert_eq!(Cut::Budget(6).to_string(), "a pattern or -R visits 6 entries and no more");
    let (reason, text) = cut(Listing { depth: 1, ..listing(Format::Names, "-R") });
    assert!(reason == Some(Cut::Depth(1)) && text.contains("sub/x") && !text.contains("sub/deep/y"));
    let (reason, text) = cut(Listing { budget: 6, ..listing(Format::Names, "-R") });
    assert!(reason == Some(Cut::Budget(6)) && !text.contains("sub/deep/y"));
    for format in [Format::Names, Format::Unix] {
        assert_eq!(cut(Listing { budget: 7, ..listing(format, "-R") }).0, Some(Cut::Budget(7)));
        let (reason, text) = cut(Listing { budget: 8, ..listing(format, "-R") });
        assert!(reason.is_none() && text.contains("y\r\n"), "eight entries are all there are");
    }
}

#[test]
fn names_carry_the_path_that_was_asked_for() {
    let listing = Listing { prefix: b"pub/".to_vec(), ..listing(Format::Names, "") };
    assert_eq!(all(Lister::new(Fixed::boxed(files(&["a", "b"])), listing)), "pub/a\r\npub/b\r\n");
}

#[test]
fn a_line_feed_in_a_name_does_not_end_its_line() {
    for format in [Format::Unix, Format::Names] {
        let text = all(Lister::of(files(&["a\r\nb"]), listing(format, "")));
        assert!(text.ends_with("a\\015\\012b\r\n") && text.matches('\n').count() == 1);
    }
}

#[test]
fn a_lister_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Lister>();
}
