//! Attempts to get out that change nothing if they succeed: the same that every server makes at its start,
//! and some that need a server of their own.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use ash_sandbox::{Check, Limits, Outside, Tier};

use crate::support::{Place, Room, SECRET, can_be_full, end_of, tiers};

#[test]
fn no_attempt_to_get_out_succeeds() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let name = format!("ash-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listening = UnixListener::bind_addr(&address).unwrap();
    for tier in tiers() {
        let (room, other) = (Room::new(tier), Room::new(tier));
        let outside = Outside {
            paths: vec![other.workspace(), room.dir.path().to_owned(), "/var/lib".into()],
            pid: Some(std::process::id()),
            port: Some(port.local_addr().unwrap().port()),
            abstract_socket: Some(name.clone()),
            secret: Some(SECRET.to_owned()),
        };
        let outcome = room.run(&["probe", &serde_json::to_string(&outside).unwrap()]);
        assert_eq!(outcome.ended, "Exited(0)", "{}", outcome.log);
        let checks: Vec<Check> =
            outcome.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let broken: Vec<&Check> = checks.iter().filter(|check| !check.passed).collect();
        assert!(broken.is_empty(), "tier {}: {broken:#?}", tier.as_str());
        // Each number of the list that can be tried without harm.
        for number in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 26, 30] {
            let prefix = format!("{number} ");
            assert!(checks.iter().any(|check| check.name.starts_with(&prefix)), "{number}");
        }
    }
}

#[test]
fn no_attempt_succeeds_where_memory_is_bounded() {
    let place = Place::new();
    let limits = Limits::default();
    if !can_be_full() || !place.cgroups.abilities().memory {
        return;
    }
    let Some(cgroup) = place.cgroup("attempts", &limits) else { return };
    let room = Room::new(Tier::Full);
    let launched = room.start(Some(&cgroup), &["probe", "{}"]).unwrap();
    assert_eq!(format!("{:?}", end_of(&launched)), "Exited(0)");
    let output = room.output();
    let checks: Vec<Check> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let broken: Vec<&Check> = checks.iter().filter(|check| !check.passed).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counter = checks.iter().find(|check| check.name.contains("/run/ash/oom")).unwrap();
    assert!(!counter.detail.contains("No such file"), "it is there: {counter:?}");
}
