//! A URL that may be asked: `http` or `https`, with a host and without a user.
//! Reading it settles how a host is written (`0x7f.1` is `127.0.0.1`), so that
//! what is judged is what is connected to. Shown by its host only.

use super::address::Reach;
use super::trouble::Refused;
use reqwest::Url;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Longest URL.
const URL_MAX: usize = 2048;

#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

impl Target {
    /// The error says what is wrong and what to do, and never quotes the URL.
    pub fn parse(text: &str) -> Result<Target, String> {
        if text.len() > URL_MAX {
            return Err(format!("is longer than {URL_MAX} bytes; shorten it"));
        }
        let url =
            Url::parse(text).map_err(|e| format!("is not a URL ({e}); write https://HOST/PATH"))?;
        Target::of(url)
    }

    fn of(url: Url) -> Result<Target, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{}:` is not known here; use https:// or http://", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("holds a user or a password; send them in a header instead".to_owned());
        }
        if url.fragment().is_some() {
            return Err("ends in a `#` part, which is never sent; remove it".to_owned());
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err("names no host; write https://HOST/PATH".to_owned());
        }
        Ok(Target(url))
    }

    /// The host as it is written in a URL, IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The address, when nobody has to be asked for it. A host that is an address
    /// is never resolved, so nobody else judges it; and `localhost` is loopback
    /// whatever a name server says.
    pub fn address(&self) -> Option<IpAddr> {
        let host = self.host().trim_end_matches('.');
        if host == "localhost" || host.ends_with(".localhost") {
            return Some(Ipv4Addr::LOCALHOST.into());
        }
        host.trim_matches(['[', ']']).parse().ok()
    }

    /// What can be said without asking a name server.
    pub fn check(&self, reach: Reach) -> Result<(), Refused> {
        match self.address().and_then(|ip| Some((ip, reach.refuses(ip)?))) {
            Some((ip, place)) => Err(Refused { host: self.host().to_owned(), ip, place }),
            None => Ok(()),
        }
    }

    /// Where a redirect leads, if that is the same server.
    pub(super) fn follow(&self, location: &str) -> Result<Target, String> {
        let elsewhere = |host: &str| {
            format!(
                "the answer points to `{host}`, and another server is not followed; name the last address of the chain in the URL"
            )
        };
        if location.len() > URL_MAX {
            return Err(format!("the answer points to a URL of more than {URL_MAX} bytes"));
        }
        let url = self.0.join(location).map_err(|_| elsewhere("what is no URL"))?;
        if url.origin() != self.0.origin() {
            return Err(elsewhere(url.host_str().unwrap_or(url.scheme())));
        }
        Target::of(url).map_err(|why| format!("the answer points to a URL that {why}"))
    }

    /// Parts that may be a key to the door: hooks have one in their path or query.
    pub(crate) fn keys(&self) -> Vec<String> {
        let path = self.0.path_segments().into_iter().flatten().map(str::to_owned);
        path.chain(self.0.query_pairs().map(|(_, value)| value.into_owned())).collect()
    }

    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.host())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, host) in [
            ("http://127.1/", "127.0.0.1"),
            ("http://0x7f000001/", "127.0.0.1"),
            ("http://017700000001/", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://127.0.0.1./", "127.0.0.1"),
            ("http://①②⑦.⓪.⓪.①/", "127.0.0.1"),
            ("http://%31%32%37.0.0.1/", "127.0.0.1"),
            ("http:\\\\127.0.0.1\\", "127.0.0.1"),
            ("HTTP://LOCALHOST/", "localhost"),
            ("http://[0:0:0:0:0:ffff:7f00:1]/", "[::ffff:7f00:1]"),
        ] {
            let target = Target::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(target.host(), host, "{text}");
            assert!(target.check(Reach::Public).is_err(), "{text}");
            assert_eq!(target.check(Reach::Private), Ok(()), "{text}");
        }
        assert_eq!(Target::parse("https://example.com/x").unwrap().check(Reach::Public), Ok(()));
        assert!(Target::parse("http://a.localhost.:80").unwrap().check(Reach::Public).is_err());
    }

    #[test]
    fn what_is_no_target_is_told_without_being_quoted() {
        for (text, word) in [
            ("", "is not a URL"),
            ("example.com/secret", "is not a URL"),
            ("/secret", "is not a URL"),
            ("file:///secret", "`file:`"),
            ("gopher://secret.com/", "`gopher:`"),
            ("http://user:secret@example.com/", "user or a password"),
            ("http://secret@example.com/", "user or a password"),
            ("http://", "is not a URL"),
            ("http://1.2.3.4.5/secret", "is not a URL"),
            ("http://256.256.256.256/secret", "is not a URL"),
            ("http://[fe80::1%25eth0]/secret", "is not a URL"),
            ("http://example.com/#secret", "`#`"),
            ("http://exa mple.com/secret", "is not a URL"),
        ] {
            let error = Target::parse(text).expect_err(text);
            assert!(error.contains(word) && !error.contains("secret"), "{text}: {error}");
            assert!(error.contains(';'), "says what to do: {error}");
        }
        assert!(Target::parse(&format!("http://a/{}", "x".repeat(2048))).is_err());
        let shown = format!("{:?}", Target::parse("http://host.com/p?token=secret").unwrap());
        assert_eq!(shown, "Target(host.com)");
    }

    #[test]
    fn only_the_same_server_is_followed() {
        let here = Target::parse("http://example.com/a/b?x=1").unwrap();
        for (location, leads_to) in [
            ("c", "http://example.com/a/c"),
            ("/c?d", "http://example.com/c?d"),
            ("http://example.com:80/c", "http://example.com/c"),
            ("//EXAMPLE.com/c", "http://example.com/c"),
        ] {
            assert_eq!(here.follow(location).unwrap().0.as_str(), leads_to, "{location}");
        }
        for location in [
            "https://example.com/c",
            "http://example.com:81/c",
            "http://127.0.0.1/",
            "//127.0.0.1/",
            "\\\\127.0.0.1\\",
            "http://example.com.evil.net/",
            "http://example.com@127.0.0.1/",
            "http://user@example.com/",
            "file:///etc/passwd",
            "http://[",
        ] {
            assert!(here.follow(location).is_err(), "{location}");
        }
    }
}
