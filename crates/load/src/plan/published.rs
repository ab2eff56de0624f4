//! Tables that a preset's document published: how each is laid out, and its numbers.
//!
//! A cell belongs where both the row and the column say nothing against it, so a document's own shape can be
//! written down whatever it puts across and whatever down. Columns that are *theirs* hold what the document measured
//! of its servers: beside one column of ours.

use serde::Deserialize;

/// A table of a document.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The title.
    pub title: String,
    /// The quantity of its numbers, unless a row or a column has another.
    pub value: Value,
    /// Repetitions that the document left out of its means, from the first.
    #[serde(default)]
    pub discard: u32,
    /// Across.
    pub column: Vec<Line>,
    /// Down, each with its numbers.
    pub row: Vec<Line>,
}

/// The quantity of a table's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Value {
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// 1024 bytes a second, of all users together.
    #[serde(rename = "KiB/s")]
    KibPerSecond,
    /// Waarp's Mbit, of 1,024,000 bit.
    #[serde(rename = "Waarp-Mbit/s")]
    WaarpMbitPerSecond,
    /// 1,000,000 bit a second.
    #[serde(rename = "Mbit/s")]
    MbitPerSecond,
    /// 1,048,576 bytes a second, of all users together: what pyftpdlib's script calls MB.
    #[serde(rename = "MiB/s")]
    MibPerSecond,
    /// 1024 bytes a second from the first user's beginning to the last one's end.
    #[serde(rename = "KiB/s in step")]
    KibPerSecondInStep,
    /// Until the last operation had ended.
    #[serde(rename = "s")]
    Seconds,
    /// Until everyone had logged in.
    #[serde(rename = "s of logins")]
    LoginSeconds,
    /// Where a death rule holds.
    #[serde(rename = "users left")]
    UsersLeft,
    /// Of one processor, what this client used: in a second that nine of ten outdid, and in the busiest.
    #[serde(rename = "client CPU % from")]
    ClientCpuFrom,
    #[serde(rename = "client CPU % to")]
    ClientCpuTo,
    /// From the first user's beginning to the last one's, where each has one operation.
    #[serde(rename = "skew ms")]
    Skew,
    /// The users' own speeds added up, over that of all together.
    #[serde(rename = "sync")]
    Sync,
    /// The server's CPU: 200 means two busy processors.
    #[serde(rename = "server CPU %")]
    ServerCpu,
    #[serde(rename = "load average")]
    LoadAverage,
    /// The length of what HTTP answered with.
    #[serde(rename = "document bytes")]
    DocumentBytes,
    /// Responses of HTTP after which the connection went on.
    #[serde(rename = "kept alive")]
    KeptAlive,
    /// 1000 bytes of HTTP a second, heads included.
    #[serde(rename = "kb/s")]
    TransferRate,
    /// How long connecting took where a request had to, in ms: at least.
    #[serde(rename = "connect min")]
    ConnectMin,
    /// On average of all requests; one on a kept connection counts as none.
    #[serde(rename = "connect avg")]
    ConnectMean,
    #[serde(rename = "connect max")]
    ConnectMax,
    /// A whole request, in ms: at least.
    #[serde(rename = "total min")]
    TotalMin,
    #[serde(rename = "total avg")]
    TotalMean,
    #[serde(rename = "total max")]
    TotalMax,
    /// Nothing but its memory.
    #[serde(rename = "none")]
    Nothing,
    /// The server's memory, at the end.
    #[serde(rename = "RSS MiB")]
    Rss,
    /// The same, each shared page divided among those who share it.
    #[serde(rename = "PSS MiB")]
    Pss,
    /// The same, without any shared page.
    #[serde(rename = "USS MiB")]
    Uss,
    /// The most RSS that was seen.
    #[serde(rename = "peak MiB")]
    PeakRss,
}

/// A row or a column: which cells belong to it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Line {
    /// As the document calls it.
    pub name: String,
    /// Of a column: what the document measured; no cell of ours belongs there.
    #[serde(default)]
    pub theirs: bool,
    /// The quantity of its numbers; a column's overrides a row's.
    pub value: Option<Value>,
    pub label: Option<String>,
    pub op: Option<String>,
    /// How data connections are made.
    pub mode: Option<String>,
    /// How large the files are, in bytes.
    pub size: Option<u64>,
    pub users: Option<u32>,
    /// All users download one file, or else one each.
    pub shared: Option<bool>,
    /// Of a row: the document's numbers, from left to right; `nan` where it has none.
    #[serde(default)]
    pub published: Vec<f64>,
}

impl Published {
    /// Returns true if every row has as many numbers as there are columns.
    pub(super) fn is_complete(&self) -> bool {
        self.row.iter().all(|row| row.published.len() == self.column.len())
    }
}
