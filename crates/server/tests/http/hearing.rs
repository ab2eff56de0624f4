//! What hooks are told comes in its order, to the end, and is bounded: however slow they are, and whether a client waits
//! for them or not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks};
use millrace_server::{BanRules, Config};
use millrace_storage::MemoryStorage;

use crate::kit::{HttpClient, PATIENCE, ServedHttp, eventually, http_config, reset, serve_http_with};

/// `u:p`.
const LOGIN: &str = "Authorization: Basic dTpw\r\n";

/// Hears of some events, and hangs in one of them until it is let go.
#[derive(Debug)]
struct Slow {
    hangs_in: Event,
    others: &'static [Event],
    /// How often sessions asked whether it wants to hear of what it hangs in.
    told: AtomicUsize,
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// This many hang, or have hung.
    reached: usize,
    is_free: bool,
    /// The events that were heard to the end.
    heard: Vec<String>,
}

impl Slow {
    fn new(hangs_in: Event, others: &'static [Event]) -> Arc<Self> {
        let (told, state, change) = (AtomicUsize::new(0), Mutex::default(), Condvar::new());
        Arc::new(Self { hangs_in, others, told, state, change })
    }

    fn serve(self: &Arc<Self>, config: Config) -> ServedHttp {
        let hooks: Arc<dyn Hooks> = self.clone();
        serve_http_with(Config { hooks: Some(hooks), ..config })
    }

    fn let_go(&self) {
        self.state.lock().unwrap().is_free = true;
        self.change.notify_all();
    }

    #[track_caller]
    fn wait_until_it_hangs(&self) {
        eventually("it hangs", || self.state.lock().unwrap().reached > 0);
    }

    /// The events, once there are this many.
    #[track_caller]
    fn heard(&self, count: usize) -> Vec<String> {
        eventually("all is heard", || self.state.lock().unwrap().heard.len() >= count);
        self.state.lock().unwrap().heard.clone()
    }
}

impl Hooks for Slow {
    fn concerns(&self, event: Event, _: &str) -> bool {
        if event == self.hangs_in {
            self.told.fetch_add(1, Ordering::SeqCst);
        }
        event == self.hangs_in || self.others.contains(&event)
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        let mut state = self.state.lock().unwrap();
        if context.event == self.hangs_in {
            state.reached += 1;
            let (woken, over) =
                self.change.wait_timeout_while(state, PATIENCE, |state| !state.is_free).unwrap();
            assert!(!over.timed_out());
            state = woken;
        }
        let code = context.code.map_or(String::new(), |code| format!(" {code}"));
        let path = context.path.as_ref().map_or(String::new(), |path| format!(" {path}"));
        state.heard.push(format!("{} {}{path}{code}", context.session, context.event));
        HookVerdict::Pass
    }
}

/// A client that has gone, of which the only worker has heard.
fn leave(client: HttpClient, served: &ServedHttp) {
    reset(client.stream);
    assert_eq!(served.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status, 204);
}

#[test]
fn a_client_who_asks_for_more_than_hooks_can_hear_of_waits_for_them() {
    let storage = MemoryStorage::new().insert("/f", "content").clone();
    let hooks = Slow::new(Event::Download, &[]);
    let served = hooks.serve(http_config(Arc::new(storage)));
    const ASKED: usize = 200;
    let mut client = served.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n".repeat(ASKED));
    // It has said all that it will.
    client.end_writing();
    for _ in 0..16 {
        assert_eq!(client.response().body, b"content");
    }
    // Other connections do not wait, and those of the same turn have been answered by now.
    assert_eq!(served.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").status, 204);
    let told = hooks.told.load(Ordering::SeqCst);
    assert!(told < 2 * 16, "{told} were told");
    hooks.let_go();
    for _ in 16..ASKED {
        assert_eq!(client.response().body, b"content");
    }
    assert_eq!(hooks.heard(ASKED).len(), ASKED);
}

#[test]
fn a_client_that_leaves_while_hooks_are_asked_leaves_no_event_unheard() {
    let storage = MemoryStorage::new().insert("/f", "content").clone();
    // A completed action leads to its reply and its event, as if the client were still connected.
    let hooks = Slow::new(Event::Upload, &[Event::Command, Event::Reply, Event::Disconnect]);
    let served = hooks.serve(http_config(Arc::new(storage.clone())));
    let mut client = served.connect();
    client.send(format!("PUT /new HTTP/1.1\r\nHost: h\r\n{LOGIN}Content-Length: 1\r\n\r\n1"));
    hooks.wait_until_it_hangs();
    reset(client.stream);
    served.ask("GET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    hooks.let_go();
    let mut heard = hooks.heard(7);
    let first =
        heard.iter().find(|line| line.contains("upload")).unwrap().split(' ').next().unwrap().to_owned();
    heard.retain(|line| line.starts_with(&format!("{first} ")));
    let expected = ["command /new", "upload /new", "reply /new 201", "disconnect"];
    assert_eq!(heard, expected.map(|line| format!("{first} {line}")));

    // What was not done is not done.
    let hooks = Slow::new(Event::Command, &[Event::Reply, Event::Disconnect]);
    let served = hooks.serve(http_config(Arc::new(storage)));
    let mut client = served.connect();
    client.send(format!("DELETE /f HTTP/1.1\r\nHost: h\r\n{LOGIN}\r\n"));
    hooks.wait_until_it_hangs();
    leave(client, &served);
    hooks.let_go();
    eventually("it is heard of", || hooks.heard(3).iter().any(|line| line.contains("reply")));
    let mut heard = hooks.heard(4);
    let first =
        heard.iter().find(|line| line.contains("command")).unwrap().split(' ').next().unwrap().to_owned();
    heard.retain(|line| line.starts_with(&format!("{first} ")));
    assert_eq!(heard, ["command /f", "reply /f 400", "disconnect"].map(|line| format!("{first} {line}")));
}

#[test]
fn a_ban_is_heard_before_the_end_of_whom_it_is_about() {
    let hooks = Slow::new(Event::Ban, &[Event::Disconnect]);
    let bans = BanRules { after: 1, ..BanRules::default() };
    let served = hooks.serve(Config { bans, ..http_config(Arc::new(MemoryStorage::new())) });
    let mut client = served.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTp4\r\n\r\n");
    hooks.wait_until_it_hangs();
    leave(client, &served);
    assert!(hooks.heard(1).iter().all(|line| line.contains("disconnect")));
    hooks.let_go();
    let heard = hooks.heard(3);
    let at = |word: &str| heard.iter().position(|line| line.contains(word)).unwrap();
    let session = heard[at("ban")].split(' ').next().unwrap().to_owned();
    assert!(at("ban") < at(&format!("{session} disconnect")), "{heard:?}");
}
