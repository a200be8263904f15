//! System calls that must be refused. If one is not, its arguments see to it that nothing happens.

use std::io;

use super::Check;
use crate::sys::attempt;

/// No memory of anybody's.
const NOWHERE: i64 = 1;
/// No descriptor of anybody's.
const NO_FILE: i64 = -1;

/// A number, a name, arguments.
type Call = (&'static str, i64, [i64; 5]);

const REFUSED: &[Call] = &[
    ("8 unshare(CLONE_NEWUSER)", libc::SYS_unshare, [libc::CLONE_NEWUSER as i64, 0, 0, 0, 0]),
    ("8 unshare(CLONE_NEWNET)", libc::SYS_unshare, [libc::CLONE_NEWNET as i64, 0, 0, 0, 0]),
    ("9 mount", libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, 0]),
    ("9 umount2", libc::SYS_umount2, [NOWHERE, 0, 0, 0, 0]),
    ("9 pivot_root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("9 chroot", libc::SYS_chroot, [NOWHERE, 0, 0, 0, 0]),
    ("9 open_tree", libc::SYS_open_tree, [NO_FILE, NOWHERE, 0, 0, 0]),
    ("9 move_mount", libc::SYS_move_mount, [NO_FILE, NOWHERE, NO_FILE, NOWHERE, 0]),
    ("9 fsopen", libc::SYS_fsopen, [NOWHERE, 0, 0, 0, 0]),
    ("9 fsmount", libc::SYS_fsmount, [NO_FILE, 0, 0, 0, 0]),
    ("9 mount_setattr", libc::SYS_mount_setattr, [NO_FILE, NOWHERE, 0, 0, 0]),
    ("9 setns", libc::SYS_setns, [NO_FILE, 0, 0, 0, 0]),
    // Of no process.
    ("10 ptrace", libc::SYS_ptrace, [16, 0, 0, 0, 0]),
    ("10 process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0]),
    ("10 process_vm_writev", libc::SYS_process_vm_writev, [1, 0, 0, 0, 0]),
    ("10 pidfd_getfd", libc::SYS_pidfd_getfd, [NO_FILE, 0, 0, 0, 0]),
    ("10 kcmp", libc::SYS_kcmp, [1, 1, 0, 0, 0]),
    ("11 io_uring_setup", libc::SYS_io_uring_setup, [0, NOWHERE, 0, 0, 0]),
    ("11 io_uring_enter", libc::SYS_io_uring_enter, [NO_FILE, 0, 0, 0, 0]),
    ("11 userfaultfd", libc::SYS_userfaultfd, [-1, 0, 0, 0, 0]),
    ("11 add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("11 request_key", libc::SYS_request_key, [NOWHERE, NOWHERE, 0, 0, 0]),
    ("11 keyctl", libc::SYS_keyctl, [9999, 0, 0, 0, 0]),
    ("12 bpf", libc::SYS_bpf, [9999, 0, 0, 0, 0]),
    ("12 perf_event_open", libc::SYS_perf_event_open, [NOWHERE, 0, -1, NO_FILE, 0]),
    ("12 open_by_handle_at", libc::SYS_open_by_handle_at, [NO_FILE, NOWHERE, 0, 0, 0]),
    ("12 name_to_handle_at", libc::SYS_name_to_handle_at, [NO_FILE, NOWHERE, NOWHERE, NOWHERE, 0]),
    ("12 delete_module", libc::SYS_delete_module, [NOWHERE, 0, 0, 0, 0]),
    ("12 finit_module", libc::SYS_finit_module, [NO_FILE, NOWHERE, 0, 0, 0]),
    // Without the numbers that it asks for.
    ("12 reboot", libc::SYS_reboot, [0, 0, 0, 0, 0]),
    ("12 swapoff", libc::SYS_swapoff, [NOWHERE, 0, 0, 0, 0]),
    ("12 syslog", libc::SYS_syslog, [9999, 0, 0, 0, 0]),
    ("12 sethostname", libc::SYS_sethostname, [NOWHERE, -1, 0, 0, 0]),
    ("12 clock_settime", libc::SYS_clock_settime, [9999, NOWHERE, 0, 0, 0]),
    ("12 quotactl", libc::SYS_quotactl, [-1, NOWHERE, 0, NOWHERE, 0]),
    ("12 fanotify_init", libc::SYS_fanotify_init, [-1, -1, 0, 0, 0]),
    ("12 personality(ADDR_NO_RANDOMIZE)", libc::SYS_personality, [0x004_0000, 0, 0, 0, 0]),
    // Standard input is no terminal.
    ("16 ioctl(TIOCSTI)", libc::SYS_ioctl, [0, 0x5412, NOWHERE, 0, 0]),
    ("16 ioctl(TIOCLINUX)", libc::SYS_ioctl, [0, 0x541c, NOWHERE, 0, 0]),
    // The upper half of an argument that the kernel does not read.
    ("16 ioctl(TIOCSTI) with more", libc::SYS_ioctl, [0, 0x1_0000_5412, NOWHERE, 0, 0]),
];

/// Kinds of sockets, with their numbers.
const FAMILIES: [(&str, i32); 9] = [
    ("AF_VSOCK", libc::AF_VSOCK),
    ("AF_NETLINK", libc::AF_NETLINK),
    ("AF_PACKET", libc::AF_PACKET),
    ("AF_ALG", libc::AF_ALG),
    ("AF_BLUETOOTH", libc::AF_BLUETOOTH),
    ("AF_KEY", libc::AF_KEY),
    ("AF_TIPC", libc::AF_TIPC),
    ("AF_XDP", libc::AF_XDP),
    ("AF_CAN", libc::AF_CAN),
];

// Not in the crate that names the others.
const SOCK_PACKET: i32 = 10;
const IPPROTO_SMC: i32 = 256;

/// Of families that are allowed, what is not usual: a kind or a protocol.
const UNUSUAL: [(i32, i32, i32); 17] = [
    (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
    (libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW),
    (libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
    (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
    (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6),
    (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
    (libc::AF_INET, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP),
    (libc::AF_INET6, libc::SOCK_SEQPACKET, 0),
    (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
    (libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, libc::IPPROTO_MPTCP),
    (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
    (libc::AF_INET, libc::SOCK_DCCP, libc::IPPROTO_DCCP),
    (libc::AF_INET, libc::SOCK_STREAM, IPPROTO_SMC),
    (libc::AF_INET, SOCK_PACKET, 0),
    (libc::AF_UNIX, libc::SOCK_RAW, 0),
    (libc::AF_UNIX, libc::SOCK_RDM, 0),
    (libc::AF_UNIX, 0, 0),
];

/// What programs of all kinds need.
const USUAL: [(i32, i32, i32); 9] = [
    (libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0),
    (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP),
    (libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::IPPROTO_UDP),
    (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP),
    (libc::AF_INET6, libc::SOCK_DGRAM, 0),
    (libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0),
    (libc::AF_UNIX, libc::SOCK_DGRAM, 0),
    (libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK, 0),
    (libc::AF_UNIX, libc::SOCK_STREAM, libc::AF_UNIX),
];

pub(super) fn checks() -> Vec<Check> {
    let denied = &[libc::EPERM];
    let mut checks: Vec<Check> = REFUSED
        .iter()
        .map(|&(name, number, arguments)| {
            Check::refused_with(name, attempt(number, arguments), denied)
        })
        .collect();
    for (name, family) in FAMILIES {
        for kind in [libc::SOCK_STREAM, libc::SOCK_RAW, libc::SOCK_DGRAM] {
            let arguments = [family.into(), kind.into(), 0, 0, 0];
            let made = attempt(libc::SYS_socket, arguments);
            checks.push(Check::refused_with(&format!("13 socket({name}, {kind})"), made, denied));
        }
    }
    for (family, kind, protocol) in UNUSUAL {
        let made = attempt(libc::SYS_socket, [family.into(), kind.into(), protocol.into(), 0, 0]);
        let name = format!("13 socket({family}, {kind:#x}, {protocol})");
        checks.push(Check::refused_with(&name, made, denied));
    }
    for (family, kind, protocol) in USUAL {
        let made = attempt(libc::SYS_socket, [family.into(), kind.into(), protocol.into(), 0, 0]);
        let name = format!("use socket({family}, {kind:#x}, {protocol})");
        // Where the machine has no such family, the sandbox is not to blame.
        let made = match made {
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(0),
            made => made,
        };
        checks.push(Check::works(&name, made));
    }
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
    ] {
        let name = format!("8 clone({flag:#x})");
        checks.push(Check::refused_with(&name, clone(flag), denied));
    }
    let absent = &[libc::ENOSYS];
    let clone3 = attempt(libc::SYS_clone3, [NOWHERE, 0, 0, 0, 0]);
    checks.push(Check::refused_with("8 clone3", clone3, absent));
    // getpid, by its number in the other table.
    let x32 = attempt(0x4000_0000 + libc::SYS_getpid, [0; 5]);
    checks.push(Check::refused_with("9 a call of x32", x32, absent));
    checks
}

/// If it is not refused, the child ends at once.
fn clone(flag: i32) -> io::Result<i64> {
    let made = attempt(libc::SYS_clone, [(flag | libc::SIGCHLD).into(), 0, 0, 0, 0])?;
    if made == 0 {
        std::process::exit(0);
    }
    Ok(made)
}
