//! What the parts of a record of the binary log cost: `rustc -O --edition 2024 parts.rs && ./parts FILE`.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const SIZE: usize = 256;
const NAMES: usize = 108;

type Names<'a> = [Option<&'a [u8]>; 6];

fn put(names: &mut Vec<u8>, name: Option<&[u8]>) {
    let Some(name) = name else { return names.extend_from_slice(&u16::MAX.to_le_bytes()) };
    names.extend_from_slice(&(name.len() as u16).to_le_bytes());
    names.extend_from_slice(name);
}

/// Names in a vector of their own, then the record, then a copy of it.
#[inline(never)]
fn copied(head: &[u8; NAMES], names: &Names<'_>, out: &mut Vec<u8>) {
    let mut all = Vec::with_capacity(256);
    names.iter().for_each(|name| put(&mut all, *name));
    let mut record = [0; SIZE];
    record[..NAMES].copy_from_slice(head);
    record[20..22].copy_from_slice(&(all.len() as u16).to_le_bytes());
    record[NAMES..NAMES + all.len()].copy_from_slice(&all);
    out.extend_from_slice(&record);
}

/// Names where they belong.
#[inline(never)]
fn in_place(head: &[u8; NAMES], names: &Names<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(SIZE);
    out.extend_from_slice(head);
    names.iter().for_each(|name| put(out, *name));
    let used = out.len() - start - NAMES;
    out.resize(start + SIZE, 0);
    out[start + 20..start + 22].copy_from_slice(&(used as u16).to_le_bytes());
}

fn mix(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

fn checksum_by_place(record: &[u8]) -> u64 {
    let number = |at: usize| {
        record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    (8..SIZE).step_by(8).map(number).fold(SIZE as u64, mix)
}

fn checksum_by_chunks(record: &[u8]) -> u64 {
    let (words, _) = record.as_chunks();
    words.iter().skip(1).map(|word| u64::from_le_bytes(*word)).fold(SIZE as u64, mix)
}

fn time(what: &str, mut part: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let run = |part: &mut dyn FnMut()| {
        let begun = Instant::now();
        (0..TIMES).for_each(|_| part());
        begun.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    let best = (0..7).map(|_| run(&mut part)).fold(f64::MAX, f64::min);
    println!("{what}: {best:.1} ns");
}

fn main() {
    let path = std::env::args().nth(1).expect("the name of a file to write");
    let head = black_box([7; NAMES]);
    let agent = b"millrace-bench/0.1.0";
    let names: Names<'_> =
        black_box([None, Some(b"GET"), Some(b"/f"), Some(b"127.0.0.1:3001"), None, Some(agent)]);
    let mut out = Vec::with_capacity(64 * 1024);
    for (what, write) in
        [("record, copied", copied as fn(&_, &Names<'_>, &mut _)), ("record, in place", in_place)]
    {
        time(what, || {
            if out.len() > 60_000 {
                out.clear();
            }
            write(&head, &names, &mut out);
        });
    }
    let record = black_box([9; SIZE]);
    time("checksum, by place", || {
        black_box(checksum_by_place(black_box(&record)));
    });
    time("checksum, by chunks", || {
        black_box(checksum_by_chunks(black_box(&record)));
    });
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).open(path).expect("it can be written");
    let (records, mut place) = (vec![1; SIZE * 900], 0);
    let begun = Instant::now();
    for _ in 0..2000 {
        file.write_all_at(&records, place * records.len() as u64).expect("it is written");
        place = (place + 1) % 280;
    }
    println!("pwrite, for each of 900: {:.1} ns", begun.elapsed().as_nanos() as f64 / 2000.0 / 900.0);
}
