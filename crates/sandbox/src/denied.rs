//! System calls of a process that keeps rights of root: a list of those that are refused, as the modules of PAM that it
//! runs may make any other. They fail with `ENOSYS`, also in every program that a module starts.
//!
//! Refused is what reaches the kernel or another process: `ptrace` and reading other processes' memory, mounts and
//! namespaces, kernel modules and BPF, `io_uring`, the clock and the name of the machine, sockets that are neither
//! Internet nor local ones, calls of another kind of processor.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, sock_filter,
};

use crate::Missing;
use crate::seccomp::{FAMILIES, NAMESPACES};

/// Refuses these calls to the calling thread.
pub(crate) fn refuse() -> Result<(), Missing> {
    let filter = filter().map_err(|error| Missing(format!("the filter cannot be built: {error}")))?;
    apply_filter(WITHOUT_X32)
        .and_then(|()| apply_filter(&filter))
        .map_err(|error| Missing(format!("the kernel takes no filter: {error}")))
}

fn filter() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in CALLS.iter().chain(OLD_CALLS) {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_clone, NAMESPACES.iter().map(|flag| has(*flag)).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, vec![other_family()?]);
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()
}

/// A flag of `clone`. (`clone3`, whose flags a filter cannot see, is refused: the C library uses `clone` then.)
fn has(flag: i32) -> Result<SeccompRule, BackendError> {
    let flag = u64::from(flag.unsigned_abs());
    let operator = SeccompCmpOp::MaskedEq(flag);
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, flag)?])
}

/// A family of sockets that is none of those that a server uses.
fn other_family() -> Result<SeccompRule, BackendError> {
    let differs = |family: &i32| {
        let family = family.unsigned_abs().into();
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    SeccompRule::new(FAMILIES.iter().map(differs).collect::<Result<_, _>>()?)
}

/// Refuses the second numbers that x86-64 has for its calls (x32), which a list of the first does not name.
const WITHOUT_X32: &[sock_filter] = &[
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0x4000_0000),
    instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
];

/// An instruction that skips this many others where its comparison holds.
const fn instruction(code: u32, skips: u8, operand: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: skips, jf: 0, k: operand }
}

/// Calls that every processor has.
const CALLS: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Mounts and namespaces, and what leads past them.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_clone3,
    libc::SYS_open_by_handle_at,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_syslog,
    // The machine.
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// Calls that only these processors have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[c_long] =
    &[libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];

#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[c_long] = &[];
