//! A few lines of a terminal that are written over in place: the escape sequences of ECMA-48 that every terminal knows.
//!
//! Between two draws the cursor stands at the start of the last row, visible, so that a program that ends at any moment
//! leaves a terminal that needs no repair.

use std::io::{self, Write};

/// The colour of a piece of text, which a terminal without colours is not told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Plain,
    Red,
    Yellow,
    Cyan,
}

impl Color {
    /// The sequence that selects the colour.
    fn select(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Red => "\x1b[31m",
            Self::Yellow => "\x1b[33m",
            Self::Cyan => "\x1b[36m",
        }
    }
}

/// One row: pieces of text, each of a colour.
#[derive(Default)]
pub(super) struct Row(Vec<(Color, String)>);

impl Row {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::default().and(Color::Plain, text)
    }

    pub(super) fn colored(color: Color, text: impl Into<String>) -> Self {
        Self::default().and(color, text)
    }

    pub(super) fn and(mut self, color: Color, text: impl Into<String>) -> Self {
        self.0.push((color, text.into()));
        self
    }

    /// Appends the row to `out`, cut at `columns`. A name with control characters must not move the cursor.
    fn write(&self, columns: usize, has_color: bool, out: &mut String) {
        let mut left = columns;
        for (color, text) in &self.0 {
            let select = if has_color { color.select() } else { "" };
            out.push_str(select);
            for shown in text.chars().filter(|shown| !shown.is_control()).take(left) {
                out.push(shown);
                left -= 1;
            }
            if !select.is_empty() {
                out.push_str("\x1b[39m");
            }
        }
    }
}

/// `HEIGHT` rows at the cursor.
pub(super) struct Screen<W, const HEIGHT: usize> {
    terminal: W,
    has_color: bool,
    is_drawn: bool,
}

impl<W: Write, const HEIGHT: usize> Screen<W, HEIGHT> {
    pub(super) fn new(terminal: W, has_color: bool) -> Self {
        Self { terminal, has_color, is_drawn: false }
    }

    pub(super) fn terminal(&self) -> &W {
        &self.terminal
    }

    /// Writes over what was drawn before.
    pub(super) fn draw(&mut self, columns: usize, rows: &[Row; HEIGHT]) -> io::Result<()> {
        // A character of two columns, or a terminal made narrower meanwhile, must not break a row in two.
        let mut out = String::from("\x1b[?7l");
        self.return_to_first_row(&mut out);
        for (number, row) in rows.iter().enumerate() {
            out.push_str(if number == 0 { "\r" } else { "\r\n" });
            row.write(columns, self.has_color, &mut out);
            out.push_str("\x1b[K");
        }
        out.push_str("\r\x1b[?7h");
        self.is_drawn = true;
        self.write(&out)
    }

    /// Removes the rows; what is written next stands in their place.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let mut out = String::new();
        self.return_to_first_row(&mut out);
        out.push_str("\r\x1b[J");
        self.is_drawn = false;
        self.write(&out)
    }

    fn return_to_first_row(&self, out: &mut String) {
        if self.is_drawn {
            out.push_str(&format!("\x1b[{}A", HEIGHT - 1));
        }
    }

    /// One write a draw: the terminal shows no half of it.
    fn write(&mut self, out: &str) -> io::Result<()> {
        self.terminal.write_all(out.as_bytes())?;
        self.terminal.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(screen: &mut Screen<Vec<u8>, 2>) -> String {
        String::from_utf8(std::mem::take(&mut screen.terminal)).unwrap()
    }

    #[test]
    fn a_second_draw_returns_to_the_first_row() {
        let mut screen = Screen::<_, 2>::new(Vec::new(), false);
        screen.draw(80, &[Row::plain("one"), Row::plain("two")]).unwrap();
        assert_eq!(written(&mut screen), "\x1b[?7l\rone\x1b[K\r\ntwo\x1b[K\r\x1b[?7h");
        screen.draw(80, &[Row::plain("three"), Row::default()]).unwrap();
        assert_eq!(written(&mut screen), "\x1b[?7l\x1b[1A\rthree\x1b[K\r\n\x1b[K\r\x1b[?7h");
        screen.clear().unwrap();
        assert_eq!(written(&mut screen), "\x1b[1A\r\x1b[J");
    }

    #[test]
    fn a_row_is_cut_at_the_terminal_s_width_and_cannot_move_the_cursor() {
        let row = Row::plain("ab\x1b[2J\ncd").and(Color::Red, "ef");
        let written = |columns, has_color| {
            let mut out = String::new();
            row.write(columns, has_color, &mut out);
            out
        };
        assert_eq!(written(80, false), "ab[2Jcdef");
        assert_eq!(written(80, true), "ab[2Jcd\x1b[31mef\x1b[39m");
        assert_eq!(written(8, false), "ab[2Jcde");
        assert_eq!(written(3, false), "ab[");
    }
}
