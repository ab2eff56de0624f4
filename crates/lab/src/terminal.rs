//! Lines that fit a terminal.

/// Columns of a terminal that a line may take.
pub(crate) const WIDTH: usize = 100;

/// To the width of a terminal, further lines a little to the right.
pub(crate) fn cut(line: &str) -> String {
    let line: String = line.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if line.chars().count() <= WIDTH { line } else { fold("", &line, "    ") }
}

/// A head and a text beside it, whose further lines are indented to its first.
pub(crate) fn wrapped(head: &str, text: &str) -> String {
    fold(head, text, &" ".repeat(head.chars().count()))
}

fn fold(head: &str, text: &str, indent: &str) -> String {
    let (mut out, mut column, mut is_first) = (head.to_owned(), head.chars().count(), true);
    for word in text.split(' ') {
        let width = word.chars().count();
        if !is_first && column + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(indent);
            column = indent.chars().count();
        } else if !is_first {
            out.push(' ');
            column += 1;
        }
        is_first = false;
        out.push_str(word);
        column += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let long = cut(&"word ".repeat(60));
        assert!(long.lines().all(|line| line.chars().count() <= 100), "{long}");
        assert_eq!(cut("a\x1b[31m"), "a?[31m");
    }
}
