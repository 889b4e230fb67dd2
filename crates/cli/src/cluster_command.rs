//! `onrush cluster`: what a node knows of its cluster, and what can be done about the others.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use onrush_wire::rtsp::RedirectTarget;
use serde_json::Value;

use crate::ctl::ServerArg;
use crate::units::Rate;

/// Show the nodes of a cluster, or take one out
///
/// By the API of one of its nodes, at its --metrics address, for those with the right admin;
/// without users for this machine alone. It ends with 1 where the node has lost the registry or is
/// of no cluster, and where nothing was changed.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ClusterCommand {
    #[command(flatten)]
    server: ServerArg,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List nodes, and what the registry holds that is none
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take no session more: viewers who come are sent to the other nodes
    Drain {
        /// Take sessions again
        #[arg(long)]
        stop: bool,

        /// Wait until the last has ended
        #[arg(long, conflicts_with = "stop")]
        wait: bool,

        /// Send those who play on to this server, as in rtsp://HOST:PORT/
        #[arg(long, conflicts_with = "stop", value_name = "URL", value_hint = ValueHint::Url)]
        to: Option<RedirectTarget>,
    },
    /// Have the registry forget a node; one that is alive registers again
    Forget {
        /// As `status` lists it
        node: String,
    },
}

const EXAMPLES: &str = "\
Examples:
  onrush cluster status
  onrush cluster --at 192.0.2.7:9554 drain --wait
  onrush cluster forget node-3      it is gone for good";

pub(crate) fn run(arguments: &ClusterCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let server = &arguments.server;
    match &arguments.what {
        What::Status { json } => match server.ask("GET", &server.url(&["cluster"]))? {
            Ok(said) => {
                match json {
                    true => writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?,
                    false => table(&said, out)?,
                }
                Ok(ExitCode::from(u8::from(said["is_registered"] != true)))
            }
            Err(error) => {
                writeln!(out, "{error}")?;
                Ok(ExitCode::from(1))
            }
        },
        What::Drain { stop, wait, to } => server.drain_command(*stop, *wait, to.as_ref(), out),
        What::Forget { node } => server.tell("DELETE", &server.url(&["cluster", node]), out),
    }
}

/// A line for each node.
fn table(said: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    writeln!(out, "cluster    {}", text(&said["cluster"]))?;
    match said["error"].as_str() {
        None => writeln!(out, "registry   reached")?,
        Some(error) => writeln!(out, "registry   not reached: {error}")?,
    }
    let none = Vec::new();
    for node in said["nodes"].as_array().unwrap_or(&none) {
        let number = |name: &str| node[name].as_u64().unwrap_or(0);
        let note = match (node["is_this"] == true, node["accepts"] == true) {
            (true, true) => ", this one",
            (true, false) => ", this one, drains",
            (false, true) => "",
            (false, false) => ", drains",
        };
        writeln!(
            out,
            "node       {}{note}: {} sessions, {} of {}, rtsp {}, http {}, version {}",
            text(&node["node"]),
            number("sessions"),
            Rate(number("load_bps")),
            Rate(number("capacity_bps")),
            text(&node["rtsp"]),
            text(&node["http"]),
            text(&node["version"]),
        )?;
    }
    for channel in said["channels"].as_array().unwrap_or(&none) {
        let note = match (channel["is_this"] == true, channel["lease"].as_u64()) {
            (true, Some(lease)) => format!(", this one, lease {lease}"),
            (true, None) => ", this one, for its own viewers: no lease".to_owned(),
            (false, lease) => format!(", lease {}", lease.unwrap_or(0)),
        };
        let standby = channel["standby"].as_str();
        let standby = standby.map(|node| format!(", standby at node {node}"));
        let from = channel["pulled_from"].as_str();
        let from = from.map(|node| format!(", taken from node {node}"));
        let by = channel["pulled_by"].as_u64().filter(|count| *count > 0);
        let by = by.map(|count| format!(", nodes fed from here: {count}"));
        let (from, by) = (from.unwrap_or_default(), by.unwrap_or_default());
        let (channel, node) = (text(&channel["channel"]), text(&channel["node"]));
        let standby = standby.unwrap_or_default();
        writeln!(
            out,
            "channel    {channel}: node {node}{note}{standby}{from}{by}"
        )?;
    }
    for entry in said["ignored"].as_array().unwrap_or(&none) {
        let (key, reason) = (text(&entry["key"]), text(&entry["reason"]));
        writeln!(out, "ignored    {key}: {reason}")?;
    }
    Ok(out.flush()?)
}
