//! Files with texts for clients.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use millrace_server::config::Texts;
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;
use super::written::Written;

/// The most bytes of a text: it is a reply.
const MOST: u64 = 16 << 10;

/// The texts that were written.
pub(super) fn texts(written: &Written, places: &Places<'_>) -> Result<Texts, Failure> {
    Ok(Texts {
        greeting: text_file(written.greeting_file.as_ref(), "--greeting-file", places)?,
        welcome: text_file(written.welcome_file.as_ref(), "--welcome-file", places)?,
        limit: text_file(written.limit_file.as_ref(), "--limit-file", places)?,
        contact: written.contact.as_ref().map_or(String::new(), |said| said.value.clone().into()),
    })
}

/// The lines of a file; none where none is named.
pub(super) fn text_file(
    said: Option<&Said<PathBuf>>,
    key: &str,
    places: &Places<'_>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(said) = said else { return Ok(Vec::new()) };
    let path = places.path(said);
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MOST + 1).read_to_end(&mut text));
    let wrong = |why: String| places.error(&said.place, key, &format!("{} {why}", path.display()));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(wrong("is not there".to_owned())),
        Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        Ok(_) if text.len() as u64 > MOST => Err(wrong(format!("is longer than {MOST} bytes"))),
        Ok(_) => Ok(lines(&text)),
    }
}

fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    match text {
        b"" => Vec::new(),
        text => text.split(|&byte| byte == b'\n').map(|line| line.trim_ascii_end().to_vec()).collect(),
    }
}
