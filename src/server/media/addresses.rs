//! The addresses that media may be fetched from: those of the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether an address belongs to the public internet. All others are of this machine, of
/// its networks, or reserved, and a request must not reach them.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_reserved = match (a, b, c) {
        // This network, and addresses of the future.
        (0 | 240..=255, ..) => true,
        // Shared by the customers of a provider.
        (100, 64..=127, _) => true,
        // Protocols, relays to IPv6, and measurements of networks.
        (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => true,
        _ => false,
    };
    !(is_reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Global unicast is 2000::/3. It contains networks that hold other addresses or none.
    let is_global = first & 0xe000 == 0x2000;
    let is_special = match (first, second) {
        // Protocols, Teredo and ORCHID.
        (0x2001, 0..0x0200) => true,
        // Documentation.
        (0x2001, 0x0db8) | (0x3fff, 0..0x1000) => true,
        // 6to4, which contains IPv4 addresses.
        (0x2002, _) => true,
        _ => false,
    };
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_reached() {
        let public = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1"];
        let public_v6 = ["2606:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8"];
        for address in public.iter().chain(&public_v6) {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        let private = [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ];
        let private_v6 = [
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "4000::1",
        ];
        for address in private.iter().chain(&private_v6) {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
