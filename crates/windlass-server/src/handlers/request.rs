//! What the receiver of an `http` handler is told: the document as body, and
//! headers that name the try, carry its fencing token and sign the whole. The
//! headers that a configuration adds are secrets. Nothing is sent here.

use crate::outbound::{SigningSecret, Target};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;
use windlass::{StepCall, TaskError, fatal};

/// Longest value of a header that a configuration adds.
const VALUE_MAX: usize = 8 * 1024;

/// The receiver of a handler, as the configuration names it.
#[derive(Debug, Clone)]
pub struct HttpSpec {
    pub target: Target,
    /// Longest run of one try, if it differs from the kind's.
    pub timeout: Option<Duration>,
    /// Absent: requests are not signed.
    pub secret: Option<SigningSecret>,
    /// Sent with every request, made by [`own_header`].
    pub headers: HeaderMap,
}

impl HttpSpec {
    pub fn new(target: Target) -> HttpSpec {
        HttpSpec { target, timeout: None, secret: None, headers: HeaderMap::new() }
    }

    /// The headers of one try. `now` is in seconds since 1970.
    pub(crate) fn headers(
        &self,
        call: &StepCall,
        body: &[u8],
        now: u64,
    ) -> Result<HeaderMap, TaskError> {
        let key = call.cx.idempotency_key(&call.step);
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut tell = |name: &'static str, value: &str| match HeaderValue::from_str(value) {
            Ok(value) => {
                headers.insert(name, value);
                Ok(())
            }
            Err(_) => Err(fatal(format!("{value:?} cannot be sent as the header `{name}`"))),
        };
        // One id for all tries of a step: to the receiver they are one message.
        tell("webhook-id", &key)?;
        tell("webhook-timestamp", &now.to_string())?;
        if let Some(secret) = &self.secret {
            tell("webhook-signature", &secret.sign(&key, now, body).map_err(fatal)?)?;
        }
        tell("idempotency-key", &key)?;
        tell("windlass-fencing-token", &call.cx.fencing_token().to_string())?;
        if let Some(trace) = call.cx.task().extras.as_ref().and_then(|e| e.trace.as_deref()) {
            tell("traceparent", trace)?;
        }
        Ok(headers)
    }
}

/// A header of the configuration. The error says what is wrong and what to do,
/// and never quotes the value.
pub fn own_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let read = HeaderName::from_bytes(name.as_bytes());
    let read = read.map_err(|_| format!("{name:?} cannot be the name of a header; rename it"))?;
    if is_ours(read.as_str()) {
        return Err(format!("`{name}` is set by Windlass; remove it"));
    }
    if value.len() > VALUE_MAX {
        return Err(format!("`{name}` has more than {VALUE_MAX} bytes; shorten it"));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        format!("the value of `{name}` has characters no header may have; use visible ASCII")
    })?;
    value.set_sensitive(true);
    Ok((read, value))
}

/// Headers that say what is sent, how, and by which try.
fn is_ours(name: &str) -> bool {
    let names = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "te",
        "traceparent",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    names.contains(&name) || name.starts_with("webhook-") || name.starts_with("windlass-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_ones_own() {
        let (name, value) = own_header("Authorization", "Bearer hunter2").expect("a header");
        assert_eq!((name.as_str(), value.to_str().ok()), ("authorization", Some("Bearer hunter2")));
        let spec = HttpSpec {
            headers: HeaderMap::from_iter([(name, value)]),
            ..HttpSpec::new(Target::parse("http://example.com/?k=hunter2").expect("a URL"))
        };
        assert!(!format!("{spec:?}").contains("hunter2"), "{spec:?}");
        for (name, value, word) in [
            ("Host", "x", "set by Windlass"),
            ("Webhook-Signature", "x", "set by Windlass"),
            ("windlass-x", "x", "set by Windlass"),
            ("Content-Length", "1", "set by Windlass"),
            ("a b", "x", "name of a header"),
            ("", "x", "name of a header"),
            ("x-key", "hunter2\r\nx-other: 1", "no header may have"),
            ("x-key", "hunter2\0", "no header may have"),
        ] {
            let error = own_header(name, value).expect_err(name);
            assert!(error.contains(word) && !error.contains("hunter2"), "{error}");
        }
        assert!(own_header("x-key", &"x".repeat(VALUE_MAX + 1)).is_err());
    }
}
