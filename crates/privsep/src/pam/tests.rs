//! A library of PAM and a module that are written in Rust, so that Miri can follow every pointer between them and the
//! server's side: see `docs/confinement.md`.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

use super::*;

/// A prompt with echo, whose answer would be public.
const PROMPT_ECHO_ON: c_int = 2;

/// What the module asks, and what it was answered.
#[derive(Default)]
struct Module {
    asks: &'static [c_int],
    /// Whether the last message is a null pointer.
    has_null: bool,
    answers: Vec<Option<CString>>,
    ended: usize,
}

thread_local! {
    static MODULE: RefCell<Module> = RefCell::default();
}

/// A transaction of the library: its copies of what it was given.
struct Fake {
    user: Option<CString>,
    converse: Converse,
    data: *mut c_void,
}

unsafe extern "C" fn start(
    _: *const c_char,
    user: *const c_char,
    conversation: *const Conversation,
    handle: *mut Handle,
) -> c_int {
    // SAFETY: as the library requires of its callers.
    unsafe {
        let user = (!user.is_null()).then(|| CStr::from_ptr(user).to_owned());
        let Conversation { converse, data } = conversation.read();
        *handle = Box::into_raw(Box::new(Fake { user, converse, data })).cast();
    }
    SUCCESS
}

unsafe extern "C" fn end(handle: Handle, _: c_int) -> c_int {
    // SAFETY: it is from `start`, and not used again.
    drop(unsafe { Box::from_raw(handle.cast::<Fake>()) });
    MODULE.with_borrow_mut(|module| module.ended += 1);
    SUCCESS
}

unsafe extern "C" fn set_item(_: Handle, _: c_int, value: *const c_void) -> c_int {
    // SAFETY: a text that ends with NUL.
    let length = unsafe { CStr::from_ptr(value.cast()) }.count_bytes();
    if length > 0 { SUCCESS } else { BUF_ERR }
}

unsafe extern "C" fn get_item(handle: Handle, _: c_int, item: *mut *const c_void) -> c_int {
    // SAFETY: the handle is from `start`, and there is room for a pointer.
    unsafe {
        let user = &(*handle.cast::<Fake>()).user;
        *item = user.as_ref().map_or(ptr::null(), |user| user.as_ptr().cast());
    }
    SUCCESS
}

/// Asks by the conversation, keeps the answers, and frees them as the library does.
unsafe extern "C" fn authenticate(handle: Handle, _: c_int) -> c_int {
    let (asks, has_null) = MODULE.with_borrow(|module| (module.asks, module.has_null));
    let messages: Vec<Message> =
        asks.iter().map(|&style| Message { style, text: c"Password: ".as_ptr() }).collect();
    let mut pointers: Vec<*const Message> = messages.iter().map(ptr::from_ref).collect();
    if has_null {
        pointers.push(ptr::null());
    }
    let mut responses = ptr::null_mut();
    // SAFETY: the handle is from `start`; the responses are as many as the messages, by `calloc` and its kin.
    unsafe {
        let Fake { converse, data, .. } = &*handle.cast::<Fake>();
        let status = converse(pointers.len() as c_int, pointers.as_ptr(), &mut responses, *data);
        if status != SUCCESS {
            return status;
        }
        for index in 0..pointers.len() {
            let text = (*responses.add(index)).text;
            let answer = (!text.is_null()).then(|| CStr::from_ptr(text).to_owned());
            MODULE.with_borrow_mut(|module| module.answers.push(answer));
            libc::free(text.cast());
        }
        libc::free(responses.cast());
    }
    SUCCESS
}

unsafe extern "C" fn acct_mgmt(_: Handle, _: c_int) -> c_int {
    SUCCESS
}

unsafe extern "C" fn strerror(_: Handle, _: c_int) -> *const c_char {
    c"the library's words".as_ptr()
}

/// Logs in by a module that asks this; returns the verdict, and what it was answered.
fn log_in(asks: &'static [c_int], has_null: bool) -> (Result<Verdict, PamError>, Vec<Option<CString>>) {
    MODULE.replace(Module { asks, has_null, ..Module::default() });
    let library =
        Library(Ok(Functions { start, end, set_item, get_item, authenticate, acct_mgmt, strerror }));
    let verdict = library.check(&Question {
        service: "millrace",
        user: "alice",
        password: "se cret",
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        by_http: false,
        wants_entry: false,
    });
    let Module { answers, ended, .. } = MODULE.take();
    assert_eq!(ended, 1, "the transaction ends once");
    (verdict, answers)
}

#[test]
fn a_hidden_prompt_is_answered_with_the_password_and_no_other() {
    let (verdict, answers) = log_in(&[TEXT_INFO, PROMPT_ECHO_OFF, ERROR_MSG], false);
    assert!(matches!(verdict, Ok(Verdict::Right(None))));
    assert_eq!(answers, [None, Some(c"se cret".to_owned()), None]);
}

#[test]
fn what_cannot_be_answered_ends_the_conversation_and_frees_the_answers() {
    for (asks, has_null) in
        [(&[PROMPT_ECHO_OFF, PROMPT_ECHO_ON][..], false), (&[PROMPT_ECHO_OFF], true), (&[], false)]
    {
        let (verdict, answers) = log_in(asks, has_null);
        let error = verdict.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("PAM says: the library's words"), "{asks:?}");
        assert_eq!(answers, [], "{asks:?}");
    }
    let (verdict, _) = log_in(&[PROMPT_ECHO_OFF; 33], false);
    assert!(verdict.is_err(), "more than a module may ask");
}
