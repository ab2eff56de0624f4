//! A directory as a page for people: a table that fits a phone as well as a screen, dark where the browser is.
//!
//! A row is as short as HTML lets it be, for there may be a million: what ends a cell or a row need not be written.

use std::io::Write;

use millrace_vfs::{DirEntry, FileKind, VirtualPath};

use super::{Column, Links, Order, Position, link, write_time};
use crate::page::escape;

/// How the page looks.
const STYLE: &str = include_str!("page.css");

/// The Content-Security-Policy of such a page: its own style, no scripts, links.
pub const POLICY: &str = "default-src 'none'; style-src 'sha256-if6B5ycoCZzIhc0cEa5z5uYME1eoOlQ5kzFzJN5KaYE='; \
                          frame-ancestors 'self'";

/// The notice on an unsorted page, whose columns are therefore not links.
const UNSORTED: &str = "There are too many entries to sort them: they come in the order of the file system.";

/// Writes the part before the rows.
pub(super) fn begin(
    path: &VirtualPath,
    order: Option<Order>,
    position: Option<&Position>,
    links: &Links,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(
        b"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
          <meta name=\"viewport\" content=\"width=device-width\">\n<title>",
    );
    escape(path.as_bytes(), out);
    out.extend_from_slice(b"</title>\n<style>");
    out.extend_from_slice(STYLE.as_bytes());
    out.extend_from_slice(b"</style></head>\n<body><h1>");
    match *links == Links::default() {
        true => ways_up(path, out),
        // A link to a folder does not cover its parents.
        false => escape(path.as_bytes(), out),
    }
    out.extend_from_slice(b"</h1>\n");
    if order.is_none() {
        let _ = writeln!(out, "<p>{UNSORTED}</p>");
    }
    other_pages(position, links, out);
    out.extend_from_slice(b"<table><tr>");
    let columns = [
        ("Name", "name", Column::Name),
        ("Modified", "time", Column::Modified),
        ("Size", "size", Column::Size),
    ];
    for (title, key, column) in columns {
        match order {
            None => _ = write!(out, "<th>{title}"),
            Some(order) => heading(title, key, (order.column == column).then_some(order), links, out),
        }
    }
    out.push(b'\n');
    if !path.is_root() && !links.is_top {
        out.extend_from_slice(b"<tr><td><a href=\"../");
        links.write_html("", out);
        out.extend_from_slice(b"\">../</a><td><td>\n");
    }
}

/// Where the page stands among those of the folder, and the ways to the others.
fn other_pages(position: Option<&Position>, links: &Links, out: &mut Vec<u8>) {
    let Some(position) = position else { return };
    let (text, queries) = position.parts();
    let _ = write!(out, "<p>{text}");
    for ((word, query), mark) in queries.zip([":", ",", ",", ","]) {
        let _ = write!(out, "{mark} <a rel=\"{word}\" href=\"");
        links.write_html(query, out);
        let _ = write!(out, "\">{}</a>", if word == "prev" { "previous" } else { word });
    }
    out.extend_from_slice(b"</p>\n");
}

/// A heading that sorts, or turns the order that is there. It leads to the same names again: nothing for a robot.
fn heading(title: &str, key: &str, order: Option<Order>, links: &Links, out: &mut Vec<u8>) {
    let (sorted, next) = match order {
        None => ("", ""),
        Some(Order { descending: false, .. }) => (" aria-sort=\"ascending\"", "&desc"),
        Some(Order { descending: true, .. }) => (" aria-sort=\"descending\"", ""),
    };
    let mark = match order {
        None => "",
        Some(Order { descending: false, .. }) => " \u{2191}",
        Some(Order { descending: true, .. }) => " \u{2193}",
    };
    let _ = write!(out, "<th{sorted}><a rel=\"nofollow\" href=\"");
    links.write_html(&format!("sort={key}{next}"), out);
    let _ = write!(out, "\">{title}</a>{mark}");
}

/// The path, each folder of which is a link to it: `/pub/iso/`.
fn ways_up(path: &VirtualPath, out: &mut Vec<u8>) {
    let names: Vec<&[u8]> = path.components().collect();
    for at in 0..=names.len() {
        let name = if at == 0 { &b""[..] } else { names[at - 1] };
        let above = names.len() - at;
        if above > 0 {
            let _ = write!(out, "<a href=\"{}\">", "../".repeat(above));
        }
        escape(name, out);
        out.push(b'/');
        if above > 0 {
            out.extend_from_slice(b"</a>");
        }
    }
}

/// One row.
pub(super) fn row(entry: &DirEntry, links: &Links, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<tr><td><a href=\"");
    link(entry, out);
    links.write_html("", out);
    out.extend_from_slice(b"\">");
    escape(&entry.name, out);
    out.extend_from_slice(if entry.metadata.is_directory() { b"/</a><td>" } else { b"</a><td>" });
    write_time(entry, b' ', out);
    // To the minute.
    out.truncate(out.len() - ":00".len());
    match entry.metadata.kind {
        FileKind::File => size(entry.metadata.size, out),
        _ => out.extend_from_slice(b"<td>"),
    }
    out.push(b'\n');
}

/// `4.8 MB`, with the exact number of bytes as a tooltip.
fn size(bytes: u64, out: &mut Vec<u8>) {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        _ = write!(out, "<td>{bytes} B");
        return;
    }
    let (mut shown, mut unit) = (bytes as f64 / 1000.0, 0);
    // A value that would be rounded to 1000 gets the next unit.
    while shown >= 999.5 && unit + 1 < UNITS.len() {
        (shown, unit) = (shown / 1000.0, unit + 1);
    }
    let digits = usize::from(shown < 9.95);
    let _ = write!(out, "<td title=\"{bytes}\">{shown:.digits$} {}", UNITS[unit]);
}

/// Writes the part after the rows.
pub(super) fn end(position: Option<&Position>, links: &Links, out: &mut Vec<u8>) {
    out.extend_from_slice(b"</table>");
    other_pages(position, links, out);
    out.extend_from_slice(b"</body></html>\n");
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::base64;

    #[test]
    fn sizes_have_two_or_three_digits() {
        let shown = |bytes: u64| {
            let mut out = Vec::new();
            size(bytes, &mut out);
            let text = String::from_utf8(out).unwrap();
            text.split_once('>').unwrap().1.to_owned()
        };
        for (bytes, said) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9949, "9.9 kB"),
            (9960, "10 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (5_000_000, "5.0 MB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(shown(bytes), said);
        }
    }

    #[test]
    fn the_path_leads_up() {
        let mut out = Vec::new();
        ways_up(&VirtualPath::parse(b"/a<b/c").unwrap(), &mut out);
        let expected = "<a href=\"../../\">/</a><a href=\"../\">a&lt;b/</a>c/";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        ways_up(&VirtualPath::root(), &mut out);
        assert_eq!(out, b"/");
    }

    #[test]
    fn the_policy_lets_this_style_in() {
        let hash = base64::encode(&Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!(" style-src 'sha256-{hash}'; ")), "it is {hash}");
    }
}
