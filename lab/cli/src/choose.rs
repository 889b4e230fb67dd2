//! `onrush-lab choose`: which path to take, for programs that send otherwise than the server does.
//!
//! The order of preference is in [`onrush_paths`]; here it is asked about four kinds of programs
//! and told.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::process::ExitCode;

use clap::Args;
use onrush_cli::units::indented;
use onrush_paths::{self as catalogue, Needs, best};
use serde::Serialize;

/// Choose a data path for a program of your own
///
/// Tries, on loopback, which paths of the catalogue this kernel has, and names the cheapest for
/// each kind of sender: packets with headers that all clients share or with headers of each
/// client's own, files over UDP, files over TCP. `onrush doctor` says which one the server takes.
#[derive(Args, Debug)]
pub(crate) struct Choose {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the catalogue has for programs that need something else than the server does.
#[derive(Serialize)]
struct ByNeed {
    need: &'static str,
    name: &'static str,
    reason: String,
    /// The better ones that are not available here.
    passed_over: Vec<PassedOver>,
}

/// A data path that is not available here.
#[derive(Serialize)]
struct PassedOver {
    name: &'static str,
    why: String,
}

pub(crate) fn run(arguments: &Choose, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let choices = by_need()?;
    if arguments.json {
        #[derive(Serialize)]
        struct Document<'a> {
            schema_version: u32,
            data_paths_by_need: &'a [ByNeed],
        }
        let document = Document {
            schema_version: 1,
            data_paths_by_need: &choices,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for choice in &choices {
        let told = format!("{}: {} ({})", choice.need, choice.name, choice.reason);
        writeln!(out, "{}", indented(&told, 2))?;
        for PassedOver { name, why } in &choice.passed_over {
            writeln!(out, "  not {}", indented(&format!("{name}: {why}"), 6))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the catalogue has for each kind of sender: see docs/paths.md.
fn by_need() -> anyhow::Result<Vec<ByNeed>> {
    let plain = catalogue::Plan::regular(2 * 1316, 1316)?;
    let headed = plain.clone().with_headers(12, vec![0; 24])?;
    let udp = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    let tcp = TcpListener::bind(("127.0.0.1", 0)).or_else(|_| TcpListener::bind(("::1", 0)));
    let shared = Needs::default();
    let own = Needs {
        own_headers: true,
        ..shared
    };
    let mut choices = vec![
        (
            "with headers that all clients share",
            best(&headed, &udp, shared),
        ),
        (
            "with headers of each client's own",
            best(&headed, &udp, own),
        ),
        ("files over UDP", best(&plain, &udp, shared)),
    ];
    // A machine where nobody can listen has no such choice.
    choices.extend(tcp.map(|tcp| ("files over TCP", best(&plain, &tcp, shared))));
    let choices = choices.into_iter();
    Ok(choices
        .map(|(need, choice)| ByNeed::new(need, choice))
        .collect())
}

impl ByNeed {
    fn new(need: &'static str, choice: catalogue::Choice) -> Self {
        let passed_over = choice.passed_over.into_iter();
        Self {
            need,
            name: choice.name.as_str(),
            reason: choice.reason,
            passed_over: passed_over
                .map(|(name, why)| PassedOver {
                    name: name.as_str(),
                    why,
                })
                .collect(),
        }
    }
}
