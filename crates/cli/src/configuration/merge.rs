//! From options, environment and file to one list of words: what `onrush serve` is told in all; and
//! what the environment changes of what a file says, which `onrush check` judges.
//!
//! An option wins over its environment variable, and that over the file. What wins replaces: of an
//! option that may stand several times nothing is added up. The words are then parsed as if all had
//! been typed, so that what does not fit together is refused as ever.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::keys::{Key, Keys, Kind};
use super::read::{Mistake, Said, Value, position, read, text_of};
use super::repeated::{CHANNEL, LIBRARY};

/// The option that names the file, and its environment variable.
pub(super) const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "ONRUSH_CONFIG";

/// The words of a command line, and of `onrush serve` what the environment and the file say, too.
///
/// # Errors
///
/// If the file cannot be read or has mistakes, or a variable is none that its option can have.
pub(crate) fn merged(
    words: Vec<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Vec<OsString>> {
    if words.get(1).is_none_or(|word| word != "serve") {
        return Ok(words);
    }
    let keys = Keys::new();
    let lenient = Command::ignore_errors(keys.command(), true);
    // Whoever asks for help gets it from the whole command line.
    let Ok(typed) = lenient.try_get_matches_from(&words[1..]) else {
        return Ok(words);
    };
    let mut more = Vec::new();
    let file = match typed.try_get_one::<PathBuf>(CONFIG) {
        Ok(Some(file)) => Some(file.clone()),
        _ => variable(CONFIG_VARIABLE)
            .filter(|it| !it.is_empty())
            .map(|file| {
                more.push(format!("--{CONFIG}").into());
                more.push(file.clone());
                file.into()
            }),
    };
    for key in keys.all().filter(|key| !is_typed(&typed, key)) {
        if let Some(value) = variable(&key.variable()).filter(|value| !value.is_empty()) {
            let values = of_variable(&keys, key, &value);
            let values = values.map_err(|fault| anyhow!("{} {fault}", key.variable()))?;
            more.extend(values.iter().map(|value| OsString::from(key.word(value))));
        }
    }
    if let Some(file) = file {
        more.extend(of_file(&keys, &file, &typed, &variable)?);
    }
    let mut all = words;
    all.splice(2..2, more);
    Ok(all)
}

/// A mistake as it is printed: where, about what, what is wrong and what to write instead.
pub(crate) fn line(path: &Path, text: &str, mistake: &Mistake) -> String {
    if mistake.is_of_variable {
        return format!("{}: {}", mistake.path, mistake.reason);
    }
    let (line, column) = position(text, mistake.at);
    let about = match &*mistake.path {
        "" => String::new(),
        path => format!("{path}: "),
    };
    format!(
        "{}:{line}:{column}: {about}{}",
        path.display(),
        mistake.reason
    )
}

/// What the file says that nothing before it says.
fn of_file(
    keys: &Keys,
    path: &Path,
    typed: &ArgMatches,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Vec<OsString>> {
    let text = text_of(path).with_context(|| path.display().to_string())?;
    let said = read(keys, &text);
    if let [first, others @ ..] = &said.mistakes[..] {
        let first = line(path, &text, first);
        match others.len() {
            0 => bail!("{first}"),
            more => bail!("{first} (and {more} more: onrush check {})", path.display()),
        }
    }
    let is_said = |key: &Key| {
        is_typed(typed, key) || variable(&key.variable()).is_some_and(|value| !value.is_empty())
    };
    let said_before: Vec<_> = keys.all().filter(|key| is_said(key)).collect();
    let counts = |key: &Key| !said_before.iter().any(|it| replaces(it, key));
    let values = said.values.iter().filter(|value| counts(value.key));
    Ok(values.map(|it| it.key.word(&it.value).into()).collect())
}

/// Whether what is said by `one`, which wins, leaves out what is said by `other`.
fn replaces(one: &Key, other: &Key) -> bool {
    // Of other channels the members count as little as the inputs; and a folder is served, or
    // several libraries are.
    let is_one_of =
        |key: &Key| key.section == LIBRARY && matches!(key.id(), "media_dir" | "libraries");
    one.id() == other.id()
        || one.option() == Some(CHANNEL) && other.section == CHANNEL
        || is_one_of(one) && is_one_of(other)
}

/// Has what a file says be as `onrush serve` would take it in this environment: what a variable
/// says stands in place of what the file says of the same, and its faults are mistakes, too.
pub(super) fn with_variables<'k>(
    keys: &'k Keys,
    said: &mut Said<'k>,
    variable: impl Fn(&str) -> Option<OsString>,
) {
    for key in keys.all() {
        let Some(value) = variable(&key.variable()).filter(|value| !value.is_empty()) else {
            continue;
        };
        let is_replaced = |it: &Value<'_>| !it.is_of_variable && replaces(key, it.key);
        said.values.retain(|it| !is_replaced(it));
        match of_variable(keys, key, &value) {
            Ok(values) => {
                let values = values.into_iter().enumerate();
                said.values.extend(values.map(|(number, value)| Value {
                    key,
                    value,
                    at: 0,
                    number,
                    is_of_variable: true,
                }));
            }
            Err(fault) => said.mistakes.push(Mistake {
                at: 0,
                path: key.variable(),
                is_of_variable: true,
                reason: fault,
            }),
        }
    }
}

/// The values that a variable gives an option: several stand behind each other with commas between.
/// A flag has one that says nothing, or none.
///
/// # Errors
///
/// What is wrong with it, to be said behind the variable's name.
fn of_variable(keys: &Keys, key: &Key, value: &OsStr) -> Result<Vec<String>, String> {
    let text = value.to_str().ok_or("is not UTF-8")?;
    if key.kind == Kind::Flag {
        return match text {
            "true" | "1" => Ok(vec![String::new()]),
            "false" | "0" => Ok(Vec::new()),
            _ => Err(format!("is {text:?}: write true or false")),
        };
    }
    // Those of several channels or libraries are a list, too.
    let is_list = key.is_list || key.repeated.is_some();
    let values: Vec<_> = match is_list {
        true => text.split(',').map(str::trim).collect(),
        false => vec![text],
    };
    for value in &values {
        if let Some(fault) = keys.fault(key, value) {
            return Err(format!("is {text:?}: {fault}"));
        }
    }
    Ok(values.into_iter().map(ToOwned::to_owned).collect())
}

fn is_typed(typed: &ArgMatches, key: &Key) -> bool {
    typed.value_source(key.id()) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn told(line: &str, variables: &[(&str, &str)], file: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onrush.toml");
        fs::write(&path, file).unwrap();
        let words = ["onrush", "serve", "--config", path.to_str().unwrap()].into_iter();
        let words = words.chain(line.split_whitespace()).map(OsString::from);
        let variable = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let merged = merged(words.collect(), variable).map_err(|error| format!("{error:#}"))?;
        let mut words: Vec<_> = merged
            .iter()
            .map(|it| it.to_str().unwrap().to_owned())
            .collect();
        words.drain(..2);
        words.retain(|word| word != "--config" && !word.ends_with("onrush.toml"));
        words.sort();
        Ok(words)
    }

    #[test]
    fn options_win_over_variables_and_these_over_the_file() {
        let file = "[server]\nburst = \"5ms\"\ncache = \"2GiB\"\ncores = \"0\"\n";
        let variables = [("ONRUSH_BURST", "6ms"), ("ONRUSH_CACHE", "3GiB")];
        let found = told("--burst=7ms", &variables, file).unwrap();
        assert_eq!(found, ["--burst=7ms", "--cache=3GiB", "--cores=0"]);
    }

    #[test]
    fn a_list_replaces_a_list() {
        let file = "[listen]\nrtsp = [1, 2]\nhttp = 3\n";
        let variables = [("ONRUSH_HTTP", "4, 5"), ("ONRUSH_MEDIA_DIR", "/srv")];
        let found = told("--rtsp 9", &variables, file).unwrap();
        assert_eq!(found, ["--http=4", "--http=5", "--rtsp", "/srv", "9"]);
    }

    #[test]
    fn channels_of_the_command_line_leave_those_of_the_file_out() {
        let file = "[[channel]]\nname = \"tv\"\ninput = 5004\nto = \"10.0.0.7:1\"\n";
        assert_eq!(
            told("", &[], file).unwrap(),
            ["--channel=tv=5004", "--to=tv=10.0.0.7:1"]
        );
        assert_eq!(told("--channel=a=1", &[], file).unwrap(), ["--channel=a=1"]);
    }

    #[test]
    fn a_folder_and_libraries_leave_each_other_out() {
        let file = "[[library]]\nname = \"a\"\npath = \"/a\"\n";
        assert_eq!(told("", &[], file).unwrap(), ["--library=a=/a"]);
        assert_eq!(told("/srv", &[], file).unwrap(), ["/srv"]);
        let both = [("ONRUSH_LIBRARY", "b=/b, c=s3://c")];
        let expected = ["--library=b=/b", "--library=c=s3://c"];
        assert_eq!(told("", &both, file).unwrap(), expected);
        let one = "[library]\nfolder = \"/srv\"\nstate = \"off\"\n";
        assert_eq!(
            told("--library=d=/d", &[], one).unwrap(),
            ["--library=d=/d", "--state=off"]
        );
    }

    #[test]
    fn flags_of_the_environment_are_true_or_false() {
        let file = "[tls]\nmode = \"self-signed\"\nudp = true\n";
        let of = |value: &str| told("", &[("ONRUSH_TLS_UDP", value)], file);
        assert_eq!(of("1").unwrap(), ["--tls-udp", "--tls=self-signed"]);
        assert_eq!(of("false").unwrap(), ["--tls=self-signed"]);
        assert!(of("yes").unwrap_err().contains("write true or false"));
        let burst = told("", &[("ONRUSH_BURST", "20")], "").unwrap_err();
        assert!(
            burst.contains("ONRUSH_BURST") && burst.contains("as in 20ms"),
            "{burst}"
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let error = told("", &[], "[server]\nburts = \"5ms\"\nx = 1\n").unwrap_err();
        for said in [
            "onrush.toml:2:1: server.burts: ",
            "did you mean burst?",
            "and 1 more",
        ] {
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn other_commands_are_left_as_they_are() {
        let words = ["onrush", "relay", "5004"].map(OsString::from).to_vec();
        let variable = |_: &str| Some("5ms".into());
        assert_eq!(merged(words.clone(), variable).unwrap(), words);
    }
}
