//! URLs that want to lead where nobody should go, built from addresses and the
//! ways there are to write one. Each is a URL that parses: what does not parse
//! never gets near a socket and is a table beside `Target`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses that are not public, of every sort.
const V4: [[u8; 4]; 22] = [
    [127, 0, 0, 1],
    [127, 1, 2, 3],
    [127, 255, 255, 254],
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [10, 0, 0, 1],
    [10, 255, 255, 254],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [172, 16, 0, 1],
    [172, 31, 255, 254],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 168, 1, 1],
    [198, 18, 0, 1],
    [203, 0, 113, 7],
    [224, 0, 0, 1],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
];

const V6: [&str; 20] = [
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::]",
    "[0::0]",
    "[fc00::1]",
    "[fd00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[ff0e::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[3fff::1]",
    "[4000::1]",
    "[::ffff:0:7f00:1]",
];

/// Other ways to write the first of the addresses.
const SPELLINGS: [&str; 24] = [
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0X7F.0x0.0.01",
    "0177.1",
    "00000000177.0.0.1",
    "127.0x1",
    "127.0.0.1.",
    "0x7f000001.",
    "2130706433.",
    "%31%32%37.0.0.1",
    "127%2E0%2E0%2E1",
    "１２７.０.０.１",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127．0．0．1",
    "１２７。１",
    "127.0\t.0.1",
    "127.0.0\n.1",
    "0x7f.0.0x0.0x1",
    "127.0.0.0x1",
    "0177.0.0.0x1",
    "127.0.00.001",
    "127.000000.1",
];

/// An address in every form that a URL may give it.
fn forms(ip: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = ip.octets();
    let n = ip.to_bits();
    let [high, low] = [n >> 16, n & 0xffff];
    vec![
        ip.to_string(),
        format!("{n}"),
        format!("0x{n:x}"),
        format!("0{n:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a}.{}", n & 0x00ff_ffff),
        format!("{a}.{b}.{low}"),
        format!("[::ffff:{ip}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{high:X}:{low:X}]"),
        format!("[::{ip}]"),
        format!("[64:ff9b::{ip}]"),
        format!("[64:ff9b:1::{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        // Teredo keeps the address of its client inverted.
        format!("[2001:0:{high:x}:{low:x}:0:0:{:x}:{:x}]", !high & 0xffff, !low & 0xffff),
    ]
}

/// All URLs, each once, to this port.
pub(crate) fn urls(port: u16) -> Vec<String> {
    let mut hosts: Vec<String> = V4.iter().flat_map(|ip| forms(Ipv4Addr::from(*ip))).collect();
    hosts.extend(V6.iter().chain(&SPELLINGS).map(|host| (*host).to_owned()));
    let mut urls: Vec<String> =
        hosts.iter().map(|host| format!("http://{host}:{port}/latest/meta-data")).collect();
    // What surrounds the host may be odd too.
    urls.extend([
        format!("HTTP://127.0.0.1:{port}/"),
        format!("http:127.0.0.1:{port}"),
        format!("http:/127.0.0.1:{port}/"),
        format!("http:////127.0.0.1:{port}/"),
        format!("http:\\\\127.0.0.1:{port}\\"),
        format!("  http://127.0.0.1:{port}/  "),
        format!("ht\ntp://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}\\@example.com/"),
        format!("http://127.0.0.1:{port}/@example.com/"),
        format!("http://127.0.0.1:{port}?@example.com/"),
        format!("http://127.0.0.1:0{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://[::1]:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://LOCALHOST:{port}/"),
        format!("http://localhost.:{port}/"),
        format!("http://lOcAlHoSt:{port}/?x=example.com"),
    ]);
    let distinct: BTreeSet<String> = urls.iter().cloned().collect();
    distinct.into_iter().collect()
}

/// Those that lead to a machine's own listeners, if nobody hinders them.
pub(crate) fn open(port: u16) -> Vec<String> {
    let hosts = ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0177.1"];
    hosts.iter().map(|host| format!("http://{host}:{port}/")).collect()
}

#[test]
fn the_forms_of_an_address() {
    let forms = forms(Ipv4Addr::LOCALHOST);
    for form in ["2130706433", "0x7f000001", "017700000001", "0x7f.0x0.0x0.0x1", "127.1"] {
        assert!(forms.iter().any(|known| known == form), "{form}");
    }
    let mapped: Ipv6Addr = "::ffff:7f00:1".parse().expect("an address");
    assert_eq!(mapped.to_ipv4_mapped(), Some(Ipv4Addr::LOCALHOST));
    assert!(forms.contains(&"[::ffff:7f00:1]".to_owned()), "{forms:?}");
    assert!(forms.contains(&"[2001:0:7f00:1:0:0:80ff:fffe]".to_owned()), "{forms:?}");
}
