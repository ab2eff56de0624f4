//! The fuzz targets, briefly: a few thousand inputs, made by mutating real conversations, with fixed seeds so
//! that a failure comes back.

mod fuzz_targets;
mod memory;

/// What clients and servers really send, for mutation.
const SESSIONS: &[&[u8]] = &[
    b"USER ann\r\nPASS secret\r\nSYST\r\nFEAT\r\nPWD\r\nTYPE I\r\nPASV\r\nMLSD\r\nQUIT\r\n",
    b"EPSV\r\nRETR f\r\n\xff\xf4\xff\xf2ABOR\r\nREST 100\r\nSTOR a name\r\0\xff\xff\r\nNOOP\r\n",
    b"\0PASV\n\x01RETR f\n\x01NOOP\nSTAT\n\x04PASV\nSTOR new\n\x01ABOR\n\x05\x03QUIT\n",
    b"\x01REST 4\nRNFR f\n\x01RNTO g\n\x01XCRC \"g\" 0 3\n\x01STAT d\n\x01\x04SITE UMASK 022\n\x07\x08\x06\xff",
    b"\x00USER ann\nPASS wrong\n\x01\x06\x09NOOP\nREIN\nUSER root\nPASS secret\n\x01SITE WHO\n\x01\x03",
];
const LISTINGS: &[&[u8]] = &[
    b"type=file;size=1048576;modify=20240101120000;UNIX.mode=0644;unique=802g1; a name\r\n",
    b"-rw-r--r--   1 ann      users     1048576 Jan  1 12:00 a name\r\nlrwxrwxrwx 1 0 0 3 Jan 1 2020 a -> b\r\n",
    b"-la pub/dir\r\n-R\r\n20240101120000 name\r\n\"a b\" 0 5\r\na\\012b\r\n",
];
const REPLIES: &[&[u8]] = &[
    b"\x40220 Ready\r\n331 Password\r\n230 In\r\n227 Entering (192,0,2,1,195,80).\r\n229 Extended (|||50000|)\r\n150 Opening f (12 bytes).\r\n110 MARK 5 = 5\r\n426 Aborted\r\n226 ABOR\r\n221 Bye\r\n",
    b"\x03220-Several\r\n lines\r\n220 Ready\r\n530 No\r\n421 Closing\r\n",
];
const WIRES: &[&[u8]] = &[
    b"\x06\x08\x00\x00\x04abc\n\x40\x00\x00",
    b"\x07\x02\x80\x00\x03abc\x10\x00\x0212\x40\x00\x01d",
    b"\x03\x05abc\xff\x01def\xff\xff\xff\x03",
    b"\x01\x02a\r\nb\rc\nd\r",
    b"\x0c\x09\x78\x9c\x4b\x4c\x4a\x06\x00\x02\x4d\x01\x27",
];
const ADDRESSES: &[&[u8]] = &[
    b"192,0,2,7,4,1",
    b"|1|192.0.2.7|1025|",
    b"|2|2001:db8::7|1025|",
    b"4,4,192,0,2,7,2,4,1",
    b"6,16,32,1,13,184,0,0,0,0,0,0,0,0,0,0,0,7,2,4,1",
    b"Entering Passive Mode (192,0,2,1,195,80).",
    b"(|||50000|)",
];
const GLOBS: &[&[u8]] =
    &[b"*.txt\na.txt", b"[!a-c]?*\xc3\xa9\ndx\xc3\xa9", b"\\*a*b*c*d*\n*aaaabbbbccccdddd", b".*\n.x"];

/// xorshift64*: the same numbers everywhere and always.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound.max(1)
    }
}

/// A seed with a few changes: bytes flipped, cut out, doubled, brought in from another seed.
fn mutated(seeds: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(input.len() + 1);
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => input.truncate(at),
            3 => {
                let end = at + random.below(input.len() - at + 1);
                let piece = input[at..end].to_vec();
                let repeated = piece.repeat(1 + random.below(3));
                input.splice(at..at, repeated);
            }
            4 => {
                let other = seeds[random.below(seeds.len())];
                let start = random.below(other.len());
                input.splice(at..at, other[start..].iter().copied());
            }
            _ => {
                let interesting = b"\0\r\n\t \"*[|,;=\xff\x7f\x1b0129";
                input.insert(at, interesting[random.below(interesting.len())]);
            }
        }
        input.truncate(2000);
    }
    input
}

/// Runs a target over mutated seeds; a failure names its input.
fn run(target: fn(&[u8]), seeds: &[&[u8]], count: usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
    }
    for _ in 0..count {
        let input = mutated(seeds, &mut random);
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "this input fails: b\"{}\"", input.escape_ascii());
    }
}

#[test]
fn any_command_line_is_read() {
    run(fuzz_targets::line, SESSIONS, 5000);
}

#[test]
fn any_sequence_is_survived() {
    run(fuzz_targets::session, SESSIONS, 3000);
}

#[test]
fn any_listing_is_parsed_or_not() {
    run(fuzz_targets::listing, LISTINGS, 5000);
}

#[test]
fn any_reply_is_understood_or_not() {
    run(fuzz_targets::reply, REPLIES, 5000);
}

#[test]
fn any_wire_bytes_make_a_file_or_an_error() {
    run(fuzz_targets::codec, WIRES, 5000);
}

#[test]
fn any_address_is_parsed_or_not() {
    run(fuzz_targets::address, ADDRESSES, 5000);
}

#[test]
fn any_pattern_ends() {
    run(fuzz_targets::glob, GLOBS, 5000);
}
