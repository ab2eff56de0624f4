//! What the screen shows: the sessions as a table, sorted and filtered, and the session that is followed. It knows no
//! terminal and no server.

use std::collections::VecDeque;

use clap::ValueEnum;
use serde_json::Value;

use super::keys::Key;
use super::session::{SeenSession, rate, short_time};
use super::terminal::ScreenLine;
use crate::client::told::size;

/// The columns that a file's name keeps before others give way to it.
const FILE_ROOM: usize = 16;

/// The lines of what a followed session did.
const HISTORY: usize = 6;

const HELP: &str = "q quit  s sort  r reverse  / filter  f follow  k kick  space pause";

/// What sessions are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SortKey {
    #[default]
    Session,
    User,
    Address,
    Age,
    Idle,
    Rate,
    Done,
}

impl SortKey {
    fn next(self) -> Self {
        let all = Self::value_variants();
        let place = all.iter().position(|key| *key == self).map_or(0, |place| place + 1);
        all[place % all.len()]
    }

    fn title(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
            Self::Address => "address",
            Self::Age => "age",
            Self::Idle => "idle",
            Self::Rate => "rate",
            Self::Done => "done",
        }
    }
}

/// What a key leads to outside of the view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    None,
    Quit,
    /// End this session.
    Kick(u64),
}

/// What keys are for.
#[derive(Debug, Default, PartialEq, Eq)]
enum KeyMode {
    #[default]
    Browse,
    /// They are the text of the filter.
    Filter,
    /// They confirm that this session is ended.
    Kick(u64),
}

/// The session that is followed, and what it did.
#[derive(Debug)]
struct Followed {
    number: u64,
    last: SeenSession,
    has_ended: bool,
    history: VecDeque<String>,
}

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct TopView {
    sessions: Vec<SeenSession>,
    sort: SortKey,
    is_reversed: bool,
    filter: String,
    mode: KeyMode,
    is_paused: bool,
    selected: Option<u64>,
    followed: Option<Followed>,
    /// The number of the first row.
    top: usize,
    /// What went wrong, or was done, last.
    notice: Option<String>,
}

impl TopView {
    pub(super) fn new(sort: SortKey, is_reversed: bool, filter: String) -> Self {
        Self { sort, is_reversed, filter, ..Self::default() }
    }

    /// Takes the server's answer.
    pub(super) fn take(&mut self, answer: &Value) {
        if self.is_paused {
            return;
        }
        let sessions = answer["sessions"].as_array().map_or(&[][..], Vec::as_slice);
        let mut sessions: Vec<_> = sessions.iter().map(SeenSession::of).collect();
        for session in &mut sessions {
            if let Some(before) = self.sessions.iter().find(|before| before.number == session.number) {
                *session = std::mem::take(session).since(before);
            }
        }
        self.sessions = sessions;
        self.sort_sessions();
        if let Some(followed) = &mut self.followed {
            followed.take(self.sessions.iter().find(|session| session.number == followed.number));
        }
    }

    /// Shows a sentence until the next key.
    pub(super) fn note(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    /// The sessions that pass the filter, in their order.
    pub(super) fn listed(&self) -> impl Iterator<Item = &SeenSession> {
        self.sessions.iter().filter(|session| self.filter.is_empty() || session.has(&self.filter))
    }

    fn sort_sessions(&mut self) {
        let sort = self.sort;
        self.sessions.sort_by(|one, other| {
            let by_key = match sort {
                SortKey::Session => one.number.cmp(&other.number),
                SortKey::User => one.user.cmp(&other.user),
                SortKey::Address => one.address().cmp(other.address()),
                // The most first.
                SortKey::Age => other.age.total_cmp(&one.age),
                SortKey::Idle => other.idle.total_cmp(&one.idle),
                SortKey::Rate => other.rate.total_cmp(&one.rate),
                SortKey::Done => other.share().unwrap_or(-1.0).total_cmp(&one.share().unwrap_or(-1.0)),
            };
            by_key.then(one.number.cmp(&other.number))
        });
        if self.is_reversed {
            self.sessions.reverse();
        }
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: Key) -> KeyEffect {
        self.notice = None;
        if key == Key::Quit {
            return KeyEffect::Quit;
        }
        match self.mode {
            KeyMode::Filter => self.edit_filter(key),
            KeyMode::Kick(number) => {
                self.mode = KeyMode::Browse;
                if matches!(key, Key::Char('y' | 'Y')) {
                    return KeyEffect::Kick(number);
                }
            }
            KeyMode::Browse => return self.browse(key),
        }
        KeyEffect::None
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Char(char) => self.filter.push(char),
            Key::Backspace => _ = self.filter.pop(),
            Key::Escape => {
                self.filter.clear();
                self.mode = KeyMode::Browse;
            }
            Key::Enter => self.mode = KeyMode::Browse,
            _ => {}
        }
    }

    fn browse(&mut self, key: Key) -> KeyEffect {
        match key {
            Key::Char('q') => return KeyEffect::Quit,
            Key::Char('s') => {
                self.sort = self.sort.next();
                self.sort_sessions();
            }
            Key::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.sort_sessions();
            }
            Key::Char('/') => self.mode = KeyMode::Filter,
            Key::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            Key::Char('k') => {
                if let Some(session) = self.selection() {
                    self.mode = KeyMode::Kick(session.number);
                }
            }
            Key::Char('f') | Key::Enter => {
                let selection = self.selection().cloned();
                self.followed = match (&self.followed, selection) {
                    (Some(followed), Some(session)) if followed.number == session.number => None,
                    (_, session) => session.map(Followed::new),
                };
            }
            Key::Escape => (self.followed, self.filter) = (None, String::new()),
            Key::Up => self.select(|place| place.saturating_sub(1)),
            Key::Down => self.select(|place| place + 1),
            Key::PageUp => self.select(|place| place.saturating_sub(10)),
            Key::PageDown => self.select(|place| place + 10),
            Key::Home => self.select(|_| 0),
            Key::End => self.select(|_| usize::MAX),
            _ => {}
        }
        KeyEffect::None
    }

    /// The selected session, or the first: a selection goes with its session, wherever that is sorted to.
    fn selection(&self) -> Option<&SeenSession> {
        let selected = self.listed().find(|session| Some(session.number) == self.selected);
        selected.or_else(|| self.listed().next())
    }

    fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let numbers: Vec<u64> = self.listed().map(|session| session.number).collect();
        let here = numbers.iter().position(|number| Some(*number) == self.selected).unwrap_or(0);
        self.selected = numbers.get(to(here).min(numbers.len().saturating_sub(1))).copied();
    }

    /// The lines of a screen of this size.
    pub(super) fn lines(&mut self, (columns, rows): (usize, usize)) -> Vec<ScreenLine> {
        let plain = |text: String| ScreenLine { text, is_reversed: false };
        let followed = self.followed.as_ref().map_or(Vec::new(), Followed::lines);
        let room = rows.saturating_sub(3 + followed.len());
        let place = self.selection().map(|session| session.number);
        let listed: Vec<&SeenSession> = self.listed().collect();
        let selected = listed.iter().position(|session| Some(session.number) == place).unwrap_or(0);
        // The selected row stays on the screen.
        let top = self
            .top
            .min(listed.len().saturating_sub(room))
            .clamp((selected + 1).saturating_sub(room), selected);
        let table = Table::for_width(columns);
        let mut lines = vec![plain(self.summary())];
        lines.push(ScreenLine { text: pad(&table.head(), columns), is_reversed: true });
        for session in listed.iter().skip(top).take(room) {
            let is_reversed = Some(session.number) == place && room > 1;
            let text = table.row(session);
            lines
                .push(ScreenLine { text: if is_reversed { pad(&text, columns) } else { text }, is_reversed });
        }
        self.top = top;
        lines.resize(rows.saturating_sub(1 + followed.len()), ScreenLine::default());
        lines.extend(followed.into_iter().map(plain));
        lines.push(plain(self.prompt()));
        lines
    }

    /// The table without a screen, as wide as it needs to be.
    pub(super) fn table(&self) -> String {
        let table = Table::for_content(&self.listed().collect::<Vec<_>>());
        let rows = std::iter::once(table.head()).chain(self.listed().map(|session| table.row(session)));
        rows.map(|row| format!("{}\n", row.trim_end())).collect()
    }

    fn summary(&self) -> String {
        let sum = |direction: &str| -> f64 {
            self.sessions.iter().filter(|one| one.direction() == direction).map(|one| one.rate).sum()
        };
        let counted =
            |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let transfers = self.sessions.iter().filter(|session| session.transfer.is_some()).count();
        let mut text = format!(
            "{}, {}, {} down, {} up; by {}{}",
            counted(self.sessions.len(), "session"),
            counted(transfers, "transfer"),
            rate(sum("down")),
            rate(sum("up")),
            self.sort.title(),
            if self.is_reversed { ", reversed" } else { "" },
        );
        if !self.filter.is_empty() {
            text += &format!("; {} with \"{}\"", self.listed().count(), self.filter);
        }
        if self.is_paused {
            text += "; paused";
        }
        text
    }

    /// The last line.
    fn prompt(&self) -> String {
        match (&self.notice, &self.mode) {
            (Some(notice), _) => notice.clone(),
            (None, KeyMode::Browse) => HELP.to_owned(),
            (None, KeyMode::Filter) => format!("Filter (Enter keeps it, Escape ends it): {}_", self.filter),
            (None, KeyMode::Kick(number)) => {
                let whose = self.sessions.iter().find(|session| session.number == *number);
                let whose = whose
                    .map_or(String::new(), |one| format!(" ({} from {})", word(&one.user), one.address()));
                format!("End session {number}{whose}? y ends it, any other key does not.")
            }
        }
    }
}

impl Followed {
    fn new(session: SeenSession) -> Self {
        let mut followed =
            Self { number: session.number, last: session, has_ended: false, history: VecDeque::new() };
        followed.write_down();
        followed
    }

    /// Notes what has changed.
    fn take(&mut self, session: Option<&SeenSession>) {
        let Some(session) = session else {
            self.has_ended = true;
            return;
        };
        let does = |session: &SeenSession| {
            (session.command.clone(), session.file().to_owned(), session.user.clone())
        };
        let before = std::mem::replace(&mut self.last, session.clone());
        if does(&before) != does(session) {
            self.write_down();
        }
    }

    fn write_down(&mut self) {
        let SeenSession { age, command, .. } = &self.last;
        let text = format!("{:>5} {} {}", short_time(*age), word(command), word(self.last.file()));
        self.history.push_back(text);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    fn lines(&self) -> Vec<String> {
        let last = &self.last;
        let state = match self.has_ended {
            true => "has ended".to_owned(),
            false => format!("waits for {}, idle for {}", last.waits_for, short_time(last.idle)),
        };
        let progress = last.transfer.as_ref().map_or(String::new(), |transfer| {
            let total = transfer.total.map_or(String::new(), |total| format!(" of {}", size(total)));
            format!("; {}{total}, {}", size(transfer.bytes), last.rate_text())
        });
        let title = format!(
            "-- session {}: {} from {} by {}, for {}",
            self.number,
            word(&last.user),
            last.peer,
            last.protocol,
            short_time(last.age)
        );
        let state = format!("   {state}{progress}");
        let blank = HISTORY.saturating_sub(self.history.len());
        let history = self.history.iter().cloned().chain(std::iter::repeat_n(String::new(), blank));
        [title, state].into_iter().chain(history).collect()
    }
}

/// A column of the table.
struct Column {
    title: &'static str,
    width: usize,
    is_number: bool,
    /// Columns of the highest rank are left out first on a narrow screen.
    rank: u8,
    cell: fn(&SeenSession) -> String,
}

const COLUMNS: [Column; 11] = [
    Column { title: "NR", width: 5, is_number: true, rank: 0, cell: |session| session.number.to_string() },
    Column {
        title: "USER",
        width: 10,
        is_number: false,
        rank: 0,
        cell: |session| word(&session.user).to_owned(),
    },
    Column {
        title: "FROM",
        width: 15,
        is_number: false,
        rank: 4,
        cell: |session| session.address().to_owned(),
    },
    Column { title: "BY", width: 4, is_number: false, rank: 6, cell: |session| session.protocol.clone() },
    Column { title: "AGE", width: 5, is_number: true, rank: 5, cell: |session| short_time(session.age) },
    Column { title: "IDLE", width: 5, is_number: true, rank: 2, cell: |session| short_time(session.idle) },
    Column {
        title: "COMMAND",
        width: 7,
        is_number: false,
        rank: 1,
        cell: |session| word(&session.command).to_owned(),
    },
    Column {
        title: "WAITS FOR",
        width: 9,
        is_number: false,
        rank: 3,
        cell: |session| session.waits_for.clone(),
    },
    Column {
        title: "DIR",
        width: 4,
        is_number: false,
        rank: 0,
        cell: |session| session.direction().to_owned(),
    },
    Column { title: "RATE", width: 9, is_number: true, rank: 0, cell: SeenSession::rate_text },
    Column { title: "DONE", width: 4, is_number: true, rank: 0, cell: done },
];

fn done(session: &SeenSession) -> String {
    session.share().map_or(String::new(), |share| format!("{:.0}%", (share * 100.0).floor()))
}

/// The columns and their widths; the file has what a screen has left.
struct Table {
    columns: Vec<(&'static Column, usize)>,
    /// `None`: nothing is cut.
    file: Option<usize>,
}

impl Table {
    /// The columns that a screen has room for.
    fn for_width(width: usize) -> Self {
        let mut columns: Vec<_> = COLUMNS.iter().map(|column| (column, column.width)).collect();
        loop {
            let used: usize = columns.iter().map(|(_, width)| width + 1).sum();
            let file = width.saturating_sub(used);
            match columns.iter().map(|(column, _)| column.rank).max() {
                Some(rank @ 1..) if file < FILE_ROOM => columns.retain(|(column, _)| column.rank < rank),
                _ => return Self { columns, file: Some(file) },
            }
        }
    }

    /// All columns, as wide as these sessions need.
    fn for_content(sessions: &[&SeenSession]) -> Self {
        let width = |column: &Column| {
            let cells = sessions.iter().map(|session| (column.cell)(session).chars().count());
            cells.chain([column.title.len()]).max().unwrap_or(0)
        };
        Self { columns: COLUMNS.iter().map(|column| (column, width(column))).collect(), file: None }
    }

    fn head(&self) -> String {
        self.line(|column| column.title.to_owned(), "FILE OR FOLDER")
    }

    fn row(&self, session: &SeenSession) -> String {
        self.line(|column| (column.cell)(session), session.file())
    }

    fn line(&self, cell: impl Fn(&Column) -> String, file: &str) -> String {
        let mut line = String::new();
        for &(column, width) in &self.columns {
            let text = first_part(&cell(column), width);
            line += &if column.is_number { format!("{text:>width$} ") } else { format!("{text:width$} ") };
        }
        line + &self.file.map_or_else(|| file.to_owned(), |width| last_part(file, width))
    }
}

/// A text that is cut, and shows it.
fn first_part(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['+']).collect(),
        false => text.to_owned(),
    }
}

/// The end of a path, which tells more than its beginning.
fn last_part(path: &str, width: usize) -> String {
    let length = path.chars().count();
    match length.checked_sub(width) {
        None | Some(0) => path.to_owned(),
        Some(_) if width < 4 => path.chars().take(width).collect(),
        Some(more) => format!("...{}", path.chars().skip(more + 3).collect::<String>()),
    }
}

fn word(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn pad(text: &str, columns: usize) -> String {
    format!("{text:columns$}")
}

#[cfg(test)]
mod tests;
