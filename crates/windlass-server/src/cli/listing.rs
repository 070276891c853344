//! How every list command behaves: `-n` and `--all`, pages, and a word when
//! there is more. The columns come from the noun's own file.

use super::client::{Call, Client};
use super::failure::{Exit, Failure};
use super::global::{Format, Global};
use super::output::{Column, Out};
use super::pages::{Pages, Wanted};
use clap::Args;

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// How many to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,

    /// Show all of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Shows the list that `call` asks for.
pub(crate) async fn list(
    global: &Global,
    call: Call,
    args: &ListArgs,
    columns: &[Column],
) -> Result<Exit, Failure> {
    let (out, client) = (Out::new(global), Client::new(global)?);
    let mut pages = Pages::new(&client, call);
    // Formats of one line per item need not wait for the last page.
    if args.all && matches!(out.format, Format::Jsonl | Format::Id) {
        while !pages.ended() {
            out.list(&pages.next(usize::MAX).await?, columns)?;
        }
        return Ok(Exit::Ok);
    }
    let wanted = if args.all { Wanted::All } else { Wanted::AtMost(args.limit) };
    let items = pages.collect(wanted).await?;
    out.list(&items, columns)?;
    if !pages.ended() && !items.is_empty() {
        out.say("there are more: pass -n N or --all");
    }
    Ok(Exit::Ok)
}
