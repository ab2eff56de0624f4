//! Random conversations: whatever lines, answers, failures and deadlines come, every line gets exactly one
//! final reply, in order, and no transfer that failed is reported as done.

mod memory;

use millrace_ftp::commands::{COMMANDS, SITE_COMMANDS};
use proptest::prelude::*;

use memory::chaos::{Event, survives};

/// Arguments that commands can do something with, and some that they cannot.
const ARGUMENTS: &[&str] = &[
    "",
    " ",
    "f",
    "d",
    "d/x",
    "new",
    "/",
    "..",
    "missing/x",
    "f new",
    "\"f\" \"new 2\"",
    "-la d",
    "*",
    "d/*",
    "A",
    "I",
    "E",
    "R",
    "F",
    "B",
    "Z",
    "S",
    "3",
    "0 2",
    "1 0",
    "100",
    "UTF8 ON",
    "MLST size;type;",
    "HASH SHA-1",
    "MODE Z LEVEL 9",
    "ALL",
    "1",
    "de",
    "en",
    "20200101000000 f",
    "20200101000000",
    "Modify=20200101000000; f",
    "600 f",
    "022",
    "secret",
    "wrong",
    "ann",
    "192,0,2,7,4,1",
    "|1|192.0.2.7|1025|",
    "x\r\n226 forged",
    "x\0y",
    "\u{ff}\u{1b}[31m",
];

fn line() -> impl Strategy<Value = Vec<u8>> {
    let verbs = COMMANDS.iter().map(|command| command.verb.to_owned());
    let site = SITE_COMMANDS.iter().map(|command| format!("SITE {}", command.verb));
    let verbs: Vec<String> = verbs.chain(site).collect();
    let command = (prop::sample::select(verbs), prop::sample::select(ARGUMENTS))
        .prop_map(|(verb, argument)| format!("{verb} {argument}").into_bytes());
    let bare =
        prop::sample::select(&["PASV", "EPSV", "LIST", "NLST", "MLSD", "ABOR", "STAT", "NOOP", "PWD"][..])
            .prop_map(|verb| verb.as_bytes().to_vec());
    let transfer =
        prop::sample::select(&["RETR f", "RETR missing", "STOR new", "APPE f", "STOU", "LIST d"][..])
            .prop_map(|line| line.as_bytes().to_vec());
    prop_oneof![
        6 => command,
        4 => bare,
        3 => transfer,
        1 => prop::collection::vec(any::<u8>(), 0..20),
        // Rare, because little comes behind them.
        1 => prop::sample::select(&["QUIT", "REIN", "USER bob", "PASS secret", "PASS wrong"][..])
            .prop_map(|line| line.as_bytes().to_vec()),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => line().prop_map(Event::Line),
        10 => Just(Event::Answer),
        2 => any::<u8>().prop_map(Event::Fail),
        1 => Just(Event::Mismatch),
        3 => Just(Event::Complete),
        2 => any::<u8>().prop_map(Event::Break),
        1 => any::<u8>().prop_map(Event::Pass),
        1 => prop_oneof![9 => Just(Event::LineTooLong), 1 => Just(Event::Shutdown)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_line_gets_one_final_reply_in_order(
        user in prop::sample::select(&["ann", "bob", "root", "mallory"][..]),
        events in prop::collection::vec(event(), 0..60),
    ) {
        survives(user, &events);
    }
}
