//! Bytes as they come, turned into lines of bounded length, and the end of what
//! was written. Handlers write what they like: anything here is kept small and
//! made fit for a log and a store. Nobody is told anything here.

/// The last bytes of a stream.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    max: usize,
    is_cut: bool,
}

impl Tail {
    pub(crate) fn new(max: usize) -> Tail {
        Tail { bytes: vec![], max, is_cut: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.is_cut |= self.bytes.len() > self.max;
        // Not at every push: that would move all of it for each line.
        if self.bytes.len() > 2 * self.max {
            self.bytes.drain(..self.bytes.len() - self.max);
        }
    }

    /// The end as text, cut at a character.
    pub(crate) fn text(&self) -> String {
        let mut end = &self.bytes[self.bytes.len().saturating_sub(self.max)..];
        if self.is_cut {
            let rest_of_one = end.iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
            end = &end[rest_of_one..];
        }
        clean(end)
    }
}

/// Text without control characters, which neither a terminal nor every store
/// bears.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace("\r\n", "\n").replace(bad, "\u{FFFD}")
}

/// Longest message of an error, in characters.
pub(crate) const MESSAGE_MAX: usize = 500;

/// The last `max` characters, marked when there were more.
pub(crate) fn end_of(text: &str, max: usize) -> String {
    match text.chars().count().saturating_sub(max) {
        0 => text.to_owned(),
        more => format!("…{}", text.chars().skip(more).collect::<String>()),
    }
}

/// The first `max` characters, marked when there were more.
pub(crate) fn start_of(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) bytes: &'a [u8],
    /// More was written than is kept.
    pub(crate) is_cut: bool,
}

/// Collects bytes until a line is whole.
#[derive(Debug)]
pub(crate) struct Lines {
    held: Vec<u8>,
    max: usize,
    is_cut: bool,
}

impl Lines {
    pub(crate) fn new(max: usize) -> Lines {
        Lines { held: vec![], max, is_cut: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], mut whole: impl FnMut(Line<'_>)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = self.max - self.held.len();
            self.held.extend_from_slice(&text[..text.len().min(room)]);
            self.is_cut |= text.len() > room;
            if ends {
                self.flush(&mut whole);
            }
        }
    }

    /// The last line may have no end.
    pub(crate) fn finish(&mut self, mut whole: impl FnMut(Line<'_>)) {
        if !self.held.is_empty() {
            self.flush(&mut whole);
        }
    }

    fn flush(&mut self, whole: &mut impl FnMut(Line<'_>)) {
        whole(Line { bytes: &self.held, is_cut: self.is_cut });
        self.held.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_end_of_everything() {
        let mut tail = Tail::new(10);
        (0..1000).for_each(|n| tail.push(format!("{n:04}").as_bytes()));
        assert_eq!(tail.text(), "9709980999");
        let mut tail = Tail::new(4);
        tail.push("ääää".as_bytes());
        tail.push(b"x");
        assert_eq!(tail.text(), "äx", "half a character is none");
    }

    #[test]
    fn text_is_fit_for_logs() {
        assert_eq!(clean(b"a\r\nb\tc\0\x1b[31m\xff"), "a\nb\tc\u{FFFD}\u{FFFD}[31m\u{FFFD}");
    }

    #[test]
    fn long_text_is_told_by_an_end_of_it() {
        assert_eq!((end_of("äöü", 3), start_of("äöü", 3)), ("äöü".into(), "äöü".into()));
        assert_eq!((end_of("äöü", 2), start_of("äöü", 2)), ("…öü".into(), "äö…".into()));
    }

    #[test]
    fn lines_come_whole_or_cut() {
        let mut seen = vec![];
        let mut lines = Lines::new(5);
        let mut note = |l: Line<'_>| seen.push((clean(l.bytes), l.is_cut));
        for part in ["ab", "c\n\nlong", "er line\n123", "45\n", "rest"] {
            lines.push(part.as_bytes(), &mut note);
        }
        lines.finish(&mut note);
        let expected =
            [("abc", false), ("", false), ("longe", true), ("12345", false), ("rest", false)];
        assert_eq!(seen, expected.map(|(text, cut)| (text.to_owned(), cut)));
    }
}
