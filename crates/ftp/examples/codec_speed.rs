//! How fast the codings, listings and hashes are in memory, on one core.
//!
//! `cargo run --release -p millrace-ftp --example codec_speed`: each figure is the best of five runs.

#![allow(clippy::disallowed_methods)]

use std::{hint::black_box, sync::Arc, time::Instant};

use millrace_ftp::{
    codec::{Coding, Decoder, Encoder, Mode, Structure, Type},
    digest::{Algorithm, Hasher},
    listing::{Facts, NumericOwners, Rights, facts, unix},
};
use millrace_vfs::{FileKind, Metadata, Owner, Timestamp};

const CHUNK: usize = 256 * 1024;
const LINES: u64 = 500_000;

fn main() {
    let text = prose(32 << 20);
    for (name, coding) in codings() {
        // Deflate is slow enough to measure on less.
        let input =
            if matches!(coding.mode, Mode::Deflate { .. }) { &text[..text.len() / 8] } else { &text[..] };
        let mut wire = Vec::new();
        let seconds = best(|| encode(coding, input, &mut wire));
        println!("{name:<24} encode {:>7.2} GB/s", gigabytes(input.len(), seconds));
        let seconds = best(|| decode(coding, &wire));
        println!("{name:<24} decode {:>7.2} GB/s", gigabytes(input.len(), seconds));
    }
    for algorithm in Algorithm::ALL {
        let seconds = best(|| {
            let mut hasher = Hasher::new(algorithm);
            text.chunks(CHUNK).for_each(|chunk| hasher.update(chunk));
            black_box(hasher.finish());
        });
        println!("{:<24} hash   {:>7.2} GB/s", algorithm.name(), gigabytes(text.len(), seconds));
    }
    println!("{:<24} write  {:>7.2} M lines/s", "LIST", LINES as f64 / best(list) / 1e6);
    println!("{:<24} write  {:>7.2} M lines/s", "MLSD", LINES as f64 / best(list_facts) / 1e6);
}

fn codings() -> Vec<(&'static str, Coding)> {
    let coding = |representation, structure, mode| Coding { representation, structure, mode };
    vec![
        ("ASCII", Coding::default()),
        ("EBCDIC", coding(Type::Ebcdic, Structure::File, Mode::Stream)),
        ("image, records", coding(Type::Image, Structure::Record, Mode::Stream)),
        ("image, blocks", coding(Type::Image, Structure::File, Mode::Block)),
        ("image, blocks, records", coding(Type::Image, Structure::Record, Mode::Block)),
        ("image, deflate 1", coding(Type::Image, Structure::File, Mode::Deflate { level: 1 })),
        ("image, deflate 6", coding(Type::Image, Structure::File, Mode::Deflate { level: 6 })),
    ]
}

/// The lengths of lines vary as they do in prose and source: 0 to 100, about 50 on average.
fn prose(length: usize) -> Vec<u8> {
    let mut random = 1u64;
    let mut text = Vec::with_capacity(length + 128);
    while text.len() < length {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let line = (random >> 33) % 101;
        text.extend((0..line).map(|at| b"etaoin shrdlu"[((random >> (at % 48)) % 13) as usize]));
        text.push(b'\n');
    }
    text
}

fn encode(coding: Coding, input: &[u8], wire: &mut Vec<u8>) {
    let (mut encoder, mut out) = (Encoder::new(coding, 0), Vec::new());
    let keep = wire.is_empty();
    for chunk in input.chunks(CHUNK) {
        out.clear();
        encoder.encode(chunk, &mut out);
        black_box(&out);
        if keep {
            wire.extend_from_slice(&out);
        }
    }
    out.clear();
    encoder.finish(&mut out);
    if keep {
        wire.extend_from_slice(&out);
    }
}

fn decode(coding: Coding, wire: &[u8]) {
    use millrace_ftp::codec::Decoded;
    let (mut decoder, mut out) = (Decoder::new(coding, 0), Vec::new());
    for chunk in wire.chunks(CHUNK) {
        let mut rest = chunk;
        loop {
            out.clear();
            let progress = decoder.decode(rest, &mut out, CHUNK).expect("our own wire bytes");
            black_box(&out);
            let Decoded::Full { consumed } = progress else { break };
            rest = &rest[consumed..];
        }
    }
    decoder.finish(&mut out).expect("a whole file");
}

fn entry(number: u64) -> (Vec<u8>, Metadata) {
    let metadata = Metadata {
        kind: FileKind::File,
        size: number * 7919,
        modified: Timestamp { seconds: 1_700_000_000 + number as i64 * 37 % 10_000_000, nanoseconds: 0 },
        created: None,
        changed: None,
        mode: 0o644,
        owner: Owner { user: 1000, group: 1000 },
        links: 1,
        identity: (0x801, number),
    };
    (format!("measurement-{number:08}.dat").into_bytes(), metadata)
}

fn list() {
    let now = Timestamp { seconds: 1_705_000_000, nanoseconds: 0 };
    let mut writer = unix::UnixWriter::new(now, Arc::new(NumericOwners));
    each_entry(|name, metadata, out| writer.write(name, metadata, None, out));
}

fn list_facts() {
    let writer = facts::FactWriter::new(Facts::DEFAULT, Rights::ALL, Arc::new(NumericOwners));
    each_entry(|name, metadata, out| writer.write(&facts::Item::new(name, metadata), out));
}

fn each_entry(mut write: impl FnMut(&[u8], &Metadata, &mut Vec<u8>)) {
    let entries: Vec<_> = (0..1000).map(entry).collect();
    let mut out = Vec::new();
    for _ in 0..LINES / 1000 {
        out.clear();
        for (name, metadata) in &entries {
            write(name, metadata, &mut out);
            out.extend_from_slice(b"\r\n");
        }
        black_box(&out);
    }
}

fn best(mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let started = Instant::now();
        run();
        started.elapsed().as_secs_f64()
    };
    (0..5).map(time).fold(f64::INFINITY, f64::min)
}

fn gigabytes(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}
