//! A child that shares this process's memory until it is another program: `clone3` with `CLONE_VM` and `CLONE_VFORK`.
//!
//! This is one of the three places of the workspace with `unsafe` code (the others: `crates/uring`, `crates/privsep`), because neither the
//! standard library nor `rustix` or `nix` starts a process in this way: theirs are `fork`, and the C library's
//! `posix_spawn`. Three things make it sound:
//!
//! - **The child runs no Rust, and touches no stack.** It makes the system calls that its parent has written down
//!   ([`Call`]), one after the other, in a loop of a dozen instructions that is all its code. So nothing of the parent
//!   is changed but the two words in which the child leaves which call has failed, and how.
//! - **The parent's thread is suspended until then** (`CLONE_VFORK`): the memory that the calls point to stays where it
//!   is, and the shared stack frame is used by the child alone.
//! - **No handler of the parent's runs in the child** (`CLONE_CLEAR_SIGHAND`, Linux 5.5): a signal that comes in
//!   between ends the child.
//!
//! A child of this process's parent (`CLONE_PARENT`) is no exception: it is this thread that waits for it to be another
//! program.
//!
//! The table of descriptors may be shared as well, until the first of the calls: no other of them touches it before.

use std::arch::asm;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Resource};

use super::limits;
use super::slots::{self, Slot};
use super::spare::Lent;
use super::{Failure, Parent, Process, Start, strings};

// Numbers of x86-64.
const RT_SIGACTION: usize = 13;
const RT_SIGPROCMASK: usize = 14;
const DUP2: usize = 33;
const EXECVE: usize = 59;
const CHDIR: usize = 80;
const SETPGID: usize = 109;
const PRLIMIT64: usize = 302;
const CLONE3: usize = 435;
const CLOSE_RANGE: usize = 436;

const CLONE_VM: u64 = 0x100;
const CLONE_FILES: u64 = 0x400;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_PARENT: u64 = 0x8000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const SIGPIPE: usize = 13;
const SIGCHLD: u64 = 17;
const SIG_SETMASK: usize = 2;
const CLOSE_RANGE_UNSHARE: usize = 2;
/// Bytes of a set of signals.
const SET: usize = 8;

const EPERM: isize = -1;
const EINVAL: isize = -22;
const ENOSYS: isize = -38;

/// A system call that the child is to make. Its arguments are numbers or point to what the kernel is to read.
#[repr(C)]
struct Call {
    number: usize,
    arguments: [*const c_void; 4],
}

/// Where a child records a failed call: its result, and the call.
#[repr(C)]
struct Failed {
    error: isize,
    next: *const Call,
}

/// `struct clone_args` in its first version: zero means not requested.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// `clone3`, or `close_range`, was refused once, and will always be.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Starts a program whose streams are not among the first three descriptors; returns when it is loaded.
pub(crate) fn start(start: &Start<'_>, parent: Parent) -> Result<Pid, Failure> {
    if IS_REFUSED.load(Ordering::Relaxed) {
        return Err(Failure::Unavailable);
    }
    let (arguments, environment) = (pointers(start.arguments)?, pointers(start.environment)?);
    // A server ignores SIGPIPE, and ignored signals are inherited: the default action, no flags, an empty mask.
    let default = [0_usize; 4];
    let nothing = 0_u64;
    let (default, nothing) = (ptr::from_ref(&default).cast(), ptr::from_ref(&nothing).cast());
    let lent = slots::lend(start.streams)?;
    let (streams, behind) = match lent.as_ref().and_then(Lent::get).map(Slot::streams) {
        Some((streams, behind)) => (streams, number(behind.cast_unsigned() as usize)),
        None => (start.streams, NONE),
    };
    let [input, output, errors] = streams.map(descriptor);
    // As the kernel reads them: the soft limit, and the hard limit.
    let limits: Vec<(Resource, [u64; 2])> =
        limits::in_force().map(|(resource, most)| (resource, [most, most])).collect();
    let limit = |(resource, most): &(Resource, [u64; 2])| {
        Call::new(PRLIMIT64, [NONE, number(*resource as usize), most.as_ptr().cast(), NONE])
    };
    let mut calls = vec![
        // A table of descriptors of its own: a copy of the beginning of the one that it shares until then.
        Call::new(CLOSE_RANGE, [behind, number(u32::MAX as usize), number(CLOSE_RANGE_UNSHARE), NONE]),
        Call::new(SETPGID, [NONE; 4]),
        Call::new(RT_SIGACTION, [number(SIGPIPE), default, NONE, number(SET)]),
        Call::new(RT_SIGPROCMASK, [number(SIG_SETMASK), nothing, NONE, number(SET)]),
        Call::new(DUP2, [input, number(0), NONE, NONE]),
        Call::new(DUP2, [output, number(1), NONE, NONE]),
        Call::new(DUP2, [errors, number(2), NONE, NONE]),
        // Inherited descriptors that this process does not know of.
        Call::new(CLOSE_RANGE, [number(3), number(u32::MAX as usize), NONE, NONE]),
        Call::new(CHDIR, [start.folder.as_ptr().cast(), NONE, NONE, NONE]),
    ];
    calls.extend(limits.iter().map(limit));
    calls.push(Call::new(
        EXECVE,
        [start.program.as_ptr().cast(), arguments.as_ptr().cast(), environment.as_ptr().cast(), NONE],
    ));
    let (shared, calls) = match lent {
        Some(_) => (CLONE_FILES, &calls[..]),
        None => (0, &calls[1..]),
    };
    // A child of the parent has the signal that this process has.
    let (parenthood, exit_signal) = match parent {
        Parent::ThisProcess => (0, SIGCHLD),
        Parent::OfThisProcess => (CLONE_PARENT, 0),
    };
    let (pid, failed) = begin(shared | parenthood, exit_signal, calls);
    drop(lent);
    if matches!(pid, EPERM | EINVAL | ENOSYS) {
        return Err(refused());
    }
    let pid = Pid::from_raw(answer(pid)?).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let Err(error) = answer(failed.error) else { return Ok(pid) };
    let index = (failed.next.addr() - calls.as_ptr().addr()) / size_of::<Call>() - 1;
    // Other errors are about the program; this one, about the system call filter.
    let is_refused = calls[index].number == CLOSE_RANGE;
    match (parent, is_refused) {
        (Parent::OfThisProcess, false) => return Err(Failure::Ended(pid, error)),
        (Parent::OfThisProcess, true) => {
            IS_REFUSED.store(true, Ordering::Relaxed);
            return Err(Failure::Ended(pid, Errno::AGAIN.into()));
        }
        (Parent::ThisProcess, _) => {}
    }
    // That ends it: the status need not be collected by anyone else.
    let _ = Process::own(pid).wait();
    Err(if is_refused { refused() } else { error.into() })
}

fn refused() -> Failure {
    IS_REFUSED.store(true, Ordering::Relaxed);
    Failure::Unavailable
}

const NONE: *const c_void = ptr::null();

fn number(number: usize) -> *const c_void {
    ptr::without_provenance(number)
}

fn descriptor(stream: BorrowedFd<'_>) -> *const c_void {
    number(stream.as_raw_fd().cast_unsigned() as usize)
}

impl Call {
    fn new(number: usize, arguments: [*const c_void; 4]) -> Self {
        Self { number, arguments }
    }
}

/// Where the strings of a block begin, and the null that the kernel looks for behind the last.
fn pointers(block: &[u8]) -> io::Result<Vec<*const u8>> {
    Ok(strings(block)?.map(<[u8]>::as_ptr).chain([ptr::null()]).collect())
}

/// The kernel's result: a number, or an error.
fn answer(answer: isize) -> io::Result<i32> {
    let answer = i32::try_from(answer).map_err(io::Error::other)?;
    match answer {
        0.. => Ok(answer),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Makes a child with these flags and this signal at its end that makes these calls until one fails, or `execve` succeeds. Returns the
/// child's process ID, or the error; and the failed call, with an error of 0 where none has failed.
#[allow(unsafe_code)]
fn begin(flags: u64, exit_signal: u64, calls: &[Call]) -> (isize, Failed) {
    let clone = CloneArguments {
        flags: flags | CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
        exit_signal,
        ..CloneArguments::default()
    };
    let mut failed = Failed { error: 0, next: ptr::null() };
    let pid: isize;
    // SAFETY: see the top of this file. The child leaves the loop by `execve` or by `exit_group` alone, since the last
    // of the calls is an `execve`: if it returns, it has failed. The memory that the calls point to lives until then,
    // in the caller's frame. The child has registers of its own, so only those that a system call changes are
    // clobbered.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 4f",
            // The child.
            "2:",
            "mov rax, [r12]",
            "mov rdi, [r12 + 8]",
            "mov rsi, [r12 + 16]",
            "mov rdx, [r12 + 24]",
            "mov r10, [r12 + 32]",
            "add r12, {call}",
            "syscall",
            "test rax, rax",
            "jns 2b",
            "mov [r13], rax",
            "mov [r13 + 8], r12",
            "3:",
            "mov edi, 127",
            "mov eax, 231", // exit_group
            "syscall",
            "jmp 3b",
            // The parent, once the child is another program, or has ended.
            "4:",
            inlateout("rax") CLONE3 => pid,
            in("rdi") &raw const clone,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") calls.as_ptr(),
            in("r13") &raw mut failed,
            lateout("rcx") _,
            lateout("r11") _,
            call = const size_of::<Call>(),
            options(nostack),
        );
    }
    (pid, failed)
}
