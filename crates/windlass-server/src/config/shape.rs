//! What may be written for a key, and what is wrong with what was written. Takes
//! a value as the parser saw it, with its place, and gives it back in plain form.
//! Messages never hold a URL or a variable's value: those may be secrets.

use super::suggest::nearest;
use super::values::{Deadline, Listen, RateLimit, Size};
use crate::handlers::own_header;
use crate::outbound::{SigningSecret, Target};
use crate::redact::Field;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;
use windlass::Exponential;
use windlass_core::clock::{check_duration, format_duration, parse_duration};
use windlass_core::task::QueueName;

/// Headers that one handler may add.
const HEADERS_MAX: usize = 32;

/// What a value looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Text,
    Address,
    /// Schemes that work, and those that will; `""` is the empty text.
    Url {
        now: &'static [&'static str],
        soon: &'static [&'static str],
    },
    Choice {
        now: &'static [&'static str],
        soon: &'static [&'static str],
    },
    Duration {
        least_ms: u64,
    },
    Deadline,
    /// So many per unit of time, or `none`.
    Rate,
    Size,
    /// A whole number between two.
    Whole(i64, i64),
    /// A retry table; what it leaves out is this policy's.
    Retry(Exponential),
    Argv,
    Name,
    Names,
    /// Fields of JSON documents, `card.number`.
    Fields,
    Env,
    /// Where a request may go.
    HttpUrl,
    SigningSecret,
    /// Headers of a request; `NAME_file` is in a file.
    Headers,
    /// True or false.
    Flag,
    /// For keys that only accept their default.
    Anything,
}

/// A mistake in a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Byte in the text where it is.
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: String,
}

type Checked<T> = Result<T, Wrong>;
type Written<'a> = Spanned<DeValue<'a>>;

fn wrong<T>(at: &Written<'_>, message: impl Into<String>, hint: impl Into<String>) -> Checked<T> {
    Err(Wrong { at: at.span().start, message: message.into(), hint: hint.into() })
}

/// What is wrong with a text, and what to do.
type Advice = (String, String);

/// Splits `what is wrong; what to do`, as core writes it.
fn advice(message: &str, otherwise: &str) -> Advice {
    let (message, hint) = message.rsplit_once("; ").unwrap_or((message, otherwise));
    (message.to_owned(), hint.to_owned())
}

impl Shape {
    pub(super) const ANY_DURATION: Shape = Shape::Duration { least_ms: 0 };
    pub(super) const TIMEOUT: Shape = Shape::Duration { least_ms: 1 };

    pub(super) const fn choice(now: &'static [&'static str]) -> Shape {
        Shape::Choice { now, soon: &[] }
    }

    /// Whether it is written as a string, so that a file may hold it.
    pub(super) fn is_text(&self) -> bool {
        match self {
            Shape::Text
            | Shape::Address
            | Shape::Url { .. }
            | Shape::Choice { .. }
            | Shape::Duration { .. }
            | Shape::Deadline
            | Shape::Rate
            | Shape::Size
            | Shape::HttpUrl
            | Shape::SigningSecret
            | Shape::Name => true,
            Shape::Whole(..)
            | Shape::Retry(_)
            | Shape::Argv
            | Shape::Names
            | Shape::Fields
            | Shape::Env
            | Shape::Headers
            | Shape::Flag
            | Shape::Anything => false,
        }
    }

    /// What one would call it, for messages that must not show the value.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Shape::Address => "an address",
            Shape::Url { .. } => "a URL that this version knows",
            Shape::Duration { .. } | Shape::Deadline => "a duration",
            Shape::Size => "a size",
            Shape::HttpUrl => "an http:// or https:// URL",
            Shape::SigningSecret => "`whsec_` and the base64 of 24 to 64 bytes",
            _ => "a value of this key",
        }
    }

    /// The value in plain form, or what is wrong with it.
    pub(super) fn check(&self, value: &Written<'_>) -> Checked<toml::Value> {
        match self {
            Shape::Anything => return Ok(plain(value.get_ref())),
            Shape::Whole(min, max) => return whole(value, *min, *max).map(toml::Value::from),
            Shape::Retry(base) => return retry(value, *base),
            Shape::Argv => return argv(value),
            Shape::Names => return names(value),
            Shape::Fields => return fields(value),
            Shape::Env => return env(value),
            Shape::Headers => return headers(value),
            Shape::Flag => return flag(value),
            // A number of bytes needs no unit.
            Shape::Size if value.get_ref().is_integer() => {
                return whole(value, 1, i64::MAX).map(toml::Value::from);
            }
            _ => {}
        }
        let text = text(value, self.example())?;
        match self.check_text(text) {
            Ok(()) => Ok(text.into()),
            Err((message, hint)) => wrong(value, message, hint),
        }
    }

    fn example(&self) -> &'static str {
        match self {
            Shape::Duration { .. } | Shape::Deadline => "write \"30s\" or \"5m\"",
            Shape::Rate => "write \"1000/s\" or \"none\"",
            Shape::Size => "write \"16MiB\" or a number of bytes",
            Shape::Address => "write \"127.0.0.1:7450\"",
            Shape::HttpUrl => "write \"https://HOST/PATH\"",
            _ => "write it in quotes",
        }
    }

    fn check_text(&self, text: &str) -> Result<(), Advice> {
        let plainly = |message: String| advice(&message, self.example());
        match self {
            Shape::Address => Listen::parse(text).map(drop).map_err(plainly),
            Shape::Duration { least_ms } => duration(text, *least_ms).map_err(plainly),
            Shape::Deadline => match Deadline::parse(text).map_err(plainly)?.0 {
                Some(_) => duration(text, 1).map_err(plainly),
                None => Ok(()),
            },
            Shape::Rate => RateLimit::parse(text).map(drop).map_err(plainly),
            Shape::Size => match Size::parse(text).map_err(plainly)?.as_u64() {
                0 => Err(plainly("0 bytes leave room for nothing; write 1 or more".to_owned())),
                _ => Ok(()),
            },
            Shape::Name => QueueName::new(text).map(drop).map_err(|e| plainly(e.message().into())),
            Shape::Choice { now, soon } => choice(text, now, soon),
            Shape::Url { now, soon } => url(text, now, soon),
            Shape::HttpUrl => Target::parse(text).map(drop).map_err(plainly),
            Shape::SigningSecret => SigningSecret::parse(text).map(drop).map_err(plainly),
            _ if text.is_empty() => Err(plainly("is empty; write one letter or more".to_owned())),
            _ => Ok(()),
        }
    }
}

fn text<'a>(value: &'a Written<'_>, example: &str) -> Checked<&'a str> {
    let found = value.get_ref();
    match found.as_str() {
        Some(text) => Ok(text),
        None => {
            let message = format!("must be a string, not {}", with_article(found.type_str()));
            wrong(value, message, example)
        }
    }
}

fn with_article(noun: &str) -> String {
    let an = if noun.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{an} {noun}")
}

fn duration(text: &str, least_ms: u64) -> Result<(), String> {
    let d = parse_duration(text).map_err(|e| e.message().to_owned())?;
    check_duration("it", Some(d)).map_err(|e| e.message().to_owned())?;
    if d < Duration::from_millis(least_ms) {
        let least = format_duration(Duration::from_millis(least_ms));
        return Err(format!("`{text}` is too short; the least is {least}"));
    }
    Ok(())
}

fn choice(text: &str, now: &[&str], soon: &[&str]) -> Result<(), Advice> {
    if now.contains(&text) {
        return Ok(());
    }
    let list = now.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    if soon.contains(&text) {
        let message = format!("`{text}` is not supported by this version yet");
        return Err((message, format!("use {list}")));
    }
    let hint = match nearest(text, now.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use {list}"),
    };
    Err((format!("`{text}` is none of {list}"), hint))
}

fn url(text: &str, now: &[&str], soon: &[&str]) -> Result<(), Advice> {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let usage = match now {
        ["sqlite", ..] => "use sqlite://windlass.db or memory:",
        ["store"] => "use store:",
        _ => "leave it empty",
    };
    if soon.contains(&scheme) {
        let message = format!("`{scheme}:` is not supported by this version yet");
        return Err((message, usage.to_owned()));
    }
    // An empty scheme is that of the empty text only.
    let known = now.contains(&scheme) && text.is_empty() == scheme.is_empty();
    // What stands after the scheme of a store that needs nothing is a mistake.
    let rest = text.get(scheme.len() + 1..).unwrap_or("");
    let fits = match scheme {
        "sqlite" => rest.starts_with("//") && !rest[2..].is_empty() && !rest.starts_with("//?"),
        "memory" | "store" => rest.is_empty(),
        _ => true,
    };
    if known && fits {
        return Ok(());
    }
    let message = match scheme {
        "" => "names no scheme".to_owned(),
        _ if known => format!("is not a complete `{scheme}:` URL"),
        _ => format!("`{scheme}:` is not known here"),
    };
    Err((message, usage.to_owned()))
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let n = value.as_integer()?;
    i64::from_str_radix(n.as_str(), n.radix()).ok()
}

fn whole(value: &Written<'_>, min: i64, max: i64) -> Checked<i64> {
    let range = match max {
        i64::MAX => format!("a whole number, {min} or more"),
        _ => format!("a whole number from {min} to {max}"),
    };
    match integer(value.get_ref()) {
        Some(n) if (min..=max).contains(&n) => Ok(n),
        Some(n) => wrong(value, format!("{n} is out of range"), format!("write {range}")),
        None => {
            let found = with_article(value.get_ref().type_str());
            wrong(value, format!("must be a whole number, not {found}"), format!("write {range}"))
        }
    }
}

fn argv(value: &Written<'_>) -> Checked<toml::Value> {
    let hint = || "argv as an array, never a shell string: [\"python3\", \"scan.py\"]";
    let Some(items) = value.get_ref().as_array() else {
        return wrong(value, "must be an array of strings", hint());
    };
    let mut argv = vec![];
    for item in items {
        match item.get_ref().as_str() {
            Some(word) if word.contains('\0') => return wrong(item, "holds a NUL", hint()),
            Some(word) => argv.push(toml::Value::from(word)),
            None => return wrong(item, "must be an array of strings", hint()),
        }
    }
    match argv.first().and_then(toml::Value::as_str) {
        None | Some("") => wrong(value, "names no program", hint()),
        Some(_) => Ok(argv.into()),
    }
}

fn names(value: &Written<'_>) -> Checked<toml::Value> {
    let Some(items) = value.get_ref().as_array() else {
        return wrong(value, "must be an array of names", "write [\"scan\"]");
    };
    let mut names: Vec<toml::Value> = vec![];
    for item in items {
        let name = text(item, "write names in quotes")?;
        if names.iter().any(|n| n.as_str() == Some(name)) {
            return wrong(item, format!("`{name}` stands twice"), "remove one");
        }
        names.push(name.into());
    }
    Ok(names.into())
}

fn fields(value: &Written<'_>) -> Checked<toml::Value> {
    let Some(items) = value.get_ref().as_array() else {
        return wrong(value, "must be an array of fields", "write [\"password\", \"card.number\"]");
    };
    let mut fields: Vec<toml::Value> = vec![];
    for item in items {
        let name = text(item, "write fields in quotes")?;
        if let Err(message) = name.parse::<Field>() {
            let (message, hint) = advice(&message, "write password or card.number");
            return wrong(item, message, hint);
        }
        fields.push(name.into());
    }
    Ok(fields.into())
}

fn env(value: &Written<'_>) -> Checked<toml::Value> {
    let Some(table) = value.get_ref().as_table() else {
        return wrong(value, "must be a table of strings", "write { LANG = \"C.UTF-8\" }");
    };
    let mut env = toml::Table::new();
    for (name, item) in table {
        let name: &str = name.get_ref();
        if name.is_empty() || name.contains(['=', '\0']) {
            return wrong(item, format!("{name:?} cannot be the name of a variable"), "rename it");
        }
        match item.get_ref().as_str() {
            Some(text) if !text.contains('\0') => env.insert(name.to_owned(), text.into()),
            _ => return wrong(item, format!("`{name}` must be a string"), "write it in quotes"),
        };
    }
    Ok(env.into())
}

fn flag(value: &Written<'_>) -> Checked<toml::Value> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Ok((*flag).into()),
        other => {
            let found = with_article(other.type_str());
            wrong(value, format!("must be true or false, not {found}"), "write it without quotes")
        }
    }
}

fn headers(value: &Written<'_>) -> Checked<toml::Value> {
    let Some(table) = value.get_ref().as_table() else {
        let hint = "write { Authorization_file = \"token.txt\" }";
        return wrong(value, "must be a table of strings", hint);
    };
    if table.len() > HEADERS_MAX {
        return wrong(value, format!("has more than {HEADERS_MAX} headers"), "remove some");
    }
    let mut headers = toml::Table::new();
    for (name, item) in table {
        let name: &str = name.get_ref();
        let Some(text) = item.get_ref().as_str() else {
            return wrong(item, format!("`{name}` must be a string"), "write it in quotes");
        };
        if let Err(message) = own_header(name, text) {
            let (message, hint) = advice(&message, "change it");
            return wrong(item, message, hint);
        }
        if headers.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            return wrong(item, format!("`{name}` stands twice"), "remove one");
        }
        headers.insert(name.to_owned(), text.into());
    }
    Ok(headers.into())
}

const RETRY_KEYS: [&str; 5] = ["retries", "first", "factor", "cap", "jitter"];

fn retry(value: &Written<'_>, base: Exponential) -> Checked<toml::Value> {
    let Some(table) = value.get_ref().as_table() else {
        let hint =
            "write { retries = 3, first = \"1s\", factor = 2.0, cap = \"1m\", jitter = 0.1 }";
        return wrong(value, "must be a table", hint);
    };
    let mut policy = base;
    for (name, item) in table {
        let within = |mut wrong: Wrong| {
            wrong.message = format!("`{}` {}", name.get_ref(), wrong.message);
            wrong
        };
        let time = || -> Checked<Duration> {
            let text = text(item, "write \"30s\" or \"5m\"").map_err(within)?;
            match duration(text, 0).and_then(|()| parse_duration(text).map_err(|e| e.to_string())) {
                Ok(d) => Ok(d),
                Err(message) => {
                    let (message, hint) = advice(&message, "write \"30s\" or \"5m\"");
                    wrong(item, message, hint)
                }
            }
        };
        match name.get_ref().as_ref() {
            "retries" => {
                let n = whole(item, 0, u32::MAX.into()).map_err(within)?;
                policy.retries = u32::try_from(n).unwrap_or(u32::MAX);
            }
            "first" => policy.first = time()?,
            "cap" => policy.cap = time()?,
            "factor" => policy.factor = number(item).map_err(within)?,
            "jitter" => policy.jitter = number(item).map_err(within)?,
            other => {
                let near = nearest(other, RETRY_KEYS).map(|near| format!("did you mean `{near}`?"));
                let hint = near.unwrap_or_else(|| format!("known are {}", RETRY_KEYS.join(", ")));
                let message = format!("unknown key `{other}`");
                return Err(Wrong { at: name.span().start, message, hint });
            }
        }
    }
    match policy.validate() {
        Ok(()) => Ok(toml::Value::try_from(policy).unwrap_or_else(|_| plain(value.get_ref()))),
        Err(e) => {
            let (message, hint) = advice(e.message(), "change one of them");
            wrong(value, message, hint)
        }
    }
}

fn number(value: &Written<'_>) -> Checked<f64> {
    let float = value.get_ref().as_float().and_then(|f| f.as_str().parse().ok());
    // No number of retries or seconds is so large that it would lose digits.
    match float.or_else(|| integer(value.get_ref()).map(|n| n as f64)) {
        Some(n) => Ok(n),
        None => {
            let found = with_article(value.get_ref().type_str());
            wrong(value, format!("must be a number, not {found}"), "write 2.0 or 0.1")
        }
    }
}

/// The value without its place.
pub(super) fn plain(value: &DeValue<'_>) -> toml::Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(n) => integer(value).map_or_else(|| n.as_str().into(), Into::into),
        DeValue::Float(n) => {
            n.as_str().parse::<f64>().map_or_else(|_| n.as_str().into(), Into::into)
        }
        DeValue::Boolean(b) => (*b).into(),
        DeValue::Datetime(at) => (*at).into(),
        DeValue::Array(items) => {
            items.iter().map(|i| plain(i.get_ref())).collect::<Vec<_>>().into()
        }
        DeValue::Table(table) => {
            let plain = table.iter().map(|(k, v)| (k.get_ref().to_string(), plain(v.get_ref())));
            plain.collect::<toml::Table>().into()
        }
    }
}
