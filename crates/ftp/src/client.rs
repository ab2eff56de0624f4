//! The client's side of a control connection, as a value: commands out, replies in.
//!
//! ```text
//! begin(..) --lines--> server --replies--> receive(..) --> ClientEvent
//! ```
//!
//! [`ClientSession`] is the twin of [`Session`](crate::Session), for a load generator and for tests: it
//! opens no socket and asks no clock. Commands may be pipelined; replies are matched to them in order, and
//! what does not match is an error rather than a guess. A server is not trusted: replies are bounded
//! ([`MAX_REPLY`]), and the data connection goes to the server's address whatever its `PASV` reply says.
//!
//! An operation allocates nothing once the buffers have grown to their size.

use std::collections::VecDeque;
use std::net::SocketAddr;

use thiserror::Error;

use crate::address;
use crate::decimal::parse_decimal;

/// The longest reply that is read, all of its lines together, in bytes.
pub const MAX_REPLY: usize = 64 * 1024;

/// Why a server's replies cannot be followed. The connection is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClientError {
    /// A reply longer than [`MAX_REPLY`].
    #[error("the reply is longer than {MAX_REPLY} bytes")]
    TooLong,
    /// A line that does not begin with three digits.
    #[error("the server sent what is no reply")]
    NotAReply,
    /// A reply to nothing that was asked.
    #[error("an unexpected reply, {0}")]
    Unexpected(u16),
    /// A 227 or 229 reply without an address.
    #[error("the passive reply has no address in it")]
    NoAddress,
}

/// One whole reply of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// The three digits.
    pub code: u16,
    /// The lines as they came, without the end of the last.
    lines: &'a [u8],
}

impl<'a> Received<'a> {
    /// The text of the last line, which in most replies is the only one.
    pub fn text(&self) -> &'a [u8] {
        let last = memchr::memrchr(b'\n', self.lines).map_or(0, |end| end + 1);
        self.lines.get(last + 4..).unwrap_or_default()
    }

    /// Every line as it came: the first begins with the code and a hyphen where there are several.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lines.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// Cuts a stream of bytes into replies (RFC 959 section 4.2).
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// The received part of the current reply, unless the input has it in one piece.
    buffer: Vec<u8>,
    /// Where the current line begins in `buffer`.
    line: usize,
    /// The code of a reply of several lines, after its first.
    code: Option<u16>,
    /// The content of `buffer` was handed out.
    taken: bool,
}

impl ReplyReader {
    /// Takes the next reply out of `input`, which is moved past what was consumed; `None` when all of it is
    /// consumed and no reply is complete.
    pub fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<Received<'r>>, ClientError> {
        if std::mem::take(&mut self.taken) {
            self.buffer.clear();
            (self.line, self.code) = (0, None);
        }
        if self.buffer.is_empty()
            && let Some(end) = memchr::memchr(b'\n', input)
            && let Some((code, b' ')) = head(trimmed(&input[..end]))
        {
            let lines = trimmed(&input[..end]);
            *input = &input[end + 1..];
            return Ok(Some(Received { code, lines }));
        }
        while let Some(end) = memchr::memchr(b'\n', input) {
            self.push(&input[..=end])?;
            *input = &input[end + 1..];
            if let Some(code) = self.end_line()? {
                self.taken = true;
                return Ok(Some(Received { code, lines: trimmed(&self.buffer[..self.buffer.len() - 1]) }));
            }
        }
        self.push(input)?;
        *input = &[];
        Ok(None)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.buffer.len() + bytes.len() > MAX_REPLY {
            return Err(ClientError::TooLong);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// A line is complete. Answers the code where the reply is as well.
    fn end_line(&mut self) -> Result<Option<u16>, ClientError> {
        let line = trimmed(&self.buffer[self.line..self.buffer.len() - 1]);
        self.line = self.buffer.len();
        match (self.code, head(line)) {
            (None, None) => Err(ClientError::NotAReply),
            (None, Some((code, b'-'))) => {
                self.code = Some(code);
                Ok(None)
            }
            (None, Some((code, _))) => Ok(Some(code)),
            (Some(code), Some((last, b' '))) if last == code => Ok(Some(code)),
            (Some(_), _) => Ok(None),
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The code at the beginning of a line, and what separates it from the text.
fn head(line: &[u8]) -> Option<(u16, u8)> {
    let [a @ b'1'..=b'6', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = line else { return None };
    let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    match rest.first() {
        None | Some(b' ') => Some((code, b' ')),
        Some(b'-') => Some((code, b'-')),
        Some(_) => None,
    }
}

/// How a client asks for its next data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// `PASV`
    Passive,
    /// `EPSV`
    ExtendedPassive,
    /// `PORT`, or for an IPv6 address `EPRT`: the server is to connect here.
    Active(SocketAddr),
    /// `EPRT`
    ExtendedActive(SocketAddr),
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// The server greets: commands may be sent.
    Greeted,
    /// The login succeeded.
    LoggedIn,
    /// Connect the data connection to this address.
    Listening(SocketAddr),
    /// A transfer begins; how many bytes it has, where the server says it.
    Opening(Option<u64>),
    /// Something on the way, which can be passed over: the password was asked for, a restart marker came.
    Underway,
    /// The command in front has ended well.
    Done(Received<'a>),
    /// The command in front was refused, or failed.
    Refused(Received<'a>),
    /// The server closes the connection: `QUIT` was answered, or it said 421.
    Closing(Received<'a>),
}

/// A command whose final reply has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing was sent: the greeting is awaited.
    Greeting,
    User,
    Pass,
    Passive,
    ExtendedPassive,
    /// A command that uses the data connection.
    Transfer,
    Quit,
    Other,
}

/// The client's side of one control connection.
#[derive(Debug)]
pub struct ClientSession {
    server: SocketAddr,
    /// In the order in which they were sent.
    sent: VecDeque<Sent>,
    /// The password for `PASS`.
    password: Vec<u8>,
}

impl ClientSession {
    /// A client that has connected, or will, to `server`.
    pub fn new(server: SocketAddr) -> Self {
        Self { server, sent: VecDeque::from([Sent::Greeting]), password: Vec::new() }
    }

    /// Returns true if every command has had its final reply.
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// `USER`; the password is sent when the server asks for it.
    pub fn log_in(&mut self, user: &[u8], password: &[u8], out: &mut Vec<u8>) {
        self.password.clear();
        self.password.extend_from_slice(password);
        self.send(Sent::User, b"USER", user, out);
    }

    /// Asks for the next data connection.
    pub fn plan(&mut self, plan: Plan, out: &mut Vec<u8>) {
        match plan {
            Plan::Passive => self.send(Sent::Passive, b"PASV", b"", out),
            Plan::ExtendedPassive => self.send(Sent::ExtendedPassive, b"EPSV", b"", out),
            Plan::Active(SocketAddr::V4(address)) => {
                let argument = address::format_port(*address.ip(), address.port());
                self.send(Sent::Other, b"PORT", argument.as_bytes(), out);
            }
            Plan::Active(address) | Plan::ExtendedActive(address) => {
                self.send(Sent::Other, b"EPRT", address::format_extended(address).as_bytes(), out);
            }
        }
    }

    /// A command that uses the data connection: `RETR`, `STOR`, `LIST`, `MLSD` and so on.
    pub fn transfer(&mut self, verb: &[u8], argument: &[u8], out: &mut Vec<u8>) {
        self.send(Sent::Transfer, verb, argument, out);
    }

    /// Any other command with one final reply.
    pub fn command(&mut self, verb: &[u8], argument: &[u8], out: &mut Vec<u8>) {
        self.send(Sent::Other, verb, argument, out);
    }

    /// `ABOR`: the transfer that it ends gets its final reply first, then comes its own.
    pub fn abort(&mut self, out: &mut Vec<u8>) {
        self.send(Sent::Other, b"ABOR", b"", out);
    }

    /// `QUIT`
    pub fn quit(&mut self, out: &mut Vec<u8>) {
        self.send(Sent::Quit, b"QUIT", b"", out);
    }

    /// Takes a reply, and returns its meaning for the first pending command. The response to it is appended to `out`.
    pub fn receive<'a>(
        &mut self,
        reply: Received<'a>,
        out: &mut Vec<u8>,
    ) -> Result<ClientEvent<'a>, ClientError> {
        // 421 may come at any time.
        if reply.code == 421 {
            self.sent.clear();
            return Ok(ClientEvent::Closing(reply));
        }
        let &front = self.sent.front().ok_or(ClientError::Unexpected(reply.code))?;
        if reply.code < 200 {
            return Self::preliminary(front, reply);
        }
        self.sent.pop_front();
        match (front, reply.code) {
            (Sent::User, 331) => {
                let password = std::mem::take(&mut self.password);
                self.send(Sent::Pass, b"PASS", &password, out);
                self.password = password; // keeps its memory
                Ok(ClientEvent::Underway)
            }
            (_, 400..) => Ok(ClientEvent::Refused(reply)),
            (Sent::Greeting, 200..=299) => Ok(ClientEvent::Greeted),
            (Sent::User | Sent::Pass, 200..=299) => Ok(ClientEvent::LoggedIn),
            (Sent::Passive, 200..=299) => address::parse_passive(reply.text())
                .map(|address| ClientEvent::Listening(SocketAddr::new(self.server.ip(), address.port())))
                .ok_or(ClientError::NoAddress),
            (Sent::ExtendedPassive, 200..=299) => address::parse_extended_passive(reply.text())
                .map(|port| ClientEvent::Listening(SocketAddr::new(self.server.ip(), port)))
                .ok_or(ClientError::NoAddress),
            (Sent::Quit, 200..=299) => Ok(ClientEvent::Closing(reply)),
            (Sent::Transfer | Sent::Other, 200..=399) => Ok(ClientEvent::Done(reply)),
            (_, code) => Err(ClientError::Unexpected(code)),
        }
    }

    fn preliminary(front: Sent, reply: Received<'_>) -> Result<ClientEvent<'_>, ClientError> {
        match (front, reply.code) {
            (Sent::Transfer, 125 | 150) => Ok(ClientEvent::Opening(announced_size(reply.text()))),
            (Sent::Transfer, 110) | (Sent::Greeting, 120) => Ok(ClientEvent::Underway),
            (_, code) => Err(ClientError::Unexpected(code)),
        }
    }

    fn send(&mut self, sent: Sent, verb: &[u8], argument: &[u8], out: &mut Vec<u8>) {
        self.sent.push_back(sent);
        out.extend_from_slice(verb);
        if !argument.is_empty() {
            out.push(b' ');
            write_argument(argument, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends an argument as Telnet has it: IAC doubled, and a NUL behind a CR, so that any name passes. A bare
/// LF would end the line and cannot be sent: it becomes a `?`, which no file of that name is found by.
fn write_argument(argument: &[u8], out: &mut Vec<u8>) {
    for &byte in argument {
        match byte {
            0xff => out.extend_from_slice(&[0xff, 0xff]),
            b'\r' => out.extend_from_slice(b"\r\0"),
            b'\n' => out.push(b'?'),
            byte => out.push(byte),
        }
    }
}

/// The number in `... for name (123 bytes).`, from the end, because a name may look like it.
fn announced_size(text: &[u8]) -> Option<u64> {
    let open = memchr::memrchr(b'(', text)?;
    let inside = &text[open + 1..];
    let blank = memchr::memchr(b' ', inside)?;
    inside[blank..].starts_with(b" bytes)").then(|| parse_decimal(&inside[..blank]))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reply of `input` when it arrives in pieces of `size` bytes.
    fn replies(input: &[u8], size: usize) -> Result<Vec<(u16, Vec<u8>, usize)>, ClientError> {
        let mut reader = ReplyReader::default();
        let mut found = Vec::new();
        for mut piece in input.chunks(size) {
            while let Some(reply) = reader.next(&mut piece)? {
                found.push((reply.code, reply.text().to_vec(), reply.lines().count()));
            }
        }
        Ok(found)
    }

    #[test]
    fn replies_are_cut_out_of_any_pieces() {
        let input = b"220 Hello\r\n211-Features:\r\n SIZE\r\n211forged\r\n 211 \r\n200 no end\r\n211 End\r\n257 \"/\"\n500\r\n";
        let expected = [
            (220, b"Hello".to_vec(), 1),
            (211, b"End".to_vec(), 6),
            (257, b"\"/\"".to_vec(), 1),
            (500, b"".to_vec(), 1),
        ];
        for size in 1..=input.len() {
            assert_eq!(replies(input, size).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn malformed_replies_are_errors() {
        for bad in
            [&b"hello\r\n"[..], b"\r\n", b"22 a\r\n", b"220x\r\n", b"999 a\r\n", b"\xff\xfb\x01220 a\r\n"]
        {
            assert_eq!(replies(bad, 100), Err(ClientError::NotAReply), "{bad:?}");
        }
    }

    #[test]
    fn a_reply_without_an_end_is_bounded() {
        let endless = [&b"220-a\r\n"[..], &b"x\r\n".repeat(MAX_REPLY / 3)].concat();
        assert_eq!(replies(&endless, 4096), Err(ClientError::TooLong));
        assert_eq!(replies(&vec![b'2'; MAX_REPLY + 1], 4096), Err(ClientError::TooLong));
    }

    /// The events that a client returns for replies, and what it sends meanwhile.
    fn conversation(
        client: &mut ClientSession,
        replies: &[u8],
    ) -> Result<(Vec<String>, String), ClientError> {
        let (mut reader, mut input, mut out) = (ReplyReader::default(), replies, Vec::new());
        let mut events = Vec::new();
        while let Some(reply) = reader.next(&mut input)? {
            events.push(match client.receive(reply, &mut out)? {
                ClientEvent::Done(reply) => format!("done {}", reply.code),
                ClientEvent::Refused(reply) => format!("refused {}", reply.code),
                ClientEvent::Closing(reply) => format!("closing {}", reply.code),
                event => format!("{event:?}"),
            });
        }
        Ok((events, String::from_utf8(out).unwrap()))
    }

    fn client() -> ClientSession {
        ClientSession::new("192.0.2.1:21".parse().unwrap())
    }

    #[test]
    fn the_password_is_sent_when_it_is_asked_for() {
        let (mut client, mut out) = (client(), Vec::new());
        client.log_in(b"ann", b"secret", &mut out);
        assert_eq!(out, b"USER ann\r\n");
        let (events, said) = conversation(&mut client, b"220 a\r\n331 b\r\n230 c\r\n").unwrap();
        assert_eq!(events, ["Greeted", "Underway", "LoggedIn"]);
        assert_eq!(said, "PASS secret\r\n");
        assert!(client.is_idle());
    }

    #[test]
    fn the_data_connection_goes_to_the_server_whatever_it_says() {
        let (mut client, mut out) = (client(), Vec::new());
        client.plan(Plan::Passive, &mut out);
        client.plan(Plan::ExtendedPassive, &mut out);
        let replies = b"220 a\r\n227 at (10,0,0,1,4,1).\r\n229 at (|||1026|)\r\n";
        let (events, _) = conversation(&mut client, replies).unwrap();
        assert_eq!(events, ["Greeted", "Listening(192.0.2.1:1025)", "Listening(192.0.2.1:1026)"]);
    }

    #[test]
    fn pipelined_commands_get_their_replies_in_order() {
        let (mut client, mut out) = (client(), Vec::new());
        client.transfer(b"RETR", b"a (7 bytes)", &mut out);
        client.abort(&mut out);
        client.command(b"NOOP", b"", &mut out);
        client.quit(&mut out);
        assert_eq!(out, b"RETR a (7 bytes)\r\nABOR\r\nNOOP\r\nQUIT\r\n");
        let replies =
            b"220 a\r\n150 Opening for a (7 bytes) (12 bytes).\r\n426 b\r\n226 c\r\n200 d\r\n221 e\r\n";
        let (events, _) = conversation(&mut client, replies).unwrap();
        assert_eq!(
            events,
            ["Greeted", "Opening(Some(12))", "refused 426", "done 226", "done 200", "closing 221"]
        );
    }

    #[test]
    fn a_reply_to_nothing_is_an_error_and_421_is_not() {
        let mut client = client();
        assert_eq!(conversation(&mut client, b"220 a\r\n226 b\r\n"), Err(ClientError::Unexpected(226)));
        assert_eq!(conversation(&mut client, b"421 idle\r\n").unwrap().0, ["closing 421"]);
        let (mut client, mut out) = (self::client(), Vec::new());
        client.command(b"NOOP", b"", &mut out);
        assert_eq!(conversation(&mut client, b"220 a\r\n150 b\r\n"), Err(ClientError::Unexpected(150)));
    }

    #[test]
    fn any_name_goes_into_one_line() {
        let mut out = Vec::new();
        client().command(b"DELE", b"a\rb\xff\nc", &mut out);
        assert_eq!(out, b"DELE a\r\0b\xff\xff?c\r\n");
    }
}
