//! Limits that keep every crate readable: no import cycle among its top modules, no cycle of more than twelve files, no
//! more than 15,000 production lines, no type of more than sixty methods, no two visible types of one name.
//!
//! The measures are approximate. They read `use` and `crate::` paths, `impl` blocks and type definitions as text, without
//! comments, strings and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Production lines of a crate.
const LINES: usize = 15_000;
/// Files that import one another in a circle.
const FILES_IN_A_CYCLE: usize = 12;
/// Methods of a type over all its `impl` blocks in one top module.
const METHODS: usize = 60;

/// A measured figure of a crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Measure {
    Lines,
    FileCycle,
    TopCycle,
    Methods,
    NamesTwice,
}

use Measure::{FileCycle, Lines, Methods, NamesTwice, TopCycle};

impl Measure {
    fn limit(self) -> usize {
        match self {
            Lines => LINES,
            FileCycle => FILES_IN_A_CYCLE,
            Methods => METHODS,
            TopCycle | NamesTwice => 0,
        }
    }
}

#[test]
fn crates_keep_their_limits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut faults = Vec::new();
    for entry in fs::read_dir(&root).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if !folder.join("src").is_dir() {
            continue;
        }
        for (measure, value, what) in Crate::read(&folder.join("src")).measures() {
            if value > measure.limit() {
                faults.push(format!("{name}: {measure:?} is {value}, more than {}: {what}", measure.limit()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A module's path within its crate: `driver/ftp` is `["driver", "ftp"]`.
type Module = Vec<String>;
/// Which nodes each node imports.
type Graph<T> = BTreeMap<T, BTreeSet<T>>;

/// The production modules of a crate, as text without comments and strings.
struct Crate {
    modules: BTreeMap<Module, String>,
}

impl Crate {
    fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        find_sources(src, &mut files);
        let texts: Vec<(PathBuf, String)> = files
            .into_iter()
            .map(|path| {
                (path.strip_prefix(src).unwrap().to_owned(), blank(&fs::read_to_string(&path).unwrap()))
            })
            .collect();
        let tests: Vec<Module> = texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
        let is_test = |module: &Module| {
            module.iter().any(|part| part == "tests" || part.ends_with("_tests"))
                || tests.iter().any(|test| module.starts_with(test))
        };
        let modules = texts.into_iter().map(|(path, text)| (module_of(&path), without_tests(&text)));
        Self { modules: modules.filter(|(module, _)| !is_test(module)).collect() }
    }

    fn measures(&self) -> [(Measure, usize, String); 5] {
        let lines = self.modules.values().map(|text| text.matches('\n').count()).sum();
        let imports = self.imports();
        let file_cycle = largest_cycle(&imports);
        let mut tops: Graph<String> = Graph::new();
        for (module, imported) in &imports {
            let own = tops.entry(module[0].clone()).or_default();
            own.extend(imported.iter().map(|other| other[0].clone()).filter(|other| *other != module[0]));
        }
        let top_cycle = largest_cycle(&tops);
        let files: Vec<String> = file_cycle.iter().map(|module| module.join("/")).collect();
        let (methods, most) = self.most_methods();
        let twice = self.names_twice();
        [
            (Lines, lines, "production lines".to_owned()),
            (FileCycle, file_cycle.len(), format!("files import one another: {}", files.join(", "))),
            (TopCycle, top_cycle.len(), format!("modules import one another: {}", top_cycle.join(", "))),
            (Methods, methods, format!("methods of {most}")),
            (NamesTwice, twice.len(), format!("visible types with a namesake: {}", twice.join(", "))),
        ]
    }

    /// Which modules each module but the crate's root imports.
    fn imports(&self) -> Graph<Module> {
        let modules = self.modules.iter().filter(|(module, _)| !module.is_empty());
        let graph = modules.map(|(module, text)| {
            let paths = used_paths(text);
            let targets = paths.iter().filter_map(|path| self.target(module, path));
            (module.clone(), targets.filter(|target| target != module).collect())
        });
        graph.collect()
    }

    /// The module that a path leads into; nothing for another crate's.
    fn target(&self, from: &Module, path: &[String]) -> Option<Module> {
        let mut absolute: Module = match path.first()?.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [from, &path[1..]].concat(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                [&from[..from.len().saturating_sub(up)], &path[up..]].concat()
            }
            first => {
                let child = [&from[..], &[first.to_owned()]].concat();
                self.modules.contains_key(&child).then(|| [&from[..], path].concat())?
            }
        };
        while !absolute.is_empty() && !self.modules.contains_key(&absolute) {
            absolute.pop();
        }
        (!absolute.is_empty()).then_some(absolute)
    }

    /// The type with the most methods over all its `impl` blocks in a top module.
    fn most_methods(&self) -> (usize, String) {
        let mut methods: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (module, text) in &self.modules {
            let top = module.first().cloned().unwrap_or_default();
            for (name, body) in impls(text) {
                let count = words(body).filter(|word| *word == "fn").count();
                *methods.entry((top.clone(), name)).or_default() += count;
            }
        }
        let most = methods.into_iter().max_by_key(|(_, count)| *count);
        most.map_or((0, String::new()), |((top, name), count)| (count, format!("{top}::{name}")))
    }

    /// Names that visible types have in more than one file.
    fn names_twice(&self) -> Vec<String> {
        let mut owners: BTreeMap<String, BTreeSet<&Module>> = BTreeMap::new();
        for (module, text) in &self.modules {
            for name in visible_types(text) {
                owners.entry(name).or_default().insert(module);
            }
        }
        owners.into_iter().filter(|(_, modules)| modules.len() > 1).map(|(name, _)| name).collect()
    }
}

fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn module_of(path: &Path) -> Module {
    let mut parts: Module =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// The same text with blanks for comments, strings and characters, line by line as long.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let is_word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let end = token_end(bytes, at, is_word_before);
        match end {
            Some(end) => {
                out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }))
            }
            None => out.push(bytes[at]),
        }
        at = end.unwrap_or(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where a comment, string or character that begins here ends.
fn token_end(bytes: &[u8], at: usize, is_word_before: bool) -> Option<usize> {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        bytes[from..].windows(what.len()).position(|window| window == what).map(|found| from + found)
    };
    if rest.starts_with(b"//") {
        return Some(find(at, b"\n").unwrap_or(bytes.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(find(at + 2, b"*/").map_or(bytes.len(), |end| end + 2));
    }
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'c')).count().min(1);
    if !is_word_before && rest.get(prefix) == Some(&b'r') {
        let hashes = rest[prefix + 1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(prefix + 1 + hashes) == Some(&b'"') {
            let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
            let from = at + prefix + 2 + hashes;
            return Some(find(from, &close).map_or(bytes.len(), |end| end + close.len()));
        }
    }
    match rest[0] {
        b'"' => {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            Some((end + 1).min(bytes.len()))
        }
        // A character, and no lifetime: its quote closes after one letter, or after an escape.
        b'\'' if rest.get(1) == Some(&b'\\') => find(at + 3, b"'").map(|end| end + 1),
        b'\'' => {
            let letter = std::str::from_utf8(&rest[1..rest.len().min(5)]);
            let letter = letter.unwrap_or_else(|error| {
                std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or_default()
            });
            let length = letter.chars().next()?.len_utf8();
            (rest.get(1 + length) == Some(&b'\'')).then_some(at + 2 + length)
        }
        _ => None,
    }
}

/// Where the block that is opened at `open` ends.
fn block_end(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len() - 1
}

/// What stands behind each `#[cfg(test)]`, with where the attribute begins.
fn behind_cfg_test(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("#[cfg(test)]").map(|(at, attribute)| {
        let mut rest = text[at + attribute.len()..].trim_start();
        while rest.starts_with("#[") {
            rest = rest[rest.find(']').map_or(rest.len(), |end| end + 1)..].trim_start();
        }
        if let Some(after) = rest.strip_prefix("pub") {
            rest = after.trim_start();
            if rest.starts_with('(') {
                rest = rest[rest.find(')').map_or(rest.len(), |end| end + 1)..].trim_start();
            }
        }
        (at, rest)
    })
}

/// Modules in files of their own that are there for tests only.
fn test_modules(path: &Path, text: &str) -> Vec<Module> {
    let declared = behind_cfg_test(text).filter_map(|(_, rest)| rest.strip_prefix("mod "));
    let names = declared.filter_map(|rest| {
        let name = words(rest).next()?;
        rest[name.len()..].trim_start().starts_with(';').then(|| name.to_owned())
    });
    names.map(|name| [module_of(path), vec![name]].concat()).collect()
}

/// The text without test modules that stand in it.
fn without_tests(text: &str) -> String {
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for (at, rest) in behind_cfg_test(text) {
        let open = rest.strip_prefix("mod ").and_then(|rest| rest.find(['{', ';']));
        let open = open.map(|open| text.len() - rest.len() + "mod ".len() + open);
        if let Some(open) = open.filter(|&open| text.as_bytes()[open] == b'{') {
            cuts.push((at, block_end(text, open)));
        }
    }
    let mut out = text.to_owned();
    for (from, to) in cuts.into_iter().rev() {
        let lines = "\n".repeat(text[from..to].matches('\n').count());
        out.replace_range(from..=to, &lines);
    }
    out
}

/// Every path that is used: of `use` declarations, and those that begin with `crate::` or `super::`.
fn used_paths(text: &str) -> Vec<Vec<String>> {
    let (mut paths, mut rest) = (Vec::new(), String::new());
    let mut from = 0;
    for (at, _) in text.match_indices("use ").filter(|(at, _)| is_word_at(text, *at, 3)) {
        if at < from {
            continue;
        }
        let end = text[at..].find(';').map_or(text.len(), |end| at + end);
        expand(&[], &text[at + 4..end].replace('\n', " "), &mut paths);
        rest.push_str(&text[from..at]);
        from = (end + 1).min(text.len());
    }
    rest.push_str(&text[from..]);
    for start in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(start).filter(|(at, _)| is_word_at(&rest, *at, 5)) {
            if rest[..at].ends_with("::") {
                continue;
            }
            let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
            let length = rest[at..].find(|letter| !is_path(letter)).unwrap_or(rest.len() - at);
            let parts = rest[at..at + length].split("::").filter(|part| !part.is_empty());
            paths.push(parts.map(str::to_owned).collect());
        }
    }
    paths
}

/// The paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let parts = |text: &str| -> Vec<String> {
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return paths.push([prefix, &parts(path)].concat());
    };
    let prefix = [prefix, &parts(before)].concat();
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut begun) = (0, 0);
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &inside[begun..at], paths);
                begun = at + 1;
            }
            _ => {}
        }
    }
    if !inside[begun..].trim().is_empty() {
        expand(&prefix, &inside[begun..], paths);
    }
}

/// Returns whether a word of this length stands at `at` and nowhere within a longer one.
fn is_word_at(text: &str, at: usize, length: usize) -> bool {
    let is_letter =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = text.as_bytes();
    !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_letter(bytes.get(at + length))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// The inherent `impl` blocks: the type's name, and the block's content.
fn impls(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("impl").filter(|(at, _)| is_word_at(text, *at, 4)) {
        let Some(open) = text[at..].find('{').map(|open| at + open) else { continue };
        let head = without_generics(&text[at + 4..open]);
        let mut named = head.split(" where ").next().unwrap_or_default().split_whitespace();
        let (Some(name), None) = (named.next(), named.next()) else { continue };
        let is_name = name.starts_with(char::is_uppercase) && words(name).next() == Some(name);
        if is_name && !text[at + 4..open].contains(';') {
            found.push((name.to_owned(), &text[open..block_end(text, open)]));
        }
    }
    found
}

/// A head of an `impl` without what stands between angle brackets.
fn without_generics(head: &str) -> String {
    let (mut depth, mut out, mut before) = (0, String::new(), ' ');
    for letter in head.chars() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            letter if depth == 0 => out.push(if letter == '\n' { ' ' } else { letter }),
            _ => {}
        }
        before = letter;
    }
    out
}

/// The names of structs and enums that are visible outside their module's folder.
fn visible_types(text: &str) -> Vec<String> {
    let kinds = ["struct ", "enum "].into_iter().flat_map(|kind| text.match_indices(kind));
    let visible = kinds.filter(|(at, kind)| {
        let before = text[..*at].trim_end();
        is_word_at(text, *at, kind.len() - 1) && (before.ends_with("pub(crate)") || ends_with_pub(before))
    });
    visible.filter_map(|(at, kind)| words(&text[at + kind.len()..]).next().map(str::to_owned)).collect()
}

fn ends_with_pub(text: &str) -> bool {
    text.ends_with("pub") && is_word_at(text, text.len() - 3, 3)
}

/// The largest set of nodes that all lead to one another; empty where there is no cycle.
fn largest_cycle<T: Ord + Clone>(graph: &Graph<T>) -> Vec<T> {
    let reachable: Graph<T> = graph.keys().map(|node| (node.clone(), reach(graph, node))).collect();
    let cycle = |node: &T| -> Vec<T> {
        let all = reachable[node].iter();
        all.filter(|other| reachable.get(*other).is_some_and(|back| back.contains(node))).cloned().collect()
    };
    let largest = graph.keys().map(cycle).max_by_key(Vec::len).unwrap_or_default();
    if largest.len() > 1 { largest } else { Vec::new() }
}

fn reach<T: Ord + Clone>(graph: &Graph<T>, from: &T) -> BTreeSet<T> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(node) = open.pop() {
        for next in graph.get(&node).into_iter().flatten() {
            if graph.contains_key(next) && seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn cycles_and_paths_are_found() {
    let mut paths = Vec::new();
    expand(&[], "crate::{a::{B, c::D as E}, f}", &mut paths);
    let joined: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(joined, ["crate::a::B", "crate::a::c::D", "crate::f"]);
    let graph: Graph<u8> =
        [(1, [2].into()), (2, [3, 4].into()), (3, [1].into()), (4, BTreeSet::new())].into_iter().collect();
    assert_eq!(largest_cycle(&graph), [1, 2, 3]);
    let text = "let a = \"use x;\"; // use y\nlet b = '\\''; let c: &'static str = r#\"{\"#;";
    assert!(!blank(text).contains("use") && blank(text).contains("&'static str"), "{}", blank(text));
    assert_eq!(impls("impl<'a, T: Fn() -> U> Name<'a, T> where T: X { fn a() {} }")[0].0, "Name");
    assert!(impls("impl Trait for Name { fn a() {} }").is_empty());
}
