//! `windlass dev`: a server to try things on. It takes what `./windlass.toml`
//! says, if there is one, keeps its data in a folder of its own, adds the demo
//! kinds, and tells what to type next.

use super::crash_demo;
use super::failure::{Exit, Failure};
use super::global::Global;
use super::output::Out;
use super::serve::{begin_logs, ended, failed, misconfigured, start};
use crate::config::{FileFlags, Surroundings, load};
use crate::demo;
use crate::server::Signals;
use clap::Args;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  windlass dev
  windlass dev --data demo --listen 127.0.0.1:8000
  windlass dev --crash-demo";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DevArgs {
    /// Folder of the SQLite file
    #[arg(long, value_name = "DIR", default_value = ".windlass")]
    pub data: PathBuf,

    /// Address of the API [default: 127.0.0.1:7450]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// Kill the node in the middle of a task and show the task resume
    #[arg(long)]
    pub crash_demo: bool,
}

pub async fn run(args: DevArgs, global: &Global) -> Result<Exit, Failure> {
    if args.crash_demo {
        return crash_demo::run(global).await;
    }
    let flags = FileFlags {
        listen: args.listen,
        store: Some(store_in(&args.data)?),
        node_name: Some("dev".to_owned()),
        ..FileFlags::default()
    };
    let loaded = load(&flags, &Surroundings::of_process()).map_err(misconfigured)?;
    begin_logs(global);
    let signals = Signals::hear().map_err(failed)?;
    let server = start(&loaded, demo::add).await?;
    welcome(&Out::new(global), &server.url, &args.data);
    ended(server.run(signals).await)
}

/// The file in the folder, which is made when it is not there.
fn store_in(folder: &Path) -> Result<String, Failure> {
    // Payloads may be anybody's business but not everybody's.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| {
        let message = format!("cannot make the folder {}: {e}", folder.display());
        Failure::usage(message, "name another one with --data")
    })?;
    Ok(format!("sqlite://{}", folder.join("windlass.db").display()))
}

fn welcome(out: &Out, url: &str, data: &Path) {
    let default = url == "http://127.0.0.1:7450";
    let server = if default { String::new() } else { format!(" --server {url}") };
    out.say(&format!(
        "\nWindlass is ready. Its data is in {data}; stop it with Ctrl-C.\n\n\
         \x20 overview   {url}/\n\
         \x20 API        {url}/v1/tasks   (described in {url}/v1/openapi.json)\n\
         \x20 metrics    {url}/metrics\n\n\
         Try in another terminal:\n\n\
         \x20 windlass submit demo.hello name=Ada --wait{server}\n\
         \x20 windlass submit demo.flaky --wait{server}\n\
         \x20 windlass submit demo.chain --wait{server}\n\
         \x20 windlass task list{server}\n\n\
         and `windlass dev --crash-demo` to see a task survive a kill.\n",
        data = data.display(),
    ));
}
