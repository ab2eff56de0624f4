//! `millrace ctl top`: the sessions of a running server, live.

mod keys;
mod session;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGTERM};

use self::terminal::Terminal;
use self::view::{KeyEffect, SortKey, TopView};
use super::error::ClientError;
use super::link::ServerLink;
use super::{length_of_time, print};

/// How long an answer may take before the screen says so.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The settings of the view.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Print the table once, and end; with --json, what the server answers
    #[arg(long)]
    once: bool,
    /// How often the server is asked
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = length_of_time)]
    interval: Duration,
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

pub(super) fn run(socket: &Path, top: &Top, as_json: bool) -> Result<(), ClientError> {
    let mut server = ServerLink::new(socket, ANSWER_TIME);
    let mut view = TopView::new(top.sort, top.reverse, top.filter.clone());
    if top.once {
        let answer = sessions(&mut server)?;
        if as_json {
            return print(&format!("{answer}\n"));
        }
        view.take(&answer);
        return print(&view.table());
    }
    if as_json || !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(ClientError::Usage("top needs a terminal; --once prints the table without one."));
    }
    view.take(&sessions(&mut server)?);
    watch(&mut server, &mut view, top.interval)
}

/// Draws, asks again after each interval, and does what keys say.
fn watch(server: &mut ServerLink, view: &mut TopView, interval: Duration) -> Result<(), ClientError> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).map_err(ClientError::Terminal)?;
    }
    let mut terminal = Terminal::open().map_err(ClientError::Terminal)?;
    let mut next = Instant::now() + interval;
    while !is_over.load(Ordering::Relaxed) {
        let size = Terminal::size();
        terminal.draw(size, &view.lines(size)).map_err(ClientError::Terminal)?;
        for key in
            terminal.keys(next.saturating_duration_since(Instant::now())).map_err(ClientError::Terminal)?
        {
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
            match sessions(server) {
                Ok(answer) => view.take(&answer),
                // It may be in the middle of an upgrade: the next one answers.
                Err(failure) => view.note(failure.to_string()),
            }
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

/// Returns the sessions, as the server lists them.
fn sessions(server: &mut ServerLink) -> Result<Value, ClientError> {
    server.ask_again(&json!({ "do": "sessions" }))
}
