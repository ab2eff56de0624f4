//! Clients of HTTP that reset, half-close or stall, in every state of a connection: nothing is left of any of them, and
//! others are answered meanwhile.

mod site;
mod streams;

use std::time::Duration;

use crate::alone;
use crate::kit::{descriptors, within};
use site::{SESSIONS, Site, Victim};

/// The timeout of an inactive client.
const STALL: Duration = Duration::from_secs(1);

/// When a test gives up: the slowest end is that of a program whose time is over.
const LONGEST: Duration = Duration::from_secs(30);

/// `u:p`.
const USER: &str = "Host: h\r\nAuthorization: Basic dTpw\r\n";

/// How a client ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Reset,
    HalfClose,
    Stall,
}

const ENDINGS: [Ending; 3] = [Ending::Reset, Ending::HalfClose, Ending::Stall];

/// What a connection is busy with when its client ends: the variant of `Work` that it has then, what that is about, and
/// how it comes about.
type State = (&'static str, &'static str, fn(&Site) -> Victim);

const STATES: [State; 22] = [
    ("Idle", "nothing was said", |site| site.say("")),
    ("Idle", "a head is read", |site| site.say("GET /small HTTP/1.1\r\nHo")),
    ("Idle", "an answer was given", |site| site.heard("GET /small HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Idle", "small answers are not taken", |site| {
        site.say(&"GET /medium HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2_000))
    }),
    ("Idle", "the rest of a refused body is awaited", |site| {
        site.heard("POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc")
    }),
    ("Securing", "TLS begins", |site| site.secure("")),
    ("Securing", "TLS begins, half a hello", |site| site.secure("\x16\x03\x01\x02\x00\x01")),
    ("Asked", "the pool is waited for", |site| {
        site.stuck(|| site.say(&format!("GET /stuck HTTP/1.1\r\n{USER}\r\n")))
    }),
    ("Asked", "WebDAV's copy is waited for", |site| {
        site.stuck(|| site.say(&format!("COPY /stuck HTTP/1.1\r\n{USER}Destination: /copied\r\n\r\n")))
    }),
    ("Queued", "another program is waited for", |site| {
        let other = site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n").beside(other)
    }),
    ("Held", "a wrong password is answered later", |site| {
        site.say("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTp3cm9uZw==\r\n\r\n")
    }),
    ("Sending", "a file is sent", |site| site.heard("GET /large HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Sending", "a directory's page is made", |site| site.heard("GET /many/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Collecting", "WebDAV's body comes", |site| {
        site.say("PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 1\r\nContent-Length: 100\r\n\r\n<?xml")
    }),
    ("Collecting", "a lock's body comes", |site| {
        site.say(&format!(
            "LOCK /stuck HTTP/1.1\r\n{USER}Timeout: Second-9\r\nContent-Length: 99\r\n\r\n<?xml"
        ))
    }),
    ("Sending", "WebDAV's answer is made", |site| {
        site.heard("PROPFIND /many/ HTTP/1.1\r\nHost: h\r\nDepth: 1\r\nContent-Length: 0\r\n\r\n")
    }),
    ("Receiving", "a body comes", |site| {
        site.say(&format!("PUT /up HTTP/1.1\r\n{USER}Content-Length: 1000000\r\n\r\n{}", "x".repeat(70_000)))
    }),
    ("Running", "a program is silent", |site| {
        let victim = site.say("GET /cgi/silent HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        victim
    }),
    ("Running", "a program answers", |site| {
        let victim = site.heard("GET /cgi/endless HTTP/1.1\r\nHost: h\r\n\r\n");
        site.wait_for_program();
        victim
    }),
    ("Running", "another server is silent", |site| site.say("GET /silent/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Running", "another server answers", |site| site.heard("GET /endless/ HTTP/1.1\r\nHost: h\r\n\r\n")),
    ("Ruled", "a hook is asked", |site| {
        site.ruled(|| site.say(&format!("DELETE /asked HTTP/1.1\r\n{USER}\r\n")))
    }),
];

#[test]
fn the_table_has_every_state_of_a_connection() {
    let source = include_str!("../../../http-server/src/connection/mod.rs");
    let (_, source) = source.split_once("enum Work {").unwrap();
    let (source, _) = source.split_once("\n}").unwrap();
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let variants = lines.map(|line| line.split(['(', ',']).next().unwrap());
    // No event finds a connection resumed: it is left before the driver returns.
    let variants: Vec<_> = variants.filter(|variant| *variant != "Resumed").collect();
    assert!(variants.contains(&"Idle") && variants.len() >= 10, "{variants:?}");
    for variant in &variants {
        assert!(STATES.iter().any(|(state, ..)| state == variant), "{variant} is not in the table");
    }
    assert!(STATES.iter().all(|(state, ..)| variants.contains(state)));
}

#[test]
fn clients_that_leave_or_stall_leave_nothing_and_block_no_other() {
    let _alone = alone();
    let before_all = descriptors();
    let site = Site::new();
    // Memory that is allocated once and kept, and files that are kept open while in use.
    for (_, _, begin) in STATES {
        begin(&site).end(Ending::Reset);
        site.let_go();
    }
    site.expect_others_served("the first round");
    site.expect_quiet("the first round");
    let base = descriptors();
    for (state, about, begin) in STATES {
        for ending in ENDINGS {
            let what = format!("{state}: {about}; {ending:?}");
            let victim = begin(&site);
            site.expect_others_served(&what);
            let left = victim.end(ending);
            site.expect_others_served(&what);
            site.let_go();
            let own = left.iter().count();
            within(LONGEST, &format!("{what}: {} descriptors, {base} before", descriptors()), || {
                descriptors() <= base + own
            });
            site.expect_quiet(&what);
        }
    }
    assert!(site.scratch.read("up").is_none(), "no part of an upload has its name");
    // All places among the sessions are free, once the server has noticed that the last client is gone.
    within(LONGEST, "all places are there", || {
        let mut crowd: Vec<_> = (0..SESSIONS).map(|_| site.served.connect()).collect();
        crowd.iter_mut().all(|client| client.get("/small").status == 200)
    });
    drop(site);
    // Two of the other servers listen on, and the empty input of programs stays open from the first program on.
    crate::expect_descriptors(before_all + 3);
}
