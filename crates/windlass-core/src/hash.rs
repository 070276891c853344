//! The two hashers of the project: one whose results are stored and so must never
//! change, and one for tables whose keys are ids. Neither is meant to withstand
//! an attacker; nothing here is about secrets.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// FNV-1a: fingerprints are stored, so they must not change with the compiler.
#[derive(Debug)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Spreads row keys over a hash table. Keys are made by this project, never by
/// an attacker, so a multiplication is enough.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = (self.0 ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_i64(&mut self, key: i64) {
        self.write_u64(key.cast_unsigned());
    }
}

/// A map from ids.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;
