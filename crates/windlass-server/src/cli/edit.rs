//! Lets a person change a JSON document in their own editor. The file that the
//! editor sees is readable only by them and is removed afterwards, except when
//! what they wrote is not JSON: then it is kept and named.

use super::failure::{Exit, Failure};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An editor needs a person.
pub(crate) fn need_terminal() -> Result<(), Failure> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    let message = "there is no terminal to open an editor on";
    Err(Failure::usage(message, "pass the new payload with --data JSON|@FILE|-"))
}

/// Opens `$VISUAL` or `$EDITOR` on a document and returns what was saved.
/// `unchanged` is the hint when that is the same as before.
pub(crate) async fn edit(before: Value, unchanged: &'static str) -> Result<Value, Failure> {
    // On a thread of its own: the editor may stay open for long.
    let edited = tokio::task::spawn_blocking(move || edit_now(&editor(), &before, unchanged));
    edited.await.unwrap_or_else(|e| Err(broken(&e)))
}

fn editor() -> String {
    let named = ["VISUAL", "EDITOR"].iter().filter_map(|key| std::env::var(key).ok());
    named.into_iter().find(|name| !name.trim().is_empty()).unwrap_or_else(|| "vi".to_owned())
}

fn edit_now(editor: &str, before: &Value, unchanged: &str) -> Result<Value, Failure> {
    let path = std::env::temp_dir().join(format!("windlass-{:032x}.json", rand::random::<u128>()));
    write_private(&path, &format!("{before:#}\n")).map_err(|e| broken(&e))?;
    let text =
        open_editor(editor, &path).and_then(|()| fs::read_to_string(&path).map_err(|e| broken(&e)));
    let read = text.and_then(|text| read_back(&text, &path, before, unchanged));
    if !matches!(&read, Err(failure) if failure.hint.contains(&shown(&path))) {
        let _ = fs::remove_file(&path);
    }
    read
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn open_editor(editor: &str, path: &PathBuf) -> Result<(), Failure> {
    let hint = "set EDITOR to an editor that works, or pass --data";
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program).args(words).arg(path).status().map_err(|e| {
        Failure::new(Exit::Failed, format!("cannot start the editor `{program}`: {e}"), hint)
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, format!("the editor `{program}` failed"), hint)),
    }
}

fn read_back(text: &str, path: &Path, before: &Value, unchanged: &str) -> Result<Value, Failure> {
    let after: Value = serde_json::from_str(text).map_err(|e| {
        let hint = format!("your text is kept: mend it, then pass --data @{}", shown(path));
        Failure::new(Exit::Failed, format!("what was saved is not valid JSON: {e}"), hint)
    })?;
    if after == *before {
        return Err(Failure::new(
            Exit::Failed,
            "the payload was not changed; nothing was sent",
            unchanged,
        ));
    }
    Ok(after)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn broken(error: &dyn std::error::Error) -> Failure {
    let hint = "see whether the folder for temporary files can be written, or pass --data";
    Failure::new(Exit::Failed, format!("cannot edit: {error}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_editor_that_changes_nothing_sends_nothing() {
        let failure = edit_now("true", &json!({"a": 1}), "hint").unwrap_err();
        assert!(failure.message.contains("not changed"), "{failure}");
        let failure = edit_now("false", &json!({"a": 1}), "hint").unwrap_err();
        assert!(failure.message.contains("`false` failed"), "{failure}");
    }

    #[test]
    fn what_was_saved_comes_back() {
        let after = edit_now("sed -i s/1/2/", &json!({"a": 1}), "hint").unwrap();
        assert_eq!(after, json!({"a": 2}));
    }

    #[test]
    fn text_that_is_no_json_is_kept() {
        let failure = edit_now("sed -i s/1/x/", &json!({"a": 1}), "hint").unwrap_err();
        let path = failure.hint.split('@').nth(1).unwrap();
        assert!(fs::read_to_string(path).unwrap().contains('x'));
        fs::remove_file(path).unwrap();
    }
}
