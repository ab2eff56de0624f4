//! Tables that a preset's document published: how each is laid out, and its numbers.
//!
//! A cell belongs where both the row and the column say nothing against it, so a document's own shape can be
//! written down whatever it puts across and whatever down.

use serde::Deserialize;

/// A table of a document.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it is called.
    pub title: String,
    /// What its numbers are.
    pub value: Value,
    /// Repetitions that the document left out of its means, from the first.
    #[serde(default)]
    pub discard: u32,
    /// Across.
    pub column: Vec<Line>,
    /// Down, each with its numbers.
    pub row: Vec<Line>,
}

/// What a table's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Value {
    /// Operations a second.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// 1024 bytes a second, of all users together.
    #[serde(rename = "KiB/s")]
    KibPerSecond,
    /// Waarp's Mbit, of 1,024,000 bit.
    #[serde(rename = "Waarp-Mbit/s")]
    WaarpMbitPerSecond,
}

/// A row or a column: which cells belong to it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// As the document calls it.
    pub name: String,
    /// The operation.
    pub op: Option<String>,
    /// How data connections are made.
    pub mode: Option<String>,
    /// How large the files are, in bytes.
    pub size: Option<u64>,
    /// How many users.
    pub users: Option<u32>,
    /// All users download one file, or else one each.
    pub shared: Option<bool>,
    /// Of a row: the document's numbers, from left to right; `nan` where it has none.
    #[serde(default)]
    pub published: Vec<f64>,
}

impl Published {
    /// Claims that every row has as many numbers as there are columns.
    pub(super) fn is_complete(&self) -> bool {
        self.row.iter().all(|row| row.published.len() == self.column.len())
    }
}
