//! What a simulated client has said and heard: every line has one final reply, in the order of the lines.
//!
//! Only `NOOP` and `STAT` may be answered while a transfer before them runs, `STAT` also while a hook is asked.

use std::collections::VecDeque;

/// Something that the server owes one final reply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Greeting,
    User,
    Pass,
    Noop,
    Pwd,
    Stat,
    Pasv,
    /// The client's own port.
    Port,
    /// An address that is not the client's, or a port that is not for data.
    Bounce,
    Transfer,
    Size,
    Delete,
    RenameFrom,
    RenameTo,
    Abor,
    Quit,
    Rein,
    Junk,
}

impl Line {
    /// Returns whether a final reply of this code can be to this line.
    fn allows(self, code: u16) -> bool {
        // The session may end at any time; hooks and faults may refuse what asks them.
        match self {
            _ if code == 421 => true,
            Self::Greeting => matches!(code, 220 | 500..=599),
            Self::User => matches!(code, 230 | 331 | 332 | 530 | 503),
            Self::Pass => matches!(code, 230 | 202 | 332 | 530 | 503 | 451 | 550 | 426),
            Self::Noop => code == 200,
            Self::Pwd => matches!(code, 257 | 530 | 550 | 451 | 426),
            Self::Stat => matches!(code, 211 | 530),
            Self::Pasv => matches!(code, 227 | 425 | 530 | 451),
            Self::Port => matches!(code, 200 | 530),
            Self::Bounce => matches!(code, 500..=504 | 530),
            Self::Transfer => matches!(code, 226 | 425 | 426 | 450..=452 | 503 | 530 | 550..=553),
            Self::Size => matches!(code, 213 | 450..=451 | 530 | 550 | 426),
            Self::Delete => matches!(code, 250 | 450..=451 | 530 | 550 | 426),
            Self::RenameFrom => matches!(code, 350 | 450..=451 | 530 | 550 | 426),
            Self::RenameTo => matches!(code, 250 | 450..=451 | 503 | 530 | 550 | 553 | 426),
            Self::Abor => matches!(code, 225 | 226),
            Self::Quit => code == 221,
            Self::Rein => matches!(code, 220 | 530),
            Self::Junk => matches!(code, 500..=504),
        }
    }

    /// Returns whether this may be answered while the line before it is not.
    fn passes(self, before: Self) -> bool {
        match self {
            Self::Noop => before == Self::Transfer,
            // Also while a hook is asked about a line.
            Self::Stat => true,
            _ => false,
        }
    }
}

/// A reply that nothing explains.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unexplained;

/// The lines that have no final reply yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    owed: VecDeque<Line>,
    /// A transfer is under way: its 150 has come.
    is_transferring: bool,
    /// The server has said its last word: 221 or 421.
    pub(super) is_over: bool,
}

impl Conversation {
    pub(super) fn said(&mut self, line: Line) {
        self.owed.push_back(line);
    }

    /// Returns how many lines have no final reply.
    pub(super) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Takes a reply. Returns the line that it ends, if it ends one.
    pub(super) fn heard(&mut self, code: u16) -> Result<Option<Line>, Unexplained> {
        if self.is_over {
            return Err(Unexplained);
        }
        if code < 200 {
            let is_announced = code == 150 && self.owed.front() == Some(&Line::Transfer);
            let is_news = !std::mem::replace(&mut self.is_transferring, true);
            return if is_announced && is_news { Ok(None) } else { Err(Unexplained) };
        }
        self.is_over = matches!(code, 221 | 421);
        let first = self.owed.front().copied();
        if let Some(line) = first.filter(|line| line.allows(code)) {
            self.owed.pop_front();
            self.is_transferring = false;
            return Ok(Some(line));
        }
        // An idle session's end is due to no line.
        if first.is_none() && code == 421 {
            return Ok(None);
        }
        let (Some(first), Some(second)) = (first, self.owed.get(1).copied()) else { return Err(Unexplained) };
        match second.passes(first) && second.allows(code) {
            true => Ok(self.owed.remove(1)),
            false => Err(Unexplained),
        }
    }
}
