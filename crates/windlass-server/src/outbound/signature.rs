//! Signs what is sent, as Standard Webhooks says: `v1,` and the base64 of an
//! HMAC-SHA256 over id, time and body, joined by full stops. The secret is
//! `whsec_` and base64; it can be read in, used, and never shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::ops::RangeInclusive;

const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const LENGTH: RangeInclusive<usize> = 24..=64;
const HOW: &str = "write whsec_ and the base64 of 24 to 64 random bytes, made by: echo whsec_$(openssl rand -base64 32)";

#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// The error says what is wrong and what to do, and never quotes the secret.
    pub fn parse(text: &str) -> Result<SigningSecret, String> {
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(format!("does not begin with `{PREFIX}`; {HOW}"));
        };
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| format!("is not base64 after `{PREFIX}`; {HOW}"))?;
        match LENGTH.contains(&bytes.len()) {
            true => Ok(SigningSecret(bytes)),
            false => Err(format!("has {} bytes; {HOW}", bytes.len())),
        }
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Result<String, String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(|e| e.to_string())?;
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value was computed with Python's `hmac`.
    #[test]
    fn a_known_signature() {
        let secret = SigningSecret::parse("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
        let signed = secret.unwrap().sign("tsk_1:1:scan", 1_700_000_000, b"{\"a\":1}\n");
        assert_eq!(signed.as_deref(), Ok("v1,+XrbnMBR+tLSoTdUVCA0ceQo2Z8SuPcoebBh2rsYL08="));
    }

    #[test]
    fn secrets_have_one_form_and_are_not_quoted() {
        for (text, word) in [
            ("", "does not begin"),
            ("hunter2hunter2", "does not begin"),
            ("whsec_", "0 bytes"),
            ("whsec_aHVudGVyMg==", "7 bytes"),
            ("whsec_hunter2!", "not base64"),
        ] {
            let error = SigningSecret::parse(text).expect_err(text);
            assert!(error.contains(word) && error.contains("openssl"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        assert!(SigningSecret::parse(&long).is_err());
        let good = SigningSecret::parse(&format!("whsec_{}", STANDARD.encode([7; 24]))).unwrap();
        assert_eq!(format!("{good:?}"), "SigningSecret(***)");
    }
}
