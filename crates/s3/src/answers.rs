//! The bodies of answers: XML, of which a few elements are read.

use millrace_vfs::{Civil, Timestamp};
use roxmltree::{Document, Node};

use crate::error::StoreError;

/// An object, as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) etag: String,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Listed>,
    /// Common prefixes, each with its slash at the end.
    pub(crate) prefixes: Vec<String>,
    /// Where the next page begins; `None` on the last.
    pub(crate) next: Option<String>,
}

/// A multipart upload that has not ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) begun: Timestamp,
}

/// A page of multipart uploads.
#[derive(Debug, Default)]
pub(crate) struct PendingPage {
    pub(crate) uploads: Vec<Pending>,
    /// The key and the upload after which the next page begins; `None` on the last.
    pub(crate) next: Option<(String, String)>,
}

fn parse(body: &[u8]) -> Result<Document<'_>, StoreError> {
    let text = std::str::from_utf8(body).map_err(|_| StoreError::Malformed("it is not UTF-8"))?;
    Document::parse(text).map_err(|_| StoreError::Malformed("it is not XML"))
}

/// The text of an element within another.
fn text(node: Node<'_, '_>, name: &str) -> Option<String> {
    let element = node.children().find(|child| child.tag_name().name() == name)?;
    Some(element.text().unwrap_or_default().to_owned())
}

/// The elements of a name within another.
fn each<'a, 'input>(node: Node<'a, 'input>, name: &'static str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.tag_name().name() == name)
}

/// Undoes the encoding of keys that `encoding-type=url` asks for.
fn unquoted(text: String, is_encoded: bool) -> String {
    if !is_encoded {
        return text;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let value = after.get(..2).filter(|_| byte == b'%').and_then(millrace_vfs::hex::decode);
        match value {
            Some(value) => {
                bytes.extend(value);
                rest = &after[2..];
            }
            None => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or(text)
}

/// `2026-11-29T02:20:11.000Z`, without the part of a second: only listings have that.
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    let number = |text: Option<&str>| text?.parse::<u16>().ok();
    let small = |text: Option<&str>| u8::try_from(number(text)?).ok();
    let (mut date, mut time) = (date.split('-'), time.get(..8)?.split(':'));
    let civil = Civil {
        year: number(date.next())?,
        month: small(date.next())?,
        day: small(date.next())?,
        hour: small(time.next())?,
        minute: small(time.next())?,
        second: small(time.next())?,
    };
    Some(Timestamp { seconds: civil.seconds()?, nanoseconds: 0 })
}

/// The code and the message of a refusal.
pub(crate) fn refusal(body: &[u8]) -> Option<(String, String)> {
    let document = parse(body).ok()?;
    let error = document.root_element();
    let code = text(error, "Code").filter(|_| error.tag_name().name() == "Error")?;
    Some((code, text(error, "Message").unwrap_or_default()))
}

/// The root of an answer of this name: a page of another server, as of a proxy that wants a login, is no empty listing.
fn root<'a, 'input>(document: &'a Document<'input>, name: &str) -> Result<Node<'a, 'input>, StoreError> {
    let root = document.root_element();
    match root.tag_name().name() == name {
        true => Ok(root),
        false => Err(StoreError::Malformed("it is about something else")),
    }
}

/// The text of one element of the answer.
pub(crate) fn element(body: &[u8], name: &str) -> Result<String, StoreError> {
    let document = parse(body)?;
    text(document.root_element(), name).ok_or(StoreError::Malformed("an element is missing"))
}

/// A page of `ListObjectsV2`.
pub(crate) fn page(body: &[u8]) -> Result<Page, StoreError> {
    let document = parse(body)?;
    let root = root(&document, "ListBucketResult")?;
    let is_encoded = text(root, "EncodingType").as_deref() == Some("url");
    let object = |node| {
        Some(Listed {
            key: unquoted(text(node, "Key")?, is_encoded),
            size: text(node, "Size")?.parse().ok()?,
            modified: timestamp(&text(node, "LastModified")?).unwrap_or_default(),
            etag: text(node, "ETag").unwrap_or_default(),
        })
    };
    let objects = each(root, "Contents").map(object).collect::<Option<_>>();
    let prefix = |node| Some(unquoted(text(node, "Prefix")?, is_encoded));
    let prefixes = each(root, "CommonPrefixes").map(prefix).collect::<Option<_>>();
    let is_truncated = text(root, "IsTruncated").as_deref() == Some("true");
    let next = text(root, "NextContinuationToken").filter(|_| is_truncated);
    match (objects, prefixes) {
        (Some(objects), Some(prefixes)) if next.is_some() || !is_truncated => {
            Ok(Page { objects, prefixes, next })
        }
        _ => Err(StoreError::Malformed("an element is missing")),
    }
}

/// A page of `ListMultipartUploads`.
pub(crate) fn pending(body: &[u8]) -> Result<PendingPage, StoreError> {
    let document = parse(body)?;
    let root = root(&document, "ListMultipartUploadsResult")?;
    let is_encoded = text(root, "EncodingType").as_deref() == Some("url");
    let upload = |node| {
        Some(Pending {
            key: unquoted(text(node, "Key")?, is_encoded),
            id: text(node, "UploadId")?,
            begun: timestamp(&text(node, "Initiated")?)?,
        })
    };
    let uploads = each(root, "Upload").filter_map(upload).collect();
    let is_truncated = text(root, "IsTruncated").as_deref() == Some("true");
    let key = text(root, "NextKeyMarker").map(|key| unquoted(key, is_encoded));
    let next = key.zip(text(root, "NextUploadIdMarker")).filter(|_| is_truncated);
    Ok(PendingPage { uploads, next })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    #[test]
    fn a_page_is_read_with_its_keys_decoded() {
        let body = br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>a+b</NextContinuationToken>
            <Contents><Key>d/a%0A+b%2B</Key><Size>5</Size><LastModified>2026-11-29T02:20:11.123Z</LastModified><ETag>"e"</ETag></Contents>
            <CommonPrefixes><Prefix>d/e/</Prefix></CommonPrefixes></ListBucketResult>"#;
        let page = page(body).unwrap();
        assert_eq!(page.objects[0].key, "d/a\n b+");
        assert_eq!(page.objects[0].size, 5);
        assert_eq!(page.objects[0].modified.seconds, 1_795_918_811);
        assert_eq!(page.prefixes, ["d/e/"]);
        assert_eq!(page.next.as_deref(), Some("a+b"));
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        for body in [
            &b""[..],
            b"<html>",
            b"\xff",
            b"<html>a login</html>",
            b"<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>",
            b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        ] {
            assert!(page(body).is_err(), "{body:?}");
        }
    }

    const BODIES: [&str; 3] = [
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>\
         <Contents><Key>d/%41+%</Key><Size>5</Size><LastModified>2026-11-29T02:20:11.1Z</LastModified></Contents></ListBucketResult>",
        "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextKeyMarker>%zz</NextKeyMarker>\
         <NextUploadIdMarker>u</NextUploadIdMarker><Upload><Key>k</Key><UploadId>u</UploadId>\
         <Initiated>2026-11-29T02:20:11Z</Initiated></Upload></ListMultipartUploadsResult>",
        "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// A listing that says that more follows says where, or is an error: it is never taken for the last page.
        #[test]
        fn whatever_a_store_answers_is_read_or_refused(
            which in 0..BODIES.len(),
            edits in vec((any::<Index>(), 0..12_usize, prop_oneof![Just(b'<'), Just(b'%'), any::<u8>()]), 0..6),
        ) {
            let mut body = BODIES[which].as_bytes().to_vec();
            for (at, length, byte) in edits {
                let at = at.index(body.len());
                let end = body.len().min(at + length);
                body.splice(at..end, [byte]);
            }
            if let Ok(page) = page(&body) {
                let text = std::str::from_utf8(&body).unwrap();
                prop_assert!(page.next.is_some() || !text.contains("<IsTruncated>true</IsTruncated>"));
            }
            let _ = (pending(&body), refusal(&body), element(&body, "UploadId"));
        }
    }

    #[test]
    fn a_refusal_has_its_code() {
        let body = b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>";
        assert_eq!(refusal(body), Some(("NoSuchKey".to_owned(), "no".to_owned())));
        assert_eq!(refusal(b"<Other><Code>x</Code></Other>"), None);
    }
}
