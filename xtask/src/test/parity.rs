//! Every store must run the same conformance cases: a store that quietly lacks
//! some would look as good as the others. This compares what `tally.rs` counted
//! and never looks at test output itself.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::Cases;

/// Enough to see the pattern without burying the closing line.
const MAX_LISTED: usize = 10;

/// One line for each store that appeared.
pub(super) fn summary(stores: &BTreeMap<&'static str, Cases>) -> Vec<String> {
    stores
        .iter()
        .map(|(store, cases)| format!("conformance: {store}: {} cases", total(cases)))
        .collect()
}

/// What is wrong with the set of cases; empty when all stores ran the same.
pub(super) fn problems(stores: &BTreeMap<&'static str, Cases>) -> Vec<String> {
    if stores.len() < 2 {
        return vec![format!(
            "conformance: {} store(s) ran the suite, at least 2 must",
            stores.len()
        )];
    }
    let names: BTreeSet<&String> = stores.values().flat_map(Cases::keys).collect();
    let uneven: Vec<&String> = names.into_iter().filter(|name| !even(stores, name)).collect();
    let mut problems: Vec<String> =
        uneven.iter().take(MAX_LISTED).map(|name| describe(stores, name)).collect();
    if uneven.len() > MAX_LISTED {
        problems.push(format!("conformance: {} more cases differ", uneven.len() - MAX_LISTED));
    }
    problems
}

fn total(cases: &Cases) -> usize {
    cases.values().sum()
}

fn runs(cases: &Cases, name: &str) -> usize {
    cases.get(name).copied().unwrap_or(0)
}

fn even(stores: &BTreeMap<&'static str, Cases>, name: &str) -> bool {
    let counts: BTreeSet<usize> = stores.values().map(|cases| runs(cases, name)).collect();
    counts.len() == 1
}

fn describe(stores: &BTreeMap<&'static str, Cases>, name: &str) -> String {
    let counts: Vec<String> =
        stores.iter().map(|(store, cases)| format!("{store} {}", runs(cases, name))).collect();
    format!("conformance: `{name}` is not run alike by all stores: {}", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(list: &[(&'static str, &[&str])]) -> BTreeMap<&'static str, Cases> {
        let cases = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect();
        list.iter().map(|(store, names)| (*store, cases(names))).collect()
    }

    #[test]
    fn equal_stores_have_no_problem() {
        let equal =
            stores(&[("memory", &["claim::a", "claim::b"]), ("sqlite", &["claim::a", "claim::b"])]);
        assert!(problems(&equal).is_empty());
        assert_eq!(summary(&equal)[0], "conformance: memory: 2 cases");
    }

    #[test]
    fn one_store_is_not_enough() {
        assert_eq!(problems(&stores(&[("memory", &["claim::a"])])).len(), 1);
        assert_eq!(problems(&BTreeMap::new()).len(), 1);
    }

    #[test]
    fn the_missing_case_is_named() {
        let uneven = stores(&[("memory", &["claim::a", "claim::b"]), ("sqlite", &["claim::a"])]);
        let problems = problems(&uneven);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].contains("`claim::b`") && problems[0].contains("sqlite 0"),
            "{problems:?}"
        );
    }

    #[test]
    fn equal_counts_of_different_cases_differ() {
        let swapped = stores(&[("memory", &["claim::a"]), ("sqlite", &["claim::b"])]);
        assert_eq!(problems(&swapped).len(), 2);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..30).map(|i| format!("claim::c{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = stores(&[("memory", &names), ("sqlite", &[])]);
        assert_eq!(problems(&many).len(), MAX_LISTED + 1);
    }
}
