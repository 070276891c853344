//! What can go wrong on the way to a server, in few kinds that callers branch on.
//! Messages name the host at most: a path or a query may be a secret, and so may
//! what a library says about a URL.

use super::address::Place;
use std::error::Error;
use std::fmt;

/// Longest text of a cause.
const CAUSE_MAX: usize = 200;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The place may not be reached; trying again changes nothing.
    Refused(Refused),
    /// The answer points elsewhere, and that is not followed.
    Redirected(String),
    /// Names, connections, reading and writing; may go away.
    Broken(String),
    /// There is more than is taken.
    TooLarge { max: usize },
}

/// An address, or all addresses of a name, that may not be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub host: String,
    pub ip: std::net::IpAddr,
    pub place: Place,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { host, ip, place } = self;
        let named = host.trim_matches(['[', ']']).parse() == Ok(*ip);
        match named {
            true => write!(f, "{ip} is ")?,
            false => write!(f, "`{host}` leads to {ip}, ")?,
        }
        match place {
            Place::Private(what) => {
                write!(f, "{what}, which is refused; set allow_private = true if it is meant")
            }
            Place::Never(what) => {
                write!(f, "{what}, which is always refused, also with allow_private; use another")
            }
            Place::Public => write!(f, "a public address"),
        }
    }
}

impl Error for Refused {}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(refused) => refused.fmt(f),
            Trouble::Redirected(why) | Trouble::Broken(why) => f.write_str(why),
            Trouble::TooLarge { max } => {
                write!(f, "the answer has more than {max} bytes; put large results elsewhere")
            }
        }
    }
}

impl Error for Trouble {}

impl Trouble {
    /// What a client's error means. Only the innermost cause is told: the outer
    /// ones are layers, and one of them quotes the URL.
    pub(super) fn of(host: &str, error: &reqwest::Error) -> Trouble {
        let mut cause: &(dyn Error + 'static) = error;
        loop {
            if let Some(refused) = cause.downcast_ref::<Refused>() {
                return Trouble::Refused(refused.clone());
            }
            match cause.source() {
                Some(next) => cause = next,
                None => break,
            }
        }
        let step = match () {
            () if error.is_timeout() && error.is_connect() => "cannot be reached in time",
            () if error.is_connect() => "cannot be reached",
            () if error.is_body() || error.is_decode() => "broke off its answer",
            () => "gave no answer",
        };
        let innermost = match std::ptr::eq(cause, error as &(dyn Error + 'static)) {
            true => String::new(),
            false => format!(": {:.CAUSE_MAX$}", cause.to_string()),
        };
        Trouble::Broken(format!("`{host}` {step}{innermost}"))
    }
}
