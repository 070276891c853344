//! Named limits as people define them. Here are the words and their checks;
//! taking tokens is the engine's and the key store's work.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// So many per unit of time, written `5/s`, `100/m`, `2/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(count, unit)| {
            let seconds = UNITS.iter().find(|(name, _)| *name == unit)?.1;
            Some((count.parse::<u32>().ok()?, seconds))
        });
        match parts {
            Some((count, seconds)) if count > 0 => {
                Ok(Rate { count, per: Duration::from_secs(seconds) })
            }
            _ => {
                Err(Error::invalid("limit", format!("`{text}` is not a rate; write 5/s or 100/m")))
            }
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit =
            UNITS.iter().find(|(_, s)| *s == self.per.as_secs()).map_or("s", |(name, _)| name);
        write!(f, "{}/{unit}", self.count)
    }
}

impl TryFrom<String> for Rate {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}

/// A named limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub name: String,
    pub rate: Rate,
    pub burst: u32,
    /// How many may run at once; 0: no such limit.
    #[serde(default)]
    pub concurrency: u32,
}

impl Limit {
    pub fn validate(&self) -> Result<()> {
        if self.name.is_empty() || self.name.len() > crate::task::NAME_MAX {
            return Err(Error::invalid("limit", "a limit needs a name of 1 to 200 characters"));
        }
        if self.rate.count == 0 || self.rate.to_string().parse::<Rate>().ok() != Some(self.rate) {
            return Err(Error::invalid("limit", "a rate is a count per s, m, h or d"));
        }
        if self.burst == 0 {
            return Err(Error::invalid("limit", "burst must be 1 or more, or nothing ever starts"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back() {
        for text in ["5/s", "100/m", "2/h", "1/d"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for bad in ["", "5", "0/s", "-1/s", "5/x", "5 / s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
