//! Pages that this server makes itself: errors and redirects. Short, plain, and the same for all clients.

use std::io::Write;

use crate::Status;

/// The media type of these pages.
pub const MEDIA_TYPE: &str = "text/html; charset=utf-8";

/// A page for a status, with a sentence of explanation; the sentence is ours, never a client's words.
pub fn of(status: Status, explanation: &str) -> Vec<u8> {
    let mut page = Vec::with_capacity(256);
    let (code, reason) = (status.0, status.reason());
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{code} {reason}</title></head>\n\
         <body><h1>{code} {reason}</h1>"
    );
    if !explanation.is_empty() {
        page.extend_from_slice(b"<p>");
        escape(explanation.as_bytes(), &mut page);
        page.extend_from_slice(b"</p>");
    }
    page.extend_from_slice(b"</body></html>\n");
    page
}

/// Escapes text for HTML, also within quotes. Bytes that are not UTF-8 become U+FFFD.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '&' => out.extend_from_slice(b"&amp;"),
                '<' => out.extend_from_slice(b"&lt;"),
                '>' => out.extend_from_slice(b"&gt;"),
                '"' => out.extend_from_slice(b"&quot;"),
                '\'' => out.extend_from_slice(b"&#39;"),
                character if character.is_control() => out.extend_from_slice("\u{fffd}".as_bytes()),
                character => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut out = Vec::new();
        escape(b"<a href=\"x\" id='y'>&\xff\x1b", &mut out);
        assert_eq!(out, "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;\u{fffd}\u{fffd}".as_bytes());
    }
}
