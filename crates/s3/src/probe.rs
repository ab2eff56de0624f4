//! What the store honours, found out at the start with some objects of the server's own, which then go.
//!
//! Each promise is tried with what would show: a store that ignores a condition makes the object, one that ignores a range
//! sends all of it, one that joins parts wrongly has another length or other bytes.

use hyper::body::Bytes;

use crate::attributes::Attributes;
use crate::bucket::Bucket;
use crate::buffers::PART;
use crate::client::{Client, Condition, random_name};
use crate::error::StoreError;
use crate::honours::Promise;

/// Finds out which promises the store does not keep, and notes them.
pub(crate) async fn probe(bucket: &Bucket) -> Result<Vec<Promise>, StoreError> {
    let folder = bucket.reserved_key(&format!("probe/{}/", random_name()?));
    let tried = tried(&bucket.client, &folder).await;
    for name in NAMES.iter().chain(&[WHOLE]) {
        let _ = bucket.client.delete(&format!("{folder}{name}")).await;
    }
    let broken = tried?;
    broken.iter().for_each(|promise| bucket.honours.set_broken(*promise));
    Ok(Promise::ALL.into_iter().filter(|promise| broken.contains(promise)).collect())
}

/// Names in the order of their keys.
const NAMES: [&str; 3] = ["a", "a-b", "a0"];
/// The name of the object of parts.
const WHOLE: &str = "whole";

async fn tried(client: &Client, folder: &str) -> Result<Vec<Promise>, StoreError> {
    let none = Attributes::default();
    for name in NAMES.iter().rev() {
        client.put(&format!("{folder}{name}"), CONTENT.into(), &none, &Condition::None).await?;
    }
    let mut broken = Vec::new();
    let key = format!("{folder}{}", NAMES[0]);
    let other = "\"00000000000000000000000000000000\"".to_owned();
    for (condition, promise) in
        [(Condition::New, Promise::NewOnly), (Condition::Same(other), Promise::SameOnly)]
    {
        match client.put(&key, CONTENT.into(), &none, &condition).await {
            Err(error) if error.is_failed_condition() || error.status() == Some(409) => {}
            Err(error) if error.status().is_none() => return Err(error),
            _ => broken.push(promise),
        }
    }
    if !reads(client, &key, 1, b"b").await? {
        broken.push(Promise::Ranges);
    }
    if listed_one_by_one(client, folder).await? != NAMES {
        broken.push(Promise::Order);
    }
    broken.extend(parts_broken(client, &format!("{folder}{WHOLE}")).await?);
    Ok(broken)
}

/// The content of small objects.
const CONTENT: &str = "abc";

/// Returns whether a range from `start` on has exactly these bytes.
async fn reads(client: &Client, key: &str, start: u64, bytes: &[u8]) -> Result<bool, StoreError> {
    let got = client.get(key, start, Some(start + bytes.len() as u64), None).await;
    match got {
        Ok((mut answer, _)) => Ok(answer.read(bytes.len()).await.is_ok_and(|read| read == bytes)),
        Err(error @ (StoreError::Connection(_) | StoreError::TimedOut(_))) => Err(error),
        Err(_) => Ok(false),
    }
}

/// The names that pages of one entry have.
async fn listed_one_by_one(client: &Client, folder: &str) -> Result<Vec<String>, StoreError> {
    let (mut names, mut next) = (Vec::new(), None);
    for _ in 0..=NAMES.len() {
        let page = client.list(folder, false, next.as_deref(), 1).await?;
        names.extend(
            page.objects.iter().filter_map(|object| object.key.strip_prefix(folder).map(str::to_owned)),
        );
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    Ok(names)
}

/// Which of the promises about parts the store does not keep: it makes an object of two parts, then the same anew of
/// copies of itself, one byte longer than the next, and of a byte behind them.
async fn parts_broken(client: &Client, key: &str) -> Result<Option<Promise>, StoreError> {
    let none = Attributes::default();
    let part = Bytes::from(vec![b'p'; PART]);
    let upload = client.create_upload(key, &none).await?;
    let made = async {
        let parts = [
            client.put_part(key, &upload, 1, part).await?,
            client.put_part(key, &upload, 2, Bytes::from_static(b"q")).await?,
        ];
        client.complete_upload(key, &upload, &parts, &Condition::None).await.map(drop)
    };
    kept(client, key, &upload, made.await).await?;
    let etag = client.head(key).await?.etag;
    let length = PART as u64;
    for (first, promise) in [(length, Promise::CopiedParts), (length + 1, Promise::UnequalParts)] {
        let upload = client.create_upload(key, &none).await?;
        let made = async {
            let parts = [
                client.copy_part(key, &upload, 1, (key, Some(&etag)), 0..first).await?,
                client.copy_part(key, &upload, 2, (key, Some(&etag)), 0..length).await?,
                client.put_part(key, &upload, 3, Bytes::from_static(b"r")).await?,
            ];
            // The object stays for the second try, which makes it anew.
            if promise == Promise::UnequalParts {
                client.complete_upload(key, &upload, &parts, &Condition::None).await?;
            } else {
                client.abort_upload(key, &upload).await?;
            }
            Ok(())
        };
        if !kept(client, key, &upload, made.await).await.is_ok_and(|kept| kept) {
            return Ok(Some(promise));
        }
    }
    let whole = client.head(key).await?.size == 2 * length + 2
        && reads(client, key, length, b"qp").await?
        && reads(client, key, 2 * length, b"pr").await?;
    Ok((!whole).then_some(Promise::CopiedParts))
}

/// Returns whether an upload was made; where it was not it is given up.
async fn kept(
    client: &Client,
    key: &str,
    upload: &str,
    made: Result<(), StoreError>,
) -> Result<bool, StoreError> {
    match made {
        Ok(()) => Ok(true),
        Err(error) => {
            let _ = client.abort_upload(key, upload).await;
            if error.status().is_none() { Err(error) } else { Ok(false) }
        }
    }
}
