//! A server that is a part of another program: its configuration, of a text as the file of `onrush
//! serve` has it, and its log.
//!
//! An option is declared once, so this reads what the command reads. Nothing but the text counts:
//! no environment variable, no file of that name, and no state directory unless the text names one.

use anyhow::{Context, bail};
use onrush_server::config::Config;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::configuration::{self, CONFIG_BYTES_MAX};
use crate::log_queue::LOG_QUEUE;
use crate::sandbox_options::SandboxOption;
use crate::signals::Tee;

/// The settings that `text` makes, which is TOML as docs/configuration.md describes it.
///
/// # Errors
///
/// Every mistake, a line each: where it stands, about which key, and what to write instead. If no
/// folder is named: a program has no demo clips. And what only the command can do.
pub fn config_of(text: &str) -> anyhow::Result<Config> {
    if text.len() > CONFIG_BYTES_MAX {
        let bytes = text.len();
        bail!("{bytes} bytes are no configuration: at most {CONFIG_BYTES_MAX}; leave some out");
    }
    let serve = configuration::serve_of(text)?;
    // A process gives up, not a server in it: `on` asks for what can be given up, which is nothing.
    if serve.sandbox.sandbox == SandboxOption::Require {
        bail!(
            "server.sandbox: a server in a program gives up nothing of the program's; leave it out"
        );
    }
    if serve.status_at_exit.is_some() {
        bail!(
            "log.status_at_exit: only the command writes it; leave it out, and ask for the status"
        );
    }
    let served = serve.library.served().context(
        "library.folder: nothing says what is to be served; write folder = \"FOLDER\" under \
         [library]",
    )?;
    if !served.stores().is_empty() {
        bail!("library.folder: only the command serves object stores; name a folder");
    }
    let config = serve.config(serve.library.media_dir.clone().unwrap_or_default())?;
    if config.cluster.is_some() {
        bail!("cluster.name: a server in a program is of no cluster; leave [cluster] out");
    }
    Ok(config)
}

/// Has what is logged written to stderr, a line each, from `levels` on: `warn`, or levels of parts,
/// as in `info,onrush_server::rtsp=debug`. False if this process has a log already, which stays.
/// A thread writes them that is started here: who does not read them holds up no server.
///
/// # Errors
///
/// If these are no levels.
pub fn log_to_stderr(levels: &str) -> anyhow::Result<bool> {
    let levels: Targets = levels.parse().with_context(|| {
        format!(
            "{levels:?} are no levels: write error, warn, info, debug or trace, or levels of parts \
             as in info,onrush_server::rtsp=debug"
        )
    })?;
    let lines = tracing_subscriber::fmt::layer();
    let lines = lines
        .with_writer(|| Tee)
        .with_ansi(false)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(lines.with_filter(levels));
    let is_ours = registry.try_init().is_ok();
    if is_ours {
        LOG_QUEUE.start();
    }
    Ok(is_ours)
}

/// Waits until what was logged is written, for a second at the most.
pub fn flush_log() {
    LOG_QUEUE.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        format!("{:#}", config_of(text).unwrap_err())
    }

    #[test]
    fn a_text_makes_the_settings_that_the_file_makes() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[library]\nfolder = {:?}\n[server]\nburst = \"5ms\"\n\
             [listen]\nrtsp = \"127.0.0.1:0\"\n",
            folder.path()
        );
        let config = config_of(&text).unwrap();
        assert_eq!(config.media_root, folder.path());
        assert_eq!(config.burst.as_millis(), 5);
        assert!(config.rtsp_addresses[0].ip().is_loopback());
        assert!(config.state.is_none());
    }

    #[test]
    fn all_mistakes_are_told_and_what_is_missing() {
        let error = refused("[server]\nburts = \"5ms\"\ncache = \"much\"\n");
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(error.contains("configuration:2:1: server.burts"), "{error}");
        assert!(refused("").contains("folder = \"FOLDER\""));
        let long = "#".repeat(CONFIG_BYTES_MAX);
        assert!(refused(&long).contains("library.folder"));
        assert!(refused(&format!("{long}#")).contains("at most"));
    }

    #[test]
    fn what_only_the_command_does_is_refused() {
        let with = |line: &str| format!("[library]\nfolder = \"/tmp\"\n{line}\n");
        let sandbox = |how: &str| with(&format!("[server]\nsandbox = \"{how}\""));
        assert!(config_of(&sandbox("on")).is_ok() && config_of(&sandbox("off")).is_ok());
        let error = refused(&sandbox("require"));
        assert!(error.starts_with("server.sandbox: "), "{error}");
        let error = refused(&with("[log]\nstatus_at_exit = \"/tmp/status\""));
        assert!(error.starts_with("log.status_at_exit: "), "{error}");
    }
}
