//! The options before the path of `LIST`, `NLST` and `STAT`: `LIST -la pub`.
//!
//! No RFC has them; clients send them because servers once ran `/bin/ls`. Options of `ls` without an effect here are
//! ignored; a word with an unknown option is the path. A file name may begin with a hyphen, so a caller first checks
//! whether the whole argument names a file.

/// The sort key of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sort {
    /// By name, bytewise.
    #[default]
    Name,
    /// `-t`: newest first.
    Time,
    /// `-S`: largest first.
    Size,
    /// `-U`, `-f`: as the back end gives them.
    Unsorted,
}

/// The client's options for a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ListOptions {
    /// `-a`: `.` and `..` as well. Other names with a leading dot are always listed: clients that remove or
    /// mirror a tree cannot do without (rclone, lftp), and have no other way to ask.
    pub all: bool,
    /// `-A`: all but `.` and `..`. Counts for patterns, where a `*` then matches hidden names.
    pub almost_all: bool,
    /// `-l`: the long form, also for `NLST`.
    pub long: bool,
    /// `-R`: directories in directories.
    pub recursive: bool,
    /// `-d`: the directory itself, not its content.
    pub directory: bool,
    /// `-r`: the order reversed.
    pub reverse: bool,
    /// `-t`, `-S`, `-U`; the last one counts.
    pub sort: Sort,
}

impl ListOptions {
    /// Parses leading options, in any order and combination, up to `--` or the first other word. Returns them and the
    /// path, which may be empty, or contain spaces, also at its beginning.
    pub fn parse(argument: &[u8]) -> (Self, &[u8]) {
        let mut options = Self::default();
        let mut rest = argument;
        while rest.first() == Some(&b'-') {
            let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
            let word = &rest[1..end];
            let after = rest.get(end + 1..).unwrap_or_default();
            if word == b"-" {
                return (options, after);
            }
            if word.is_empty() || !word.iter().all(|&letter| options.is_known(letter)) {
                break;
            }
            word.iter().for_each(|&letter| options.set(letter));
            rest = after;
        }
        (options, rest)
    }

    /// Returns true if a pattern's wildcards match names with a leading dot.
    pub fn shows_hidden(&self) -> bool {
        self.all || self.almost_all
    }

    fn is_known(&self, letter: u8) -> bool {
        // Further options of `ls`: columns, marks, colours, sizes and their units, quoting.
        letter == b'1' || b"aAlRdrtSUfBCcFghiLmnopQqsTux".contains(&letter)
    }

    fn set(&mut self, letter: u8) {
        match letter {
            b'a' => self.all = true,
            b'A' => self.almost_all = true,
            b'l' | b'n' | b'g' | b'o' => self.long = true,
            b'R' => self.recursive = true,
            b'd' => self.directory = true,
            b'r' => self.reverse = true,
            b't' => self.sort = Sort::Time,
            b'S' => self.sort = Sort::Size,
            b'U' => self.sort = Sort::Unsorted,
            b'f' => (self.all, self.sort) = (true, Sort::Unsorted),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn options_combine_in_any_order() {
        let (options, path) = ListOptions::parse(b"-la -tr pub dir");
        assert!(options.long && options.all && options.reverse && options.sort == Sort::Time);
        assert_eq!(path, b"pub dir");
        let (options, path) = ListOptions::parse(b"-1RSdA");
        assert!(options.recursive && options.directory && options.almost_all && options.sort == Sort::Size);
        assert_eq!(path, b"");
    }

    #[test]
    fn a_word_that_is_no_option_is_the_path() {
        for argument in [&b""[..], b"-", b"-x.txt", b"-la.d", b"-\xff", b"- -a", b"pub -a", b" -a"] {
            assert_eq!(ListOptions::parse(argument), (ListOptions::default(), argument));
        }
    }

    #[test]
    fn blanks_beyond_the_first_belong_to_the_name() {
        assert_eq!(ListOptions::parse(b"-a  x ").1, b" x ");
        assert_eq!(ListOptions::parse(b"-a ").1, b"");
    }

    #[test]
    fn two_hyphens_end_the_options() {
        let (options, path) = ListOptions::parse(b"-a -- -l");
        assert!(options.all && !options.long);
        assert_eq!(path, b"-l");
        assert_eq!(ListOptions::parse(b"--").1, b"");
    }

    proptest! {
        #[test]
        fn the_path_is_a_tail_of_the_argument(argument in "[- alRtx.]{0,16}") {
            let (_, path) = ListOptions::parse(argument.as_bytes());
            prop_assert!(argument.as_bytes().ends_with(path));
        }
    }
}
