//! System calls, by seccomp: a list of those that a server makes. Every other one fails with `ENOSYS`, which is what
//! libraries expect of a kernel that does not have it, so that they use an older one.
//!
//! What is missing is meant to be: starting programs, forks, `ptrace` and reading other processes' memory, mounts and
//! namespaces, kernel modules and BPF, keys, `io_uring`, changes of users and capabilities, device nodes, other kinds of
//! sockets than Internet and local ones.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::Missing;

/// Whether a process may make sockets and use them by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    Allowed,
    /// Only those that it has.
    Refused,
}

/// Filters the system calls of the calling thread.
pub(crate) fn restrict(sockets: Sockets) -> Result<(), Missing> {
    let filter = filter(sockets).map_err(|error| Missing(format!("the filter cannot be built: {error}")))?;
    apply_filter(&filter).map_err(|error| Missing(format!("the kernel takes no filter: {error}")))
}

fn filter(sockets: Sockets) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in CALLS.iter().chain(OLD_CALLS) {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_clone, vec![threads_only()?]);
    rules.insert(libc::SYS_setpriority, vec![of_itself()?]);
    match sockets {
        Sockets::Allowed => {
            let families = FAMILIES.iter().map(|family| equal(0, family.unsigned_abs().into()));
            rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
            rules.insert(libc::SYS_socketpair, vec![equal(0, libc::AF_UNIX.unsigned_abs().into())?]);
        }
        Sockets::Refused => BY_ADDRESS.iter().for_each(|call| drop(rules.remove(call))),
    }
    let requests = IOCTLS.iter().map(|request| equal(1, *request));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    let options = PRCTLS.iter().map(|option| equal(0, option.unsigned_abs().into()));
    rules.insert(libc::SYS_prctl, options.collect::<Result<_, _>>()?);
    let arch = std::env::consts::ARCH.try_into()?;
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
}

/// An argument that has this value in its lower half, which is all that the kernel looks at.
fn equal(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let value = value & u64::from(u32::MAX);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![condition])
}

/// Calls that make and find connections.
const BY_ADDRESS: &[c_long] =
    &[libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4, libc::SYS_connect];

/// Families of sockets that a server makes.
pub(crate) const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The flags of `clone` that make a namespace.
pub(crate) const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Threads of this process, and no new namespaces. (`clone3`, whose flags a filter cannot see, is not in the list: the C
/// library uses `clone` then.)
fn threads_only() -> Result<SeccompRule, seccompiler::BackendError> {
    let namespaces = NAMESPACES.iter().fold(0, |all, flag| all | flag);
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let looked_at = thread | u64::from(namespaces.unsigned_abs());
    let operator = SeccompCmpOp::MaskedEq(looked_at);
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, thread)?])
}

/// The priority of the thread that asks. No other thread's is to be changed.
fn of_itself() -> Result<SeccompRule, seccompiler::BackendError> {
    let zero = |argument| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0);
    SeccompRule::new(vec![zero(0)?, zero(1)?])
}

/// Requests of `ioctl`: non-blocking sockets and pipes, copies that share blocks, what is left in a socket, whether
/// standard error is a terminal, attributes of files.
const IOCTLS: &[u64] = &[
    0x5421,      // FIONBIO
    0x5451,      // FIOCLEX
    0x5450,      // FIONCLEX
    0x541b,      // FIONREAD
    0x5411,      // TIOCOUTQ
    0x5401,      // TCGETS
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc020_660b, // FS_IOC_FIEMAP
    0x8008_6601, // FS_IOC_GETFLAGS
];

const PRCTLS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NO_NEW_PRIVS,
];

/// fchmodat2, which libc does not name for each machine; its number is the same on all.
const FCHMODAT2: c_long = 452;

/// Calls that every processor has.
const CALLS: &[c_long] = &[
    // Files that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_getdents64,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fgetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    // Files by name.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_statfs,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_getcwd,
    libc::SYS_umask,
    // Sockets, pipes, waiting.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_pipe2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Memory and threads.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals and processes.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_getrusage,
    libc::SYS_getpriority,
    // The clock, the machine.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    // A change of user is given up for good after the start: see `privileges.rs`. Without a right it changes nothing.
    libc::SYS_setresuid,
];

/// Calls that newer processors do not have, because others do the same.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utimes,
    libc::SYS_utime,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_getpgrp,
    libc::SYS_arch_prctl,
];

#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[c_long] = &[];
