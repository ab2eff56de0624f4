//! Which process has left a note in the bucket, and whether it is still there.

use std::fmt;
use std::fs;

/// A process: the start of its machine, its namespace of numbers, its number there, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    machine: String,
    number: u32,
    begun: String,
}

impl Owner {
    pub(crate) fn of_this_process() -> Self {
        let number = std::process::id();
        Self { machine: machine(), number, begun: begun(number).unwrap_or_default() }
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(str::to_owned);
        let (machine, number, begun) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Self { machine, number, begun })
    }

    /// Returns whether it is known to be gone: it was of this machine, and is not there.
    pub(crate) fn is_gone(&self) -> bool {
        !self.machine.is_empty()
            && self.machine == machine()
            && begun(std::process::id()).is_some()
            && begun(self.number).is_none_or(|begun| begun != self.begun)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.machine, self.number, self.begun)
    }
}

/// The machine since its start, and the namespace in which this process has its number. Empty where that is not told.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match (boot.trim(), space.to_str()) {
        (boot, Some(space)) if !boot.is_empty() && !space.is_empty() => format!("{boot}/{space}"),
        _ => String::new(),
    }
}

/// When a process has begun, in ticks since the start of the machine: field 22 of its `stat`.
fn begun(number: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // A zombie does nothing any more.
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    fields.nth(18).filter(|_| state != "Z").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_gone() {
        let own = Owner::of_this_process();
        assert_eq!(Owner::parse(&own.to_string()), Some(own.clone()));
        assert!(!own.is_gone());
        assert!(Owner { begun: "1".to_owned(), ..own.clone() }.is_gone(), "another has its number now");
        assert!(!Owner { machine: "another".to_owned(), ..own }.is_gone(), "that cannot be told");
    }
}
