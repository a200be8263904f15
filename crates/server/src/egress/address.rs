//! Which addresses a sandbox may be connected to: those that are somebody's on the internet.
//!
//! A list of what is refused would miss what it does not know. So of IPv6 only what was ever given out
//! is allowed, and of IPv4 everything but what is kept for special use; and an address that has
//! another one in it is judged by that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ash_engine::agent::Host;

/// IPv4 addresses that are nobody's on the internet, as an address and how many of its bits count.
const SPECIAL_V4: [(Ipv4Addr, u8); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),          // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),         // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),      // shared with other customers of a provider
    (Ipv4Addr::new(127, 0, 0, 0), 8),        // this machine
    (Ipv4Addr::new(168, 63, 129, 16), 32),   // a cloud's own service for its machines
    (Ipv4Addr::new(169, 254, 0, 0), 16),     // this link; metadata of clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12),      // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),       // assignments of protocols
    (Ipv4Addr::new(192, 0, 2, 0), 24),       // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),     // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16),     // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),      // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),    // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),     // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),        // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),        // kept for later
    (Ipv4Addr::new(255, 255, 255, 255), 32), // everybody on this link
];

/// What of IPv6 is given out.
const GIVEN_OUT_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// What is special among that.
const SPECIAL_V6: [(Ipv6Addr, u8); 5] = [
    // Assignments of protocols: Teredo, benchmarks, and keys that look like addresses.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: an IPv4 address by way of a relay
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16), // given back
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Addresses with an IPv4 address in their last bits: as a socket shows it, and as a translator takes it.
const EMBEDDING_V6: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
];

/// Whether an address is somebody's on the internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|range| within_v4(address, *range)),
        IpAddr::V6(address) => {
            if EMBEDDING_V6.iter().any(|range| within_v6(address, *range)) {
                let [.., a, b, c, d] = address.octets();
                return is_public(Ipv4Addr::new(a, b, c, d).into());
            }
            within_v6(address, GIVEN_OUT_V6)
                && !SPECIAL_V6.iter().any(|range| within_v6(address, *range))
        }
    }
}

fn within_v4(address: Ipv4Addr, (range, bits): (Ipv4Addr, u8)) -> bool {
    let differing = address.to_bits() ^ range.to_bits();
    differing.leading_zeros() >= u32::from(bits)
}

fn within_v6(address: Ipv6Addr, (range, bits): (Ipv6Addr, u8)) -> bool {
    let differing = address.to_bits() ^ range.to_bits();
    differing.leading_zeros() >= u32::from(bits)
}

/// Whether an address is one of this machine: no other can be bound here.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// What the operator lets sandboxes reach though it is not on the internet, or is this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateHosts {
    ranges: Vec<(IpAddr, u8)>,
    hosts: Vec<Host>,
}

impl PrivateHosts {
    /// Reads a list: ranges of addresses such as `10.1.0.0/16`, addresses, and names of hosts,
    /// separated by commas. Nothing, if there is something else in it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (address, bits) = match part.split_once('/') {
                Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
                None => (part, None),
            };
            match (address.parse::<IpAddr>(), bits) {
                (Ok(address), bits) => {
                    let whole = if address.is_ipv4() { 32 } else { 128 };
                    let bits = bits.unwrap_or(whole);
                    (bits <= whole).then(|| all.ranges.push((address, bits)))?;
                }
                (Err(_), None) => all.hosts.push(Host::parse(part).ok()?),
                (Err(_), Some(_)) => return None,
            }
        }
        Some(all)
    }

    /// Whether the operator has named this address, or the host that it was found for.
    pub(super) fn has(&self, host: &Host, address: IpAddr) -> bool {
        let within = |range: &(IpAddr, u8)| match (address, *range) {
            (IpAddr::V4(address), (IpAddr::V4(range), bits)) => within_v4(address, (range, bits)),
            (IpAddr::V6(address), (IpAddr::V6(range), bits)) => within_v6(address, (range, bits)),
            (IpAddr::V4(_) | IpAddr::V6(_), _) => false,
        };
        self.hosts.contains(host) || self.ranges.iter().any(within)
    }

    /// Whether a sandbox may be connected to an address that was found for a host.
    pub(super) fn permit(&self, host: &Host, address: IpAddr) -> bool {
        self.has(host, address) || (is_public(address) && !is_ours(address))
    }
}

impl std::fmt::Display for PrivateHosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranges = self.ranges.iter().map(|(address, bits)| format!("{address}/{bits}"));
        let hosts = self.hosts.iter().map(Host::to_string);
        f.write_str(&ranges.chain(hosts).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_special_is_not_public() {
        for refused in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.1.2.3",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "2002:808:808::",
            "3ffe::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(!is_public(of(refused)), "{refused}");
        }
        for fine in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert!(is_public(of(fine)), "{fine}");
        }
    }

    #[test]
    fn the_operator_can_name_what_is_private() {
        let some = PrivateHosts::parse("10.1.0.0/16, vault.internal,fd00::/8,127.0.0.1").unwrap();
        let name = |name: &str| Host::parse(name).unwrap();
        for (host, address, fine) in [
            ("a.example", "10.1.200.3", true),
            ("a.example", "10.2.0.1", false),
            ("vault.internal", "10.2.0.1", true),
            ("VAULT.internal", "169.254.169.254", true),
            ("a.example", "fd12::1", true),
            ("a.example", "127.0.0.1", true),
            ("a.example", "127.0.0.2", false),
            ("a.example", "::ffff:10.1.0.1", false),
        ] {
            assert_eq!(some.permit(&name(host), of(address)), fine, "{host} {address}");
        }
        for wrong in ["10.0.0.0/33", "10.0.0.0/-1", "a.example/8", "10.0.0/8", "x y", "0x7f.1"] {
            assert_eq!(PrivateHosts::parse(wrong), None, "{wrong}");
        }
        assert_eq!(some.to_string(), "10.1.0.0/16,fd00::/8,127.0.0.1/32,vault.internal");
        assert_eq!(PrivateHosts::parse(" , "), Some(PrivateHosts::default()));
    }

    #[test]
    fn this_machine_is_nobody_elses() {
        assert!(is_ours(of("127.0.0.1")) && !is_ours(of("8.8.8.8")));
    }

    proptest! {
        /// The standard library's own judgement is narrower, and agrees where it has one.
        #[test]
        fn nothing_that_is_known_to_be_special_is_public(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local()
                || v4.is_multicast() || v4.is_broadcast() || v4.is_documentation()
                || v4.is_unspecified();
            prop_assert!(!(special && is_public(v4.into())), "{}", v4);
            // However it is wrapped, it is judged the same or refused.
            for wrapped in [v4.to_ipv6_mapped(), translated(v4)] {
                prop_assert_eq!(is_public(wrapped.into()), is_public(v4.into()));
            }
            prop_assert!(!is_public(Ipv6Addr::from_bits(u128::from(bits)).into()));
            prop_assert!(!is_public(Ipv6Addr::from_bits((0x2002 << 112) | (u128::from(bits) << 80)).into()));
        }

        #[test]
        fn of_ipv6_only_what_was_given_out_is_public(bits: u128) {
            let v6 = Ipv6Addr::from_bits(bits);
            let special = v6.is_loopback() || v6.is_multicast() || v6.is_unspecified()
                || v6.is_unique_local() || v6.is_unicast_link_local();
            prop_assert!(!(special && is_public(v6.into())), "{}", v6);
            if is_public(v6.into()) {
                let embeds = v6.to_ipv4_mapped().is_some() || bits >> 32 == 0x64_ff9b << 64;
                prop_assert!(bits >> 125 == 1 || embeds, "{}", v6);
            }
        }
    }

    fn translated(v4: Ipv4Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits((0x64_ff9b << 96) | u128::from(v4.to_bits()))
    }
}
