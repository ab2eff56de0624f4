//! Calls the PAM library, which is found when the helper starts, and interprets its results.
//!
//! Nothing is linked, so that a program runs, too, where there is no PAM. This is the only file of the crate with
//! `unsafe`, and the helper the only process that calls it: the library and its modules are C.
//!
//! What makes it sound: the types of [`Functions`] are those of `pam_appl.h` of Linux-PAM; every pointer that is handed
//! over outlives the transaction, which is a value of this file and ends with it; and [`answer`] allocates as the library
//! frees (`calloc`), and never panics.
//!
//! Every call may take as long as the modules like. A prompt with echo is not answered with the password, because the
//! module treats the answer as public.

#![allow(unsafe_code, reason = "the PAM library is C, and is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use nix::unistd;

use crate::question::{Entry, Question, Verdict};

/// The library, by the name of its interface.
const LIBRARY: &CStr = c"libpam.so.0";

/// Why PAM gives no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PamError {
    /// The library cannot be loaded.
    #[error(
        "accounts of PAM need the library libpam, which cannot be loaded ({0}): install it (Debian: libpam0g), or leave \
         them out"
    )]
    Missing(LoadError),
    /// The program is linked statically, and loads no library at run time.
    #[error(
        "accounts of PAM need a program that loads the library libpam, and this one is linked statically: use that of the \
         Debian package or the RPM, or leave them out"
    )]
    Static,
    /// The library or a module.
    #[error("PAM says: {0}")]
    Library(String),
    /// A text has a NUL byte.
    #[error("a name has a NUL byte")]
    Nul(#[from] std::ffi::NulError),
    /// The system's own database has no entry that can be used.
    #[error("the passwd entry of {user} cannot be read: {source}")]
    Entry { user: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Why the library cannot be loaded, as the dynamic linker says.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoadError(String);

type Handle = *mut c_void;

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

type Converse = extern "C" fn(c_int, *const *const Message, *mut *mut Response, *mut c_void) -> c_int;

#[repr(C)]
struct Conversation {
    converse: Converse,
    data: *mut c_void,
}

/// The functions of the library that a login needs.
#[derive(Clone, Copy)]
struct Functions {
    start: unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut Handle) -> c_int,
    end: unsafe extern "C" fn(Handle, c_int) -> c_int,
    set_item: unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int,
    get_item: unsafe extern "C" fn(Handle, c_int, *mut *const c_void) -> c_int,
    authenticate: unsafe extern "C" fn(Handle, c_int) -> c_int,
    acct_mgmt: unsafe extern "C" fn(Handle, c_int) -> c_int,
    strerror: unsafe extern "C" fn(Handle, c_int) -> *const c_char,
}

// Numbers of `_pam_types.h`.
const SUCCESS: c_int = 0;
const BUF_ERR: c_int = 5;
const PERM_DENIED: c_int = 6;
const AUTH_ERR: c_int = 7;
const CRED_INSUFFICIENT: c_int = 8;
const USER_UNKNOWN: c_int = 10;
const MAXTRIES: c_int = 11;
const NEW_AUTHTOK_REQD: c_int = 12;
const ACCT_EXPIRED: c_int = 13;
const CRED_EXPIRED: c_int = 16;
const CRED_ERR: c_int = 17;
const CONV_ERR: c_int = 19;
const AUTHTOK_EXPIRED: c_int = 27;
const USER: c_int = 2;
const TTY: c_int = 3;
const RHOST: c_int = 4;
const SILENT: c_int = 0x8000;
const DISALLOW_NULL_AUTHTOK: c_int = 1;
const PROMPT_ECHO_OFF: c_int = 1;
const ERROR_MSG: c_int = 3;
const TEXT_INFO: c_int = 4;

/// The most messages that a module sends at once (`PAM_MAX_NUM_MSG`).
const MOST_MESSAGES: c_int = 32;

/// The library, where there is one.
pub(crate) struct Library(Result<Functions, LoadError>);

impl Library {
    /// Loads it.
    pub(crate) fn load() -> Self {
        // SAFETY: the name ends with NUL. The library's initialisation is that of a library of the system. It is never
        // unloaded, as modules may have left threads and handlers behind.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Self(Err(dl_error()));
        }
        Self(Functions::find())
    }

    /// Why there is none.
    pub(crate) fn missing(&self) -> Option<PamError> {
        self.functions().err()
    }

    /// Checks that the library can read the service's configuration.
    pub(crate) fn begin(&self, service: &str) -> Result<(), PamError> {
        let (service, nothing) = (CString::new(service)?, CString::default());
        Transaction::start(self.functions()?, &service, None, &nothing).map(drop)
    }

    /// Asks about a login.
    pub(crate) fn check(&self, question: &Question<'_>) -> Result<Verdict, PamError> {
        let service = CString::new(question.service)?;
        let (user, password) = (CString::new(question.user)?, CString::new(question.password)?);
        let from = CString::new(question.from.to_string())?;
        let mut transaction = Transaction::start(self.functions()?, &service, Some(&user), &password)?;
        transaction.set(RHOST, &from)?;
        // Some modules check the terminal: it is named as by other servers.
        transaction.set(TTY, if question.by_http { c"http" } else { c"ftp" })?;
        if let Err(code) = transaction.authenticate() {
            return transaction.refusal_of_password(code);
        }
        if let Err(code) = transaction.check_account() {
            return transaction.refusal_of_account(code);
        }
        // A module may have changed the user name to one that the settings here do not know.
        match transaction.user() {
            Some(now) if *now == *user => {}
            other => {
                let other = other.unwrap_or_default().to_string_lossy();
                return Ok(Verdict::Refused(format!("to PAM this is the user {other}")));
            }
        }
        let entry = question.wants_entry.then(|| entry(question.user)).transpose()?;
        Ok(Verdict::Right(entry))
    }

    fn functions(&self) -> Result<Functions, PamError> {
        match &self.0 {
            Ok(functions) => Ok(*functions),
            Err(_) if cfg!(target_feature = "crt-static") => Err(PamError::Static),
            Err(error) => Err(PamError::Missing(error.clone())),
        }
    }
}

impl Functions {
    fn find() -> Result<Self, LoadError> {
        // SAFETY: each is the type that `pam_appl.h` declares of the function of that name.
        unsafe {
            Ok(Self {
                start: symbol(c"pam_start")?,
                end: symbol(c"pam_end")?,
                set_item: symbol(c"pam_set_item")?,
                get_item: symbol(c"pam_get_item")?,
                authenticate: symbol(c"pam_authenticate")?,
                acct_mgmt: symbol(c"pam_acct_mgmt")?,
                strerror: symbol(c"pam_strerror")?,
            })
        }
    }
}

/// Finds a function of the loaded library: in the global scope, where one that was preloaded (by tests) comes first.
///
/// # Safety
///
/// `F` is the type of the function of that name.
unsafe fn symbol<F: Copy>(name: &CStr) -> Result<F, LoadError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return Err(dl_error());
    }
    // SAFETY: it is the address of a function of that type, says the caller, and not null.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn dl_error() -> LoadError {
    // SAFETY: the text is the thread's own until its next call.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return LoadError("the dynamic linker does not say why".to_owned());
    }
    // SAFETY: it is not null, and ends with NUL.
    LoadError(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned())
}

/// A transaction, which ends when it is dropped.
struct Transaction<'a> {
    functions: Functions,
    handle: Handle,
    /// How the last call ended, which modules are told at the end.
    status: c_int,
    /// The password: [`answer`] reads it by its address.
    _password: &'a CStr,
}

impl<'a> Transaction<'a> {
    fn start(
        functions: Functions,
        service: &CStr,
        user: Option<&CStr>,
        password: &'a CStr,
    ) -> Result<Self, PamError> {
        let conversation =
            Conversation { converse: answer, data: password.as_ptr().cast_mut().cast::<c_void>() };
        let mut handle = ptr::null_mut();
        let user = user.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the texts end with NUL. The library copies them and the conversation; its data, the password, outlives
        // the handle, which this value has.
        let status = unsafe { (functions.start)(service.as_ptr(), user, &conversation, &mut handle) };
        if handle.is_null() {
            return Err(PamError::Library("the transaction cannot be started".to_owned()));
        }
        let transaction = Self { functions, handle, status, _password: password };
        match status {
            SUCCESS => Ok(transaction),
            status => Err(transaction.error(status)),
        }
    }

    fn set(&mut self, item: c_int, value: &CStr) -> Result<(), PamError> {
        // SAFETY: the handle is one of the library's. It copies the text, which ends with NUL.
        self.status = unsafe { (self.functions.set_item)(self.handle, item, value.as_ptr().cast()) };
        match self.status {
            SUCCESS => Ok(()),
            status => Err(self.error(status)),
        }
    }

    fn authenticate(&mut self) -> Result<(), c_int> {
        // SAFETY: the handle is one of the library's, and the conversation's data is there.
        self.status = unsafe { (self.functions.authenticate)(self.handle, SILENT | DISALLOW_NULL_AUTHTOK) };
        if self.status == SUCCESS { Ok(()) } else { Err(self.status) }
    }

    fn check_account(&mut self) -> Result<(), c_int> {
        // SAFETY: as above.
        self.status = unsafe { (self.functions.acct_mgmt)(self.handle, SILENT | DISALLOW_NULL_AUTHTOK) };
        if self.status == SUCCESS { Ok(()) } else { Err(self.status) }
    }

    /// The user, as the modules have it now.
    fn user(&self) -> Option<&CStr> {
        let mut item = ptr::null();
        // SAFETY: the handle is one of the library's, and there is room for a pointer.
        let status = unsafe { (self.functions.get_item)(self.handle, USER, &mut item) };
        if status != SUCCESS || item.is_null() {
            return None;
        }
        // SAFETY: the item is a text that ends with NUL, and the library's until the next call that changes it, which
        // takes this value by `&mut`.
        Some(unsafe { CStr::from_ptr(item.cast()) })
    }

    fn error(&self, code: c_int) -> PamError {
        // SAFETY: the handle is one of the library's. The text is constant.
        let text = unsafe { (self.functions.strerror)(self.handle, code) };
        if text.is_null() {
            return PamError::Library(format!("error {code}"));
        }
        // SAFETY: it is not null, and ends with NUL.
        PamError::Library(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// The meaning of a refused password.
    fn refusal_of_password(&self, code: c_int) -> Result<Verdict, PamError> {
        match code {
            USER_UNKNOWN => Ok(Verdict::Unknown),
            AUTH_ERR | PERM_DENIED | MAXTRIES | CRED_INSUFFICIENT | CRED_ERR => Ok(Verdict::Wrong),
            ACCT_EXPIRED | CRED_EXPIRED | NEW_AUTHTOK_REQD => {
                Ok(Verdict::Refused(self.error(code).to_string()))
            }
            code => Err(self.error(code)),
        }
    }

    /// The meaning of an account error.
    fn refusal_of_account(&self, code: c_int) -> Result<Verdict, PamError> {
        match code {
            USER_UNKNOWN | AUTH_ERR | PERM_DENIED | ACCT_EXPIRED | CRED_EXPIRED | AUTHTOK_EXPIRED
            | NEW_AUTHTOK_REQD => Ok(Verdict::Refused(self.error(code).to_string())),
            code => Err(self.error(code)),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is one of the library's, and is not used again.
        unsafe { (self.functions.end)(self.handle, self.status) };
    }
}

/// Answers the prompts of modules: with the password where it is not shown, with an error where it would be. Clients do not
/// see the messages of modules.
extern "C" fn answer(
    count: c_int,
    messages: *const *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    if !(1..=MOST_MESSAGES).contains(&count) || messages.is_null() || responses.is_null() || data.is_null() {
        return CONV_ERR;
    }
    let count = count.unsigned_abs() as usize;
    // SAFETY: the library hands over this many pointers to messages (Linux-PAM's form of it), and frees the responses and
    // their texts by `free`. The data is the password, which ends with NUL.
    unsafe {
        let made = libc::calloc(count, size_of::<Response>()).cast::<Response>();
        if made.is_null() {
            return BUF_ERR;
        }
        for index in 0..count {
            let message = *messages.add(index);
            let style = if message.is_null() { 0 } else { (*message).style };
            match style {
                PROMPT_ECHO_OFF => (*made.add(index)).text = copy(CStr::from_ptr(data.cast())),
                ERROR_MSG | TEXT_INFO => {}
                _ => {
                    for index in 0..count {
                        libc::free((*made.add(index)).text.cast());
                    }
                    libc::free(made.cast());
                    return CONV_ERR;
                }
            }
        }
        *responses = made;
    }
    SUCCESS
}

/// Copies a text into memory of the C library; null where there is none.
fn copy(text: &CStr) -> *mut c_char {
    let bytes = text.to_bytes_with_nul();
    // SAFETY: there is room for the text and its NUL.
    unsafe {
        let made = libc::calloc(bytes.len(), 1).cast::<c_char>();
        if !made.is_null() {
            ptr::copy_nonoverlapping(text.as_ptr(), made, bytes.len());
        }
        made
    }
}

/// A user as the system's own database knows it.
fn entry(name: &str) -> Result<Entry, PamError> {
    let cannot = |source| PamError::Entry { user: name.to_owned(), source };
    let user = unistd::User::from_name(name).map_err(|error| cannot(error.into()))?;
    let user = user.ok_or_else(|| cannot("there is none".into()))?;
    let c_name = CString::new(name)?;
    let groups = unistd::getgrouplist(&c_name, user.gid).map_err(|error| cannot(error.into()))?;
    let named = |gid| unistd::Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let groups: Vec<String> = groups.into_iter().filter_map(named).collect();
    let entry = Entry { home: user.dir, groups };
    if entry.is_within_bounds() { Ok(entry) } else { Err(cannot("it is too long".into())) }
}

#[cfg(test)]
mod tests;
