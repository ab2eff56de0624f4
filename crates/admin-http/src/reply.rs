//! Answers of the API: JSON, problems (RFC 9457), and streams of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use millrace_admin::{AdminError, Blame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The media type of answers.
pub(crate) const JSON: &str = "application/json";

/// The media type of errors.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// The media type of streams of events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it; `None` once it is taken.
    Whole(Option<Bytes>),
    /// Parts, as they come.
    Parts(mpsc::Receiver<Bytes>),
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Parts(parts) => parts.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Parts(_) => SizeHint::default(),
        }
    }
}

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) media_type: &'static str,
    pub(crate) body: Body,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

impl Reply {
    /// An answer of this type.
    pub(crate) fn new(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Self {
        Self { status, media_type, body: body.into(), fields: Vec::new() }
    }

    /// A value.
    pub(crate) fn json(value: &Value) -> Self {
        Self::new(StatusCode::OK, JSON, format!("{value}\n"))
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &HeaderName) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.to_str().ok())
    }

    /// With another field. One that cannot be sent is left out.
    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.fields.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}

/// Why a request is not done.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    detail: String,
    /// A name, where a program has to tell it from others.
    kind: Option<&'static str>,
    /// The line of the configuration file.
    line: Option<u64>,
    /// The field of the body.
    field: Option<String>,
    fields: Vec<(HeaderName, String)>,
}

impl Problem {
    /// A sentence for people.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), kind: None, line: None, field: None, fields: Vec::new() }
    }

    /// What is said makes no sense.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Returns the sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The system did not do its part.
    pub(crate) fn failed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Of a kind that programs know: `urn:millrace:KIND`.
    pub(crate) fn of_kind(self, kind: &'static str) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// At this line of the file.
    pub(crate) fn at_line(self, line: Option<u64>) -> Self {
        Self { line, ..self }
    }

    /// In this field of the body: `settings.access`.
    pub(crate) fn in_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// With another field.
    pub(crate) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let status = match error.blame() {
            Blame::Missing => StatusCode::NOT_FOUND,
            Blame::State => StatusCode::CONFLICT,
            Blame::Request => StatusCode::UNPROCESSABLE_ENTITY,
            Blame::System => StatusCode::INTERNAL_SERVER_ERROR,
            Blame::Away => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let Problem { status, detail, kind, line, field, fields } = problem;
        let mut told = json!({
            "type": kind.map_or_else(|| "about:blank".to_owned(), |kind| format!("urn:millrace:{kind}")),
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": detail,
        });
        if let Some(line) = line {
            told["line"] = line.into();
        }
        if let Some(field) = field {
            told["field"] = field.into();
        }
        let reply = Self::new(status, PROBLEM, format!("{told}\n"));
        fields.into_iter().fold(reply, |reply, (name, value)| reply.with(name, &value))
    }
}
