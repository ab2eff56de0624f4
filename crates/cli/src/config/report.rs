//! Errors that show where: file, line, column, the line itself.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::keys;
use crate::failure::Failure;

/// A configuration file that was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// The folder of the file, from which the paths in it count.
    pub(crate) fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    /// An error at these bytes of the file.
    pub(crate) fn point(&self, span: Range<usize>, message: &str) -> Failure {
        let start = floor(&self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |length| start + length);
        let number = self.text[..start].matches('\n').count() + 1;
        let column = self.text[line_start..start].chars().count() + 1;
        let line = self.text[line_start..line_end].trim_end();
        let marked = floor(&self.text, span.end).clamp(start, line_end);
        let width = self.text[start..marked].chars().count().max(1);

        let mut text = format!("{}:{number}:{column}: {}\n", self.path.display(), sentence(message));
        if is_secret(&self.text[..line_start], line) {
            text += &format!("{number:>5} | (a line that may hold a password is not shown)");
        } else {
            // Tabs stay tabs, so that the mark is below what it marks.
            let blank = |char| if char == '\t' { '\t' } else { ' ' };
            let indent: String = self.text[line_start..start].chars().map(blank).collect();
            text += &format!("{number:>5} | {line}\n      | {indent}{}", "^".repeat(width));
        }
        Failure::Configuration(text)
    }
}

/// Claims that a line may hold a password, also under a misspelt key: error messages end in logs. Among users,
/// inline or in tables of their own, only what is known to be harmless is shown.
fn is_secret(before: &str, line: &str) -> bool {
    let key = line.split('=').next().unwrap_or_default().trim();
    let is_known = || keys::of_file().contains(&key) || keys::of_user().contains(&key);
    let among_users = before.lines().any(|line| line.trim_start_matches('[').starts_with("user"));
    line.contains("passw")
        || key.starts_with("user")
        || strsim::jaro_winkler(key, "password") > 0.8 && !key.starts_with("passive")
        || among_users && !is_known() && !key.starts_with('[')
}

fn sentence(message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    let mut chars = message.chars();
    let first = message.split(' ').next().unwrap_or_default();
    let mut sentence = match first.contains('/') {
        // A path is spelt as it is.
        true => String::new(),
        false => chars.next().into_iter().flat_map(char::to_uppercase).collect::<String>(),
    };
    sentence.push_str(chars.as_str());
    if !sentence.ends_with(['.', '?', '!', ')']) {
        sentence.push('.');
    }
    sentence
}

/// The nearest character boundary at or before `index`.
fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_unless_it_begins_with_a_path() {
        assert_eq!(sentence("expected a number"), "Expected a number.");
        assert_eq!(sentence("logs/x cannot be made"), "logs/x cannot be made.");
    }
}
