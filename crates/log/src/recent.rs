//! The last lines of the log, for those who begin to watch it: as they were written, and no more than fit.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;

use super::line::{readable, write_escaped};
use super::live::{Live, Watched, lock};

/// Bytes that are kept.
const KEPT: usize = 256 * 1024;

/// Lines that are told at most: they have room in the queue of a reader.
const MOST: usize = 1000;

/// The last lines, and the order in which they and those who watch get more.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<u8>>);

impl Recent {
    /// Adds whole lines, and gives the same, as JSON, to those who watch.
    pub(super) fn push(&self, lines: [&[u8]; 2], live: &str, watched: &Watched) {
        let mut kept = lock(&self.0);
        for lines in lines {
            kept.extend(&lines[lines.len().saturating_sub(KEPT)..]);
        }
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        if !live.is_empty() {
            watched.push(live);
        }
    }

    /// Has a reader watch, from this many lines before on. A line that is no JSON object is the value of `line`.
    pub(super) fn watch(&self, lines: usize, watched: &Watched, wake: Box<dyn Fn() + Send + Sync>) -> Live {
        let mut kept = lock(&self.0);
        let live = watched.watch(wake);
        let is_full = kept.len() == KEPT;
        let text = kept.make_contiguous();
        // The first of a full store may be the end of a line.
        let whole = text.split_inclusive(|byte| *byte == b'\n').skip(usize::from(is_full));
        let whole: Vec<&[u8]> = whole.collect();
        let mut told = String::new();
        for line in &whole[whole.len().saturating_sub(lines.min(MOST))..] {
            tell(&mut told, line.trim_ascii_end());
        }
        if !told.is_empty() {
            live.preload(&told);
        }
        live
    }
}

fn tell(out: &mut String, line: &[u8]) {
    let text = readable(line);
    if text.starts_with('{') {
        let _ = writeln!(out, "{text}");
        return;
    }
    out.push_str("{\"line\":\"");
    write_escaped(out, &text);
    out.push_str("\"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(recent: &Recent, watched: &Watched, lines: usize) -> (Live, Vec<String>) {
        let live = recent.watch(lines, watched, Box::new(|| {}));
        let (told, dropped) = live.take();
        assert_eq!(dropped, 0);
        (live, told.into())
    }

    #[test]
    fn who_begins_to_watch_gets_the_last_lines_and_then_each_once() {
        let (recent, watched) = (Recent::default(), Watched::default());
        recent.push([b"one \"1\"\n{\"two\":2}\n", b"three\n"], "", &watched);
        let (live, told) = watch(&recent, &watched, 2);
        assert_eq!(told, ["{\"two\":2}", "{\"line\":\"three\"}"]);
        recent.push([b"four\n", b""], "{\"four\":4}\n", &watched);
        assert_eq!(live.take().0, ["{\"four\":4}"]);
        let (_, told) = watch(&recent, &watched, 9);
        assert_eq!((told.len(), &*told[0]), (4, "{\"line\":\"one \\\"1\\\"\"}"));
        assert!(watch(&recent, &watched, 0).1.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_fits_and_whole_lines_of_it_are_told() {
        let (recent, watched) = (Recent::default(), Watched::default());
        for number in 0..KEPT / 10 {
            recent.push([format!("line {number:06}\n").as_bytes(), b""], "", &watched);
        }
        let (_, told) = watch(&recent, &watched, 4000);
        assert_eq!(
            (told.len(), &*told[MOST - 1]),
            (MOST, &*format!("{{\"line\":\"line {:06}\"}}", KEPT / 10 - 1))
        );
        let long = vec![b'x'; 2 * KEPT];
        recent.push([&long, b"\nlast\n"], "", &watched);
        assert_eq!(watch(&recent, &watched, 4000).1, ["{\"line\":\"last\"}"]);
    }
}
