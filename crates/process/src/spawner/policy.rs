//! Which programs a spawner starts.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::request::Request;
use super::wire::{Reader, Writer};
use crate::{ProgramLimits, program, strings};

/// What a spawner starts, and how. It is fixed when the spawner is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Programs with their arguments: a request has to match one of them word by word.
    pub commands: Vec<Vec<Word>>,
    /// Folders whose files are programs (CGI), each with itself as its only argument. Paths without links.
    pub folders: Vec<PathBuf>,
    /// What names of variables may begin with, beside those that programs inherit. A whole name ends with `=`.
    pub variables: Vec<String>,
    /// What each program may use.
    pub limits: ProgramLimits,
    /// The command that starts another server in place of this one. It gets the spawner's own variables.
    pub successor: Vec<OsString>,
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What it begins with.
    pub prefix: OsString,
    /// What it ends with, behind text that a request chooses; `None` where the word is the prefix and nothing else.
    pub suffix: Option<OsString>,
}

impl Word {
    /// A word that is always the same.
    pub fn fixed(text: impl Into<OsString>) -> Self {
        Self { prefix: text.into(), suffix: None }
    }

    fn matches(&self, word: &[u8]) -> bool {
        match &self.suffix {
            None => word == self.prefix.as_bytes(),
            Some(suffix) => {
                let rest = word.strip_prefix(self.prefix.as_bytes());
                rest.is_some_and(|rest| rest.ends_with(suffix.as_bytes()))
            }
        }
    }
}

impl Policy {
    /// Returns whether a request is for what may be started.
    pub fn allows(&self, request: &Request<'_>) -> bool {
        let Request::Program { program, folder, arguments, environment } = *request else {
            return !self.successor.is_empty();
        };
        let (Ok(arguments), Ok(variables)) = (strings(arguments), strings(environment)) else {
            return false;
        };
        let arguments: Vec<&[u8]> = arguments.collect();
        let is_allowed =
            self.is_in_folder(program, folder, &arguments) || self.is_command(program, folder, &arguments);
        is_allowed && variables.into_iter().all(|variable| self.allows_variable(variable))
    }

    fn is_command(&self, program: &CStr, folder: &CStr, arguments: &[&[u8]]) -> bool {
        let matches = |words: &Vec<Word>| {
            words.len() == arguments.len()
                && words.iter().zip(arguments).all(|(word, said)| word.matches(said))
        };
        let Some(name) = arguments.first() else { return false };
        // The program that the name leads to here, whatever the request says.
        let is_named = || program::find(OsStr::from_bytes(name)).is_ok_and(|file| *file == *program);
        is_starting_folder(folder) && self.commands.iter().any(matches) && is_named()
    }

    fn is_in_folder(&self, program: &CStr, folder: &CStr, arguments: &[&[u8]]) -> bool {
        let file = path(program);
        let is_plain =
            file.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let is_beneath = self.folders.iter().any(|folder| file.starts_with(folder) && file != folder);
        let runs_beside = file.parent() == Some(path(folder));
        is_plain && is_beneath && runs_beside && arguments == [program.to_bytes()]
    }

    /// Variables decide what an interpreter or the dynamic linker loads, so that not every name is allowed.
    fn allows_variable(&self, variable: &[u8]) -> bool {
        let Some(equals) = variable.iter().position(|&byte| byte == b'=') else { return false };
        let (name, value) = (OsStr::from_bytes(&variable[..equals]), &variable[equals + 1..]);
        let is_inherited = program::INHERITED.iter().any(|inherited| name == *inherited)
            && std::env::var_os(name).is_some_and(|own| own.as_bytes() == value);
        is_inherited || self.variables.iter().any(|prefix| variable.starts_with(prefix.as_bytes()))
    }

    /// Writes it as [`Policy::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.written().into_bytes()
    }

    pub(super) fn written(&self) -> Writer {
        let mut out = Writer::default();
        out.number(self.commands.len() as u64);
        for command in &self.commands {
            out.number(command.len() as u64);
            for Word { prefix, suffix } in command {
                out.block(prefix.as_bytes());
                out.blocks(suffix.iter().map(|suffix| suffix.as_bytes()).collect::<Vec<_>>().into_iter());
            }
        }
        out.blocks(self.folders.iter().map(|folder| folder.as_os_str().as_bytes()));
        out.blocks(self.variables.iter().map(String::as_bytes));
        out.blocks(self.successor.iter().map(|word| word.as_bytes()));
        let ProgramLimits { cpu, memory, processes } = self.limits;
        // 0 would end every program at once: it stands for no limit.
        for limit in [cpu.map(|cpu| cpu.as_secs().max(1)), memory, processes] {
            out.number(limit.unwrap_or(0));
        }
        out
    }

    /// Reads a policy. Every byte of the message has to belong to it.
    pub fn read(message: &[u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let mut commands = Vec::new();
        for _ in 0..reader.number()? {
            let mut command = Vec::new();
            for _ in 0..reader.number()? {
                let prefix = OsString::from_vec(reader.block()?.to_vec());
                command.push(Word { prefix, suffix: reader.texts()?.pop() });
            }
            commands.push(command);
        }
        let folders = reader.texts()?.into_iter().map(PathBuf::from).collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(io::Error::other);
        let variables = reader.blocks()?.into_iter().map(text).collect::<io::Result<_>>()?;
        let successor = reader.texts()?;
        let mut limit = || reader.number().map(|limit| Some(limit).filter(|limit| *limit > 0));
        let limits =
            ProgramLimits { cpu: limit()?.map(Duration::from_secs), memory: limit()?, processes: limit()? };
        reader.end()?;
        Ok(Self { commands, folders, variables, limits, successor })
    }
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Where commands run.
fn is_starting_folder(folder: &CStr) -> bool {
    matches!(folder.to_bytes(), b"/" | b".")
}
