//! The configuration file of `onrush serve`: what it says ([`read`]), with the environment and the
//! options ([`merge`]), what is wrong with it ([`whole`]), its pages ([`pages`]), and what a
//! running server takes of it ([`reload`]).
//!
//! An option, a key of the file, an environment variable, the commented default and the schema are
//! one declaration: the option's ([`keys`]).

mod keys;
mod merge;
mod nearest;
mod pages;
mod read;
mod reload;
mod repeated;
#[cfg(test)]
mod tests;
mod whole;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, FromArgMatches, ValueHint};

use self::keys::Keys;
pub(crate) use self::merge::merged;
pub(crate) use self::read::CONFIG_BYTES_MAX;
pub(crate) use self::reload::Reloads;
use crate::serve_options::Serve;

/// Check a configuration file
///
/// Tells every mistake in FILE, and not the first alone, with its line, column and key, and what to
/// write instead: keys and values, what does not fit together, and files, folders and processors
/// that are not there. Nothing is started, and nothing listens. What is right is told by the exit
/// code: 0, or 1 if there are mistakes.
///
/// Variables of the environment (ONRUSH_BURST for --burst) are judged with the file, and in place
/// of what it says of the same, as onrush serve --config FILE would take both here. To have a file
/// judged alone: env --ignore-environment "$(command -v onrush)" check FILE
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The configuration file
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Print what a configuration file can say
#[derive(Args, Debug)]
// No documentation comment: rustdoc takes what is indented for Rust.
#[command(long_about = "\
Print what a configuration file can say

To begin with one:

    onrush config --default > onrush.toml")]
pub(crate) struct Config {
    #[command(flatten)]
    page: Page,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Page {
    /// A file with every key, commented, and its default
    #[arg(long)]
    default: bool,

    /// The JSON schema of the file, for editors
    #[arg(long)]
    schema: bool,
}

pub(crate) fn check(arguments: &Check, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = &arguments.file;
    let text = read::text_of(path).with_context(|| path.display().to_string())?;
    let keys = Keys::new();
    let mistakes = mistakes(&keys, &text, |name| env::var_os(name));
    for mistake in &mistakes {
        writeln!(out, "{}", merge::line(path, &text, mistake))?;
    }
    Ok(match mistakes.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

pub(crate) fn print(arguments: &Config, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let keys = Keys::new();
    if arguments.page.schema {
        let schema = pages::schema(&keys);
        writeln!(out, "{}", serde_json::to_string_pretty(&schema)?)?;
    } else {
        write!(out, "{}", pages::default_file(&keys)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The options that a file's text makes, without any other.
///
/// # Errors
///
/// All mistakes of the text, a line each.
pub(crate) fn serve_of(text: &str) -> anyhow::Result<Serve> {
    let keys = Keys::new();
    // Whoever embeds a server has said all of it.
    let mistakes = mistakes(&keys, text, |_| None);
    if !mistakes.is_empty() {
        let lines = mistakes.iter().map(|mistake| {
            // There is no file to name.
            merge::line(Path::new("configuration"), text, mistake)
        });
        bail!("{}", lines.collect::<Vec<_>>().join("\n"));
    }
    let said = read::read(&keys, text);
    let words = said.values.iter().map(|it| it.key.word(&it.value));
    let words = ["onrush serve".to_owned()].into_iter().chain(words);
    let matches = keys.command().try_get_matches_from(words)?;
    Ok(Serve::from_arg_matches(&matches)?)
}

/// All mistakes of a file and of the variables that stand beside it, in the order of their places:
/// as many as are told, the last of which says how many there are beside.
fn mistakes(
    keys: &Keys,
    text: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<read::Mistake> {
    let mut said = read::read(keys, text);
    merge::with_variables(keys, &mut said, variable);
    let mut all = said.mistakes.clone();
    all.extend(whole::check(keys, &said));
    all.sort_by_key(|mistake| mistake.at);
    let beside = all.len().saturating_sub(MISTAKES_MAX);
    all.truncate(MISTAKES_MAX);
    if let (1.., Some(last)) = (beside, all.last_mut()) {
        let mistakes = if beside == 1 { "mistake" } else { "mistakes" };
        let told = format!("; {beside} more {mistakes}, to be told when these are mended");
        last.reason.push_str(&told);
    }
    all
}

/// So many mistakes of one file are told, and how many there are beside.
const MISTAKES_MAX: usize = 1000;
