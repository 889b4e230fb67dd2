//! The keys as pages: a file with every default, commented, and a JSON schema.

use std::fmt::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::keys::{Key, Keys, Kind, NAME, Section};

/// The file that says what holds without one: every key behind a `#`, with its help.
pub(crate) fn default_file(keys: &Keys) -> Result<String, fmt::Error> {
    let mut page = String::new();
    comment(&mut page, DEFAULT_HEAD)?;
    for section in keys.sections() {
        writeln!(page)?;
        comment(&mut page, section.about)?;
        if section.is_alias {
            // Its keys are told of where they stand for one library.
            writeln!(page, "[{}]", section.name)?;
            continue;
        } else if let Some(of) = section.repeated {
            // A section without a comment would be a channel.
            let (name, example) = (section.name, of.example);
            write!(page, "\n#[[{name}]]\n#{NAME} = \"{example}\"\n")?;
        } else {
            writeln!(page, "[{}]", section.name)?;
        }
        for key in &section.keys {
            writeln!(page)?;
            comment(&mut page, &key.help())?;
            comment(&mut page, &about(keys, key))?;
            writeln!(page, "#{} = {}", key.name, default_text(keys, key))?;
        }
    }
    Ok(page)
}

/// The JSON schema of the file.
pub(crate) fn schema(keys: &Keys) -> Json {
    let mut sections = Map::new();
    for section in keys.sections() {
        let one = section_schema(keys, section);
        let schema = match section.repeated {
            Some(_) => json!({ "type": "array", "description": section.about, "items": one }),
            None => one,
        };
        let name = section.name.to_owned();
        let schema = match sections.remove(&name) {
            Some(other) => json!({ "anyOf": [other, schema] }),
            None => schema,
        };
        sections.insert(name, schema);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of onrush serve",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn section_schema(keys: &Keys, section: &Section) -> Json {
    let mut properties: Map<_, _> = section
        .keys
        .iter()
        .map(|key| (key.name.clone(), key_schema(keys, key)))
        .collect();
    let mut schema = json!({
        "type": "object",
        "description": section.about,
        "additionalProperties": false,
    });
    if let Some(of) = section.repeated {
        let name = json!({ "type": "string", "description": "Its name, in URLs and everywhere." });
        properties.insert(NAME.to_owned(), name);
        schema["required"] = json!([NAME, of.needed]);
    }
    schema["properties"] = Json::Object(properties);
    schema
}

fn key_schema(keys: &Keys, key: &Key) -> Json {
    let one = match key.kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Count => json!({ "type": "integer", "minimum": 0 }),
        Kind::Percent => json!({ "type": "number", "minimum": 0, "maximum": 100 }),
        Kind::Address => json!({ "type": ["integer", "string"] }),
        // A port.
        Kind::Text if key.repeated.is_some_and(|of| of.has_ports) => {
            json!({ "type": ["integer", "string"] })
        }
        Kind::Text => json!({ "type": "string" }),
    };
    let mut schema = match key.is_list {
        true => json!({ "anyOf": [one, { "type": "array", "items": one }] }),
        false => one,
    };
    let help = one_paragraph(&key.help());
    schema["description"] = json!(format!("{help} {}", about(keys, key)));
    if let Some(default) = keys.default_of(key).filter(|_| !key.is_list) {
        schema["default"] = match default.parse::<u64>() {
            Ok(number) if key.kind != Kind::Text => json!(number),
            _ => json!(default),
        };
    }
    schema
}

/// What may be written, and who else says it.
fn about(keys: &Keys, key: &Key) -> String {
    let bounds = match (keys.bounds(key), key.repeated) {
        (_, Some(_)) => String::new(),
        (bounds, None) if bounds.is_empty() => bounds,
        (bounds, None) => format!("{}. ", capital(&bounds)),
    };
    let option = match key.option() {
        Some(option) if key.kind == Kind::Flag => format!("--{option}"),
        Some(option) => format!("--{option} {}", key.value_name()),
        None => key.value_name(),
    };
    format!("{bounds}({option}, {})", key.variable())
}

/// The default as it is written in the file; something empty if there is none.
fn default_text(keys: &Keys, key: &Key) -> String {
    let default = keys.default_of(key);
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let one = default.map(|text| match key.kind {
        Kind::Count | Kind::Percent | Kind::Address if is_number(&text) => text,
        _ => format!("\"{text}\""),
    });
    match (key.kind, key.is_list, one) {
        (Kind::Flag, ..) => "false".to_owned(),
        (_, true, one) => format!("[{}]", one.unwrap_or_default()),
        (_, false, one) => one.unwrap_or_else(|| "\"\"".to_owned()),
    }
}

/// Writes `text` behind `#`, in lines that fit a terminal.
fn comment(page: &mut String, text: &str) -> fmt::Result {
    for paragraph in text.lines() {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.len() > 1 && line.chars().count() + word.chars().count() >= COLUMNS {
                writeln!(page, "{line}")?;
                line.truncate(1);
            }
            line.push(' ');
            line.push_str(word);
        }
        writeln!(page, "{line}")?;
    }
    Ok(())
}

fn one_paragraph(text: &str) -> String {
    let words: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    words.join(". ").replace(".. ", ". ").replace(":. ", ": ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

const COLUMNS: usize = 80;

const DEFAULT_HEAD: &str = "\
Configuration of onrush serve: `onrush serve --config FILE`, `onrush check FILE`.

Each key says what the option behind it says. The option wins, then its environment variable, then \
what is written here. What stands behind a # is what holds without it, and may be said as well, \
but in [listen]: see there. An empty string or list says nothing. Paths are relative to where the \
server is started.";

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::super::read::read;
    use super::*;
    use crate::serve_options::Serve;

    /// The page without the `#` in front of keys, but without a channel or a library.
    fn uncommented(page: &str) -> String {
        let mut page = page.to_owned();
        while let Some((before, one)) = page.split_once("#[[") {
            let (_, after) = one.split_once("\n[").unwrap();
            page = format!("{before}\n[{after}");
        }
        let is_key = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line != "#";
        let lines = page.lines().map(|line| match is_key(line) {
            true => &line[1..],
            false => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn config(words: Vec<String>) -> String {
        let words = ["onrush serve".to_owned()].into_iter().chain(words);
        let matches = Keys::new().command().try_get_matches_from(words).unwrap();
        let serve = Serve::from_arg_matches(&matches).unwrap();
        let mut config = serve.config("media".into()).unwrap();
        config.channels.token.clear();
        format!("{config:?}")
    }

    #[test]
    fn the_default_file_says_the_defaults() {
        let keys = Keys::new();
        let page = default_file(&keys).unwrap();
        let said = read(&keys, &page);
        assert_eq!(
            (said.mistakes.len(), said.values.len()),
            (0, 0),
            "{:?}",
            said.mistakes
        );
        let page = uncommented(&page);
        let said = read(&keys, &page);
        assert_eq!(said.mistakes, [], "{page}");
        for key in keys.all().filter(|key| key.repeated.is_none()) {
            assert!(
                page.contains(&format!("\n{} = ", key.name)),
                "{}",
                key.path()
            );
        }
        let words = said
            .values
            .iter()
            .map(|it| it.key.word(&it.value))
            .collect();
        assert_eq!(config(words), config(Vec::new()));
    }

    #[test]
    fn lines_of_the_default_file_fit_a_terminal() {
        let page = default_file(&Keys::new()).unwrap();
        for line in page.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }

    /// `onrush config --schema > packaging/onrush.schema.json` makes it anew.
    #[test]
    fn the_schema_that_is_shipped_is_that_of_the_keys() {
        let shipped = include_str!("../../../../packaging/onrush.schema.json");
        let shipped: Json = serde_json::from_str(shipped).unwrap();
        assert!(
            shipped == schema(&Keys::new()),
            "onrush config --schema says another"
        );
    }
}
