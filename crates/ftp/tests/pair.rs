//! Server and client sessions joined in memory, with a clock that is moved by hand.

mod memory;

use millrace_ftp::Settings;
use millrace_ftp::client::{ClientError, ClientEvent, ClientSession, Plan, ReplyReader};
use millrace_ftp::line::{self, LineReader};
use millrace_ftp::session::{Input, TransferError};
use millrace_vfs::FileError;

use memory::{Driver, SERVER};

/// A client and a server, and the two directions of the control connection between them.
struct Pair {
    server: Driver,
    client: ClientSession,
    lines: LineReader,
    replies: ReplyReader,
    to_server: Vec<u8>,
    /// What became of the client's commands, in order.
    events: Vec<String>,
    /// What the client makes of the bytes of data connections.
    uploading: Vec<u8>,
    downloaded: Vec<Vec<u8>>,
    /// Whether transfers run to their end by themselves.
    runs: bool,
}

impl Pair {
    fn connected() -> Self {
        let mut pair = Self {
            server: Driver::new(Settings::default()),
            client: ClientSession::new(SERVER.parse().unwrap()),
            lines: LineReader::default(),
            replies: ReplyReader::default(),
            to_server: Vec::new(),
            events: Vec::new(),
            uploading: Vec::new(),
            downloaded: Vec::new(),
            runs: true,
        };
        pair.server.handle(Input::Connected);
        pair
    }

    fn logged_in() -> Self {
        let mut pair = Self::connected();
        pair.client.log_in(b"ann", b"secret", &mut pair.to_server);
        assert_eq!(pair.run(), ["greeted", "underway", "logged in"]);
        pair
    }

    fn command(&mut self, verb: &str, argument: &str) {
        self.client.command(verb.as_bytes(), argument.as_bytes(), &mut self.to_server);
    }

    fn transfer(&mut self, verb: &str, argument: &str) {
        self.client.plan(Plan::Passive, &mut self.to_server);
        self.client.transfer(verb.as_bytes(), argument.as_bytes(), &mut self.to_server);
    }

    /// Carries bytes to and fro until both sides have nothing to say, and tells what the client heard.
    fn run(&mut self) -> Vec<String> {
        loop {
            self.deliver_lines();
            self.server.answer_all();
            let is_transferring = self.runs && self.server.transfer.is_some();
            if is_transferring {
                let wire = self.server.run_transfer(&self.uploading);
                self.downloaded.push(wire);
            }
            let had_replies = !self.server.out.is_empty();
            self.deliver_replies().expect("the client understands");
            if !had_replies && self.to_server.is_empty() && !is_transferring {
                return std::mem::take(&mut self.events);
            }
        }
    }

    fn deliver_lines(&mut self) {
        let bytes = std::mem::take(&mut self.to_server);
        let mut input = &bytes[..];
        while let Some(event) = self.lines.next(&mut input) {
            match event {
                line::LineEvent::Line(line) => self.server.line(&line),
                event => panic!("a client does not send this: {event:?}"),
            }
        }
    }

    fn deliver_replies(&mut self) -> Result<(), ClientError> {
        let bytes = std::mem::take(&mut self.server.out);
        let mut input = &bytes[..];
        while let Some(reply) = self.replies.next(&mut input)? {
            let event = self.client.receive(reply, &mut self.to_server)?;
            self.events.push(match event {
                ClientEvent::Greeted => "greeted".to_owned(),
                ClientEvent::LoggedIn => "logged in".to_owned(),
                ClientEvent::Underway => "underway".to_owned(),
                ClientEvent::Listening(address) => format!("listening {address}"),
                ClientEvent::Opening(size) => format!("opening {size:?}"),
                ClientEvent::Done(reply) => format!("done {}", reply.code),
                ClientEvent::Refused(reply) => format!("refused {}", reply.code),
                ClientEvent::Closing(reply) => format!("closing {}", reply.code),
            });
        }
        Ok(())
    }
}

#[test]
fn a_file_goes_up_and_comes_down_as_it_was() {
    let mut pair = Pair::logged_in();
    pair.command("TYPE", "I");
    pair.uploading = b"content\n".to_vec();
    pair.transfer("STOR", "a name\r\u{ff}");
    assert_eq!(pair.run(), ["done 200", "listening 192.0.2.1:50000", "opening None", "done 226"]);
    pair.transfer("RETR", "a name\r\u{ff}");
    assert_eq!(pair.run(), ["listening 192.0.2.1:50000", "opening Some(8)", "done 226"]);
    assert_eq!(pair.downloaded.pop().unwrap(), b"content\n");
    pair.transfer("MLSD", "");
    pair.run();
    let listing = String::from_utf8(pair.downloaded.pop().unwrap()).unwrap();
    assert!(
        listing.contains("type=file;size=8;") && listing.ends_with(" a name\\015\u{ff}\r\n"),
        "{listing}"
    );
}

#[test]
fn pipelined_commands_are_answered_in_their_order() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    for _ in 0..3 {
        pair.command("PWD", "");
        pair.transfer("RETR", "f");
        pair.command("SYST", "");
        pair.command("XMD5", "f");
        pair.transfer("RETR", "missing");
        pair.command("NOOP", "");
    }
    pair.client.quit(&mut pair.to_server);
    let round = [
        "done 257",
        "listening 192.0.2.1:50000",
        "opening Some(1)",
        "done 226",
        "done 215",
        "done 250",
        "listening 192.0.2.1:50000",
        "refused 550",
        "done 200",
    ];
    assert_eq!(pair.run(), [&round[..], &round, &round, &["closing 221"]].concat());
    assert!(pair.client.is_idle() && pair.server.session.is_closed());
}

#[test]
fn commands_during_a_transfer_wait_unless_marked_busy() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    pair.runs = false;
    pair.transfer("RETR", "f");
    pair.run();
    for line in ["PWD", "NOOP"] {
        pair.server.line(line);
    }
    assert_eq!(pair.server.sent(), "", "NOOP waits behind PWD");
    pair.server.end(Ok(()));
    let replies = pair.server.sent();
    let codes: Vec<&str> = replies.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["226", "257", "200"]);
}

#[test]
fn abor_during_a_transfer_gets_426_then_226() {
    for transfer in ["RETR f", "STOR g", "LIST", "STOU"] {
        let mut pair = Pair::logged_in();
        pair.server.tree.insert("/f", "x");
        pair.runs = false;
        let (verb, argument) = transfer.split_once(' ').unwrap_or((transfer, ""));
        pair.transfer(verb, argument);
        let events = pair.run();
        assert!(events.last().unwrap().starts_with("opening"), "{events:?}");
        pair.client.abort(&mut pair.to_server);
        pair.client.command(b"NOOP", b"", &mut pair.to_server);
        pair.run();
        assert!(pair.server.aborted);
        pair.server.end(Err(TransferError::Aborted));
        assert_eq!(pair.run(), ["refused 426", "done 226", "done 200"]);
    }
}

#[test]
fn abor_that_comes_too_late_gets_two_226() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    pair.runs = false;
    pair.transfer("RETR", "f");
    pair.run();
    pair.client.abort(&mut pair.to_server);
    pair.run();
    pair.server.end(Ok(()));
    assert_eq!(pair.run(), ["done 226", "done 226"]);
}

#[test]
fn abor_of_a_long_question_cancels_it() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    for command in
        ["XSHA512 f", "HASH f", "SITE COPY f g", "DSIZ", "RMDA d", "COMB g f", "SITE NEWER 20200101000000"]
    {
        pair.server.line(command);
        pair.server.line("ABOR");
        assert!(pair.server.aborted, "{command}");
        pair.server.answer(millrace_ftp::session::Answer::Failed(FileError::Cancelled));
        let replies = pair.server.sent();
        let codes: Vec<&str> = replies.lines().map(|line| &line[..3]).collect();
        assert_eq!(codes, ["426", "226"], "{command}");
    }
}

/// A short question may be put to a stuck disk.
#[test]
fn abor_is_heard_while_a_short_question_is_open() {
    let mut pair = Pair::logged_in();
    pair.server.line("CWD d");
    pair.server.line("ABOR");
    assert!(pair.server.aborted);
    assert_eq!(pair.server.sent(), "");
    pair.server.answer_all();
    assert_eq!(pair.server.sent(), "550 /d: no such file or directory.\r\n226 ABOR successful.\r\n");

    // A file that is opened all the same is not sent any more.
    pair.server.tree.insert("/f", "x");
    pair.server.say("PASV");
    pair.server.line("RETR f");
    pair.server.line("ABOR");
    pair.server.answer_all();
    assert_eq!(pair.server.sent(), "426 /f: cancelled.\r\n226 ABOR successful.\r\n");
}

#[test]
fn telnet_signals_before_abor_are_passed_over() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    pair.runs = false;
    pair.transfer("RETR", "f");
    pair.run();
    pair.to_server.extend_from_slice(b"\xff\xf4\xff\xf2ABOR\r\n");
    pair.deliver_lines();
    assert!(pair.server.aborted);
}

#[test]
fn quit_during_a_transfer_waits_for_its_end() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    pair.runs = false;
    pair.transfer("RETR", "f");
    pair.client.quit(&mut pair.to_server);
    pair.run();
    assert!(!pair.server.session.is_closed());
    pair.server.end(Ok(()));
    assert_eq!(pair.run(), ["done 226", "closing 221"]);
    assert!(pair.server.session.is_closed());
}

#[test]
fn a_shutdown_lets_the_transfer_end_and_still_hears_abor() {
    for aborts in [false, true] {
        let mut pair = Pair::logged_in();
        pair.server.tree.insert("/f", "x");
        pair.runs = false;
        pair.transfer("RETR", "f");
        pair.run();
        if aborts {
            pair.client.abort(&mut pair.to_server);
            pair.run();
        }
        pair.server.handle(Input::Shutdown);
        if !aborts {
            pair.client.abort(&mut pair.to_server);
            pair.run();
        }
        assert!(pair.server.aborted, "heard before and after");
        pair.server.end(Err(TransferError::Aborted));
        assert_eq!(pair.run(), ["refused 426", "done 226", "closing 421"]);
    }
}

#[test]
fn a_shutdown_closes_an_idle_session_at_once() {
    let mut pair = Pair::logged_in();
    pair.server.handle(Input::Shutdown);
    assert_eq!(pair.run(), ["closing 421"]);
}

#[test]
fn a_failed_transfer_names_its_fault() {
    use std::io;
    for (error, code) in [
        (TransferError::NoConnection("no connection".into()), 425),
        (TransferError::Broken(io::ErrorKind::ConnectionReset.into()), 426),
        (TransferError::Stalled, 426),
        (TransferError::Malformed("cut short".into()), 426),
        (TransferError::File(FileError::NoSpace), 452),
        (TransferError::File(FileError::QuotaExceeded), 552),
        (TransferError::File(io::Error::other("secret").into()), 451),
    ] {
        let mut pair = Pair::logged_in();
        pair.runs = false;
        pair.transfer("STOR", "f");
        pair.run();
        pair.server.end(Err(error));
        let text = String::from_utf8_lossy(&pair.server.out).into_owned();
        assert!(text.starts_with(&code.to_string()) && !text.contains("secret"), "{text}");
        assert_eq!(pair.run(), [format!("refused {code}")]);
    }
}

#[test]
fn a_session_whose_account_is_disabled_ends_with_421() {
    let mut pair = Pair::logged_in();
    pair.server.handle(Input::Expelled);
    assert_eq!(pair.run(), ["closing 421"]);
}

#[test]
fn a_transfer_of_a_disabled_account_is_ended_first() {
    let mut pair = Pair::logged_in();
    pair.server.tree.insert("/f", "x");
    pair.runs = false;
    pair.transfer("RETR", "f");
    pair.run();
    pair.server.handle(Input::Expelled);
    assert!(pair.server.aborted);
    pair.server.end(Err(TransferError::Aborted));
    assert_eq!(pair.run(), ["refused 426", "closing 421"]);
}

#[test]
fn a_stranger_is_not_expelled() {
    let mut pair = Pair::connected();
    pair.server.handle(Input::Expelled);
    assert_eq!(pair.run(), ["greeted"]);
}
