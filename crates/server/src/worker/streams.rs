//! Connections of HTTP/2 and their streams, which a worker has side by side: what came for a stream is handed to it, and
//! what it has to say to its connection.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millrace_runtime::slab::Key;
use millrace_runtime::transfer::TURN;
use millrace_runtime::worker::Client as _;

use super::{Client, Core, Worker};
use millrace_http_server::{self as http, Http2Connection, StreamDriver};

/// Hands on between connections of HTTP/2 and their streams, where there is something.
pub(crate) fn hand_on(worker: &mut Worker) {
    for key in worker.doors().http.take_multiplexed() {
        if catch_unwind(AssertUnwindSafe(|| multiplex(worker, key))).is_err() {
            worker.lose(key);
        }
    }
}

fn http2(worker: &mut Worker, key: Key) -> Option<(&mut Http2Connection, &mut http::Core)> {
    match worker.client(key)? {
        (Client::Http2(connection), core) => Some((connection, &mut core.http)),
        _ => None,
    }
}

fn multiplex(worker: &mut Worker, key: Key) {
    let mut share = TURN;
    loop {
        while let Some((stream, news)) = http2(worker, key).and_then(|(http2, _)| http2.next_news()) {
            serve_stream(worker, stream, |client, core| {
                if let Client::Http(connection) = client {
                    StreamDriver::of(connection).take_news(&mut core.http, &news);
                }
            });
        }
        let has_begun = begin_streams(worker, key);
        let sent = send_bodies(worker, key);
        let Some((http2, core)) = http2(worker, key) else { return };
        share = share.saturating_sub(sent);
        if share == 0 {
            core.yielded.push_back(key);
            break;
        }
        if !has_begun && sent == 0 {
            break;
        }
        http2.flush(core);
    }
    let Some((http2, core)) = http2(worker, key) else { return };
    if !http2.finish_turn(core) {
        worker.end_one(key);
    }
}

/// Begins streams that wait, as far as they may. Returns whether there were any.
fn begin_streams(worker: &mut Worker, key: Key) -> bool {
    let mut has_begun = false;
    while let Some(start) = http2(worker, key).and_then(|(http2, core)| http2.next_start(core)) {
        has_begun = true;
        let (id, mut begin) = (start.id(), None);
        let stream = worker.insert(|stream| {
            let (connection, request, news) = start.open(stream);
            begin = Some((request, news));
            Client::Http(connection)
        });
        if let Some((http2, _)) = http2(worker, key) {
            http2.began(id, stream);
        }
        serve_stream(worker, stream, |client, core| {
            if let (Client::Http(connection), Some((request, news))) = (client, begin) {
                StreamDriver::of(connection).begin_stream(&mut core.http, request, news);
            }
        });
    }
    has_begun
}

/// Sends of the bodies of answers, in turn, and has streams make more. Returns how many bytes were sent.
fn send_bodies(worker: &mut Worker, key: Key) -> usize {
    let (mut sent, mut hungry) = (0, Vec::new());
    while let Some((stream, room)) = http2(worker, key).and_then(|(http2, _)| http2.next_body()) {
        sent += room;
        let Some((Client::Http2(http2), Client::Http(connection), core)) = worker.clients(key, stream) else {
            break;
        };
        if http2.take_turn(connection, room, &mut core.http) && !hungry.contains(&stream) {
            hungry.push(stream);
        }
    }
    for stream in hungry {
        serve_stream(worker, stream, Client::go_on);
    }
    sent
}

/// Lets a stream do something, then takes what it has to say, and ends it where it is over.
pub(crate) fn serve_stream(worker: &mut Worker, key: Key, work: impl FnOnce(&mut Client, &mut Core)) {
    if serve_stream_once(worker, key, work) {
        serve_stream_once(worker, key, Client::go_on);
    }
}

/// The same; returns whether the stream is to make more at once.
fn serve_stream_once(worker: &mut Worker, key: Key, work: impl FnOnce(&mut Client, &mut Core)) -> bool {
    let Some(parent) = worker.client(key).and_then(|(client, _)| client.parent()) else { return false };
    let is_sound = worker.try_work(key, work);
    has_worked(worker, key, parent, is_sound)
}

/// A stream has done something outside of its connection's turn.
pub(crate) fn after_stream(worker: &mut Worker, key: Key, parent: Key, is_sound: bool) {
    if has_worked(worker, key, parent, is_sound) {
        serve_stream_once(worker, key, Client::go_on);
    }
    worker.doors().http.note_multiplexed(parent);
}

/// Takes what a stream has to say, and ends it where it is over. Returns whether it is to make more at once.
fn has_worked(worker: &mut Worker, key: Key, parent: Key, is_sound: bool) -> bool {
    if !is_sound {
        worker.lose(key);
        if let Some((http2, _)) = http2(worker, parent) {
            http2.lose(key);
        }
        return false;
    }
    let mut is_hungry = false;
    if let Some((Client::Http2(http2), Client::Http(stream), core)) = worker.clients(parent, key) {
        is_hungry = http2.collect(stream, &mut core.http);
    }
    let Some((Client::Http(stream), core)) = worker.client(key) else { return false };
    let mut driver = StreamDriver::of(stream);
    if !driver.has_ended() {
        driver.set_clock(&mut core.http);
        return is_hungry;
    }
    let Some(Client::Http(stream)) = worker.remove(key) else { return false };
    match http2(worker, parent) {
        Some((http2, core)) => http2.ended(core, stream),
        None => stream.close(&mut worker.doors().http),
    }
    false
}

/// Ends the streams of a connection that is gone.
pub(crate) fn end_streams(worker: &mut Worker, streams: Vec<Key>) {
    for stream in streams {
        serve_stream(worker, stream, |client, _| {
            if let Client::Http(connection) = client {
                StreamDriver::of(connection).end_stream();
            }
        });
    }
}

/// Tells a stream whose clock is looked at how much its client has taken of all that it was sent.
pub(crate) fn note_acknowledged(worker: &mut Worker, key: Key) {
    let Some(parent) = worker.client(key).and_then(|(client, _)| client.parent()) else { return };
    let taken = http2(worker, parent).and_then(|(http2, _)| http2.acknowledged());
    if let Some((Client::Http(stream), _)) = worker.client(key) {
        StreamDriver::of(stream).note_acknowledged(taken);
    }
}

/// Tells the clients of all connections of HTTP/2 to open no more streams.
pub(crate) fn drain_http2(worker: &mut Worker) {
    for key in worker.keys() {
        if matches!(worker.client(key), Some((Client::Http2(_), _))) {
            worker.serve(key, Client::shut_down);
        }
    }
}
