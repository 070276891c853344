//! Judges a run from what clients were told and from the rows there are. It
//! knows neither clients nor servers, so that doctored data can show that it
//! notices what it is for.

use serde_json::Value;
use std::collections::BTreeMap;

/// A submission that was answered.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) key: u64,
    pub(crate) id: String,
}

/// A task as the list shows it; its payload holds the key.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: u64,
    pub(crate) id: String,
    pub(crate) state: String,
}

impl Row {
    pub(crate) fn of(task: &Value) -> Row {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let key = text(&task["payload"]["name"]).parse().expect("a key");
        Row { key, id: text(&task["id"]), state: text(&task["state"]) }
    }
}

/// What is wrong with a run of the keys `0..keys`; nothing, if all is well. An
/// answer that was given twice stands in `told` twice.
pub(crate) fn check(keys: u64, told: &[Told], rows: &[Row]) -> Vec<String> {
    let mut wrong = vec![];
    if rows.len() as u64 != keys {
        wrong.push(format!("{} rows for {keys} keys", rows.len()));
    }
    let mut by_id: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    let mut by_key: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_id.entry(&row.id).or_default().push(row);
        by_key.entry(row.key).or_default().push(row);
        if row.state != "completed" {
            wrong.push(format!("{} is {}", row.id, row.state));
        }
    }
    for key in 0..keys {
        match by_key.get(&key).map_or(0, Vec::len) {
            1 => {}
            n => wrong.push(format!("key {key} has {n} rows")),
        }
    }
    let mut answers: BTreeMap<u64, &str> = BTreeMap::new();
    for Told { key, id } in told {
        let first = *answers.entry(*key).or_insert(id);
        if first != id {
            wrong.push(format!("key {key} was answered {first} and {id}"));
        }
        match by_id.get(id.as_str()).map_or(&[][..], Vec::as_slice) {
            [row] if row.key == *key => {}
            [row] => wrong.push(format!("{id} was answered to key {key} and is {}'s", row.key)),
            rows => wrong.push(format!("answered id {id} is there {} times", rows.len())),
        }
    }
    if answers.len() as u64 != keys {
        wrong.push(format!("{} of {keys} keys were answered", answers.len()));
    }
    wrong
}

mod doctored {
    use super::{Row, Told, check};

    const KEYS: u64 = 5;

    fn good() -> (Vec<Told>, Vec<Row>) {
        let id = |key| format!("task-{key}");
        let told = (0..KEYS).map(|key| Told { key, id: id(key) }).collect();
        let row = |key| Row { key, id: id(key), state: "completed".to_owned() };
        (told, (0..KEYS).map(row).collect())
    }

    #[track_caller]
    fn notices(told: &[Told], rows: &[Row], words: &str) {
        let wrong = check(KEYS, told, rows);
        assert!(wrong.iter().any(|w| w == words), "{wrong:?}");
    }

    #[test]
    fn a_good_run_passes() {
        let (mut told, rows) = good();
        assert_eq!(check(KEYS, &told, &rows), Vec::<String>::new());
        // The same answer again is no second task.
        told.push(told[0].clone());
        assert_eq!(check(KEYS, &told, &rows), Vec::<String>::new());
    }

    #[test]
    fn a_lost_task_is_noticed() {
        let (told, mut rows) = good();
        rows.remove(2);
        notices(&told, &rows, "answered id task-2 is there 0 times");
        notices(&told, &rows, "key 2 has 0 rows");
        notices(&told, &rows, "4 rows for 5 keys");
    }

    #[test]
    fn a_second_row_of_a_key_is_noticed() {
        let (told, mut rows) = good();
        rows.push(Row { id: "task-9".to_owned(), ..rows[2].clone() });
        notices(&told, &rows, "key 2 has 2 rows");
        notices(&told, &rows, "6 rows for 5 keys");
    }

    #[test]
    fn an_id_that_is_there_twice_is_noticed() {
        let (told, mut rows) = good();
        rows.push(rows[3].clone());
        notices(&told, &rows, "answered id task-3 is there 2 times");
    }

    #[test]
    fn a_loss_is_not_hidden_by_a_double() {
        let (told, mut rows) = good();
        rows[1] = Row { id: "task-9".to_owned(), ..rows[2].clone() };
        notices(&told, &rows, "answered id task-1 is there 0 times");
        notices(&told, &rows, "key 2 has 2 rows");
    }

    #[test]
    fn two_answers_to_one_key_are_noticed() {
        let (mut told, rows) = good();
        told.push(Told { key: 0, id: "task-1".to_owned() });
        notices(&told, &rows, "key 0 was answered task-0 and task-1");
        notices(&told, &rows, "task-1 was answered to key 0 and is 1's");
    }

    #[test]
    fn a_task_that_did_not_end_well_is_noticed() {
        let (told, mut rows) = good();
        rows[4].state = "running".to_owned();
        notices(&told, &rows, "task-4 is running");
    }

    #[test]
    fn a_key_without_an_answer_is_noticed() {
        let (mut told, rows) = good();
        told.pop();
        notices(&told, &rows, "4 of 5 keys were answered");
    }
}
