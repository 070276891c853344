//! How single values of the configuration are written and read back: sizes,
//! addresses, URLs that may hold a password, deadlines. Durations are core's.
//! Nothing here knows keys, files or layers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use windlass_core::clock::{format_duration, parse_duration};
use windlass_core::limits::Rate;

/// Stands where something is not shown.
pub(super) const HIDDEN: &str = "***";
/// Shorter pieces of a secret URL would be found in every text.
const PIECE_MIN: usize = 3;

/// Bytes: `"16MiB"`, `"64kB"`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// Longest first, so that `kB` is not read as `B`.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl Size {
    pub const fn bytes(n: u64) -> Self {
        Size(n)
    }

    pub const fn mib(n: u64) -> Self {
        Size(n << 20)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Stops at what the machine can address.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let bad =
            || format!("`{text}` is not a size; write a number of bytes, or 512KiB, 16MiB, 1GiB");
        let (digits, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?.trim_end(), *unit)))
            .unwrap_or((text, 1));
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let n: u64 = digits.parse().map_err(|_| bad())?;
        n.checked_mul(unit).map(Size).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole =
            UNITS.iter().take(3).find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match whole {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(d)? {
            Written::Bytes(n) => Ok(Size(n)),
            Written::Text(text) => Size::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

/// A time limit that can be switched off with `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deadline(pub Option<Duration>);

impl Deadline {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Deadline(None)),
            _ => match parse_duration(text) {
                Ok(within) => Ok(Deadline(Some(within))),
                Err(e) => Err(format!("{}, or none", e.message())),
            },
        }
    }
}

impl Serialize for Deadline {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(within) => s.serialize_str(&format_duration(within)),
            None => s.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Deadline::parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// A rate that can be switched off with `"none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimit(pub Option<Rate>);

impl RateLimit {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(RateLimit(None)),
            _ => match text.parse() {
                Ok(rate) => Ok(RateLimit(Some(rate))),
                Err(e) => Err(format!("{}, or none", e.message())),
            },
        }
    }
}

impl Serialize for RateLimit {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(rate) => s.collect_str(&rate),
            None => s.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for RateLimit {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        RateLimit::parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// Where the server listens: an IP address and a port, or `localhost` and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Listen {
    pub fn parse(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        if let Some(port) = port {
            return Ok(Listen((Ipv4Addr::LOCALHOST, port).into()));
        }
        let bad = || {
            format!(
                "`{text}` is not an address; write 127.0.0.1:7450, [::1]:7450 or localhost:7450"
            )
        };
        text.parse().map(Listen).map_err(|_| bad())
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Listen::parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// A URL that may hold a password. Only [`SecretUrl::expose`] gives it whole;
/// `Debug`, `Display` and `Serialize` never do.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl {
    text: String,
    /// It was read from a file of secrets: nothing of it is shown.
    whole: bool,
}

impl SecretUrl {
    pub fn new(text: impl Into<String>) -> Self {
        SecretUrl { text: text.into(), whole: false }
    }

    pub fn expose(&self) -> &str {
        &self.text
    }

    pub fn scheme(&self) -> &str {
        self.text.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// A text without what this URL does not show: a store that refuses its URL
    /// may quote it.
    pub fn scrub(&self, text: &str) -> String {
        let shown = self.to_string();
        let pieces = self.text.split(['/', '?', '&', '=', '@', ':']);
        let secret = pieces.filter(|piece| piece.len() >= PIECE_MIN && !shown.contains(piece));
        secret.fold(text.to_owned(), |text, piece| text.replace(piece, HIDDEN))
    }

    pub(super) fn hide(&mut self) {
        self.whole = true;
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.whole { f.write_str(HIDDEN) } else { f.write_str(&redact(&self.text)) }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(SecretUrl::new)
    }
}

/// A text of which nothing is ever shown; only [`Secret::expose`] gives it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(HIDDEN)
    }
}

/// The text without the passwords a URL can hold: `user:password@`, and options
/// such as `?password=`.
pub fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    // The last `@`: a password that was not encoded may hold one itself, and
    // even a slash.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => format!("{user}@{host}"),
        },
        None => rest.to_owned(),
    };
    let query = query.map_or_else(String::new, |query| {
        let pairs: Vec<String> = query.split('&').map(redact_pair).collect();
        format!("?{}", pairs.join("&"))
    });
    format!("{scheme}://{rest}{query}")
}

fn redact_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) if sounds_secret(name) => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    }
}

/// Whether something of this name is better not shown.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "pwd", "secret", "token", "key", "credential", "auth"].iter().any(|w| name.contains(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_hides_is_hidden_in_other_texts_too() {
        let mut url = SecretUrl::new("sqlite://data/x.db?password=hunter2&cache_mb=5");
        let said = "data/x.db: `password=hunter2` is not an option";
        assert_eq!(url.scrub(said), "data/x.db: `password=***` is not an option");
        url.hide();
        assert_eq!(url.scrub(said), "***/***: `***=***` is not an option");
        assert_eq!(SecretUrl::new("memory:").scrub(said), said);
    }

    #[test]
    fn sizes_people_write() {
        let table = [
            ("16MiB", 16 << 20),
            ("1GiB", 1 << 30),
            ("512KiB", 512 << 10),
            ("64kB", 64_000),
            ("2MB", 2_000_000),
            ("1GB", 1_000_000_000),
            ("10B", 10),
            ("4096", 4096),
            ("16 MiB", 16 << 20),
            ("0", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "MiB", "16mib", "16M", "-1", "1.5MiB", "+1", "99999999999GiB", "1 6"] {
            assert!(Size::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn written_sizes_read_back() {
        for bytes in [0, 1, 1000, 1024, 1536, 16 << 20, (1 << 30) + 1, u64::MAX] {
            assert_eq!(Size::parse(&Size(bytes).to_string()), Ok(Size(bytes)));
        }
        assert_eq!(Size::mib(16).to_string(), "16MiB");
    }

    #[test]
    fn passwords_are_not_shown() {
        let table = [
            ("postgres://user:pw@host/db", "postgres://user:***@host/db"),
            ("postgres://user:p@w:x@host/db", "postgres://user:***@host/db"),
            ("postgres://user:p/w@host/db", "postgres://user:***@host/db"),
            ("redis://:pw@host", "redis://:***@host"),
            ("postgres://user@host/db", "postgres://user@host/db"),
            ("x://h/d?sslmode=on&password=pw&b=1", "x://h/d?sslmode=on&password=***&b=1"),
            ("sqlite://windlass.db?synchronous=normal", "sqlite://windlass.db?synchronous=normal"),
            ("memory:", "memory:"),
        ];
        for (url, shown) in table {
            assert_eq!(redact(url), shown);
            assert_eq!(format!("{:?}", SecretUrl::new(url)), format!("{shown:?}"));
        }
        let mut url = SecretUrl::new("sqlite://x");
        url.hide();
        assert_eq!((url.to_string().as_str(), url.expose()), ("***", "sqlite://x"));
    }

    #[test]
    fn addresses_and_deadlines() {
        assert_eq!(Listen::parse("localhost:80").unwrap().0.to_string(), "127.0.0.1:80");
        assert_eq!(Listen::parse("[::1]:0").unwrap().0.to_string(), "[::1]:0");
        for bad in [":7450", "7450", "127.0.0.1", "example.com:80", "localhost:x"] {
            assert!(Listen::parse(bad).unwrap_err().contains("127.0.0.1:7450"), "{bad}");
        }
        assert_eq!(Deadline::parse("none"), Ok(Deadline(None)));
        assert_eq!(Deadline::parse("1h"), Ok(Deadline(Some(Duration::from_secs(3600)))));
        assert!(Deadline::parse("never").unwrap_err().ends_with("or none"));
    }
}
