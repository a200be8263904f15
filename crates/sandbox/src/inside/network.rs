//! Attempts on the network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::time::Duration;

use super::{Check, Outside};

/// Where nothing leads, refusal is at once. Whoever has to wait has a way.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn checks(outside: &Outside) -> Vec<Check> {
    let unreachable = &[libc::ENETUNREACH, libc::ECONNREFUSED, libc::EHOSTUNREACH];
    let mut checks = Vec::new();
    for (name, ip, port) in [
        ("14 reach the cloud's metadata", Ipv4Addr::new(169, 254, 169, 254), 80),
        ("14 reach the internet", Ipv4Addr::new(1, 1, 1, 1), 443),
        ("14 reach a private network", Ipv4Addr::new(10, 0, 0, 1), 80),
    ] {
        let to = SocketAddr::V4(SocketAddrV4::new(ip, port));
        let reached = TcpStream::connect_timeout(&to, PATIENCE);
        checks.push(Check::refused_with(name, reached, unreachable));
    }
    checks.push(Check::refused_with("14 send a datagram", send_datagram(), unreachable));
    if let Some(port) = outside.port {
        let reached = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        checks.push(Check::refused_with("14 reach the machine's loopback", reached, unreachable));
    }
    if let Some(name) = &outside.abstract_socket {
        let reached = UnixAddr::from_abstract_name(name)
            .and_then(|address| UnixStream::connect_addr(&address));
        checks.push(Check::refused("15 reach an abstract socket of the machine", reached));
    }
    checks.push(Check::works("use the loopback interface", use_loopback()));
    checks
}

fn send_datagram() -> io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.send_to(b"ash", (Ipv4Addr::new(1, 1, 1, 1), 53))
}

fn use_loopback() -> io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(listener.local_addr()?)
}
