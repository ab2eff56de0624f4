//! Figures: an upload and a download of 1 GiB beside bare loops over the same connections. Run by hand, see
//! `bench-runs/s3`.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use millrace_vfs::{ReadHandle, Storage, VirtualPath, Wait, WriteMode};
use tokio::task::JoinSet;

use super::*;
use crate::buffers::PART;

/// 205 parts: 1 GiB and a bit.
const PARTS: u32 = 205;
const AT_ONCE: usize = 4;

fn speed(begun: Instant) -> f64 {
    f64::from(PARTS) * PART as f64 / begun.elapsed().as_secs_f64() / 1e6
}

/// Parts from one buffer, four at once.
async fn bare_upload(bucket: &Arc<Bucket>) {
    let (client, body) = (&bucket.client, Bytes::from(vec![7; PART]));
    let id = client.create_upload("bare", &Attributes::default()).await.unwrap();
    let (mut sending, mut done) = (JoinSet::new(), Vec::new());
    for number in 1..=PARTS {
        if sending.len() >= AT_ONCE {
            done.push(sending.join_next().await.unwrap().unwrap());
        }
        let (of_task, id, body) = (Arc::clone(bucket), id.clone(), body.clone());
        let part = async move { of_task.client.put_part("bare", &id, number, body).await.unwrap() };
        sending.spawn_on(part, bucket.runtime().handle());
    }
    while let Some(part) = sending.join_next().await {
        done.push(part.unwrap());
    }
    done.sort();
    client.complete_upload("bare", &id, &done, &Condition::None).await.unwrap();
}

/// Ranges as large as those of the storage, three at once, thrown away.
async fn bare_download(bucket: &Arc<Bucket>) {
    const RANGE: u64 = 4 << 20;
    let size = u64::from(PARTS) * PART as u64;
    let mut fetching = JoinSet::new();
    for start in (0..size).step_by(RANGE as usize) {
        if fetching.len() >= 3 {
            fetching.join_next().await.unwrap().unwrap();
        }
        let of_task = Arc::clone(bucket);
        let range = async move {
            let end = size.min(start + RANGE);
            let (mut answer, _) = of_task.client.get("bare", start, Some(end), None).await.unwrap();
            while answer.next().await.unwrap().is_some() {}
        };
        fetching.spawn_on(range, bucket.runtime().handle());
    }
    while fetching.join_next().await.is_some() {}
}

fn upload(storage: &S3Storage) {
    let path = VirtualPath::parse(b"/through").unwrap();
    let mut upload = storage.open_write(&path, WriteMode::Replace, Wait::Allowed).unwrap();
    let piece = vec![7; 256 << 10];
    for _ in 0..PARTS as usize * PART / piece.len() {
        upload.write_all(&piece).unwrap();
    }
    upload.commit().unwrap();
}

fn download(storage: &S3Storage) {
    let path = VirtualPath::parse(b"/through").unwrap();
    let ReadHandle::Stream(mut stream) = storage.open_read(&path, Wait::Allowed).unwrap() else {
        panic!("it is a stream")
    };
    let (mut buffer, mut offset) = (vec![0; 256 << 10], 0);
    while let count @ 1.. = stream.read_at(offset, &mut buffer).unwrap() {
        offset += count as u64;
    }
    assert_eq!(offset, u64::from(PARTS) * PART as u64);
}

#[test]
#[ignore = "figures, of a store at MILLRACE_S3_ENDPOINT"]
fn large_transfers_beside_bare_loops() {
    let credentials = Credentials { access_key: "AK".to_owned(), secret_key: "SK".to_owned(), token: None };
    let settings = Settings {
        endpoint: std::env::var("MILLRACE_S3_ENDPOINT").unwrap(),
        region: "us-east-1".to_owned(),
        bucket: "figures".to_owned(),
        prefix: String::new(),
        credentials,
        path_style: true,
        redirect: None,
        roots: None,
        time: Duration::from_secs(10),
    };
    let storage = S3Storage::new(&settings).unwrap();
    storage.make_bucket().unwrap();
    let bucket = &storage.bucket;
    println!("MB/s: upload bare, through the storage; download bare, through the storage");
    for _ in 0..2 {
        let mut speeds = Vec::new();
        let mut measure = |work: &dyn Fn()| {
            let begun = Instant::now();
            work();
            speeds.push(format!("{:.0}", speed(begun)));
        };
        measure(&|| bucket.wait(bare_upload(bucket)));
        measure(&|| upload(&storage));
        measure(&|| bucket.wait(bare_download(bucket)));
        measure(&|| download(&storage));
        println!("{}", speeds.join(" "));
    }
}
