//! `windlass token`: who may use the server. Tokens are made, listed and revoked
//! through the API; with `--tokens-file` in the file of a server instead, which
//! is how the first one is made. A token is written to stdout once.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::fields::text;
use super::global::Global;
use super::listing::{ListArgs, list};
use super::output::{Cell, Column, Out, Tone};
use super::serve::failed;
use super::single::change;
use crate::access::{secret, tokens_file};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass::core::access::Role;
use windlass::core::clock::{format_duration, parse_duration};
use windlass::{Clock as _, SystemClock};

const EXAMPLES: &str = "\
Examples:
  windlass token create admin --role admin --tokens-file tokens.toml   the first one
  windlass token create ci --role submitter --expires 90d > ci.token
  windlass token revoke ci

Roles: viewer looks; submitter also submits; worker also claims tasks and reports;
operator also acts on tasks, queues and nodes; admin also makes tokens";

#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, this once
    Create(CreateArgs),
    /// List tokens, without their secrets
    List(TokenListArgs),
    /// Take a token's rights away
    Revoke(RevokeArgs),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// What the token is called, in lists and in the audit list
    name: String,
    /// viewer, submitter, worker, operator or admin
    #[arg(long)]
    role: Role,
    /// How long it is valid; until it is revoked when left out
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires: Option<Duration>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TokenListArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RevokeArgs {
    /// The token's name
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Clone, Args)]
struct Place {
    /// Use this file of a server instead of asking the server
    #[arg(long, value_name = "FILE")]
    tokens_file: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.message().to_owned())
}

const COLUMNS: &[Column] = &[
    ("NAME", |token, _| Cell::of(token, "name")),
    ("ROLE", |token, _| Cell::of(token, "role")),
    ("ID", |token, _| Cell::of(token, "id")),
    ("KEPT IN", |token, _| Cell::of(token, "kept")),
    ("CREATED", |token, _| Cell::of(token, "created_at")),
    ("EXPIRES", |token, _| match token.get("expired").and_then(Value::as_bool) {
        Some(true) => Cell::toned("expired", Tone::Bad),
        _ => Cell::of(token, "expires_at"),
    }),
];

pub(crate) async fn run(command: TokenCommand, global: &Global) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create(args) => create(args, global).await,
        TokenCommand::List(TokenListArgs { list: args, place }) => match place.tokens_file {
            Some(file) => list_file(&file, global),
            None => list(global, Call::get(&["v1", "tokens"]), &args, COLUMNS).await,
        },
        TokenCommand::Revoke(args) => revoke(args, global).await,
    }
}

async fn create(args: CreateArgs, global: &Global) -> Result<Exit, Failure> {
    let CreateArgs { name, role, expires, place } = args;
    if global.dry_run {
        Out::new(global).say(&format!("would make the token `{name}` with the role `{role}`"));
        return Ok(Exit::Ok);
    }
    let made = match &place.tokens_file {
        Some(file) => create_in_file(file, &name, role, expires)?,
        None => {
            let mut body = json!({"name": name, "role": role.as_str()});
            if let Some(time) = expires {
                body["expires_in"] = format_duration(time).into();
            }
            let call = Call::post(&["v1", "tokens"]).body(body);
            let lost = format!("`windlass token list` tells whether `{name}` was made");
            Client::new(global)?.body(call.if_lost(lost)).await?
        }
    };
    let out = Out::new(global);
    out.say(&format!("made the token `{name}` ({role}); it is shown only now, so keep it"));
    out.document(&made, |out| out.line(text(&made, "token")))?;
    Ok(Exit::Ok)
}

fn create_in_file(
    file: &Path,
    name: &str,
    role: Role,
    expires: Option<Duration>,
) -> Result<Value, Failure> {
    let now = SystemClock::new().now();
    let expires_at = expires.map(|time| now.plus(time));
    let (secret, token) = secret::make(name, role, now, expires_at).map_err(failed)?;
    tokens_file::add(file, token.clone(), now).map_err(failed)?;
    Ok(json!({
        "token": secret.expose(), "name": token.name, "role": token.role, "id": token.id,
        "kept": "file", "created_at": token.created_at, "expires_at": token.expires_at,
    }))
}

fn list_file(file: &Path, global: &Global) -> Result<Exit, Failure> {
    let now = SystemClock::new().now();
    let tokens = tokens_file::read(file).map_err(failed)?;
    let rows = tokens.into_iter().map(|token| {
        json!({
            "name": token.name, "role": token.role, "id": token.id, "kept": "file",
            "created_at": token.created_at, "expires_at": token.expires_at,
            "expired": token.is_expired(now),
        })
    });
    Out::new(global).list(&rows.collect::<Vec<_>>(), COLUMNS)?;
    Ok(Exit::Ok)
}

async fn revoke(args: RevokeArgs, global: &Global) -> Result<Exit, Failure> {
    let RevokeArgs { name, place } = args;
    let Some(file) = place.tokens_file else {
        let call = Call::delete(&["v1", "tokens", &name]);
        let question = Some(format!("revoke the token {name}"));
        return change(global, call, question, |out, _| {
            out.say(&format!("revoked the token `{name}`"));
            Ok(())
        })
        .await;
    };
    if !global.dry_run {
        tokens_file::remove(&file, &name).map_err(failed)?;
    }
    let done = if global.dry_run { "would revoke" } else { "revoked" };
    Out::new(global).say(&format!("{done} the token `{name}`"));
    Ok(Exit::Ok)
}
