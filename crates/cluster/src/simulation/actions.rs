//! What happens in a simulated cluster: faults, and what clients and administrators want.

use std::time::{Duration, Instant};

use super::invariants::Violation;
use super::node::Login;
use super::promises::{Promises, guesser};
use super::tables::RATE;
use super::tasks::Task;
use super::world::{Asker, Event, Process, World};
use crate::scope::{Claim, SharedScope};

/// Wrong passwords that ban a user, though the first of them have faded a little.
const GUESSES: usize = 24;

impl World {
    /// Does one thing: a fault, clients, or bans.
    pub(super) fn act(&mut self) -> Result<(), Violation> {
        let process = self.draw.up_to(self.processes.len());
        let is_alive = self.processes[process].is_alive;
        match self.draw.up_to(1000) {
            0..15 if is_alive => self.kill(process),
            15..40 if is_alive => self.stop(process),
            40..60 if is_alive => self.cut(process),
            60..66 => self.take_database_away(),
            66..70 => self.lock_bans(),
            70..100 if is_alive && self.is_running(process) => self.change_bans(process),
            _ => {
                for _ in 0..=self.draw.up_to(6) {
                    self.client()?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn start_node(&mut self, at: Instant) {
        let rate = 900 + self.draw.up_to(201) as u32;
        let first = at + self.draw.millis(0, 250);
        self.push(first, Event::Wake(self.processes.len()));
        self.processes.push(Process::new(at, rate));
    }

    fn kill(&mut self, process: usize) {
        self.note(|| format!("node {process} is killed"));
        self.processes[process].is_alive = false;
        self.processes[process].node.sessions.clear();
        let again = self.now + self.draw.millis(500, 20_000);
        self.start_node(again);
    }

    fn stop(&mut self, process: usize) {
        // Where leases end there is most to see; clients wait there for the process to go on.
        let (least, most) = if self.draw.permille(500) { (5_400, 7_500) } else { (500, 25_000) };
        let until = self.now + self.draw.millis(least, most);
        self.note(|| format!("node {process} is stopped"));
        if !self.processes[process].node.sessions.is_empty() {
            self.processes[process].node.logout(0);
        }
        self.push(until, Event::Client(process));
        self.processes[process].stopped_until = until;
        self.processes[process].troubled = self.processes[process].troubled.max(until);
    }

    fn cut(&mut self, process: usize) {
        let until = self.now + self.draw.millis(500, 25_000);
        self.note(|| format!("node {process} is cut off"));
        self.processes[process].cut_until = until;
        self.processes[process].troubled = self.processes[process].troubled.max(until);
    }

    fn take_database_away(&mut self) {
        let most = if self.draw.permille(500) { 3_000 } else { 70_000 };
        self.away_until = self.now + self.draw.millis(500, most);
        self.up_since = self.away_until;
        let crashes = self.draw.permille(500);
        self.note(|| format!("the database is away; it has crashed: {crashes}"));
        if crashes {
            self.database.crash();
            self.invariants.crashed();
        }
    }

    fn lock_bans(&mut self) {
        self.note(|| "the bans are locked".to_owned());
        self.bans_locked_until = self.now + self.draw.millis(2_000, 30_000);
    }

    pub(super) fn is_running(&self, process: usize) -> bool {
        let process = &self.processes[process];
        process.is_alive && process.stopped_until <= self.now && process.born <= self.now
    }

    fn change_bans(&mut self, process: usize) {
        let lifts = self.draw.permille(300);
        let number = self.draw.up_to(250);
        let network = format!("192.0.2.{number}").parse().expect("an address");
        let bans = &self.processes[process].node.bans;
        if lifts {
            bans.lift(network);
        } else {
            bans.ban(network, None);
        }
        self.note(|| format!("node {process}: ban of 192.0.2.{number}, lifted: {lifts}"));
        let (now, up_since) = (self.now, self.up_since);
        self.invariants.bans_changed(network, (!lifts).then_some(process), now, up_since);
    }

    /// A client or an administrator wants something.
    fn client(&mut self) -> Result<(), Violation> {
        let process = self.draw.up_to(self.processes.len());
        if !self.is_running(process) {
            return Ok(());
        }
        match self.draw.up_to(100) {
            0..60 => self.session(process),
            60..75 => self.upload(process),
            75..80 => self.begin(process, Task::Errand { sent: Vec::new(), missing: Vec::new(), end: None }),
            80..88 => self.lock(process),
            88..94 => {
                self.guess(process);
                Ok(())
            }
            _ => {
                let weight = self.draw.up_to(4) as u64;
                let wanted = if self.draw.permille(600) { RATE } else { 500 };
                self.processes[process].node.wants = (weight > 0).then_some((wanted, weight));
                Ok(())
            }
        }
    }

    /// A client sends a piece of an upload, for a while.
    fn upload(&mut self, process: usize) -> Result<(), Violation> {
        let slot = self.draw.up_to(self.uploads.len());
        if self.database.tables.finished.contains(&self.uploads[slot]) {
            self.uploads[slot] = self.number();
        }
        let number = ((process as u64) << 32) | self.number();
        let most = if self.draw.permille(300) { 12_000 } else { 1_000 };
        let lasts = self.draw.millis(10, most);
        let (key, is_last) = (self.uploads[slot], self.draw.permille(300));
        self.note(|| format!("node {process}: a piece of upload {key}, {number}"));
        self.begin(process, Task::Upload { key, number, held: None, asked: None, lasts, is_last })
    }

    /// A client locks a place, for a while.
    fn lock(&mut self, process: usize) -> Result<(), Violation> {
        let (place, token) = (self.draw.up_to(20) as u8, self.number());
        let (left, lasts) = (self.draw.millis(20_000, 60_000), self.draw.millis(100, 40_000));
        self.begin(process, Task::Lock { place, token, left, lasts })
    }

    /// Wrong passwords of a user come from an address.
    fn guess(&mut self, process: usize) {
        let (address, user) = (self.draw.up_to(6) as u8, b'a' + self.draw.up_to(3) as u8);
        for _ in 0..=self.draw.up_to(4) {
            self.fail_login(process, address, user);
        }
    }

    fn fail_login(&mut self, process: usize, address: u8, user: u8) {
        let clock = self.processes[process].clock(self.now);
        let from = guesser(address);
        self.processes[process].node.bans.failed(from.address(), &[user], clock);
        self.promises.failed(address, user);
    }

    /// All is calm: all nodes want all of the rate, and a user is guessed at all of them, as often as bans it.
    pub(super) fn want_all(&mut self) {
        let living: Vec<usize> =
            (0..self.processes.len()).filter(|process| self.is_running(*process)).collect();
        for process in &living {
            self.processes[*process].node.wants = Some((RATE, 2));
        }
        for turn in 0..GUESSES {
            self.fail_login(living[turn % living.len()], Promises::GUESSED, b'z');
        }
    }

    /// All is calm: all nodes answer an errand, and when a minute is over another one leaves nothing.
    pub(super) fn ask_all(&mut self) -> Result<(), Violation> {
        for pause in [3, 61, 3] {
            let Some(process) = (0..self.processes.len()).find(|process| self.is_running(*process)) else {
                return Ok(());
            };
            self.promises.answered = None;
            self.begin(process, Task::Errand { sent: Vec::new(), missing: Vec::new(), end: None })?;
            self.advance(Duration::from_secs(pause))?;
            self.promises.all_have_answered(self)?;
        }
        self.promises.errands_are_gone(self)
    }

    /// A client logs in or out.
    fn session(&mut self, process: usize) -> Result<(), Violation> {
        let sessions = self.processes[process].node.sessions.len();
        if sessions > 0 && self.draw.permille(450) {
            let session = self.draw.up_to(sessions);
            self.processes[process].node.logout(session);
            return self.invariants.covered(self, process);
        }
        self.log_in(process)
    }

    pub(super) fn log_in(&mut self, process: usize) -> Result<(), Violation> {
        let user = [b'a' + self.draw.up_to(3) as u8];
        let mut claims = vec![Claim { scope: SharedScope::server(), most: 9 }];
        if self.draw.permille(600) {
            claims.push(Claim { scope: SharedScope::user(&user), most: 2 });
        }
        let clock = self.processes[process].clock(self.now);
        match self.processes[process].node.login(claims, clock) {
            Login::Refused => Ok(()),
            Login::Asks(question) => {
                self.ask(process, Asker::Login, question);
                Ok(())
            }
            Login::Begun => {
                self.note(|| format!("node {process}: a session takes a place on"));
                self.invariants.begun(self, process)
            }
        }
    }
}
