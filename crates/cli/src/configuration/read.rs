//! What a configuration file says, key by key, and what is wrong with each.
//!
//! Every value is tried by the parser of its option, so that a file can say what an option can, and
//! nothing else. All mistakes are found, not the first alone.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{Key, Keys, Kind, NAME, Section, one_of};
use super::nearest::nearest;
use super::repeated::Repeated;

/// A longer file is refused.
pub(crate) const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Values that one list has at the most.
pub(crate) const LIST_MAX: usize = 1024;

/// Something wrong in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mistake {
    /// The byte where it begins.
    pub(crate) at: usize,
    /// The key that it is about, or the variable; empty if it is about none.
    pub(crate) path: String,
    /// It is not in the file, but in a variable of the environment.
    pub(crate) is_of_variable: bool,
    /// What is wrong, and what to write instead.
    pub(crate) reason: String,
}

/// A value that is said, and is not the default.
#[derive(Clone, Debug)]
pub(crate) struct Value<'k> {
    pub(crate) key: &'k Key,
    /// As its option takes it.
    pub(crate) value: String,
    pub(crate) at: usize,
    /// Of a list, the number of the value in it; of a channel, that of its section.
    pub(crate) number: usize,
    /// The environment says so, and the file does not count.
    pub(crate) is_of_variable: bool,
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Said<'k> {
    pub(crate) values: Vec<Value<'k>>,
    pub(crate) mistakes: Vec<Mistake>,
}

impl Value<'_> {
    /// What the value is called, for people.
    pub(crate) fn path(&self) -> String {
        match self.is_of_variable {
            true => self.key.variable(),
            false => path_of(self.key, self.number),
        }
    }
}

impl<'k> Said<'k> {
    /// Those of an option.
    pub(crate) fn of(&self, id: &str) -> impl Iterator<Item = &Value<'k>> {
        self.values.iter().filter(move |value| value.key.id() == id)
    }

    fn mistake(&mut self, at: usize, path: impl Into<String>, reason: impl Into<String>) {
        self.mistakes.push(Mistake {
            at,
            path: path.into(),
            is_of_variable: false,
            reason: reason.into(),
        });
    }
}

/// The text of a file.
///
/// # Errors
///
/// If it cannot be read, is no text or is longer than [`CONFIG_BYTES_MAX`].
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(CONFIG_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    match text.len() > CONFIG_BYTES_MAX {
        true => Err(io::Error::other(format!(
            "longer than {CONFIG_BYTES_MAX} bytes"
        ))),
        false => Ok(text),
    }
}

/// Line and column of a byte, both from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let lines = before.bytes().filter(|&byte| byte == b'\n').count();
    (lines + 1, before[line..].chars().count() + 1)
}

/// Reads a file's text.
pub(crate) fn read<'k>(keys: &'k Keys, text: &str) -> Said<'k> {
    let mut said = Said::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    let is_toml = errors.is_empty();
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        said.mistake(at, "", not_toml(text, &one_line(error.message())));
    }
    for (name, value) in document.get_ref() {
        let (at, name) = (name.span().start, name.get_ref());
        let is_repeated = matches!(value.get_ref(), DeValue::Array(_));
        match keys.section(name, is_repeated) {
            Some(section) => read_section(keys, section, (at, value), &mut said),
            // Behind a broken heading there may be keys without their section.
            None if !is_toml => {}
            None => said.mistake(at, &**name, no_section(keys, name, value.get_ref())),
        }
    }
    said.mistakes.sort_by_key(|mistake| mistake.at);
    // What is not TOML makes more of it unlike TOML.
    said.mistakes.dedup_by_key(|mistake| mistake.at);
    said
}

/// What to say of what is no TOML.
fn not_toml(text: &str, message: &str) -> String {
    let is_both = ["[library]", "[[library]]"].iter().all(|heading| {
        let mut lines = text.lines();
        lines.any(|line| line.trim_start().starts_with(heading))
    });
    match is_both && message.contains("duplicate key") {
        true => "not TOML: [library] and [[library]] in one file; write [libraries] for what all \
                 of several libraries have in common"
            .to_owned(),
        false => format!("not TOML: {message}"),
    }
}

fn read_section<'k>(
    keys: &'k Keys,
    section: &'k Section,
    (at, value): (usize, &Spanned<DeValue<'_>>),
    said: &mut Said<'k>,
) {
    let name = section.name;
    match (value.get_ref(), section.repeated) {
        (DeValue::Table(table), None) => read_keys(keys, section, table, said),
        (DeValue::Array(all), Some(of)) => {
            let (count_max, of_many) = (of.count_max, of.of_many);
            if let Some(beyond) = all.get(count_max) {
                let reason = format!("{count_max} {of_many} are the most; leave the others out");
                said.mistake(beyond.span().start, name, reason);
            }
            for (number, one) in all.iter().take(count_max).enumerate() {
                match one.get_ref() {
                    DeValue::Table(table) => {
                        let at = one.span().start;
                        read_repeated(keys, (section, of), (at, number, table), said);
                    }
                    _ => said.mistake(one.span().start, name, format!("write [[{name}]]")),
                }
            }
        }
        (DeValue::Table(_), Some(_)) => {
            let reason = format!("there may be several: write [[{name}]]");
            said.mistake(at, name, reason);
        }
        (DeValue::Array(_), None) => {
            let reason = format!("there is one such section: write [{name}], once");
            said.mistake(at, name, reason);
        }
        _ => {
            let reason = format!("a section: write [{name}], and its keys below it");
            said.mistake(at, name, reason);
        }
    }
}

fn read_keys<'k>(keys: &'k Keys, section: &'k Section, table: &DeTable<'_>, said: &mut Said<'k>) {
    for (name, value) in table {
        let Some(key) = section.key(name.get_ref()) else {
            let path = format!("{}.{}", section.name, name.get_ref());
            let reason = no_key(keys, section, name.get_ref());
            said.mistake(name.span().start, path, reason);
            continue;
        };
        for (number, (at, value)) in values(key, value, said).into_iter().enumerate() {
            // What is said as a default is as good as not said.
            if key.is_default(&value) {
                continue;
            }
            match keys.fault(key, &value) {
                Some(fault) => said.mistake(at, path_of(key, number), not_taken(&value, &fault)),
                None => said.values.push(Value {
                    key,
                    value,
                    at,
                    number,
                    is_of_variable: false,
                }),
            }
        }
    }
}

/// Reads a section that there may be several of: its values go to options behind its name.
fn read_repeated<'k>(
    keys: &'k Keys,
    (section, of): (&'k Section, &Repeated),
    (at, number, table): (usize, usize, &DeTable<'_>),
    said: &mut Said<'k>,
) {
    let path = |name: &str| format!("{}[{number}].{name}", section.name);
    let name = table.get(NAME);
    let name = name.and_then(|value| Some((value.span().start, value.get_ref().as_str()?)));
    let Some((name_at, name)) = name else {
        return said.mistake(at, path(NAME), of.unnamed);
    };
    if let Err(reason) = (of.check_name)(name) {
        return said.mistake(name_at, path(NAME), reason);
    }
    let needed = table.get(of.needed).map(|it| it.get_ref());
    if needed.is_none_or(|it| it.as_str() == Some("")) {
        said.mistake(at, path(of.needed), of.without_needed);
    }
    for (key_name, value) in table {
        let key_name = &**key_name.get_ref();
        let Some(key) = section.key(key_name) else {
            if key_name != NAME {
                let reason = no_key(keys, section, key_name);
                said.mistake(value.span().start, path(key_name), reason);
            }
            continue;
        };
        for (at, value) in values(key, value, said) {
            let named = format!("{name}={value}");
            match keys.fault(key, &named) {
                Some(fault) => said.mistake(at, path(key_name), not_taken(&value, &fault)),
                None => said.values.push(Value {
                    key,
                    value: named,
                    at,
                    number,
                    is_of_variable: false,
                }),
            }
        }
    }
}

/// The values behind a key, as its option takes them, and where each is. None where nothing is
/// said: a flag that is not set, an empty string, an empty list.
fn values(key: &Key, value: &Spanned<DeValue<'_>>, said: &mut Said<'_>) -> Vec<(usize, String)> {
    let all: Vec<_> = match value.get_ref() {
        DeValue::Array(all) if key.is_list => all.iter().collect(),
        _ => vec![value],
    };
    if let Some(beyond) = all.get(LIST_MAX) {
        let reason = format!("{LIST_MAX} values are the most; a file of members has more");
        said.mistake(beyond.span().start, key.path(), reason);
    }
    let mut found = Vec::new();
    for one in all.into_iter().take(LIST_MAX) {
        match scalar(key, one.get_ref()) {
            Ok(Some(text)) => found.push((one.span().start, text)),
            Ok(None) => {}
            Err(reason) => said.mistake(one.span().start, key.path(), reason),
        }
    }
    found
}

/// One value as its option takes it; `None` if nothing is said.
fn scalar(key: &Key, value: &DeValue<'_>) -> Result<Option<String>, String> {
    let kind = key.kind;
    match (kind, value) {
        (Kind::Flag, DeValue::Boolean(is_set)) => Ok(is_set.then(String::new)),
        (Kind::Flag, _) => Err("write true or false, without quotes".to_owned()),
        (_, DeValue::String(text)) if text.is_empty() => Ok(None),
        (_, DeValue::String(text)) if text.contains(char::is_control) => {
            Err("control characters are of no value; leave them out".to_owned())
        }
        (Kind::Count | Kind::Percent, DeValue::String(text)) => Err(format!(
            "a number: write {} = {text}, without quotes",
            key.name
        )),
        (Kind::Text | Kind::Address, DeValue::String(text)) => Ok(Some(text.to_string())),
        (Kind::Percent, DeValue::Float(number)) => Ok(Some(number.as_str().to_owned())),
        // A port, of an address; a channel's input is one, too.
        (Kind::Count | Kind::Percent | Kind::Address, DeValue::Integer(number)) => decimal(number),
        (Kind::Text, DeValue::Integer(number)) if has_ports(key) => decimal(number),
        (Kind::Text | Kind::Address, DeValue::Array(_)) if !key.is_list => {
            Err("it has one value: leave the brackets out".to_owned())
        }
        (Kind::Count | Kind::Percent, _) => Err("write a number".to_owned()),
        (Kind::Address, _) => Err(
            "write a port, as in 8554, or an address in quotes, as in \"[::1]:8554\"".to_owned(),
        ),
        (Kind::Text, DeValue::Integer(number)) => Err(in_quotes(key, number.as_str())),
        (Kind::Text, DeValue::Float(number)) => Err(in_quotes(key, number.as_str())),
        (Kind::Text, _) => Err(in_quotes(key, "")),
    }
}

fn has_ports(key: &Key) -> bool {
    key.repeated.is_some_and(|of| of.has_ports)
}

fn decimal(number: &toml::de::DeInteger<'_>) -> Result<Option<String>, String> {
    match number.radix() {
        10 => Ok(Some(number.as_str().trim_start_matches('+').to_owned())),
        _ => Err("write the number in decimal".to_owned()),
    }
}

/// What to say of a value that should be in quotes; of sizes, times and rates, with a unit.
fn in_quotes(key: &Key, text: &str) -> String {
    let (value_name, name) = (key.value_name(), &key.name);
    let example = match value_name.as_str() {
        "SIZE" => "512MiB",
        "TIME" => "20ms",
        "RATE" => "4Mbit/s",
        _ if text.is_empty() => &value_name,
        _ => text,
    };
    let unit = match value_name.as_str() {
        "SIZE" | "TIME" | "RATE" => ", with a unit",
        _ => "",
    };
    format!("write a string{unit}: {name} = \"{example}\"")
}

fn not_taken(value: &str, fault: &str) -> String {
    match value {
        "" => one_line(fault),
        _ => format!("{:?}: {}", value, one_line(fault)),
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// What to say of a section that there is not.
fn no_section(keys: &Keys, name: &str, value: &DeValue<'_>) -> String {
    let sections = keys.sections();
    if !matches!(value, DeValue::Table(_) | DeValue::Array(_))
        && let Some(key) = meant(keys, name)
    {
        return format!(
            "a key stands in its section: write [{}], and {} below it",
            key.section, key.name
        );
    }
    let meant = nearest(name, sections.iter().map(|section| section.name));
    let meant = sections.iter().find(|it| Some(it.name) == meant);
    if let Some(section) = meant {
        return format!(
            "there is no such section; did you mean {}?",
            section.heading()
        );
    }
    let all: Vec<_> = sections.iter().map(Section::heading).collect();
    format!("there is no such section; write {}", one_of(&all))
}

/// What to say of a key that there is not.
fn no_key(keys: &Keys, section: &Section, name: &str) -> String {
    let plain = name.to_lowercase().replace('-', "_");
    if section.key(&plain).is_some() {
        return format!("write {plain}");
    }
    let is_named = section.repeated.is_some();
    let elsewhere = meant(keys, &plain);
    if let Some(key) = elsewhere {
        return match key.section == section.name {
            true => format!("in this section it is called {}", key.name),
            false => format!(
                "it stands elsewhere: write {}, and {} below it",
                heading(key),
                key.name
            ),
        };
    }
    let names = section.keys.iter().map(|key| key.name.clone());
    let names: Vec<_> = names.chain(is_named.then(|| NAME.to_owned())).collect();
    match nearest(&plain, names.iter().map(String::as_str)) {
        Some(name) => format!("there is no such key; did you mean {name}?"),
        None => format!("there is no such key; write {}", one_of(&names)),
    }
}

/// The key that an option's name, or a name without its section, stands for.
fn meant<'k>(keys: &'k Keys, name: &str) -> Option<&'k Key> {
    let plain = name.to_lowercase().replace('_', "-");
    let by_name = || {
        keys.all()
            .find(|key| key.name == name && key.repeated.is_none())
    };
    keys.of_option(&plain).or_else(by_name)
}

fn heading(key: &Key) -> String {
    match key.repeated {
        Some(_) => format!("[[{}]]", key.section),
        None => format!("[{}]", key.section),
    }
}

fn path_of(key: &Key, number: usize) -> String {
    match (key.repeated, key.is_list, number) {
        (Some(_), ..) => format!("{}[{number}].{}", key.section, key.name),
        (_, true, 1..) => format!("{}[{number}]", key.path()),
        _ => key.path(),
    }
}

#[cfg(test)]
mod tests {
    use onrush_server::library::LIBRARIES_MAX;

    use super::*;

    fn mistakes(text: &str) -> Vec<(usize, String, String)> {
        let keys = Keys::new();
        let said = read(&keys, text);
        let told = said.mistakes.into_iter();
        told.map(|it| (it.at, it.path, it.reason)).collect()
    }

    fn values(text: &str) -> Vec<String> {
        let keys = Keys::new();
        let said = read(&keys, text);
        assert_eq!(said.mistakes, []);
        said.values
            .iter()
            .map(|it| it.key.word(&it.value))
            .collect()
    }

    #[test]
    fn values_are_what_options_take() {
        let text = "[library]\nfolder = \"/srv\"\n[listen]\nrtsp = [554, \"127.0.0.1\"]\n\
            http = 80\n[server]\nload_max = 12.5\ncache = \"8GiB\"\n[channels]\non_demand = true\n\
            [[channel]]\nname = \"tv\"\ninput = 5004\nto = [\"10.0.0.7:1\"]\n\
            [limits]\nsessions_max = 1_000\n";
        let mut found = values(text);
        found.sort();
        let expected = [
            "--cache=8GiB",
            "--channel=tv=5004",
            "--http=80",
            "--load-max=12.5",
            "--on-demand",
            "--rtsp=127.0.0.1",
            "--rtsp=554",
            "--sessions-max=1000",
            "--to=tv=10.0.0.7:1",
            "/srv",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn several_libraries_are_values_behind_their_names() {
        let text = "[[library]]\nname = \"films\"\npath = \"/srv/films\"\n[[library]]\n\
            name = \"archive\"\npath = \"s3://bucket/old\"\n[libraries]\nstate = \"off\"\n";
        let mut found = values(text);
        found.sort();
        let expected = [
            "--library=archive=s3://bucket/old",
            "--library=films=/srv/films",
            "--state=off",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn mistakes_of_libraries_have_their_place() {
        for (text, path, reason) in [
            ("name = \"a\"", "library[0].path", "write path ="),
            (
                "name = \"a\"\npath = \"\"",
                "library[0].path",
                "write path =",
            ),
            ("path = \"/a\"", "library[0].name", "write name ="),
            (
                "name = \"a/b\"\npath = \"/a\"",
                "library[0].name",
                "no name of a library",
            ),
            (
                "name = \"live\"\npath = \"/a\"",
                "library[0].name",
                "live channels",
            ),
            (
                "name = \"a\"\npath = 5",
                "library[0].path",
                "write a string",
            ),
            (
                "name = \"a\"\npath = \"/a\"\nx = 1",
                "library[0].x",
                "path or name",
            ),
        ] {
            let text = format!("[[library]]\n{text}\n");
            let found = mistakes(&text);
            let (_, found_path, found_reason) = &found[0];
            assert_eq!(
                found_path.replace("library.path", "library[0].path"),
                path,
                "{text}"
            );
            assert!(found_reason.contains(reason), "{text}: {found_reason}");
        }
        let folder = mistakes("[libraries]\nfolder = \"/a\"\n");
        assert!(folder[0].2.contains("write [library]"), "{folder:?}");
        let both = mistakes("[library]\nstate = \"off\"\n[[library]]\nname = \"a\"\n");
        assert!(both[0].2.contains("write [libraries]"), "{both:?}");
    }

    #[test]
    fn so_many_libraries_and_no_more() {
        let file = |count: usize| -> String {
            let one = |n| format!("[[library]]\nname = \"l{n}\"\npath = \"/srv\"\n");
            (0..count).map(one).collect()
        };
        assert_eq!(mistakes(&file(LIBRARIES_MAX)), []);
        let found = mistakes(&file(LIBRARIES_MAX + 1));
        assert!(
            found[0].2.contains("32 libraries are the most"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn what_is_empty_or_a_default_is_not_said() {
        let text = "[server]\nburst = \"20ms\"\n[listen]\nrtsp = []\nmetrics = \"\"\n\
            [tls]\nudp = false\n";
        assert_eq!(values(text), [""; 0]);
    }

    #[test]
    fn places_are_lines_and_columns_of_characters() {
        let text = "a\n\u{e4}\u{e4}b";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 2), (2, 1));
        assert_eq!(position(text, 6), (2, 3));
        assert_eq!(position(text, 3), (2, 1), "within a character");
        assert_eq!(position(text, 99), (2, 4));
    }

    #[test]
    fn every_mistake_is_told_in_order() {
        let found = mistakes("[server]\nburst = \"2s\"\ncahce = 1\n[lsiten]\n");
        let paths: Vec<_> = found.iter().map(|(_, path, _)| path.as_str()).collect();
        assert_eq!(paths, ["server.burst", "server.cahce", "lsiten"]);
    }

    #[test]
    fn a_file_of_the_longest_is_read_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onrush.toml");
        std::fs::write(&path, "#".repeat(CONFIG_BYTES_MAX)).unwrap();
        assert_eq!(text_of(&path).unwrap().len(), CONFIG_BYTES_MAX);
        std::fs::write(&path, "#".repeat(CONFIG_BYTES_MAX + 1)).unwrap();
        assert!(text_of(&path).unwrap_err().to_string().contains("longer"));
    }
}
