//! The facts of an event for a program, a receiver, and a template: the same names everywhere.
//!
//! Names are bytes. Programs get them as they are; in JSON a name that is not UTF-8 has a second value, under the same
//! key with the suffix `-hex`.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use millrace_vfs::hex::Hex;
use millrace_vfs::{ReadHandle, VirtualPath, Wait};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Event, EventContext};

/// The facts of an event, by name.
pub(super) struct Facts<'a> {
    context: &'a EventContext,
    /// Where the file is now: a rule before may have moved it.
    path: Option<&'a VirtualPath>,
    /// The same in the host's file system, where it has a place there.
    file: Option<PathBuf>,
}

/// Every name that a template may hold, and what it stands for.
pub const NAMES: &[(&str, &str)] = &[
    ("event", "the event"),
    ("time", "when it was, in UTC: 2026-11-21T09:30:00.25Z"),
    ("date", "the day of it: 2026-11-21"),
    ("session", "the session's number, as the log has it"),
    ("address", "the client's address, without the port"),
    ("user", "who is logged in"),
    ("verb", "the command"),
    ("argument", "its argument; never a password"),
    ("path", "the file or directory, as clients see it"),
    ("name", "the last part of it"),
    ("directory", "the part before it"),
    ("to", "its new name; of a copy, the copy's"),
    ("file", "the file's path on this computer, where its storage has one"),
    ("bytes", "how many were moved"),
    ("hash", "of an upload, where it was computed on its way (`upload-hash`): its name, a colon, its digits"),
    ("code", "the code of the reply"),
    ("reason", "why it failed"),
];

impl<'a> Facts<'a> {
    /// The facts, with the file where it is now.
    pub(super) fn new(context: &'a EventContext, path: Option<&'a VirtualPath>) -> Self {
        Self { context, path, file: path.and_then(|path| native(context, path)) }
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let context = self.context;
        let text = |text: String| Some(text.into_bytes());
        match name {
            "event" => text(context.event.name().to_owned()),
            "time" => text(self.time()),
            "date" => text(self.time().chars().take(10).collect()),
            "session" => text(context.session.to_string()),
            "address" => text(context.peer.ip().to_string()),
            "user" => context.user.as_deref().map(<[u8]>::to_vec),
            "verb" => (!context.verb.is_empty()).then(|| context.verb.clone().into_bytes()),
            "argument" => (!context.argument.is_empty()).then(|| context.argument.clone()),
            "path" => self.path.map(|path| path.as_bytes().to_vec()),
            "name" => self.path.map(|path| path.name().to_vec()),
            "directory" => self.path.map(|path| path.parent().as_bytes().to_vec()),
            "to" => context.to.as_ref().map(|to| to.as_bytes().to_vec()),
            "file" => self.file.as_ref().map(|file| file.as_os_str().as_bytes().to_vec()),
            "bytes" => context.bytes.map(|bytes| bytes.to_string().into_bytes()),
            "hash" => context.hash.clone().map(String::into_bytes),
            "code" => context.code.map(|code| code.to_string().into_bytes()),
            "reason" => context.reason.clone().map(String::into_bytes),
            _ => None,
        }
    }

    /// A description for the log: `upload of /in/a in session 7`.
    pub(super) fn told(&self) -> String {
        let path = self.path.map(|path| format!(" of {path}")).unwrap_or_default();
        format!("{}{path} in session {}", self.context.event.name(), self.context.session)
    }

    fn time(&self) -> String {
        jiff::Timestamp::try_from(self.context.time).map_or_else(|_| String::new(), |time| time.to_string())
    }

    /// Returns true if the unnamed file of an upload was moved away by a receiver that was told its place.
    pub(super) fn is_taken(&self) -> bool {
        self.context.is_pending() && self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// A receiver has moved the file away, so that it needs no name.
    pub(super) fn note_taken(&self) {
        if let Some(pending) = &self.context.pending {
            pending.note_taken();
        }
    }

    /// `MILLRACE_EVENT=upload` and so on, for all that is known.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = Vec::new();
        for (name, _) in NAMES {
            if let Some(value) = self.get(name).filter(|value| !value.contains(&0)) {
                let name = format!("MILLRACE_{}", name.to_uppercase());
                environment.push((name.into(), OsString::from_vec(value)));
            }
        }
        environment
    }

    /// A JSON object.
    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        for (name, _) in NAMES.iter().filter(|(name, _)| !matches!(*name, "date" | "name" | "directory")) {
            let Some(value) = self.get(name) else { continue };
            let value = match (*name, std::str::from_utf8(&value)) {
                ("session" | "bytes" | "code", Ok(number)) => number.parse::<u64>().map(Value::from).ok(),
                (_, Ok(text)) => Some(Value::from(text)),
                (name, Err(_)) => {
                    object.insert(format!("{name}-hex"), Hex(&value).to_string().into());
                    Some(String::from_utf8_lossy(&value).into())
                }
            };
            object.insert((*name).to_owned(), value.unwrap_or_default());
        }
        if !self.context.also.is_empty() {
            let paths = self.path.into_iter().chain(&self.context.also);
            let texts = paths.map(|path| Value::from(String::from_utf8_lossy(path.as_bytes())));
            object.insert("paths".to_owned(), texts.collect());
        }
        if let Some(elapsed) = self.context.elapsed {
            object.insert("seconds".to_owned(), elapsed.as_secs_f64().into());
        }
        for (field, time) in self.context.waited.told() {
            object.insert(field.to_owned(), time.as_secs_f64().into());
        }
        Value::Object(object).to_string()
    }
}

/// Where a file lies on this computer: what an open descriptor of it is called. (Behind encryption, in an archive or
/// a database there is no such place.)
fn native(context: &EventContext, path: &VirtualPath) -> Option<PathBuf> {
    if !matches!(context.event, Event::Upload | Event::Download | Event::Command | Event::UploadFailed) {
        return None;
    }
    let handle = match context.is_pending() {
        true => context.preview()?,
        // Another file has the name.
        false if context.is_taken() && context.path.as_ref() == Some(path) => return None,
        false => context.storage.as_ref()?.open_read(path, Wait::Allowed).ok()?,
    };
    match handle {
        ReadHandle::File(range) => {
            let link = format!("/proc/self/fd/{}", range.file.as_raw_fd());
            std::fs::read_link(link).ok().filter(|file| file.is_absolute())
        }
        ReadHandle::Stream(_) => None,
    }
}

/// A program would take what a client says for an option: it begins with a hyphen, and nothing stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{{{name}}} begins with a hyphen, which a program takes for an option; write something before it in the same argument, such as \
     \"--name={{{name}}}\" or \"./{{{name}}}\""
)]
pub(super) struct TakenForOption {
    name: &'static str,
}

/// A text with names in braces: `/checked/{user}/{name}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

/// Why a text is no template.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// A brace is not closed.
    #[error("{0:?} has a {{ without its }}")]
    Open(String),
    /// There is no fact of this name.
    #[error("there is no {{{0}}}; there are {names}", names = NAMES.iter().map(|known| known.0).collect::<Vec<_>>().join(", "))]
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(&'static str),
}

impl Template {
    /// Returns whether it may have become this text: exactly, where it names nothing.
    pub(super) fn may_be(&self, text: &OsStr) -> bool {
        let written = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => Some(&**text),
            Piece::Name(_) => None,
        });
        written.collect::<Option<String>>().is_none_or(|written| text == &*written)
    }

    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, after)) = behind.split_once('}') else {
                return Err(TemplateError::Open(text.to_owned()));
            };
            let Some((name, _)) = NAMES.iter().find(|known| known.0 == name) else {
                return Err(TemplateError::Name(name.to_owned()));
            };
            pieces.extend([Piece::Text(before.to_owned()), Piece::Name(name)]);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// The same beneath a folder, whatever that is called.
    pub fn beneath(mut self, folder: &Path) -> Self {
        self.0.insert(0, Piece::Text(format!("{}/", folder.display())));
        self
    }

    /// Returns the text that it always begins with, and the text that it always ends with behind what is filled in; `None`
    /// where nothing is.
    pub fn fixed_ends(&self) -> (String, Option<String>) {
        let texts = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Name(_) => None,
        };
        let prefix: String = self.0.iter().map_while(texts).collect();
        let is_fixed = self.0.iter().all(|piece| matches!(piece, Piece::Text(_)));
        let suffix = self.0.last().and_then(texts).filter(|_| !is_fixed);
        (prefix, suffix)
    }

    /// As an argument of a program: an unknown fact is empty. Refuses a value from a client that begins with a hyphen.
    pub(super) fn argument(&self, facts: &Facts<'_>) -> Result<OsString, TakenForOption> {
        let value = |name| facts.get(name).unwrap_or_default();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) if text.is_empty() => {}
                Piece::Text(_) => break,
                Piece::Name(name) => match value(name) {
                    empty if empty.is_empty() => {}
                    value if value[0] == b'-' => return Err(TakenForOption { name }),
                    _ => break,
                },
            }
        }
        Ok(OsString::from_vec(self.fill(value)))
    }

    /// Returns what clients say that would stand first in an argument, where a program could take it for an option.
    pub fn leading_client_text(&self) -> Option<&'static str> {
        let mut pieces = self.0.iter().filter(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        match pieces.next() {
            Some(Piece::Name(name)) if matches!(*name, "user" | "argument" | "name" | "reason") => Some(name),
            _ => None,
        }
    }

    /// As a path. A value from a client stays one name: it has no slash and is not `..`, but for those that are
    /// paths themselves.
    pub(super) fn path(&self, facts: &Facts<'_>) -> Option<VirtualPath> {
        let filled = self.fill(|name| {
            let mut value = facts.get(name).unwrap_or_default();
            if !matches!(name, "path" | "directory" | "to") {
                value.iter_mut().filter(|byte| matches!(**byte, b'/' | 0)).for_each(|byte| *byte = b'_');
                if value == b"." || value == b".." {
                    value.fill(b'_');
                }
            }
            value
        });
        VirtualPath::parse(&filled).ok()
    }

    fn fill(&self, value: impl Fn(&'static str) -> Vec<u8>) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|piece| match piece {
                Piece::Text(text) => text.clone().into_bytes(),
                Piece::Name(name) => value(name),
            })
            .collect()
    }
}

/// Arguments or variables as they are kept until a program is run later: each ends with a NUL, which none can hold.
pub(super) fn pack<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Vec<u8> {
    words
        .into_iter()
        .flat_map(|word| word.as_bytes().iter().copied().filter(|&byte| byte != 0).chain([0]))
        .collect()
}

/// The inverse of [`pack`].
pub(super) fn unpack(bytes: &[u8]) -> Vec<OsString> {
    let words = bytes.strip_suffix(&[0]).map(|bytes| bytes.split(|&byte| byte == 0)).into_iter().flatten();
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        for words in [&[][..], &[""], &["a", "", "b c"]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(unpack(&pack(words.iter().map(OsString::as_os_str))), words);
        }
    }

    fn context() -> EventContext {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 21));
        let context = EventContext::new(Event::Upload, Duration::ZERO, 1, address, address);
        EventContext { verb: "STOR".to_owned(), ..context }
    }

    #[test]
    fn values_from_clients_cannot_be_options_of_a_program() {
        let path = VirtualPath::parse(b"/d/--delete").unwrap();
        let context =
            EventContext { user: Some(b"-u".as_slice().into()), argument: b"-rf x".to_vec(), ..context() };
        let facts = Facts::new(&context, Some(&path));
        let argument = |text: &str| Template::parse(text).unwrap().argument(&facts);
        for (text, name) in
            [("{name}", "name"), ("{user}", "user"), ("{argument}", "argument"), ("{reason}{name}x", "name")]
        {
            assert_eq!(argument(text), Err(TakenForOption { name }), "{text}");
        }
        for (text, expected) in [
            ("--name={name}", "--name=--delete"),
            ("./{name}", "./--delete"),
            ("{path}", "/d/--delete"),
            ("--verbose", "--verbose"),
            ("{event}{name}", "upload--delete"),
            ("{reason}", ""),
        ] {
            assert_eq!(argument(text).unwrap(), expected, "{text}");
        }
        let leading = |text: &str| Template::parse(text).unwrap().leading_client_text();
        assert_eq!([leading("{name}"), leading("{path}"), leading("-{name}")], [Some("name"), None, None]);
    }

    #[test]
    fn a_template_knows_its_names() {
        assert!(Template::parse("/a/{user}/{name}").is_ok());
        for wrong in ["{", "{who}", "a{user"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
