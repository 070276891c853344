//! The cause of an error without its particulars, so that dead letters that
//! failed for one reason stand in one group. A single walk over the text: words,
//! quotes, paths and addresses are recognised where they begin, everything else
//! stays as it is. What comes out goes in unchanged: the words put in are never
//! taken for particulars again.

/// Longest cause.
pub const CAUSE_MAX: usize = 200;

const NUMBER: &str = "N";
const ID: &str = "ID";
const QUOTED: &str = "\"…\"";
const PATH: &str = "PATH";
const URL: &str = "URL";

/// A longer word is no word that a person chose.
const WORD_MAX: usize = 64;
/// Prefixes of Windlass's own ids.
const PREFIXES: [&str; 5] = ["tsk_", "nod_", "evt_", "dl_", "bat_"];
/// Characters of an id after its prefix.
const ID_DIGITS: usize = 13;
/// How long the groups of a UUID are.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// Replaces numbers by `N`, ids and long hexadecimal words by `ID`, quoted text
/// by `"…"`, paths and addresses by `PATH` and `URL`; white space becomes one
/// space, and what does not fit into [`CAUSE_MAX`] characters is left out.
pub fn normalise(message: &str) -> String {
    let text: Vec<char> = message.chars().collect();
    let mut out = String::new();
    let (mut at, mut length) = (0, 0);
    while at < text.len() {
        let (piece, end) = next_piece(&text, at);
        at = end;
        if piece == " " && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        // A piece is never cut: half of one might read as something else.
        length += piece.chars().count();
        if length > CAUSE_MAX {
            break;
        }
        out.push_str(&piece);
    }
    out.truncate(out.trim_end().len());
    out
}

/// What stands at `at` as it goes into the cause, and where it ends.
fn next_piece(text: &[char], at: usize) -> (String, usize) {
    let c = text[at];
    let begins = at == 0 || !is_word(text[at - 1]);
    if c.is_whitespace() || c.is_control() {
        return (" ".to_owned(), at + 1);
    }
    if let Some(close) = closing(c)
        && (c != '\'' || begins)
    {
        // A quote that nothing closes is dropped, so that it opens nothing later.
        return match end_of_quote(text, at, close) {
            Some(end) => (QUOTED.to_owned(), end),
            None => (" ".to_owned(), at + 1),
        };
    }
    if begins && let Some(end) = end_of_path(text, at) {
        return (PATH.to_owned(), end);
    }
    if is_word(c) {
        return word(text, at);
    }
    (c.to_string(), at + 1)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn closing(open: char) -> Option<char> {
    match open {
        '"' | '\'' | '`' => Some(open),
        '“' => Some('”'),
        _ => None,
    }
}

fn end_of_quote(text: &[char], at: usize, close: char) -> Option<usize> {
    // The apostrophe of `can't` closes nothing.
    let closes = |i: usize| {
        let inside = close == '\'' && text.get(i + 1).is_some_and(|c| is_word(*c));
        text[i] == close && !inside
    };
    (at + 1..text.len()).find(|i| closes(*i)).map(|i| i + 1)
}

/// Belongs to an address.
fn is_address(c: char) -> bool {
    let ends = matches!(c, ',' | ';' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '|');
    !(c.is_whitespace() || c.is_control() || ends || closing(c).is_some())
}

/// Belongs to a path; what follows a colon is a line number or another text.
fn is_path(c: char) -> bool {
    is_address(c) && c != ':'
}

fn starts_with(text: &[char], at: usize, what: &str) -> bool {
    what.chars().enumerate().all(|(i, c)| text.get(at + i) == Some(&c))
}

fn end_while(text: &[char], at: usize, belongs: fn(char) -> bool) -> usize {
    (at..text.len()).find(|i| !belongs(text[*i])).unwrap_or(text.len())
}

fn end_of_path(text: &[char], at: usize) -> Option<usize> {
    let root = ["/", "./", "../", "~/"].into_iter().find(|root| starts_with(text, at, root))?;
    let start = at + root.len();
    let end = end_while(text, start, is_path);
    (end > start).then_some(end)
}

fn word(text: &[char], at: usize) -> (String, usize) {
    let end = end_while(text, at, is_word);
    if text[at].is_ascii_alphabetic() && starts_with(text, end, "://") {
        let address = end_while(text, end + 3, is_address);
        if address > end + 3 {
            return (URL.to_owned(), address);
        }
    }
    if let Some(end) = end_of_uuid(text, at) {
        return (ID.to_owned(), end);
    }
    let (piece, end) = match end_of_number(text, at, end) {
        Some(end) => (NUMBER.to_owned(), end),
        None => (plain_word(&text[at..end]), end),
    };
    // A drive and its path; a number has become a letter, too.
    let drive = piece.len() == 1 && starts_with(text, end, ":\\");
    let path = if drive { end_while(text, end + 2, is_path) } else { end };
    if path > end + 2 { (PATH.to_owned(), path) } else { (piece, end) }
}

fn end_of_uuid(text: &[char], at: usize) -> Option<usize> {
    let mut start = at;
    for (i, length) in UUID.into_iter().enumerate() {
        if i > 0 {
            start += usize::from(text.get(start) == Some(&'-'));
        }
        let end = end_while(text, start, is_word);
        let group = &text[start..end];
        if group.len() != length || !group.iter().all(char::is_ascii_hexdigit) {
            return None;
        }
        start = end;
    }
    Some(start)
}

/// Digits, with dots or commas between them: `1.5`, `10.0.0.1`, `1,000`.
fn end_of_number(text: &[char], at: usize, end: usize) -> Option<usize> {
    let digits =
        |from: usize, to: usize| from < to && text[from..to].iter().all(char::is_ascii_digit);
    if !digits(at, end) {
        return None;
    }
    let mut end = end;
    while matches!(text.get(end), Some('.' | ',')) {
        let next = end_while(text, end + 1, is_word);
        if !digits(end + 1, next) {
            break;
        }
        end = next;
    }
    Some(end)
}

fn plain_word(word: &[char]) -> String {
    let hex = |part: &[char]| !part.is_empty() && part.iter().all(char::is_ascii_hexdigit);
    let digits = word.iter().filter(|c| c.is_ascii_digit()).count();
    let is_id = word.len() > WORD_MAX
        || is_own_id(word)
        || (hex(word) && word.len() >= 8 && digits > 0)
        || (word.starts_with(&['0', 'x']) && hex(&word[2..]))
        || (word.len() >= 16 && digits >= 4);
    if is_id {
        return ID.to_owned();
    }
    let mut out = String::new();
    for (i, c) in word.iter().enumerate() {
        match c.is_ascii_digit() {
            false => out.push(*c),
            true if i > 0 && word[i - 1].is_ascii_digit() => {}
            true => out.push_str(NUMBER),
        }
    }
    out
}

fn is_own_id(word: &[char]) -> bool {
    let lower = |c: &char| c.is_ascii_digit() || c.is_ascii_lowercase();
    let own = |prefix: &str| {
        starts_with(word, 0, prefix)
            && word.len() == prefix.len() + ID_DIGITS
            && word[prefix.len()..].iter().all(lower)
    };
    PREFIXES.iter().any(|prefix| own(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn particulars_are_left_out() {
        let uuid = "no user 550e8400-e29b-41d4-a716-446655440000 here";
        let table = [
            ("", ""),
            ("connection reset", "connection reset"),
            ("  connection \n\t reset  ", "connection reset"),
            ("exit status 127", "exit status N"),
            ("took 1.5s, 2500ms, 1,000 times", "took N.Ns, Nms, N times"),
            ("10.0.0.1:5432 refused", "N:N refused"),
            ("worker7 of 12/40", "workerN of N/N"),
            ("task tsk_0abc1def2ghjk is gone", "task ID is gone"),
            ("node nod_0000000000001", "node ID"),
            ("tsk_short stays", "tsk_short stays"),
            (uuid, "no user ID here"),
            ("at 0x7ffe12 and deadbeef1 but facade", "at ID and ID but facade"),
            ("key 01HZX3V8Q9J7K2M4N6P8R0T2 taken", "key ID taken"),
            ("no column \"user_name\" in `users`", "no column \"…\" in \"…\""),
            ("can't open 'it's here' now", "can't open \"…\" now"),
            ("said “hello” twice", "said \"…\" twice"),
            ("an \"open quote", "an open quote"),
            ("cannot read /etc/app/x.toml: denied", "cannot read PATH: denied"),
            ("src at ./a/b.rs:10:5, ~/c and ../d", "src at PATH:N:N, PATH and PATH"),
            (r"cannot find C:\Users\x\y.txt", "cannot find PATH"),
            ("GET https://api.example.com/v1/x?id=7 gave 503", "GET URL gave N"),
            ("(postgres://a:b@host/db)", "(URL)"),
            ("and/or 1 / 2", "and/or N / N"),
        ];
        for (message, expected) in table {
            assert_eq!(normalise(message), expected, "{message}");
        }
    }

    #[test]
    fn a_cause_is_short_and_ends_with_a_whole_piece() {
        let long = normalise(&"word \"quoted\" ".repeat(60));
        assert!(long.chars().count() <= CAUSE_MAX, "{long}");
        assert!(long.ends_with("\"…\"") || long.ends_with("word"), "{long}");
        assert_eq!(normalise(&"x".repeat(500)), ID);
        let many = normalise(&"é ".repeat(300));
        assert_eq!(many.chars().count(), CAUSE_MAX - 1, "it is counted in characters");
    }

    #[test]
    fn errors_that_differ_only_in_particulars_share_a_cause() {
        let cause = |n: u32| {
            normalise(&format!("row {n} of \"t{n}\" at /data/{n}.csv: http://h{n}/x said {n}"))
        };
        assert_eq!(cause(1), cause(22));
        assert_ne!(normalise("timed out after 5s"), normalise("refused after 5s"));
    }

    /// Text made of the parts that mean something here, in any order.
    fn messages() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            "[a-z]{1,9}",
            "[0-9]{1,5}",
            "[0-9a-f]{6,12}",
            "[A-Za-z0-9_]{1,70}",
            prop::sample::select(vec![
                " ",
                "\n",
                "\"",
                "'",
                "`",
                "“",
                "”",
                "/",
                "//",
                "./",
                "../",
                "~/",
                ":",
                "://",
                ":\\",
                "\\",
                ".",
                ",",
                "-",
                "_",
                "(",
                ")",
                "|",
                "…",
                "é",
                "0x",
                "tsk_",
                "N",
                "ID",
                "550e8400-e29b-41d4-a716-446655440000",
            ])
            .prop_map(str::to_owned),
        ];
        prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_cause_of_a_cause_is_itself(message in messages()) {
            let once = normalise(&message);
            prop_assert!(once.chars().count() <= CAUSE_MAX);
            prop_assert_eq!(normalise(&once), once);
        }

        #[test]
        fn any_text_has_a_cause(message in any::<String>()) {
            let once = normalise(&message);
            prop_assert_eq!(normalise(&once), once);
        }
    }
}
