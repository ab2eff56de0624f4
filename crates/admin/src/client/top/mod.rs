//! `millrace ctl top`: the sessions of a running server, live.

mod keys;
mod session;
mod terminal;
mod view;

use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGTERM};

use self::terminal::Terminal;
use self::view::{KeyEffect, SortKey, TopView};
use crate::bench::output::print;
use crate::config::{Period, Said};
use crate::failure::Failure;

/// How long an answer may take before the screen says so.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The settings of the view.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Print the table once, and end; with --json, what the server answers
    #[arg(long)]
    once: bool,
    /// How often the server is asked
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Said<Period>,
    /// What to sort by; the key s takes the next
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t)]
    sort: SortKey,
    /// The least first, where otherwise the most is
    #[arg(long)]
    reverse: bool,
    /// Only sessions of which a column has this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

pub(super) fn run(socket: &Path, top: &Top, as_json: bool) -> Result<(), Failure> {
    let mut server = ServerLink { socket, stream: None };
    let mut view = TopView::new(top.sort, top.reverse, top.filter.clone());
    if top.once {
        let answer = server.sessions()?;
        if as_json {
            return print(&format!("{answer}\n"));
        }
        view.take(&answer);
        return print(&view.table());
    }
    if as_json || !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Configuration(
            "top needs a terminal; --once prints the table without one.".to_owned(),
        ));
    }
    view.take(&server.sessions()?);
    watch(&mut server, &mut view, top.interval.value.0)
}

/// Draws, asks again after each interval, and does what keys say.
fn watch(server: &mut ServerLink<'_>, view: &mut TopView, interval: Duration) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Running(format!("the terminal cannot be used: {error}."));
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).map_err(failed)?;
    }
    let mut terminal = Terminal::open().map_err(failed)?;
    let mut next = Instant::now() + interval;
    while !is_over.load(Ordering::Relaxed) {
        let size = Terminal::size();
        terminal.draw(size, &view.lines(size)).map_err(failed)?;
        for key in terminal.keys(next.saturating_duration_since(Instant::now())).map_err(failed)? {
            match view.press(key) {
                KeyEffect::None => {}
                KeyEffect::Quit => return Ok(()),
                KeyEffect::Kick(number) => {
                    let kicked = server.ask(&json!({ "do": "kick", "session": number }));
                    view.note(match kicked {
                        Ok(answer) if answer["kicked"] == 1 => format!("Session {number} ended."),
                        Ok(_) => format!("Session {number} had ended already."),
                        Err(failure) => failure.to_string(),
                    });
                    next = Instant::now();
                }
            }
        }
        if Instant::now() >= next {
            match server.sessions() {
                Ok(answer) => view.take(&answer),
                // It may be in the middle of an upgrade: the next one answers.
                Err(failure) => view.note(failure.to_string()),
            }
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

/// The server at a control socket: one connection for all requests, made anew where it has broken.
struct ServerLink<'a> {
    socket: &'a Path,
    stream: Option<BufReader<UnixStream>>,
}

impl ServerLink<'_> {
    fn sessions(&mut self) -> Result<Value, Failure> {
        self.ask(&json!({ "do": "sessions" }))
    }

    fn ask(&mut self, request: &Value) -> Result<Value, Failure> {
        let answer = self.exchange(request).or_else(|_| {
            self.stream = None;
            self.exchange(request)
        });
        if answer.is_err() {
            self.stream = None;
        }
        let answer = answer.map_err(|error| super::no_answer(self.socket, &error))?;
        super::parsed(&answer)
    }

    fn exchange(&mut self, request: &Value) -> io::Result<String> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = UnixStream::connect(self.socket)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                self.stream.insert(BufReader::new(stream))
            }
        };
        stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        match stream.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(answer),
        }
    }
}
