//! When a certificate ends. Reads just that one field, by walking over what
//! stands before it in the certificate (DER, RFC 5280); whether the certificate
//! is any good is for clients to say.

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Seconds since 1970.
pub(super) fn ends(cert: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate, _) = element(cert.as_ref()).filter(|e| e.0 == SEQUENCE)?;
    let (_, mut fields, _) = element(certificate).filter(|e| e.0 == SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (_, validity, _) = element(fields).filter(|e| e.0 == SEQUENCE)?;
    let (_, _, after) = element(validity)?;
    let (tag, text, _) = element(after)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Tag, content, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    // Short lengths are the byte itself, others say how many bytes they have.
    let digits = usize::from(first.saturating_sub(0x80));
    let (length, rest) = match digits {
        0 => (usize::from(first), rest),
        1..=4 => {
            let (digits, rest) = rest.split_at_checked(digits)?;
            (digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn time(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
    let number = |from: usize| digits.get(from..from + 2)?.parse::<i64>().ok();
    let (year, at) = match (tag, digits.len()) {
        // Two digits: 1950 to 2049.
        (UTC_TIME, 12) => (number(0).map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, 2),
        (GENERALIZED_TIME, 14) => (number(0)? * 100 + number(2)?, 4),
        _ => return None,
    };
    let (month, day) = (number(at)?, number(at + 2)?);
    let (hour, minute, second) = (number(at + 4)?, number(at + 6)?, number(at + 8)?);
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970 to a date. Years begin in March here, so that the leap day is
/// the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_forms() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "24022912000Z", None),
            (0x02, "240229120000Z", None),
        ] {
            assert_eq!(time(tag, text), seconds, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_certificate() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 5, 17);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        assert_eq!(ends(made.der()), Some(days(2031, 5, 17) * 86_400));
        for length in 0..made.der().len() {
            let part = made.der()[..length].to_vec();
            ends(&CertificateDer::from(part));
        }
    }
}
