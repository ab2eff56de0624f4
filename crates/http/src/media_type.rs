//! Media types by the end of a name. Text says that it is UTF-8, which it is nearly always.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// A configured media type that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaTypeError {
    /// No end of a name.
    #[error("{0:?} is no end of a name: expected what stands behind its last dot, such as \"md\"")]
    Extension(String),
    /// No media type.
    #[error("{0:?} is no media type: expected one such as \"text/plain; charset=utf-8\"")]
    Type(String),
}

/// The configured media types, and the built-in ones for other names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Types(BTreeMap<Vec<u8>, String>);

impl Types {
    /// Has this type stand for names that end so, whatever their case. `""` stands for names without a dot.
    pub fn set(&mut self, extension: &str, media_type: &str) -> Result<(), MediaTypeError> {
        let is_token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
        };
        if extension.contains(['.', '/']) {
            return Err(MediaTypeError::Extension(extension.to_owned()));
        }
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        let is_type = essence
            .trim_end()
            .split_once('/')
            .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
        if !is_type || !parameters.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(MediaTypeError::Type(media_type.to_owned()));
        }
        self.0.insert(extension.to_ascii_lowercase().into_bytes(), media_type.to_owned());
        Ok(())
    }

    /// The media type of a file with this name, as `Content-Type` has it.
    pub fn of(&self, name: &[u8]) -> Cow<'static, str> {
        if !self.0.is_empty() {
            let extension = memchr::memrchr(b'.', name).map_or(&b""[..], |dot| &name[dot + 1..]);
            if let Some(said) = self.0.get(&extension.to_ascii_lowercase()) {
                return Cow::Owned(said.clone());
            }
        }
        Cow::Borrowed(of(name))
    }
}

/// The media type of a file with this name, as `Content-Type` has it.
pub fn of(name: &[u8]) -> &'static str {
    const UNKNOWN: &str = "application/octet-stream";
    let Some(dot) = memchr::memrchr(b'.', name) else { return UNKNOWN };
    let mut lower = [0; 12];
    let extension = &name[dot + 1..];
    let Some(lower) = lower.get_mut(..extension.len()) else { return UNKNOWN };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    match TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower)) {
        Ok(at) => TYPES[at].1,
        Err(_) => UNKNOWN,
    }
}

/// By extension, sorted.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/octet-stream"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cfg", "text/plain; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("crt", "application/x-x509-ca-cert"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("epub", "application/epub+zip"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("ini", "text/plain; charset=utf-8"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/x-m4v"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/x-python; charset=utf-8"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_types_override_built_in_ones() {
        let mut types = Types::default();
        assert_eq!(types.of(b"a.md"), of(b"a.md"));
        types.set("MD", "text/plain; charset=iso-8859-1").unwrap();
        types.set("", "text/x-plain").unwrap();
        types.set("rpm2cpio-and-more", "application/x-rpm").unwrap();
        for (name, expected) in [
            ("a.md", "text/plain; charset=iso-8859-1"),
            ("a.Md", "text/plain; charset=iso-8859-1"),
            ("Makefile", "text/x-plain"),
            ("a.rpm2cpio-and-more", "application/x-rpm"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.", "text/x-plain"),
        ] {
            assert_eq!(types.of(name.as_bytes()), expected, "{name}");
        }
        for (extension, media_type) in
            [("a.b", "a/b"), (".b", "a/b"), ("b", "text"), ("b", "a/"), ("b", "a/b\r\nX: y"), ("b", "a b/c")]
        {
            assert!(types.set(extension, media_type).is_err(), "{extension} {media_type:?}");
        }
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(TYPES.is_sorted_by(|left, right| left.0 < right.0));
    }

    #[test]
    fn names_have_the_type_of_their_end() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("INDEX.HTM", "text/html; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a.7z", "application/x-7z-compressed"),
            ("README", "application/octet-stream"),
            ("a.", "application/octet-stream"),
            (".html", "text/html; charset=utf-8"),
            ("a.averylongextension", "application/octet-stream"),
        ] {
            assert_eq!(of(name.as_bytes()), expected, "{name}");
        }
    }
}
