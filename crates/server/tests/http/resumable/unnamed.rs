//! Uploads that have no name yet, while hooks have their word.

use std::sync::{Arc, Mutex, mpsc};

use millrace_server::Config;
use millrace_server::hooks::{
    Action, Event, EventContext, HookVerdict, Hooks, Refusal, Rule, Rules, Template,
};
use millrace_vfs::ReadHandle;

use super::joining::{PART, join, part, staged};
use super::{PIECE, ask, begin, offset, piece, send};
use crate::kit::{Scratch, ServedHttp, eventually, http_config, serve_http_with};

/// Asked about uploads before they have a name.
struct Judge(Box<dyn Fn(&EventContext) -> HookVerdict + Send + Sync>);

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

impl Hooks for Judge {
    fn concerns(&self, event: Event, _: &str) -> bool {
        event == Event::Upload
    }

    fn asks_beforehand(&self) -> bool {
        true
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        (self.0)(context)
    }
}

/// Serves a folder `d` with a file `f` in it.
fn served(hooks: impl Hooks + 'static) -> (Scratch, ServedHttp) {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/f", b"old");
    let served = serve_http_with(Config { hooks: Some(Arc::new(hooks)), ..http_config(scratch.storage()) });
    (scratch, served)
}

fn content(context: &EventContext) -> Vec<u8> {
    let Some(ReadHandle::File(range)) = context.preview() else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(range.size).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&*range.file, &mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_refused_upload_leaves_the_file_that_was_there_and_is_over() {
    let (scratch, served) = served(Judge(Box::new(|context| match content(context).starts_with(b"EICAR") {
        true => HookVerdict::Refuse(Refusal::new("552 A virus.")),
        false => HookVerdict::Pass,
    })));
    let address = begin(&served, "POST /d/f", 7, "");
    assert_eq!(piece(&served, &address, 0, "", b"EIC").status, 204);
    let refused = piece(&served, &address, 3, "", b"AR.x");
    assert!(refused.status == 507 && refused.text().contains("A virus."), "{refused:?}");
    assert_eq!(refused.field("tus-resumable"), Some("1.0.0"));
    assert_eq!((offset(&served, &address), scratch.read("d/f").unwrap()), (Err(410), b"old".to_vec()));
    let whole = ask(&served, "POST /d/f", &format!("{PIECE}Upload-Length: 5\r\n"), b"EICAR");
    assert_eq!((whole.status, scratch.read("d/f").unwrap()), (507, b"old".to_vec()));
    let (one, two) = (part(&served, b"EIC"), part(&served, b"AR"));
    assert_eq!(join(&served, "POST /d/f", &[&one, &two], "").status, 507);
    assert_eq!((offset(&served, &one), offset(&served, &two)), (Err(410), Err(410)));
    assert_eq!((scratch.read("d/f").unwrap(), staged(&scratch)), (b"old".to_vec(), 0));
    // An accepted upload has the name.
    let (one, two) = (part(&served, b"one"), part(&served, b"two"));
    let joined = join(&served, "POST /d/f", &[&one, &two], "");
    let address = joined.field("location").unwrap();
    assert_eq!((joined.status, offset(&served, address)), (201, Ok(6)));
    assert_eq!((scratch.read("d/f").unwrap(), staged(&scratch)), (b"onetwo".to_vec(), 0));
}

#[test]
fn an_upload_has_its_name_when_hooks_have_accepted_it_and_cannot_be_continued_before() {
    let (asked, is_asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel::<()>();
    let answered = Mutex::new(answered);
    let (scratch, served) = served(Judge(Box::new(move |context| {
        let _ = asked.send(content(context));
        // Until the test lets go of it.
        let _ = answered.lock().unwrap().recv();
        HookVerdict::Pass
    })));
    let address = begin(&served, "POST /d/f", 4, "");
    let mut client = served.connect();
    send(&mut client, &format!("PATCH {address}"), &format!("{PIECE}Upload-Offset: 0\r\n"), b"1234");
    assert_eq!(is_asked.recv().unwrap(), b"1234");
    assert_eq!((offset(&served, &address), scratch.read("d/f").unwrap()), (Err(423), b"old".to_vec()));
    assert_eq!(ask(&served, &format!("DELETE {address}"), "", b"").status, 423);
    // Also where the client that brought it does not wait.
    drop(client);
    drop(answer);
    eventually("it is known", || offset(&served, &address) == Ok(4));
    assert_eq!((scratch.read("d/f").unwrap(), staged(&scratch)), (b"1234".to_vec(), 0));
}

#[test]
fn a_file_moved_by_a_program_is_complete_and_its_client_succeeds() {
    let elsewhere = Scratch::new();
    let taken = elsewhere.file("taken").display().to_string();
    let words = ["/bin/mv", "{file}", &taken].map(|word| Template::parse(word).unwrap());
    let rule = Rule {
        on: vec![Event::Upload],
        verbs: Vec::new(),
        users: Vec::new(),
        paths: Vec::new(),
        larger_than: None,
        smaller_than: None,
        action: Action::Run(words.to_vec()),
        wait: None,
        time_limit: crate::kit::PATIENCE,
        refuses_on_failure: true,
        refused_to: None,
    };
    let (scratch, served) = served(Rules::new(vec![rule], None));
    let address = begin(&served, "POST /d/f", 4, "");
    assert_eq!(piece(&served, &address, 0, "", b"1234").status, 204);
    assert_eq!((elsewhere.read("taken").unwrap(), offset(&served, &address)), (b"1234".to_vec(), Ok(4)));
    let parts: Vec<String> = [&b"one"[..], b"two"].into_iter().map(|bytes| part(&served, bytes)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert_eq!(join(&served, "POST /d/f", &parts, "").status, 201);
    assert_eq!(elsewhere.read("taken").unwrap(), b"onetwo");
    assert_eq!((scratch.read("d/f").unwrap(), staged(&scratch)), (b"old".to_vec(), 0));
    assert_eq!(offset(&served, &begin(&served, "POST /d/f", 3, PART)), Ok(0), "others go on");
}
