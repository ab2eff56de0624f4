//! The fuzz target, briefly: inputs made by mutating real messages, with fixed seeds so that a failure comes back.
//! `MILLRACE_FUZZ_INPUTS` says how many.

use millrace_privsep::{Answer, Entry, FileCall, Policy, Question, Request, Service, Setup, Verdict};

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
    const TELLING: &[u8] = b"\0\x01\x02\x06\xff/.\n";
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

fn question(from: &str) -> Question<'_> {
    Question {
        service: "millrace",
        user: "alice",
        password: "secret",
        from: from.parse().unwrap(),
        by_http: false,
        wants_entry: true,
    }
}

fn requests() -> Vec<Request<'static>> {
    vec![
        Request::Begin("millrace"),
        Request::Check(question("192.0.2.7")),
        Request::Check(question("2001:db8::7")),
        Request::OpenFiles("alice"),
        Request::Join,
    ]
}

fn calls() -> Vec<FileCall<'static>> {
    vec![
        FileCall::Open { path: b"a/b", flags: 0o100, mode: 0o666, resolve: 8 },
        FileCall::MakeDirectory { name: b"d", mode: 0o777 },
        FileCall::Remove { name: b"d", is_directory: true },
        FileCall::Rename { old: b"a", new: b"b", flags: 1 },
        FileCall::Link { old: b"a", new: b"b" },
        FileCall::LinkFile { name: b"b" },
        FileCall::MakeSymlink { text: b"../a", name: b"l" },
        FileCall::SetMode { mode: 0o640 },
        FileCall::SetOwner { user: None, group: Some(100) },
        FileCall::SetTimes { accessed: (0, 1_073_741_822), modified: (-1, 5) },
        FileCall::Check { name: b".", access: 2 },
        FileCall::LookAt { names: b"a/b/..c" },
    ]
}

fn answers() -> Vec<Answer> {
    let entry = Entry { home: "/home/alice".into(), groups: vec!["alice".to_owned(), "staff".to_owned()] };
    vec![
        Answer::Done,
        Answer::Opened(1000),
        Answer::Failed("it has ended".to_owned()),
        Answer::Verdict(Verdict::Unknown),
        Answer::Verdict(Verdict::Wrong),
        Answer::Verdict(Verdict::Refused("PAM says: no".to_owned())),
        Answer::Verdict(Verdict::Right(None)),
        Answer::Verdict(Verdict::Right(Some(entry))),
    ]
}

fn policy() -> Policy {
    Policy {
        services: vec![Service { name: "millrace".to_owned(), opens_files: true }],
        sandbox: Some(vec!["/home".into(), "/srv".into()]),
    }
}

fn setup() -> Setup {
    Setup { user: 1000, group: 1000, groups: vec![1000, 100], sandbox: Some(vec!["/home".into()]) }
}

fn seeds() -> Vec<Vec<u8>> {
    let kind = |kind: u8, message: Vec<u8>| [&[kind][..], &message].concat();
    let mut seeds: Vec<Vec<u8>> = requests().iter().map(|request| kind(0, request.to_bytes())).collect();
    seeds.extend(calls().iter().map(|call| kind(80, call.to_bytes())));
    seeds.extend(answers().iter().map(|answer| kind(160, answer.to_bytes())));
    seeds.extend([kind(160, policy().to_bytes()), kind(160, setup().to_bytes())]);
    let packets: Vec<Vec<u8>> = requests().iter().map(Request::to_bytes).collect();
    seeds.extend([kind(200, packets.join(&b'\n')), kind(204, packets.join(&b'\n'))]);
    seeds
}

#[test]
fn a_helper_does_nothing_but_what_its_policy_names_whatever_it_is_sent() {
    let inputs = std::env::var("MILLRACE_FUZZ_INPUTS").ok().and_then(|inputs| inputs.parse().ok());
    let (seeds, mut random) = (seeds(), Random(0x9e37_79b9_7f4a_7c15));
    seeds.iter().for_each(|seed| fuzz_targets::privsep(seed));
    for _ in 0..inputs.unwrap_or(3000) {
        fuzz_targets::privsep(&mutated(&seeds, &mut random));
    }
}

#[test]
fn messages_are_read_as_they_were_written_and_cut_ones_are_errors() {
    fn check<T: PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) {
        assert_eq!(read(bytes).as_ref(), Some(value));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{value:?} cut at {length}");
        }
        assert_eq!(read(&[bytes, b"x"].concat()), None, "{value:?} and a byte more");
    }
    for request in requests() {
        let bytes = request.to_bytes();
        // A request borrows its texts, so that it is compared here as it is written.
        check(&bytes, &bytes, |bytes| Request::read(bytes).ok().map(|request| request.to_bytes()));
    }
    for call in calls() {
        let bytes = call.to_bytes();
        check(&bytes, &bytes, |bytes| FileCall::read(bytes).ok().map(|call| call.to_bytes()));
    }
    for answer in answers() {
        check(&answer, &answer.to_bytes(), |bytes| Answer::read(bytes).ok());
    }
    check(&policy(), &policy().to_bytes(), |bytes| Policy::read(bytes).ok());
    check(&setup(), &setup().to_bytes(), |bytes| Setup::read(bytes).ok());
}

#[test]
fn what_passes_its_bound_is_refused() {
    let (long, name) = ("x".repeat(600), vec![b'x'; 5000]);
    let with = |question: Question<'_>| Request::read(&Request::Check(question).to_bytes()).is_ok();
    let usual = question("192.0.2.7");
    assert!(with(usual));
    assert!(!with(Question { user: &long, ..usual }) && !with(Question { user: "", ..usual }));
    assert!(!with(Question { password: &long, ..usual }) && !with(Question { service: &long, ..usual }));
    assert!(!with(Question { user: "a\0b", ..usual }) && !with(Question { password: "\0", ..usual }));
    let read = |call: FileCall<'_>| FileCall::read(&call.to_bytes()).is_ok();
    for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &name] {
        assert!(!read(FileCall::Remove { name: bad, is_directory: false }), "{bad:?}");
        assert!(!read(FileCall::Rename { old: b"a", new: bad, flags: 0 }), "{bad:?}");
        assert!(!read(FileCall::MakeSymlink { text: b"/", name: bad }), "{bad:?}");
    }
    assert!(!read(FileCall::Open { path: &name, flags: 0, mode: 0, resolve: 0 }));
    let many = Policy { services: vec![Service::default(); 9], ..Policy::default() };
    assert!(Policy::read(&many.to_bytes()).is_err());
    let many = Setup { groups: vec![0; 4097], ..Setup::default() };
    assert!(Setup::read(&many.to_bytes()).is_err());
    // A reason is cut, and stays text.
    let cut = Answer::read(&Answer::Failed("\u{e9}".repeat(400)).to_bytes()).unwrap();
    assert!(matches!(cut, Answer::Failed(why) if why.len() == 512));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_one_message_or_none(bytes: Vec<u8>) {
        for kind in [0, 80, 160] {
            fuzz_targets::privsep(&[&[kind], &bytes[..]].concat());
        }
    }

    #[test]
    fn any_question_within_its_bounds_is_read_as_it_was_written(
        user in "[^\0]{1,60}", password in "[^\0]{0,120}", from: std::net::IpAddr, by_http: bool, wants_entry: bool
    ) {
        let question =
            Question { service: "s", user: &user, password: &password, from, by_http, wants_entry };
        let bytes = Request::Check(question).to_bytes();
        proptest::prop_assert_eq!(Request::read(&bytes).unwrap(), Request::Check(question));
    }

    #[test]
    fn any_call_to_open_is_read_as_it_was_written(
        path in proptest::collection::vec(1_u8.., 0..300), flags: u32, mode: u32, resolve: u64
    ) {
        let call = FileCall::Open { path: &path, flags, mode, resolve };
        let bytes = call.to_bytes();
        proptest::prop_assert_eq!(FileCall::read(&bytes).unwrap(), call);
    }
}
