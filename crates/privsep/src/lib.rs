//! Privilege separation, as in OpenSSH and vsftpd: a server that has given up root still checks passwords by PAM, and
//! serves files with the rights of their users.
//!
//! ```text
//!   server, no rights of root          helper, root                      user-files, one for each user
//!     Policy, connections     ------>    refuses all else from now on
//!     Check user, password    ------>    asks PAM
//!                             <------    the verdict; the user is known from now on
//!     OpenFiles user, sockets ------>    starts it, with the sockets  ->   becomes the user, enters a sandbox
//!     FileCall, a directory   ------------------------------------------>  opens, renames, removes beneath it
//!                             <------------------------------------------  the error, or the open file
//! ```
//!
//! The helper is started before the server gives up its rights. It opens no socket of the network and gets none from the
//! server. (A PAM module may: one that asks a directory has to.) It parses nothing but these messages, and does two
//! things: it says whether a password is right, and it starts a process with the rights of a user whose password it has
//! found right before. So a server that is taken over can use the files of those who logged in, which passed through it
//! anyway, and of no other user; never root's. As root it enters a sandbox first, as far as modules bear one
//! ([`millrace_sandbox::enter_as_helper`]).
//!
//! # Messages
//!
//! All go over Unix sockets of type `SOCK_SEQPACKET`, which only the two processes have. A message is one packet. Numbers
//! are little-endian; a text is its length in 16 bits and this many bytes. On each connection a request is answered before
//! the next one is read.
//!
//! | Message | Content | Bounds |
//! |---|---|---|
//! | [`Policy`], once, on the first socket | services of PAM, each with whether files are opened with the rights of its users; whether there is a sandbox, and its trees. With it come the connections | 8 services, 1,024 trees, 64 KiB |
//! | [`Request::Begin`] | 0, a service | its name 255 bytes |
//! | [`Request::Check`] | 1, service, user, password, the client's address, its protocol, whether home and groups are wanted | user 255 bytes, password 511, as PAM itself has it |
//! | [`Request::OpenFiles`] | 2, a user. With it come 4 sockets, the connections for file calls | |
//! | [`Request::Join`] | 3, for the successor of a hot upgrade. With it comes a socket, at which the successor sends its policy | no more than the first policy |
//! | [`Answer`] | a verdict, `Done`, or why there is none | 64 KiB; a reason 512 bytes |
//! | [`Setup`], once, from the helper to `user-files` | user, group, supplementary groups; sandbox and trees. With it come the 4 sockets | 4,096 groups |
//! | [`FileCall`] | what to do, names, flags; with it come 1 or 2 descriptors: directories, or the file | a path 4,095 bytes; 64 names, 8 KiB together |
//! | its answer | the error in 32 bits, 0 for none; with it come the files that were opened, of several names those before the one that failed | 64 files |
//!
//! # What is refused
//!
//! Any message that is longer than its bound, has a byte too many or too few, or comes with another number of descriptors.
//!
//! - By the helper: services that the first policy does not name; [`Request::OpenFiles`] for a user whose password it has not
//!   found right at a service whose files it opens, for root (any name of number 0), and beyond 1,024 users at a time.
//! - By `user-files`: paths that are absolute or lead up or out (`RESOLVE_BENEATH`, `RESOLVE_NO_MAGICLINKS`, always),
//!   names with a slash, flags that the server does not use, set-user-ID and set-group-ID bits of files.
//!
//! # When one ends
//!
//! Each ends when the server does, or closes its connections. (At a hot upgrade the helper goes on for the successor.) A server that has given up root cannot start another
//! helper: when the helper ends, logins that need it are refused ([`HelperError::Ended`]), and the rest goes on until the
//! server is restarted. Where a `user-files` ends, the open sessions of its user get errors, and the next login starts
//! another.

#![cfg(target_os = "linux")]

mod agent;
mod call;
mod client;
mod files;
mod helper;
mod pam;
mod policy;
mod question;
mod wire;

pub use agent::{close_inherited, run_user_files};
pub use call::FileCall;
pub use client::{Helper, HelperError, StartError, connect_helper, helper, join_helper};
pub use files::UserFiles;
pub use helper::{run_helper, serve_as_helper};
pub use policy::{Policy, Service, Setup};
pub use question::{Answer, Entry, LONGEST_PASSWORD, LONGEST_USER, Question, Request, Verdict};
