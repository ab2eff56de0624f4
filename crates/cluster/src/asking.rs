//! What an administrator at one node wants of the others. It goes by the database, so that nodes need no further way to one
//! another, nor a password for it.

use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::table::{Epoch, TableError};

/// How long the others may take.
const PATIENCE: Duration = Duration::from_millis(2500);
/// How often their answers are looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// What a node has answered.
#[derive(Debug, Clone)]
pub struct NodeAnswer {
    /// The registration of the node.
    pub epoch: Epoch,
    /// Its name.
    pub name: String,
    /// `None` where it has not answered in time.
    pub answer: Option<String>,
}

impl Cluster {
    /// Has the other nodes perform an errand, or one of them, and waits for their answers, a few seconds at most.
    pub fn ask_others(&self, errand: &str, only: Option<Epoch>) -> Result<Vec<NodeAnswer>, TableError> {
        // A node that is not registered is none of the others.
        let own = self.epoch().unwrap_or(Epoch(0));
        let (table, end) = (&self.shared().table, Instant::now() + PATIENCE);
        let sent = table.send_errand(own, errand, only)?;
        let numbers: Vec<i64> = sent.iter().map(|(number, ..)| *number).collect();
        let mut missing = numbers.clone();
        let mut answers = Vec::new();
        while !missing.is_empty() && Instant::now() < end {
            thread::sleep(PAUSE);
            answers.extend(table.answers(&missing)?);
            missing.retain(|number| answers.iter().all(|(answered, _)| answered != number));
        }
        if !numbers.is_empty() {
            table.end_errands(&numbers)?;
        }
        let mut answer_of = |wanted: i64| {
            let index = answers.iter().position(|(number, _)| *number == wanted)?;
            Some(answers.swap_remove(index).1)
        };
        let answer = |(number, epoch, name)| NodeAnswer { epoch, name, answer: answer_of(number) };
        Ok(sent.into_iter().map(answer).collect())
    }
}
