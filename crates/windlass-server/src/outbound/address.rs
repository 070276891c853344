//! Which addresses may be connected to: a pure rule over numbers, without names,
//! ports or sockets. Whatever is not known to be public is refused, so a range
//! that is given a meaning later stays closed. An address that carries another
//! one is judged by that one where the two mean the same host, and refused where
//! a tunnel would end elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far a client may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Loopback and private addresses too.
    Private,
}

impl Reach {
    /// What `allow_private` means.
    pub fn of(allow_private: bool) -> Reach {
        if allow_private { Reach::Private } else { Reach::Public }
    }

    /// Why an address may not be connected to, if so.
    pub fn refuses(self, ip: IpAddr) -> Option<Place> {
        match (judge(ip), self) {
            (Place::Public, _) | (Place::Private(_), Reach::Private) => None,
            (place, _) => Some(place),
        }
    }
}

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Public,
    /// The machine itself or its neighbours; only for who says so.
    Private(&'static str),
    /// Nowhere a server of one's own would be.
    Never(&'static str),
}

/// Networks of IPv4 that are not public, first match first.
const V4: &[(Ipv4Addr, u8, Place)] = &[
    // Where clouds tell their machines their secrets.
    (Ipv4Addr::new(168, 63, 129, 16), 32, Place::Never("a metadata address")),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Place::Never("a metadata address")),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Place::Never("an unspecified address")),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Place::Private("a private address")),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Place::Private("a shared address of a provider")),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Place::Private("a loopback address")),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Place::Never("a link-local address")),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Place::Private("a private address")),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Place::Never("a reserved address")),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Place::Never("a documentation address")),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Place::Never("a tunnel's address")),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Place::Private("a private address")),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Place::Never("a benchmarking address")),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Place::Never("a documentation address")),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Place::Never("a documentation address")),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Place::Never("a multicast address")),
    (Ipv4Addr::BROADCAST, 32, Place::Never("the broadcast address")),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Place::Never("a reserved address")),
];

/// The same for IPv6; what no row names is public.
const V6: &[(Ipv6Addr, u8, Place)] = &[
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Place::Never("a metadata address")),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Place::Never("a metadata address")),
    (Ipv6Addr::UNSPECIFIED, 128, Place::Never("an unspecified address")),
    (Ipv6Addr::LOCALHOST, 128, Place::Private("a loopback address")),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Place::Private("a private address")),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Place::Never("a link-local address")),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Place::Never("a site-local address")),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Place::Never("a multicast address")),
    // Teredo, ORCHID, benchmarking and whatever else is assigned to protocols.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Place::Never("an address of a protocol")),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Place::Never("a documentation address")),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Place::Never("a documentation address")),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Place::Never("a tunnel's address")),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Place::Public),
    // Also IPv4-compatible ones (::/96) and NAT64 of a site's own (64:ff9b:1::/48).
    (Ipv6Addr::UNSPECIFIED, 0, Place::Never("a reserved address")),
];

const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Where an address leads.
pub fn judge(ip: IpAddr) -> Place {
    match ip {
        IpAddr::V4(ip) => judge_v4(ip),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(inner) => judge_v4(inner),
            None if within_v6(ip, NAT64) => judge_translated(ip),
            None => judge_v6(ip),
        },
    }
}

fn judge_v4(ip: Ipv4Addr) -> Place {
    let row = V4.iter().find(|(net, bits, _)| within_v4(ip, (*net, *bits)));
    row.map_or(Place::Public, |(_, _, place)| *place)
}

fn judge_v6(ip: Ipv6Addr) -> Place {
    let row = V6.iter().find(|(net, bits, _)| within_v6(ip, (*net, *bits)));
    row.map_or(Place::Never("a reserved address"), |(_, _, place)| *place)
}

/// A translator's loopback and neighbours are not ours.
fn judge_translated(ip: Ipv6Addr) -> Place {
    let [.., a, b, c, d] = ip.octets();
    match judge_v4(Ipv4Addr::new(a, b, c, d)) {
        Place::Private(what) | Place::Never(what) => Place::Never(what),
        Place::Public => Place::Public,
    }
}

fn within_v4(ip: Ipv4Addr, (net, bits): (Ipv4Addr, u8)) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    ip.to_bits() & mask == net.to_bits()
}

fn within_v6(ip: Ipv6Addr, (net, bits): (Ipv6Addr, u8)) -> bool {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    ip.to_bits() & mask == net.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ip: &str) -> Place {
        judge(ip.parse().unwrap_or_else(|e| panic!("{ip}: {e}")))
    }

    #[test]
    fn public_addresses() {
        for ip in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "3ffe::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(place(ip), Place::Public, "{ip}");
            assert_eq!(Reach::Public.refuses(ip.parse().unwrap()), None);
        }
    }

    #[test]
    fn private_addresses_are_for_who_says_so() {
        for ip in [
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.1",
            "::1",
            "fc00::1",
            "fdff:ffff::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
        ] {
            assert!(matches!(place(ip), Place::Private(_)), "{ip}");
            let ip = ip.parse().unwrap();
            assert_eq!(Reach::of(true).refuses(ip), None);
            assert_eq!(Reach::of(false).refuses(ip), Some(judge(ip)));
        }
    }

    #[test]
    fn other_addresses_are_for_nobody() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::7f00:1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0.0.0.0",
            "::ffff:169.254.169.254",
            "::ffff:255.255.255.255",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(matches!(place(ip), Place::Never(_)), "{ip} is {:?}", place(ip));
            assert!(Reach::Private.refuses(ip.parse().unwrap()).is_some(), "{ip}");
        }
    }

    #[test]
    fn every_row_is_a_network() {
        for (net, bits, _) in V4 {
            assert!(within_v4(*net, (*net, *bits)), "{net}/{bits} has bits behind its mask");
        }
        for (net, bits, _) in V6 {
            assert!(within_v6(*net, (*net, *bits)), "{net}/{bits} has bits behind its mask");
        }
    }
}
