//! The text of an access token: `wl_`, an id that is no secret, and 32 random
//! bytes. The text is shown once, when it is made; what is kept is its hash. With
//! that much chance in it a fast hash is as good as a slow one.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::fmt;
use windlass::Timestamp;
use windlass::core::access::{AccessToken, Role, check_token_name};
use windlass::{Error, Result};

const PREFIX: &str = "wl_";
const ID_CHARS: usize = 12;
const SECRET_BYTES: usize = 32;
/// Says how a kept hash was made.
const SCHEME: &str = "blake3:";

/// A token as its holder has it. Never shown by `Debug`.
pub struct Secret(String);

impl Secret {
    fn new() -> Secret {
        let id: String = format!("{:016x}", rand::random::<u64>()).chars().take(ID_CHARS).collect();
        let secret = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; SECRET_BYTES]>());
        Secret(format!("{PREFIX}{id}_{secret}"))
    }

    /// For the one time it is shown.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Makes a token: what its holder gets, and what is kept.
pub fn make(
    name: &str,
    role: Role,
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(Secret, AccessToken)> {
    check_token_name(name)?;
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Error::invalid("token", "the token would be expired already; give it time"));
    }
    let secret = Secret::new();
    let token = AccessToken {
        name: name.to_owned(),
        id: id_of(secret.expose()).unwrap_or_default().to_owned(),
        role,
        hash: format!("{SCHEME}{}", blake3::hash(secret.expose().as_bytes()).to_hex()),
        created_at: now,
        expires_at,
    };
    Ok((secret, token))
}

/// The part of a token by which it is found; `None`: it is no token of ours.
pub(super) fn id_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(PREFIX)?;
    let id = rest.get(..ID_CHARS)?;
    rest.get(ID_CHARS..)?.strip_prefix('_').map(|_| id)
}

/// Whether `text` is the token of which `kept` is the hash. Takes the same time
/// whatever is different, and when there is nothing to compare with.
pub(super) fn is_token(text: &str, kept: Option<&str>) -> bool {
    let nothing = blake3::Hash::from_bytes([0; 32]);
    let read = |hash: &str| blake3::Hash::from_hex(hash.strip_prefix(SCHEME)?).ok();
    let kept = kept.and_then(read).unwrap_or(nothing);
    // This comparison is in constant time; that is a promise of its type.
    blake3::hash(text.as_bytes()) == kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn a_token_is_found_and_known() {
        let (secret, kept) = make("ci", Role::Submitter, T, None).unwrap();
        assert_eq!(id_of(secret.expose()), Some(kept.id.as_str()));
        assert!(is_token(secret.expose(), Some(&kept.hash)));
        assert!(!kept.hash.contains(&secret.expose()[16..]));
        assert_eq!(secret.expose().len(), 3 + 12 + 1 + 43);
        let (other, _) = make("ci", Role::Submitter, T, None).unwrap();
        assert_ne!(other.expose(), secret.expose());
        let mut wrong = secret.expose().to_owned();
        wrong.pop();
        for text in [other.expose(), &wrong, "", "wl_", &kept.hash] {
            assert!(!is_token(text, Some(&kept.hash)), "{text}");
            assert!(!is_token(text, None));
        }
    }

    #[test]
    fn hashes_that_cannot_be_read_let_nobody_in() {
        let (secret, _) = make("ci", Role::Admin, T, None).unwrap();
        for kept in ["", "blake3:", "blake3:00", "sha256:00", &"0".repeat(64)] {
            assert!(!is_token(secret.expose(), Some(kept)), "{kept}");
        }
    }

    #[test]
    fn debug_hides_it_and_the_past_is_refused() {
        let (secret, _) = make("ci", Role::Admin, T, None).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(make("ci", Role::Admin, T, Some(T)).is_err());
        for text in ["", "wl_", "wl_é123456789ab_x", "x", "wl_0123456789abx"] {
            assert_eq!(id_of(text), None, "{text}");
        }
    }
}
