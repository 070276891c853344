//! Where everything a command shows goes out: data to stdout, talk to stderr. It
//! knows the chosen format, whether a terminal is there, and how colours are
//! written; it knows nothing about tasks or HTTP. A reader that went away ends
//! the command quietly.

use super::failure::Failure;
use super::fields;
use super::global::{Format, Global, When};
use comfy_table::{Cell as TableCell, Color, Table};
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use windlass_core::clock::Timestamp;

/// What a piece of text should look like where colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Held,
    Faint,
}

impl Tone {
    /// The tone of a task's state.
    pub(crate) fn of_state(state: &str) -> Tone {
        match state {
            "completed" => Tone::Good,
            "failed" => Tone::Bad,
            "running" | "rolling_back" => Tone::Busy,
            "retrying" | "paused" | "completed_with_errors" => Tone::Held,
            "cancelled" | "rolled_back" => Tone::Faint,
            _ => Tone::Plain,
        }
    }

    fn color(self) -> Option<Color> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some(Color::Green),
            Tone::Bad => Some(Color::Red),
            Tone::Busy => Some(Color::Cyan),
            Tone::Held => Some(Color::Yellow),
            Tone::Faint => Some(Color::DarkGrey),
        }
    }

    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "\u{1b}[32m",
            Tone::Bad => "\u{1b}[31m",
            Tone::Busy => "\u{1b}[36m",
            Tone::Held => "\u{1b}[33m",
            Tone::Faint => "\u{1b}[90m",
        }
    }
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Cell { text: fields::clean(text.as_ref()), tone: Tone::Plain }
    }

    pub(crate) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Cell { tone, ..Cell::new(text) }
    }

    /// Any field of a document.
    pub(crate) fn of(value: &Value, path: &str) -> Self {
        Cell::new(fields::plain(fields::at(value, path)))
    }
}

/// A column: its title and how a document fills it.
pub(crate) type Column = (&'static str, fn(&Value, Timestamp) -> Cell);

/// Whether a stream is a person's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    Terminal,
    None,
}

impl Screen {
    fn of(stream: &impl IsTerminal) -> Screen {
        if stream.is_terminal() { Screen::Terminal } else { Screen::None }
    }

    fn colours(self, when: When) -> bool {
        let wanted = || {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
            self == Screen::Terminal && !refused && !dumb
        };
        match when {
            When::Always => true,
            When::Never => false,
            When::Auto => wanted(),
        }
    }
}

/// The output of one command.
#[derive(Debug, Clone)]
pub(crate) struct Out {
    pub(crate) format: Format,
    pub(crate) stdout: Screen,
    pub(crate) stderr: Screen,
    colours_out: bool,
    colours_err: bool,
    quiet: bool,
    verbose: u8,
}

impl Out {
    pub(crate) fn new(global: &Global) -> Self {
        let (stdout, stderr) = (Screen::of(&io::stdout()), Screen::of(&io::stderr()));
        Out {
            format: global.output,
            stdout,
            stderr,
            colours_out: stdout.colours(global.color),
            colours_err: stderr.colours(global.color),
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    /// A progress bar has a place only on a terminal, and only if talk is wanted.
    pub(crate) fn draws(&self) -> bool {
        self.stderr == Screen::Terminal && !self.quiet
    }

    /// One line of data.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.write(&format!("{text}\n"))
    }

    /// Data as it is, for what is passed through.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Bytes as they came.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(lost)
    }

    /// One line of talk.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            say_always(text);
        }
    }

    /// Talk for `-v`.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// One JSON document: spread out for a person, one line for a program.
    pub(crate) fn json(&self, value: &Value) -> Result<(), Failure> {
        if self.stdout == Screen::Terminal && self.format != Format::Jsonl {
            return self.line(&format!("{value:#}"));
        }
        self.line(&value.to_string())
    }

    /// A document, shown to people by `page`.
    pub(crate) fn document(
        &self,
        value: &Value,
        page: impl FnOnce(&Out) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => page(self),
            Format::Json | Format::Jsonl => self.json(value),
            Format::Id => self.line(identity(value)),
        }
    }

    /// A list of documents.
    pub(crate) fn list(&self, items: &[Value], columns: &[Column]) -> Result<(), Failure> {
        match self.format {
            Format::Table if items.is_empty() => {
                self.say("nothing found");
                Ok(())
            }
            Format::Table => self.table(items, columns),
            Format::Json => self.json(&Value::Array(items.to_vec())),
            Format::Jsonl => items.iter().try_for_each(|item| self.json(item)),
            Format::Id => items.iter().try_for_each(|item| self.line(identity(item))),
        }
    }

    fn table(&self, items: &[Value], columns: &[Column]) -> Result<(), Failure> {
        let now = super::times::now();
        let row = |item| columns.iter().map(|(_, cell)| cell(item, now)).collect();
        let rows: Vec<Vec<Cell>> = items.iter().map(row).collect();
        let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        self.write(&self.grid(&titles, rows))
    }

    /// Lays cells out in columns two spaces apart, without lines, for stdout.
    pub(crate) fn grid(&self, titles: &[&str], rows: Vec<Vec<Cell>>) -> String {
        lay_out(Table::new(), self.colours_out, titles, rows)
    }

    /// The same for stderr.
    pub(crate) fn grid_talk(&self, titles: &[&str], rows: Vec<Vec<Cell>>) -> String {
        let mut table = Table::new();
        table.use_stderr();
        lay_out(table, self.colours_err, titles, rows)
    }

    /// Named fields of a document, one per line: those of `order` first.
    pub(crate) fn page(&self, value: &Value, order: &[&str]) -> Result<(), Failure> {
        let Some(object) = value.as_object() else { return self.json(value) };
        let rest = object.keys().map(String::as_str).filter(|key| !order.contains(key));
        let keys = order.iter().copied().filter(|key| object.contains_key(*key)).chain(rest);
        let rows = keys.map(|key| vec![Cell::new(format!("{key}:")), Cell::of(value, key)]);
        self.write(&self.grid(&[], rows.collect()))
    }

    /// Colours a piece of stdout.
    pub(crate) fn paint(&self, text: &str, tone: Tone) -> String {
        painted(text, tone, self.colours_out)
    }

    /// Colours a piece of stderr.
    pub(crate) fn paint_talk(&self, text: &str, tone: Tone) -> String {
        painted(text, tone, self.colours_err)
    }

    /// Tells of a failure, with the hint last.
    pub(crate) fn fail(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        let word = self.paint_talk("error:", Tone::Bad);
        say_always(&format!("{word} {failure}"));
    }
}

/// Nobody can be told when stderr is gone too.
pub(crate) fn say_always(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn painted(text: &str, tone: Tone, colours: bool) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        _ if !colours => text.to_owned(),
        _ => format!("{}{text}\u{1b}[0m", tone.code()),
    }
}

fn lost(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::nobody_reads();
    }
    let hint = "see whether the disk is full or the output was closed";
    Failure::new(super::Exit::Failed, format!("cannot write to stdout: {error}"), hint)
}

/// What `-o id` prints: the id, or the name of what has none.
pub(crate) fn identity(value: &Value) -> &str {
    ["id", "name", "example", "cause"]
        .iter()
        .map(|key| fields::text(value, key))
        .find(|text| !text.is_empty())
        .unwrap_or("-")
}

fn lay_out(mut table: Table, colours: bool, titles: &[&str], mut rows: Vec<Vec<Cell>>) -> String {
    // There is a width only on a terminal; elsewhere nothing is cut.
    if let Some(width) = table.width() {
        fit_last(titles, &mut rows, usize::from(width));
    }
    table.load_style(comfy_table::presets::NOTHING);
    if colours {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if !titles.is_empty() {
        table.set_header(titles.iter().map(TableCell::new));
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| {
            let shown = TableCell::new(cell.text);
            match cell.tone.color() {
                Some(color) => shown.fg(color),
                None => shown,
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

/// Shortens the last column, where long text stands, so that rows fit the screen.
fn fit_last(titles: &[&str], rows: &mut [Vec<Cell>], width: usize) {
    let Some(last) = rows.first().map(|row| row.len().saturating_sub(1)) else { return };
    let widest = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|c| c.text.chars().count());
        let title = titles.get(index).map_or(0, |t| t.chars().count());
        cells.max().unwrap_or(0).max(title) + 2
    };
    let before: usize = (0..last).map(widest).sum();
    // On a very narrow screen lines may wrap: ids must stay whole.
    let room = width.saturating_sub(before + 2).max(10);
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(last)) {
        cell.text = fields::shorten(&cell.text, room);
    }
}

/// An output without terminal and colours.
#[cfg(test)]
pub(crate) fn plain_out() -> Out {
    tests::out(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn out(colours: bool) -> Out {
        Out {
            format: Format::Table,
            stdout: Screen::None,
            stderr: Screen::None,
            colours_out: colours,
            colours_err: colours,
            quiet: false,
            verbose: 0,
        }
    }

    #[test]
    fn tables_have_a_header_and_no_boxes() {
        let rows = vec![
            vec![Cell::new("tsk_1"), Cell::toned("failed", Tone::Bad)],
            vec![Cell::new("x"), Cell::new("-")],
        ];
        let text = out(false).grid(&["ID", "STATE"], rows.clone());
        assert_eq!(text, "ID     STATE\ntsk_1  failed\nx      -\n");
        assert!(out(true).grid(&["ID", "STATE"], rows).contains("\u{1b}["));
    }

    #[test]
    fn only_the_last_column_is_shortened() {
        let mut rows = vec![vec![Cell::new("tsk_123456"), Cell::new("m".repeat(100))]];
        fit_last(&["ID", "MESSAGE"], &mut rows, 40);
        assert_eq!(rows[0][0].text, "tsk_123456");
        assert_eq!(rows[0][1].text.chars().count(), 40 - 12 - 2);
    }

    #[test]
    fn identities() {
        assert_eq!(identity(&json!({"id": "tsk_1", "name": "x"})), "tsk_1");
        assert_eq!(identity(&json!({"name": "media"})), "media");
        assert_eq!(identity(&json!({})), "-");
    }

    #[test]
    fn colours_follow_the_flag_without_a_terminal() {
        assert!(Screen::None.colours(When::Always));
        assert!(!Screen::None.colours(When::Auto));
        assert!(!Screen::Terminal.colours(When::Never));
        assert_eq!(out(false).paint("x", Tone::Bad), "x");
    }
}
