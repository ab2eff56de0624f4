//! The fuzz targets, briefly: with fixed seeds, so that a failure comes back.

mod fuzz_targets;

/// xorshift64*: the same numbers everywhere and always.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % bound.max(1)
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.below(256) as u8).collect()
    }
}

/// A ClientHello of TLS 1.3 with a name and a ticket, as it comes in a record.
fn hello() -> Vec<u8> {
    let extensions: [(u16, &[u8]); 4] = [
        (0, b"\0\x0c\0\0\x09localhost"),
        (16, b"\0\x04\x03ftp"),
        (43, &[4, 3, 4, 3, 3]),
        (41, b"\0\x0c\0\x06ticket\0\0\0\x01\0\x04\x03bnd"),
    ];
    let block: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, body)| [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat())
        .collect();
    let mut message = vec![3, 3];
    message.extend([7; 32]);
    message.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    message.extend((block.len() as u16).to_be_bytes());
    message.extend(block);
    let length = message.len() as u32;
    let mut wire = vec![22, 3, 1];
    wire.extend((length as u16 + 4).to_be_bytes());
    wire.extend(((1 << 24) | length).to_be_bytes());
    wire.extend(message);
    wire
}

#[test]
fn hellos() {
    let (seed, mut random) = (hello(), Random(0x5eed));
    fuzz_targets::hello(&seed);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.splice(at..at, random.bytes(4))),
                _ => bytes.truncate(at),
            }
            if bytes.is_empty() {
                break;
            }
        }
        fuzz_targets::hello(&bytes);
    }
}

#[test]
fn proxy_headers() {
    let ends = |client: &str, server: &str| millrace_net::proxy::Ends {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    };
    let seeds = [
        b"PROXY TCP4 192.0.2.7 203.0.113.1 50000 21\r\nUSER".to_vec(),
        b"PROXY TCP6 2001:db8::1 2001:db8::2 50000 21\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        millrace_net::proxy::header(&ends("192.0.2.7:50000", "203.0.113.1:21")),
        millrace_net::proxy::header(&ends("[2001:db8::1]:50000", "203.0.113.1:21")),
    ];
    let mut random = Random(0xca11);
    for seed in &seeds {
        fuzz_targets::proxy_header(seed);
        for _ in 0..4_000 {
            let mut bytes = seed.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => drop(bytes.splice(at..at, random.bytes(4))),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            fuzz_targets::proxy_header(&bytes);
        }
    }
}

#[test]
fn handshakes_that_are_only_cut() {
    let mut random = Random(0xc07);
    for kind in 0..60u8 {
        // Delivering, speaking, new keys; the end at the end.
        let mut script = vec![kind.wrapping_mul(43)];
        for _ in 0..random.below(120) {
            let what = [0, 0, 1, 2, 2, 3][random.below(6)];
            script.extend([what, random.below(256) as u8]);
        }
        if kind % 2 == 0 {
            script.extend([1, 255, 1, 255, 4, 0]);
        }
        fuzz_targets::boundary(&script);
    }
}

#[test]
fn handshakes_that_are_mangled() {
    let mut random = Random(0xbad);
    for _ in 0..150 {
        let script = random.bytes(120);
        fuzz_targets::boundary(&script);
    }
}
