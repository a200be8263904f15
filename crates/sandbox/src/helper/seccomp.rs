//! Seccomp: the system calls that a sandbox does not get.
//!
//! A list of what is denied: an agent runs compilers, runtimes and databases, and needs nearly all the
//! rest. Denied is what changes namespaces and mounts, what reads or steers other processes, what has
//! been a way out of sandboxes, and every kind of socket but local ones, TCP and UDP.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::{At as _, Failure};
use crate::error::Step;

/// Denied whatever the arguments are.
const DENIED: &[i64] = &[
    // Mounts and roots.
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
    STATMOUNT,
    LISTMOUNT,
    OPEN_TREE_ATTR,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    LISTNS,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Large parts of the kernel that agents have no use for.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_lookup_dcookie,
    libc::SYS_memfd_secret,
    // Keys, which are not all in a namespace.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files without their paths.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
];

/// The same, where only this architecture has them.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(target_arch = "aarch64")]
const DENIED_HERE: &[i64] = &[];

// Later than the crate that names the others; from 424 on they are the same everywhere.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;
const LISTNS: i64 = 470;

/// What a socket may be of.
const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// What a socket may be like; in the last one messages stay whole, which local ones alone can do. Two flags
/// stand in the same number.
const KINDS: [i32; 3] = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET];
const KIND_MASK: u64 = 0xf;

/// What a socket of the internet may speak. Others have been ways out of sandboxes, and whoever would
/// rather have MPTCP, as programs in Go do, is content with TCP when it is refused.
const PROTOCOLS: [i32; 3] = [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

/// Typing into a terminal for somebody else, the same for consoles, and having the kernel load a
/// discipline for a line.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const TIOCSETD: u64 = 0x5423;

/// Every kind of namespace that `clone` can make.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Ways of being run that change nothing of importance, and the question which it is.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("there is no table of system calls for this architecture");

pub(super) fn restrict() -> Result<(), Failure> {
    let filter = filter().map_err(io::Error::other).at(Step::Seccomp)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other).at(Step::Seccomp)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for &number in DENIED.iter().chain(DENIED_HERE) {
        rules.insert(number, Vec::new());
    }
    let of_namespaces = NAMESPACES.iter().map(|&flag| {
        let flag = u64::from(flag.cast_unsigned());
        SeccompRule::new(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, of_namespaces.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, sockets_denied()?);
    rules.insert(libc::SYS_socketpair, sockets_denied()?);
    let of_terminals = [TIOCSTI, TIOCLINUX, TIOCSETD]
        .map(|request| SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, of_terminals.into_iter().collect::<Result<_, _>>()?);
    // The limits of another process are not ours to set: the bridge has the same user, and without
    // descriptors it could not be adopted.
    let of_another = SeccompRule::new(vec![condition(0, SeccompCmpOp::Ne, 0)?])?;
    rules.insert(libc::SYS_prlimit64, vec![of_another]);
    let other = PERSONALITIES.iter().map(|&value| condition(0, SeccompCmpOp::Ne, value));
    rules.insert(libc::SYS_personality, vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?]);
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, ARCH)?;
    let mut program = not_there();
    program.extend(not_done());
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Every socket but the usual ones: of another family, of another kind, of another protocol.
fn sockets_denied() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let number = |of: i32| u64::from(of.cast_unsigned());
    let of_family = |family| condition(0, SeccompCmpOp::Eq, number(family));
    let of_kind = |kind| condition(1, SeccompCmpOp::MaskedEq(KIND_MASK), kind);
    let other = FAMILIES.iter().map(|&family| condition(0, SeccompCmpOp::Ne, number(family)));
    let mut denied = vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?];
    let usual = KINDS.map(number);
    for kind in (0..=KIND_MASK).filter(|kind| !usual.contains(kind)) {
        denied.push(SeccompRule::new(vec![of_kind(kind)?])?);
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        let kind = of_kind(number(libc::SOCK_SEQPACKET))?;
        denied.push(SeccompRule::new(vec![of_family(family)?, kind])?);
        let mut other = vec![of_family(family)?];
        for protocol in PROTOCOLS {
            other.push(condition(2, SeccompCmpOp::Ne, number(protocol))?);
        }
        denied.push(SeccompRule::new(other)?);
    }
    Ok(denied)
}

/// The kernel reads 32 bits of each of these arguments, so no more may be compared.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// What goes before: calls that the sandbox is told the kernel does not have.
///
/// The flags of `clone3` lie in memory, where no filter can read them; the C library then uses
/// `clone`. The calls of x32 are the same calls under other numbers, which the list does not name.
fn not_there() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let enosys = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![
        instruction(LOAD, 0, 0, NUMBER),
        instruction(JUMP_IF_EQUAL, 1, 0, number_of(libc::SYS_clone3)),
        // No other architecture has numbers as high, so it can be asked on each.
        instruction(JUMP_IF_NOT_LESS, 0, 1, X32),
        instruction(RETURN, 0, 0, enosys),
    ]
}

/// What comes next: calls that the sandbox is told were done.
///
/// Whoever sets the size of its cores mostly wants none, which it has; but the nothing that it asks for
/// would have a handler of the machine's run when it dies (`lock`). To ask how much it is, is let through.
fn not_done() -> BpfProgram {
    let cores = libc::RLIMIT_CORE;
    let done = libc::SECCOMP_RET_ERRNO;
    vec![
        instruction(LOAD, 0, 0, NUMBER),
        instruction(JUMP_IF_EQUAL, 1, 0, number_of(libc::SYS_prlimit64)),
        instruction(JUMP_IF_EQUAL, 6, 9, number_of(libc::SYS_setrlimit)),
        // Of `prlimit`: the resource, and where the new limit stands.
        instruction(LOAD, 0, 0, argument(1)),
        instruction(JUMP_IF_EQUAL, 0, 7, cores),
        instruction(LOAD, 0, 0, argument(2)),
        instruction(JUMP_IF_EQUAL, 0, 4, 0),
        instruction(LOAD, 0, 0, argument(2) + 4),
        instruction(JUMP_IF_EQUAL, 3, 2, 0),
        // Of `setrlimit`: the resource.
        instruction(LOAD, 0, 0, argument(0)),
        instruction(JUMP_IF_EQUAL, 0, 1, cores),
        instruction(RETURN, 0, 0, done),
    ]
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_IF_NOT_LESS: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Where the number of the call stands.
const NUMBER: u32 = 0;

/// Where the lower half of an argument stands.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn number_of(call: i64) -> u32 {
    u32::try_from(call).expect("numbers of system calls are small")
}
