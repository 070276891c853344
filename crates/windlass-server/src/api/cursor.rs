//! Where a list goes on. A cursor names the last task of a page and is signed
//! together with the list and the filter it belongs to, so that one that was
//! made up, or taken from another list, is refused. The key lives in the store:
//! cursors stay good across restarts and between nodes.

use super::problem::{Answer, Problem, ProblemCode};
use windlass::{Engine, Json, TaskId};

const SETTING: &str = "server.cursor_key";
const TAG: usize = 16;

/// Makes and reads cursors.
#[derive(Clone)]
pub(super) struct Cursors {
    key: [u8; 32],
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursors")
    }
}

impl Cursors {
    /// The store's key; made on first use.
    pub(super) async fn of(engine: &Engine) -> windlass::Result<Cursors> {
        if let Some(json) = engine.reader().setting(SETTING.to_owned()).await?
            && let Ok(hex) = json.to::<String>()
            && let Ok(key) = blake3::Hash::from_hex(hex)
        {
            return Ok(Cursors { key: *key.as_bytes() });
        }
        let key: [u8; 32] = rand::random();
        let text = blake3::Hash::from_bytes(key).to_hex();
        engine.put_setting(SETTING, Some(Json::of(text.as_str())?)).await?;
        Ok(Cursors { key })
    }

    pub(super) fn make(&self, list: &str, q: &str, last: TaskId) -> String {
        format!("{:016x}{}", last.key(), self.tag(list, q, last))
    }

    pub(super) fn read(&self, list: &str, q: &str, cursor: &str) -> Answer<TaskId> {
        let refuse = || Problem::new(ProblemCode::BadCursor, "the cursor is not of this list");
        let (key, tag) = cursor.split_at_checked(16).ok_or_else(refuse)?;
        let last = i64::from_str_radix(key, 16).map(TaskId::from_key).map_err(|_| refuse())?;
        // Not a secret that guards anything: no need for constant time.
        if tag == self.tag(list, q, last) { Ok(last) } else { Err(refuse()) }
    }

    fn tag(&self, list: &str, q: &str, last: TaskId) -> String {
        let text = format!("{list}\0{q}\0{}", last.key());
        let hash = blake3::keyed_hash(&self.key, text.as_bytes());
        hash.to_hex()[..2 * TAG].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_fits_its_own_list_only() {
        let cursors = Cursors { key: [7; 32] };
        let last = TaskId::from_key(42);
        let cursor = cursors.make("tasks", "state:failed", last);
        assert_eq!(cursors.read("tasks", "state:failed", &cursor).unwrap(), last);
        for (list, q, text) in [
            ("tasks", "state:queued", cursor.as_str()),
            ("dead", "state:failed", &cursor),
            ("tasks", "state:failed", &cursor[1..]),
            ("tasks", "state:failed", ""),
            ("tasks", "state:failed", "ééééééééééééééééééé"),
            ("tasks", "state:failed", &cursor.replacen('0', "1", 1)),
        ] {
            assert!(cursors.read(list, q, text).is_err(), "{list} {q} {text}");
        }
        assert!(Cursors { key: [8; 32] }.read("tasks", "state:failed", &cursor).is_err());
    }
}
