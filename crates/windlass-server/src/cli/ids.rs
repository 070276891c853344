//! Finds the one task that an id or an ending of one means. The server knows the
//! newest tasks and answers with at most two matches, so that an ending that
//! fits several is told from one that fits one.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields;
use super::words::Name;

/// The whole id of what `word` names.
pub(crate) async fn resolve(client: &Client, word: &str) -> Result<String, Failure> {
    find(client, Name::need(word)?).await
}

/// The whole id of a task named by id or ending.
pub(crate) async fn find(client: &Client, name: Name) -> Result<String, Failure> {
    let ending = match name {
        Name::Id(id) => return Ok(id),
        Name::Ending(ending) => ending,
    };
    let answer = client.body(Call::get(&["v1", "tasks"]).query("ending", ending.clone())).await?;
    match fields::items(&answer) {
        [] => {
            let message = format!("no task's id ends in `{ending}`");
            let hint = "endings are looked up among the newest tasks: give the whole id, \
                        or look with `windlass task list`";
            Err(Failure::new(Exit::NotFound, message, hint))
        }
        [task] => Ok(fields::text(task, "id").to_owned()),
        several => {
            let mut message = format!("`{ending}` fits more than one task:");
            for task in several {
                let (id, kind) = (fields::text(task, "id"), fields::text(task, "kind"));
                message.push_str(&format!("\n  {id}  {kind}  {}", fields::text(task, "state")));
            }
            Err(Failure::usage(message, "give more characters of the id"))
        }
    }
}
