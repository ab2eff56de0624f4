//! The calls of S3 that are used, each a function. What fails for a moment is tried again.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::body::Bytes;
use hyper::{Method, Request};
use md5::{Digest as _, Md5};
use millrace_vfs::Timestamp;
use millrace_vfs::hex::Hex;

use crate::answers::{self, Page, PendingPage};
use crate::attributes::Attributes;
use crate::error::StoreError;
use crate::http::{Answer, Endpoint, Whole};
use crate::sign::{Signed, Signer, encoded, query_text};
use crate::site::Site;

/// Bytes of an answer that is no object: a page of 1,000 long keys, encoded, has 4 MB.
const LONGEST: usize = 8 << 20;

/// The first pause before another try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// How long requests that move bytes are tried again while the store is away: uploads then wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a URL for a client is good: a download that has begun goes on.
const VALIDITY: Duration = Duration::from_secs(15 * 60);

/// Asks one bucket.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) signer: Signer,
    pub(crate) site: Site,
    /// Where clients of HTTP are sent for large objects.
    pub(crate) for_clients: Option<Site>,
    pub(crate) bucket: String,
}

/// An object without its content.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) etag: String,
    pub(crate) attributes: Attributes,
}

/// An object that others are made of.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) key: String,
    /// `None` where the key never has another object.
    pub(crate) etag: Option<String>,
    pub(crate) size: u64,
}

/// A condition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    /// There is no object of the key.
    New,
    /// The object is still this one.
    Same(String),
}

impl Condition {
    fn header(&self) -> Option<(&'static str, String)> {
        match self {
            Self::None => None,
            Self::New => Some(("if-none-match", "*".to_owned())),
            Self::Same(etag) => Some(("if-match", etag.clone())),
        }
    }
}

/// The number and the tag of a part that the store has.
pub(crate) type Part = (u32, String);

/// A request before it is signed.
#[derive(Debug, Clone)]
struct Draft<'a> {
    method: Method,
    key: &'a str,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    patience: Duration,
}

impl<'a> Draft<'a> {
    fn new(method: Method, key: &'a str) -> Self {
        let (query, headers, body) = (Vec::new(), Vec::new(), Bytes::new());
        Self { method, key, query, headers, body, patience: Duration::from_secs(5) }
    }

    fn query(mut self, key: &'static str, value: impl ToString) -> Self {
        self.query.push((key, value.to_string()));
        self
    }

    fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    fn headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    fn body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    fn patient(self) -> Self {
        Self { patience: PATIENCE, ..self }
    }
}

/// How long a request is tried again.
#[derive(Debug)]
struct Tries {
    begun: Instant,
    pause: Duration,
    patience: Duration,
}

impl Tries {
    fn new(patience: Duration) -> Self {
        Self { begun: Instant::now(), pause: PAUSE, patience }
    }

    /// Waits a moment and returns true, where another try may help.
    async fn go_on(&mut self, error: &StoreError) -> bool {
        if !error.is_transient() || self.begun.elapsed() + self.pause >= self.patience {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(5));
        true
    }
}

impl Client {
    /// Returns a URL at which a client can get an object, where clients are sent to the store.
    pub(crate) fn url_for_clients(&self, key: &str) -> Option<String> {
        let site = self.for_clients.as_ref()?;
        let path = site.path(key);
        let request = Signed {
            method: Method::GET.as_str(),
            host: &site.shown,
            path: &path,
            query: &[],
            headers: &[],
            body: &[],
            time: SystemTime::now(),
        };
        let query = self.signer.query(&request, VALIDITY.as_secs());
        Some(format!("{}://{}{path}?{query}", site.scheme, site.shown))
    }

    /// The request, signed now.
    fn request(&self, draft: &Draft<'_>) -> Result<Request<Whole>, StoreError> {
        let path = if draft.key.is_empty() && self.site.root.len() > 1 {
            self.site.root.trim_end_matches('/').to_owned()
        } else {
            self.site.path(draft.key)
        };
        let signed = self.signer.headers(&Signed {
            method: draft.method.as_str(),
            host: &self.site.shown,
            path: &path,
            query: &draft.query,
            headers: &draft.headers,
            body: &draft.body,
            time: SystemTime::now(),
        });
        let uri = match draft.query.is_empty() {
            true => path,
            false => format!("{path}?{}", query_text(&draft.query)),
        };
        let mut request =
            Request::builder().method(draft.method.clone()).uri(uri).header("host", &self.site.shown);
        for (name, value) in draft.headers.iter().chain(&signed) {
            request = request.header(*name, value);
        }
        // Without a body hyper says nothing of a length, which some stores want.
        if draft.body.is_empty() && matches!(draft.method, Method::PUT | Method::POST) {
            request = request.header("content-length", "0");
        }
        request
            .body(Whole::new(draft.body.clone()))
            .map_err(|_| StoreError::Malformed("a header cannot be sent"))
    }

    /// Sends a request, again where that may help, until its patience is over.
    async fn call(&self, draft: Draft<'_>) -> Result<Answer, StoreError> {
        let mut tries = Tries::new(draft.patience);
        loop {
            match self.call_once(&draft).await {
                Err(error) if tries.go_on(&error).await => {}
                result => return result,
            }
        }
    }

    async fn call_once(&self, draft: &Draft<'_>) -> Result<Answer, StoreError> {
        let mut answer = self.endpoint.ask(|| self.request(draft)).await?;
        let status = answer.parts.status.as_u16();
        if answer.parts.status.is_success() {
            return Ok(answer);
        }
        let body = answer.read(LONGEST).await?;
        let (code, message) = answers::refusal(&body).unwrap_or_default();
        Err(StoreError::Refused { status, code, message })
    }

    /// Sends a request and reads an answer that is no object, as [`Client::call`] does.
    async fn text(&self, draft: Draft<'_>) -> Result<Vec<u8>, StoreError> {
        let mut tries = Tries::new(draft.patience);
        loop {
            match self.text_once(&draft).await {
                Err(error) if tries.go_on(&error).await => {}
                result => return result,
            }
        }
    }

    /// Some refuse in the body of a success, also for a moment: `InternalError` behind a copy that took long.
    async fn text_once(&self, draft: &Draft<'_>) -> Result<Vec<u8>, StoreError> {
        let mut answer = self.call_once(draft).await?;
        let (status, body) = (answer.parts.status.as_u16(), answer.read(LONGEST).await?);
        match answers::refusal(&body) {
            Some((code, message)) => Err(StoreError::Refused { status, code, message }),
            None => Ok(body),
        }
    }

    /// `CreateBucket`; success too where it is there and ours. In another region than the first it has to name it.
    pub(crate) async fn make_bucket(&self) -> Result<(), StoreError> {
        let mut draft = Draft::new(Method::PUT, "").patient();
        if self.signer.region != "us-east-1" {
            let region = escaped(&self.signer.region);
            let body = format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            );
            draft = draft.body(body.into());
        }
        match self.text(draft).await {
            Err(StoreError::Refused { code, .. }) if code == "BucketAlreadyOwnedByYou" => Ok(()),
            result => result.map(drop),
        }
    }

    /// `HeadObject`
    pub(crate) async fn head(&self, key: &str) -> Result<Object, StoreError> {
        let mut answer = self.call(Draft::new(Method::HEAD, key)).await?;
        let size = answer.header("content-length").and_then(|text| text.parse().ok());
        let object = object(&answer, size.ok_or(StoreError::Malformed("there is no length"))?);
        answer.read(LONGEST).await?;
        Ok(object)
    }

    /// As [`Client::head`], `None` where there is no such object.
    pub(crate) async fn find(&self, key: &str) -> Result<Option<Object>, StoreError> {
        match self.head(key).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `GetObject`: the bytes from `start` on, up to `end`; of the object with this tag, if one is given.
    pub(crate) async fn get(
        &self,
        key: &str,
        start: u64,
        end: Option<u64>,
        etag: Option<&str>,
    ) -> Result<(Answer, Object), StoreError> {
        let end = end.map(|end| (end - 1).to_string()).unwrap_or_default();
        let draft = Draft::new(Method::GET, key).header("range", format!("bytes={start}-{end}"));
        let same = etag.map(|etag| ("if-match", etag.to_owned()));
        let answer = self.call(draft.headers(same)).await?;
        let total = match answer.parts.status.as_u16() {
            206 => answer.header("content-range").and_then(|text| text.rsplit_once('/')?.1.parse().ok()),
            // A store that knows no ranges: then this is all of it.
            _ if start == 0 => answer.header("content-length").and_then(|text| text.parse().ok()),
            _ => return Err(StoreError::Malformed("it has not the range that was asked for")),
        };
        let object = object(&answer, total.ok_or(StoreError::Malformed("there is no length"))?);
        Ok((answer, object))
    }

    /// `PutObject`; answers with its tag.
    pub(crate) async fn put(
        &self,
        key: &str,
        body: Bytes,
        attributes: &Attributes,
        condition: &Condition,
    ) -> Result<String, StoreError> {
        let draft = Draft::new(Method::PUT, key).headers(attributes.headers()).headers(condition.header());
        self.tag(draft.body(body).patient()).await
    }

    /// `PutObject` of the marker of a folder.
    pub(crate) async fn put_marker(
        &self,
        key: &str,
        attributes: &Attributes,
        condition: &Condition,
    ) -> Result<(), StoreError> {
        let draft = Draft::new(Method::PUT, key).headers(attributes.marker_headers());
        self.tag(draft.headers(condition.header())).await.map(drop)
    }

    /// Sends a request whose answer has a tag in its head.
    async fn tag(&self, draft: Draft<'_>) -> Result<String, StoreError> {
        let mut answer = self.call(draft).await?;
        let etag = answer.header("etag").map(str::to_owned);
        answer.read(LONGEST).await?;
        etag.ok_or(StoreError::Malformed("there is no tag"))
    }

    /// `DeleteObject`; success too where there is none.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.text(Draft::new(Method::DELETE, key)).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// `DeleteObjects`: up to 1,000 keys.
    pub(crate) async fn delete_all(&self, keys: &[String]) -> Result<(), StoreError> {
        let objects: String =
            keys.iter().map(|key| format!("<Object><Key>{}</Key></Object>", escaped(key))).collect();
        let body = format!("<Delete><Quiet>true</Quiet>{objects}</Delete>").into_bytes();
        let digest = base64(&Md5::digest(&body));
        let draft = Draft::new(Method::POST, "").query("delete", "").header("content-md5", digest);
        let answer = self.text(draft.body(body.into())).await?;
        match std::str::from_utf8(&answer).is_ok_and(|text| text.contains("<Error>")) {
            true => Err(StoreError::Malformed("some objects were not deleted")),
            false => Ok(()),
        }
    }

    /// `CopyObject`, of the object with this tag if one is given; with attributes, in place of those that the object has.
    pub(crate) async fn copy(
        &self,
        from: (&str, Option<&str>),
        to: &str,
        attributes: Option<&Attributes>,
    ) -> Result<(), StoreError> {
        let draft = Draft::new(Method::PUT, to)
            .header("x-amz-copy-source", self.source(from.0))
            .headers(from.1.map(|etag| ("x-amz-copy-source-if-match", etag.to_owned())));
        let draft = match attributes {
            Some(attributes) => {
                draft.header("x-amz-metadata-directive", "REPLACE").headers(attributes.headers())
            }
            None => draft,
        };
        self.text(draft.patient()).await.map(drop)
    }

    fn source(&self, key: &str) -> String {
        format!("/{}/{}", self.bucket, encoded(key, true))
    }

    /// `ListObjectsV2`: up to `most` entries beneath a prefix, in the order of their keys; with a delimiter those
    /// directly beneath, and the prefixes of the others.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        is_flat: bool,
        after: Option<&str>,
        most: usize,
    ) -> Result<Page, StoreError> {
        let draft = Draft::new(Method::GET, "").query("list-type", 2).query("prefix", prefix);
        let mut draft = draft.query("max-keys", most).query("encoding-type", "url");
        if !is_flat {
            draft = draft.query("delimiter", "/");
        }
        if let Some(after) = after {
            draft = draft.query("continuation-token", after);
        }
        draft.query.sort();
        answers::page(&self.text(draft).await?)
    }

    /// `CreateMultipartUpload`; answers with its identifier.
    pub(crate) async fn create_upload(
        &self,
        key: &str,
        attributes: &Attributes,
    ) -> Result<String, StoreError> {
        let draft = Draft::new(Method::POST, key).query("uploads", "").headers(attributes.headers());
        answers::element(&self.text(draft.patient()).await?, "UploadId")
    }

    /// `UploadPart`
    pub(crate) async fn put_part(
        &self,
        key: &str,
        upload: &str,
        number: u32,
        body: Bytes,
    ) -> Result<Part, StoreError> {
        let draft = Draft::new(Method::PUT, key).query("partNumber", number).query("uploadId", upload);
        Ok((number, self.tag(draft.body(body).patient()).await?))
    }

    /// `UploadPartCopy`: bytes of an object, which is still the one of this tag if one is given, as a part.
    pub(crate) async fn copy_part(
        &self,
        key: &str,
        upload: &str,
        number: u32,
        from: (&str, Option<&str>),
        range: std::ops::Range<u64>,
    ) -> Result<Part, StoreError> {
        let draft = Draft::new(Method::PUT, key).query("partNumber", number).query("uploadId", upload);
        let draft = draft
            .header("x-amz-copy-source", self.source(from.0))
            .headers(from.1.map(|etag| ("x-amz-copy-source-if-match", etag.to_owned())))
            .header("x-amz-copy-source-range", format!("bytes={}-{}", range.start, range.end - 1));
        Ok((number, answers::element(&self.text(draft.patient()).await?, "ETag")?))
    }

    /// `CompleteMultipartUpload`; answers with the tag of the object, where the store tells it.
    pub(crate) async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: &[Part],
        condition: &Condition,
    ) -> Result<Option<String>, StoreError> {
        let part = |(number, etag): &Part| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", escaped(etag))
        };
        let parts: String = parts.iter().map(part).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let draft = Draft::new(Method::POST, key).query("uploadId", upload).headers(condition.header());
        let answer = self.text(draft.body(body.into()).patient()).await?;
        Ok(answers::element(&answer, "ETag").ok())
    }

    /// `AbortMultipartUpload`
    pub(crate) async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), StoreError> {
        match self.text(Draft::new(Method::DELETE, key).query("uploadId", upload)).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// `ListMultipartUploads`: a page of those beneath a prefix.
    pub(crate) async fn pending_uploads(
        &self,
        prefix: &str,
        after: Option<&(String, String)>,
    ) -> Result<PendingPage, StoreError> {
        let mut draft = Draft::new(Method::GET, "").query("uploads", "").query("prefix", prefix);
        if let Some((key, upload)) = after {
            draft = draft.query("key-marker", key).query("upload-id-marker", upload);
        }
        draft.query.sort();
        answers::pending(&self.text(draft).await?)
    }
}

fn object(answer: &Answer, size: u64) -> Object {
    let seconds = answer.header("last-modified").and_then(|text| millrace_http::date::parse(text.as_bytes()));
    Object {
        size,
        modified: Timestamp { seconds: seconds.unwrap_or_default(), nanoseconds: 0 },
        etag: answer.header("etag").unwrap_or_default().to_owned(),
        attributes: Attributes::of(answer),
    }
}

/// Text within XML. Control characters are in no key of ours, and cannot be written.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The length of random names, in bytes.
const RANDOM: usize = 16;

/// A name that cannot be guessed, in hexadecimal digits.
pub(crate) fn random_name() -> Result<String, StoreError> {
    let mut bytes = [0; RANDOM];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StoreError::Connection(error.into()))?;
    Ok(Hex(&bytes).to_string())
}

/// Base64 (RFC 4648 section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let is_there = digit <= group.len();
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if is_there { DIGITS[value as usize].into() } else { '=' });
        }
    }
    text
}
