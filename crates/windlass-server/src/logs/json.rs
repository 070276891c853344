//! One flat JSON object per log line: time, level, message, the line's own
//! fields, and those of all spans around it under their own names. Log
//! collectors then find `task`, `kind`, `queue`, `attempt`, `step` and `node` at
//! the top, whoever wrote the line.

use serde_json::{Map, Value};
use std::fmt::Debug;
use std::io::Write;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use windlass::Timestamp;

/// Longest value of one field; the rest is cut.
const VALUE_MAX: usize = 8 * 1024;

/// Writes the lines.
pub(super) struct Lines<W> {
    out: fn() -> W,
}

impl<W: Write> Lines<W> {
    pub(super) fn to(out: fn() -> W) -> Self {
        Lines { out }
    }
}

/// The fields of a span, as they will stand in a line.
struct Fields(Map<String, Value>);

struct Collect<'a>(&'a mut Map<String, Value>);

impl Collect<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }

    fn text(&mut self, field: &Field, text: &str) {
        let end = (0..=VALUE_MAX.min(text.len())).rev().find(|&i| text.is_char_boundary(i));
        self.put(field, Value::from(&text[..end.unwrap_or(0)]));
    }
}

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + 'static,
{
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut fields = Map::new();
        attrs.record(&mut Collect(&mut fields));
        if let Some(span) = cx.span(id) {
            span.extensions_mut().insert(Fields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id)
            && let Some(Fields(fields)) = span.extensions_mut().get_mut()
        {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut line = Map::new();
        line.insert("time".to_owned(), now().to_string().into());
        line.insert("level".to_owned(), event.metadata().level().as_str().to_lowercase().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        for span in cx.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(Fields(fields)) = span.extensions().get() {
                line.extend(fields.clone());
            }
        }
        event.record(&mut Collect(&mut line));
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // Nobody is left to tell when stderr is gone.
        let _ = (self.out)().write_all(text.as_bytes());
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(vec![]);

    struct Sink;

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            WRITTEN.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_carries_the_fields_of_its_spans() {
        let subscriber = tracing_subscriber::registry().with(Lines::to(|| Sink));
        tracing::subscriber::with_default(subscriber, || {
            let task = tracing::info_span!(
                "task",
                task = "tsk_1",
                attempt = 2,
                step = tracing::field::Empty
            );
            let _in = task.enter();
            task.record("step", "scan");
            tracing::warn!(code = 3, "it broke");
        });
        let text = String::from_utf8(WRITTEN.lock().clone()).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        for (name, value) in [
            ("task", Value::from("tsk_1")),
            ("attempt", 2.into()),
            ("step", "scan".into()),
            ("code", 3.into()),
            ("message", "it broke".into()),
            ("level", "warn".into()),
        ] {
            assert_eq!(line[name], value, "{text}");
        }
    }
}
