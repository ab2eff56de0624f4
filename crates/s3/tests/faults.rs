//! Answers that are cut, and refusals in the body of a success.

mod common;

use std::sync::Arc;

use common::scripted::{Answer, Scripted};
use common::{path, read};
use millrace_s3::S3Storage;
use millrace_vfs::{FileError, ReadHandle, Storage, Wait, WriteMode};

fn storage(store: &Scripted) -> S3Storage {
    S3Storage::new(&common::settings(store.port, "")).unwrap()
}

/// The bytes that a request with a `Range` wants of an object.
fn wanted(request: &str, length: usize) -> std::ops::Range<usize> {
    let range = request.lines().find_map(|line| line.strip_prefix("range: bytes=")).unwrap();
    let (start, last) = range.split_once('-').unwrap();
    start.parse().unwrap()..length.min(last.parse::<usize>().unwrap() + 1)
}

/// An answer with a part of an object.
fn part(object: &[u8], range: std::ops::Range<usize>, cut: Option<usize>) -> Answer {
    let (first, last, length) = (range.start, range.end - 1, object.len());
    let head =
        format!("206 Partial Content\r\netag: \"e\"\r\ncontent-range: bytes {first}-{last}/{length}\r\n");
    Answer { head, body: object[range].to_vec(), cut }
}

#[test]
fn a_download_goes_on_where_an_answer_was_cut() {
    let object: Arc<Vec<u8>> = Arc::new((0..24 << 20).map(|n: u32| (n / 7) as u8).collect());
    let of_store = Arc::clone(&object);
    let store = Scripted::new(move |request, before| {
        // The first range, what is asked for instead, and one of those that are fetched ahead.
        let cut = [Some(1 << 20), Some(0), None, Some(5)].get(before).copied().flatten();
        part(&of_store, wanted(request, of_store.len()), cut)
    });
    assert!(read(&storage(&store), "/f") == **object);
    let requests = store.requests();
    assert!(requests[1..].iter().all(|request| request.contains("if-match: \"e\"")), "it is of one version");
}

#[test]
fn a_store_that_sends_no_bytes_is_not_asked_for_ever() {
    let store = Scripted::new(|_, _| Answer {
        head: "206 Partial Content\r\netag: \"e\"\r\ncontent-range: bytes 0-9/10\r\n".to_owned(),
        body: Vec::new(),
        cut: None,
    });
    let Ok(ReadHandle::Stream(mut stream)) = storage(&store).open_read(&path("/f"), Wait::Allowed) else {
        panic!("it can be opened")
    };
    assert!(matches!(stream.read_at(0, &mut [0; 10]), Err(FileError::Io(_))));
    assert!(store.requests().len() < 10);
}

#[test]
fn a_refusal_in_the_body_of_a_success_is_tried_again() {
    let store = Scripted::new(|request, _| {
        let answer = |head: &str, body: &str| Answer {
            head: format!("{head}\r\netag: \"e\"\r\n"),
            body: body.as_bytes().to_vec(),
            cut: None,
        };
        static REFUSALS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        if request.starts_with("get ") {
            answer("200 OK", "<ListBucketResult></ListBucketResult>")
        } else if request.contains("?uploads=") {
            answer("200 OK", "<R><UploadId>u</UploadId></R>")
        } else if !request.starts_with("post ") {
            answer("200 OK", "")
        } else if REFUSALS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            answer("200 OK", "<Error><Code>InternalError</Code></Error>")
        } else {
            answer("200 OK", "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        }
    });
    let storage = storage(&store);
    let mut upload = storage.open_write(&path("/f"), WriteMode::Replace, Wait::Allowed).unwrap();
    upload.write_all(&vec![7; 6 << 20]).unwrap();
    assert_eq!(upload.commit().unwrap().size, 6 << 20);
    let completions =
        store.requests().iter().filter(|request| request.starts_with("post /files/f?uploadid")).count();
    assert_eq!(completions, 2);
}
