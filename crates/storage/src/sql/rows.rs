//! Common to both databases: statements with values, and rows of numbers and bytes.
//!
//! Statements are written for both. Their parameters are `?1`, `?2`, ...; numbers have 64 bits.

use millrace_vfs::FileError;

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Number(Option<i64>),
    Bytes(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(Some(number.into()))
    }
}

impl<N: Into<i64>> From<Option<N>> for Value<'_> {
    fn from(number: Option<N>) -> Self {
        Self::Number(number.map(Into::into))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// The value of a column.
#[derive(Debug)]
pub(super) enum Cell {
    Null,
    Number(i64),
    Bytes(Vec<u8>),
}

/// A row of an answer.
#[derive(Debug)]
pub(super) struct Row(pub(super) Vec<Cell>);

impl Row {
    pub(super) fn number(&self, index: usize) -> Result<i64, FileError> {
        self.number_if_any(index)?.ok_or_else(unexpected)
    }

    pub(super) fn number_if_any(&self, index: usize) -> Result<Option<i64>, FileError> {
        match self.0.get(index) {
            Some(Cell::Number(number)) => Ok(Some(*number)),
            Some(Cell::Null) => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// Takes bytes out of it.
    pub(super) fn bytes(&mut self, index: usize) -> Result<Vec<u8>, FileError> {
        match self.0.get_mut(index) {
            Some(Cell::Bytes(bytes)) => Ok(std::mem::take(bytes)),
            _ => Err(unexpected()),
        }
    }
}

/// Another program has changed the tables.
fn unexpected() -> FileError {
    FileError::Io(std::io::Error::other("a column is not of the type that it was made with"))
}

/// Where statements are carried out: a transaction, or the database as it is at each of them.
pub(super) trait Statements {
    /// All rows of the answer.
    fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, FileError>;

    /// The first row of the answer, if it has any.
    fn row(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>, FileError> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// Does something that has no answer.
    fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<(), FileError> {
        self.rows(sql, values).map(drop)
    }
}
