//! Identities. A task's id is its row key: 63 bits of (milliseconds, slot,
//! sequence), so ids sort by time, need no second index, and are made by the
//! submitting node before the insert. The slot comes from the store when a node
//! joins; [`IdMint`] makes the rest. Users see `tsk_` and 13 characters of
//! lower-case Crockford base32.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const DIGITS: usize = 13;
/// 2025-01-01T00:00:00Z. 41 bits of milliseconds reach until 2094.
const EPOCH_MS: i64 = 1_735_689_600_000;
const SEQUENCE_BITS: u32 = 12;
const SLOT_BITS: u32 = 10;
const MILLIS_BITS: u32 = 41;

/// How many nodes may hold a slot at once.
pub const SLOTS: u16 = 1 << SLOT_BITS;
/// Slots that workers in other processes never get: however many of them join,
/// a node that can own the store finds a place.
pub const OWN_SLOTS: u16 = 64;

fn encode(key: i64, f: &mut fmt::Formatter<'_>, prefix: &str) -> fmt::Result {
    let mut text = [b'0'; DIGITS];
    let mut rest = key.cast_unsigned();
    for digit in text.iter_mut().rev() {
        *digit = ALPHABET[(rest & 31) as usize];
        rest >>= 5;
    }
    f.write_str(prefix)?;
    text.iter().try_for_each(|&b| fmt::Write::write_char(f, char::from(b)))
}

fn digit(byte: u8) -> Option<u64> {
    // Crockford: letters people confuse with digits read as those digits.
    let byte = match byte.to_ascii_lowercase() {
        b'o' => b'0',
        b'i' | b'l' => b'1',
        other => other,
    };
    ALPHABET.iter().position(|&a| a == byte).map(|p| p as u64)
}

fn decode(text: &str, prefix: &str) -> Option<i64> {
    let digits = text.strip_prefix(prefix)?;
    if digits.len() != DIGITS {
        return None;
    }
    let mut key: u64 = 0;
    for byte in digits.bytes() {
        // The first of 13 digits may only use three bits of a 63-bit key.
        key = key.checked_mul(32)?.checked_add(digit(byte)?)?;
    }
    i64::try_from(key).ok()
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// From a stored row key.
            pub const fn from_key(key: i64) -> Self {
                $name(key)
            }

            /// The row key this id encodes.
            pub const fn key(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode(self.0, f, $prefix)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                decode(text, $prefix).map($name).ok_or_else(|| {
                    let shape = concat!("an id looks like ", $prefix, " and 13 characters");
                    Error::invalid("id", format!("`{text}` is not an id; {shape}"))
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(
    /// One task.
    TaskId,
    "tsk_"
);
id_type!(
    /// One start of one node; a process that lost its lease takes a new one.
    NodeId,
    "nod_"
);
id_type!(
    /// One event: the encoding of its position in the feed, stable once given.
    EventId,
    "evt_"
);
id_type!(
    /// One dead letter; for a task's dead letter the same key as the task's.
    DeadId,
    "dl_"
);
id_type!(
    /// One bulk job.
    BatchId,
    "bat_"
);

impl TaskId {
    /// When the id was made, to the millisecond.
    pub fn made_at(self) -> Timestamp {
        Timestamp::from_millis((self.0 >> (SEQUENCE_BITS + SLOT_BITS)) + EPOCH_MS)
    }

    /// The smallest id that could be made at `at`: a bound for range scans.
    pub fn floor(at: Timestamp) -> Self {
        TaskId(compose(at.as_millis().saturating_sub(EPOCH_MS).max(0), 0, 0))
    }
}

impl From<TaskId> for DeadId {
    fn from(task: TaskId) -> Self {
        DeadId(task.0)
    }
}

fn compose(millis: i64, slot: u16, sequence: u16) -> i64 {
    let millis = millis & ((1 << MILLIS_BITS) - 1);
    (millis << (SLOT_BITS + SEQUENCE_BITS))
        | (i64::from(slot) << SEQUENCE_BITS)
        | i64::from(sequence)
}

/// Makes row keys for one node. Keys rise strictly, also when the clock stands
/// still or goes back: the mint then borrows from the next millisecond.
#[derive(Debug)]
pub struct IdMint {
    slot: u16,
    millis: i64,
    sequence: u16,
}

impl IdMint {
    /// `slot` is what the store gave this node; see [`SLOTS`].
    pub fn new(slot: u16) -> Self {
        IdMint { slot: slot % SLOTS, millis: -1, sequence: 0 }
    }

    /// The next key at `now`.
    pub fn next_key(&mut self, now: Timestamp) -> i64 {
        let millis = now.as_millis().saturating_sub(EPOCH_MS).max(0);
        if millis > self.millis {
            self.millis = millis;
            self.sequence = 0;
        } else if self.sequence + 1 < 1 << SEQUENCE_BITS {
            self.sequence += 1;
        } else {
            self.millis += 1;
            self.sequence = 0;
        }
        compose(self.millis, self.slot, self.sequence)
    }

    pub fn task(&mut self, now: Timestamp) -> TaskId {
        TaskId(self.next_key(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn ids_read_back_and_forgive_confusable_letters() {
        let id = IdMint::new(7).task(T0);
        let text = id.to_string();
        assert_eq!(text.len(), 4 + 13);
        assert_eq!(text.parse::<TaskId>().unwrap(), id);
        assert_eq!(text.replace('0', "o").replace('1', "l").parse::<TaskId>().unwrap(), id);
        assert_eq!(id.made_at(), T0);
    }

    #[test]
    fn wrong_ids_are_refused() {
        for bad in
            ["", "tsk_", "tsk_0", "nod_0000000000000", "tsk_000000000000u", "tsk_zzzzzzzzzzzzz"]
        {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn keys_rise_whatever_the_clock_does(steps in prop::collection::vec(-5i64..5, 1..5000)) {
            let mut mint = IdMint::new(1023);
            let mut now = T0.as_millis();
            let mut last = 0;
            for step in steps {
                now += step;
                let key = mint.next_key(Timestamp::from_millis(now));
                prop_assert!(key > last);
                last = key;
            }
        }

        #[test]
        fn every_key_reads_back(key in 0i64..=i64::MAX) {
            let id = TaskId::from_key(key);
            prop_assert_eq!(id.to_string().parse::<TaskId>().unwrap(), id);
        }
    }
}
