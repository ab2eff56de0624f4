//! The fuzz target, briefly: inputs made by mutating real messages, with fixed seeds so that a failure comes back.
//! `MILLRACE_FUZZ_INPUTS` says how many.

use millrace_process::{Policy, ProgramLimits, Request, Word};

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
}

/// A seed with a few changes: bytes changed, cut out, doubled, brought in from another seed.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b"\0\x01\x02\x08\xff/.=-s";
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(3) {
        let (at, length) = (random.below(bytes.len()), random.below(12));
        let end = bytes.len().min(at + length);
        match random.below(5) {
            0 | 1 if !bytes.is_empty() => bytes[at] = TELLING[random.below(TELLING.len())],
            2 => drop(bytes.drain(at.min(end)..end)),
            3 => {
                let piece = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                // In place of as many others, so that lengths stay true.
                let piece = &other[from..other.len().min(from + length)];
                let end = bytes.len().min(at + piece.len());
                bytes.splice(at.min(end)..end, piece.iter().copied());
            }
        }
    }
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let program = |program, folder, arguments, environment| {
        Request::Program { program, folder, arguments, environment }.to_bytes()
    };
    let requests = [
        program(c"/bin/sh", c"/", b"sh\0-c\0true\0", b"MILLRACE_USER=a\0"),
        program(c"/usr/bin/sh", c".", b"sh\0--file=x.part\0", b""),
        program(c"/srv/cgi/a/b", c"/srv/cgi/a", b"/srv/cgi/a/b\0", b"QUERY_STRING=x\0MILLRACE_=y\0"),
        program(c"/srv/cgi/../b", c"/srv/cgi/..", b"/srv/cgi/../b\0", b""),
        program(c"/srv/cgi/b", c"/srv/cgi", b"/srv/cgi/b\0", b"LD_PRELOAD=x\0PATH=/\0"),
        Request::Successor.to_bytes(),
    ];
    let policy = Policy {
        commands: vec![vec![Word::fixed("a"), Word { prefix: "b".into(), suffix: Some("c".into()) }]],
        folders: vec!["/srv/cgi".into()],
        variables: vec!["QUERY_STRING=".to_owned()],
        limits: ProgramLimits { cpu: None, memory: Some(1 << 30), processes: Some(7) },
        successor: vec!["millrace".into()],
    };
    let mut seeds = vec![[&[150], &policy.to_bytes()[..]].concat()];
    for (index, request) in requests.into_iter().enumerate() {
        let length = (request.len() as u64).to_le_bytes();
        // With three descriptors, cut within the length; or with none, cut behind it.
        let how = if index % 2 == 0 { 203 } else { 255 };
        seeds.push([&[how], &length[..], &request].concat());
        seeds.extend((0..8).map(|_| [&[0], &request[..]].concat()));
    }
    seeds
}

#[test]
fn a_spawner_starts_nothing_but_what_its_policy_lists_whatever_it_is_sent() {
    let inputs = std::env::var("MILLRACE_FUZZ_INPUTS").ok().and_then(|inputs| inputs.parse().ok());
    let (seeds, mut random) = (seeds(), Random(0x9e37_79b9_7f4a_7c15));
    seeds.iter().for_each(|seed| fuzz_targets::spawner(seed));
    for _ in 0..inputs.unwrap_or(1000) {
        fuzz_targets::spawner(&mutated(&seeds, &mut random));
    }
}

#[test]
fn what_the_policy_lists_is_allowed_for_the_target_to_see() {
    // Else the target would hold whatever the policy allowed.
    let folder = fuzz_targets::FOLDER;
    let file = std::ffi::CString::new(format!("{folder}/a")).unwrap();
    let arguments = [file.as_bytes(), b"\0"].concat();
    let request =
        Request::Program { program: &file, folder: c"/srv/cgi", arguments: &arguments, environment: b"" };
    let policy = Policy { folders: vec![folder.into()], ..Policy::default() };
    assert!(policy.allows(&request));
    assert!(!Policy::default().allows(&request));
}
