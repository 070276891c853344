//! "Did you mean": the nearest of the known words. Knows only words.

/// The nearest of `known`, if it is near enough to be a typing error.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let near = known.into_iter().map(|k| (distance(&word, &k.to_lowercase()), k));
    let (far, best) = near.min_by_key(|(far, _)| *far)?;
    // A third of the letters may be wrong, and one in any word.
    (far <= (word.chars().count() / 3).max(1)).then_some(best)
}

/// Insertions, deletions, replacements and swaps of neighbours between the two.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        let known = ["listen", "body_max", "bulk_max", "tls_cert"];
        let table = [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("litsen", Some("listen")),
            ("bodymax", Some("body_max")),
            ("port", None),
            ("x", None),
            ("", None),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn distances() {
        for (a, b, far) in
            [("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), far, "{a} {b}");
        }
    }
}
