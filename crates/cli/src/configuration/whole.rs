//! What is wrong between keys, and between a file and this machine: as `onrush serve` would find it
//! at its start, but all of it, each with its place, and without listening anywhere.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, FromArgMatches};
use onrush_server::channels::members::parse_file;
use onrush_server::config::Config;
use onrush_server::library::Library;
use onrush_server::server::StartError;
use onrush_server::tls::{self, TlsConfig};
use onrush_server::users::{self, UsersConfig};
use onrush_sys::thread::allowed_cores;

use super::keys::{Key, Keys, one_of};
use super::read::{Mistake, Said, Value};
use crate::libraries::is_remote;
use crate::objects;
use crate::remedy::with_remedy;
use crate::serve_options::Serve;
use crate::units::ranges;

/// The mistakes between what is said. Where single values are wrong already, what does not fit
/// together may be their doing, and is not told.
pub(crate) fn check(keys: &Keys, said: &Said<'_>) -> Vec<Mistake> {
    let is_clean = said.mistakes.is_empty();
    let mut found = names(said);
    if is_clean {
        found.extend(needs(keys, said));
        found.extend(pairs(said));
    }
    let words = said.values.iter().map(|it| it.key.word(&it.value));
    let words: Vec<_> = ["onrush serve".to_owned()]
        .into_iter()
        .chain(words)
        .collect();
    let matches = match keys.command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => {
            found.extend(clash(keys, said, &error).filter(|_| is_clean));
            return sorted(found);
        }
    };
    let Ok(serve) = Serve::from_arg_matches(&matches) else {
        return sorted(found);
    };
    match serve.config(serve.library.media_dir.clone().unwrap_or_default()) {
        Ok(config) => {
            found.extend(listeners(said, &config));
            found.extend(of_files(said, &config));
            found.extend(of_certificates(said, &config));
            found.extend(of_users(said, &config));
            found.extend(processors(said, &matches));
        }
        // What was told already is not told once more.
        Err(error) if is_clean && found.is_empty() => {
            found.push(located(keys, said, &format!("{error:#}")));
        }
        Err(_) => {}
    }
    sorted(found)
}

fn sorted(mut found: Vec<Mistake>) -> Vec<Mistake> {
    found.sort_by_key(|mistake| mistake.at);
    found
}

fn mistake(value: &Value<'_>, reason: impl Into<String>) -> Mistake {
    Mistake {
        at: value.at,
        path: value.path(),
        is_of_variable: value.is_of_variable,
        reason: reason.into(),
    }
}

/// Channels and libraries that have the name of another.
fn names(said: &Said<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    for option in ["channels", "libraries"] {
        let all: Vec<_> = said.of(option).collect();
        let mut known = HashMap::new();
        for value in all {
            let Some((name, _)) = value.value.split_once('=') else {
                continue;
            };
            if let Some(earlier) = known.insert(name, value) {
                let path = earlier.path();
                let section = path.rsplit_once('.').map_or(&*path, |(section, _)| section);
                let reason = format!("{section} is named {name}, too: give this one another name");
                found.push(mistake(value, reason));
            }
        }
    }
    found
}

/// Keys that are of no use without others.
fn needs(keys: &Keys, said: &Said<'_>) -> Vec<Mistake> {
    let mut found: Vec<Mistake> = Vec::new();
    for (number, value) in said.values.iter().enumerate() {
        let is_told = said.values[..number]
            .iter()
            .any(|it| it.key.id() == value.key.id());
        let words = ["onrush serve".to_owned(), value.key.word(&value.value)];
        let error = keys.command().try_get_matches_from(words).err();
        let error = error.filter(|it| it.kind() == ErrorKind::MissingRequiredArgument);
        let Some(error) = error.filter(|_| !is_told) else {
            continue;
        };
        for missing in texts(error.get(ContextKind::InvalidArg)) {
            let alternatives: Vec<_> = options(&missing)
                .filter_map(|option| keys.of_option(option))
                .collect();
            let is_said = |key: &&Key| said.of(key.id()).next().is_some();
            if !alternatives.is_empty() && !alternatives.iter().any(is_said) {
                let alternatives: Vec<_> = alternatives.iter().map(|key| key.path()).collect();
                let reason = format!("of no use alone: write {}, too", one_of(&alternatives));
                found.push(mistake(value, reason));
            }
        }
    }
    found
}

/// Certificates and keys that are not as many.
fn pairs(said: &Said<'_>) -> Option<Mistake> {
    let certificates: Vec<_> = said.of("tls_certificate").collect();
    let keys: Vec<_> = said.of("tls_key").collect();
    let is_wrong = certificates.len() != keys.len();
    // Where there is none of the other that has been told.
    let longer = match certificates.len() > keys.len() {
        true => keys.last().and_then(|_| certificates.last()),
        false => certificates.last().and_then(|_| keys.last()),
    };
    let reason = format!(
        "{} certificates and {} keys: give each certificate its key, in their order",
        certificates.len(),
        keys.len(),
    );
    longer
        .filter(|_| is_wrong)
        .map(|value| mistake(value, reason))
}

/// Two keys of which one must go.
fn clash(keys: &Keys, said: &Said<'_>, error: &clap::Error) -> Option<Mistake> {
    if error.kind() != ErrorKind::ArgumentConflict {
        return None;
    }
    let contexts = [ContextKind::InvalidArg, ContextKind::PriorArg];
    let named = contexts.iter().flat_map(|&kind| texts(error.get(kind)));
    let named: Vec<_> = named.collect();
    let named = named.iter().flat_map(|text| options(text));
    let mut both: Vec<_> = named
        .filter_map(|option| keys.of_option(option))
        .filter_map(|key| said.of(key.id()).next())
        .collect();
    both.sort_by_key(|value| value.at);
    both.dedup_by_key(|value| value.key.id().to_owned());
    let [first, .., last] = both[..] else {
        return None;
    };
    let reason = format!("not beside {}: leave one of them out", first.path());
    Some(mistake(last, reason))
}

/// What an error of the settings says, in words of the file, where it belongs.
fn located(keys: &Keys, said: &Said<'_>, error: &str) -> Mistake {
    let mut reason = error.to_owned();
    let mut at = None;
    for option in options(error) {
        if let Some(key) = keys.of_option(option) {
            let value = said.of(key.id()).next();
            let path = value.map_or_else(|| key.path(), Value::path);
            reason = reason.replace(&format!("--{option}"), &path);
            at = at.or(value);
        }
    }
    let by_value = said
        .values
        .iter()
        .find(|it| it.value.len() > 1 && error.contains(&it.value));
    match at.or(by_value) {
        Some(value) => mistake(value, reason),
        None => Mistake {
            at: 0,
            path: String::new(),
            is_of_variable: false,
            reason,
        },
    }
}

/// The options that a text names.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter_map(|word| word.strip_prefix("--"))
}

fn texts(value: Option<&ContextValue>) -> Vec<String> {
    match value {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Services that would listen where another does.
fn listeners(said: &Said<'_>, config: &Config) -> Vec<Mistake> {
    let downloads = &config.downloads;
    let services: [(&str, &[SocketAddr]); 7] = [
        ("rtsp", &config.rtsp_addresses),
        ("rtsps", &config.rtsps_addresses),
        ("http", &downloads.http_addresses),
        ("https", &downloads.https_addresses),
        ("ftp", &downloads.ftp_addresses),
        ("metrics", config.metrics_address.as_slice()),
        ("api", config.channels.api_address.as_slice()),
    ];
    let mut listening: Vec<(SocketAddr, &str, Option<&Value<'_>>)> = Vec::new();
    for (service, addresses) in services {
        let values: Vec<_> = said.of(service).filter(|it| it.value != "off").collect();
        for (number, &address) in addresses.iter().enumerate() {
            listening.push((address, service, values.get(number).copied()));
        }
    }
    let inputs = said
        .of("channels")
        .filter(|it| !it.value.contains("=rtsp://"));
    let received = config.channels.sources.iter().zip(inputs);
    let received: Vec<_> = received
        .filter(|(source, _)| !source.input.address.ip().is_multicast())
        .map(|(source, value)| (source.input.address, source.name.as_str(), Some(value)))
        .collect();
    [listening, received]
        .iter()
        .flat_map(|all| overlapping(all))
        .collect()
}

/// Of addresses those that are another's; an address that nobody has said is a default.
fn overlapping(all: &[(SocketAddr, &str, Option<&Value<'_>>)]) -> Vec<Mistake> {
    let mut found = Vec::new();
    for (number, (address, name, value)) in all.iter().enumerate() {
        let earlier = all[..number]
            .iter()
            .find(|(other, ..)| overlap(address, other));
        let Some((_, other_name, other)) = earlier else {
            continue;
        };
        // The one that is said is told of, and of both the one that is said last.
        let (told, other_name, other) = match (value, other) {
            (Some(value), Some(other)) if value.at < other.at => (*other, *name, Some(*value)),
            (Some(value), other) => (*value, *other_name, *other),
            (None, Some(other)) => (*other, *name, None),
            (None, None) => continue,
        };
        let taken_by = match other {
            Some(other) => other.path(),
            None => format!("{other_name}, which is there by default,"),
        };
        let port = address.port();
        let reason = format!("port {port} is taken by {taken_by} already: write another port");
        found.push(mistake(told, reason));
    }
    found
}

/// Whether one of two listeners would be refused.
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let takes = |all: &SocketAddr, one: &SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    one.port() != 0
        && one.port() == other.port()
        // Link-local addresses are the same on one link only.
        && (one == other || takes(one, other) || takes(other, one))
}

/// Folders and files that are not there, or not what they should be.
fn of_files(said: &Said<'_>, config: &Config) -> Vec<Mistake> {
    let mut found = Vec::new();
    for value in said.of("media_dir") {
        found.extend(of_library(value, &value.value, config));
    }
    for value in said.of("libraries") {
        let folder = value.value.split_once('=').map_or("", |(_, folder)| folder);
        found.extend(of_library(value, folder, config));
    }
    for value in said.of("state").filter(|value| value.value != "off") {
        if fs::metadata(&value.value).is_ok_and(|there| !there.is_dir()) {
            found.push(mistake(
                value,
                "not a directory; name another, or off for none",
            ));
        }
    }
    for value in said.of("access_log").chain(said.of("status_at_exit")) {
        let folder = Path::new(&value.value).parent().map(PathBuf::from);
        let folder = folder.filter(|it| value.value != "-" && !it.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let reason = format!("there is no directory {}: make it", folder.display());
            found.push(mistake(value, reason));
        }
    }
    for value in said.of("members") {
        let path = value.value.split_once('=').map_or("", |(_, path)| path);
        match fs::read_to_string(path) {
            Err(error) => found.push(mistake(value, format!("{path}: {error}; check the name"))),
            Ok(text) => {
                let errors = parse_file(&text).err().unwrap_or_default();
                let errors = errors
                    .iter()
                    .map(|it| mistake(value, format!("{path}: line {}: {}", it.line, it.error)));
                found.extend(errors);
            }
        }
    }
    found
}

/// A library that could not be served.
fn of_library(value: &Value<'_>, folder: &str, config: &Config) -> Option<Mistake> {
    let folder = Path::new(folder);
    if is_remote(folder) {
        let error = objects::check(folder).err()?;
        return Some(mistake(value, format!("{error:#}")));
    }
    let alone = Config {
        media_root: folder.to_owned(),
        libraries: Vec::new(),
        state: None,
        ..config.clone()
    };
    let error = with_remedy(StartError::from(Library::new(&alone).err()?));
    Some(mistake(value, format!("{error:#}")))
}

/// Certificates that no client could be shown.
fn of_certificates(said: &Said<'_>, config: &Config) -> Vec<Mistake> {
    let mut found = Vec::new();
    let pairs = said.of("tls_certificate").zip(said.of("tls_key"));
    for ((certificate, key), files) in pairs.zip(&config.tls.certificates) {
        let pair = TlsConfig {
            certificates: vec![files.clone()],
            ..TlsConfig::default()
        };
        if let Err(error) = tls::check(&pair) {
            let error = error.to_string();
            // Both may be in one file, or the one be named in an error of the other.
            let value = match error.starts_with(&key.value) {
                true => key,
                false => certificate,
            };
            found.push(mistake(value, format!("{error}; name a file in PEM")));
        }
    }
    let authority = TlsConfig {
        client_ca: config.tls.client_ca.clone(),
        ..TlsConfig::default()
    };
    if let (Some(value), Err(error)) = (said.of("tls_client_ca").next(), tls::check(&authority)) {
        found.push(mistake(value, format!("{error}; name a file in PEM")));
    }
    found
}

/// Files and services that cannot say who may do what.
fn of_users(said: &Said<'_>, config: &Config) -> Vec<Mistake> {
    let all = &config.users;
    let parts = [
        (
            "users",
            UsersConfig {
                file: all.file.clone(),
                ..UsersConfig::default()
            },
        ),
        (
            "url_keys",
            UsersConfig {
                url_keys: all.url_keys.clone(),
                ..UsersConfig::default()
            },
        ),
        (
            "auth_hook",
            UsersConfig {
                hook: all.hook.clone(),
                ca: all.ca.clone(),
                ..UsersConfig::default()
            },
        ),
        (
            "jwt_keys",
            UsersConfig {
                jwt: all.jwt.clone(),
                ca: all.ca.clone(),
                ..UsersConfig::default()
            },
        ),
    ];
    let found = parts.into_iter().filter_map(|(id, part)| {
        let value = said.of(id).next()?;
        let error = users::check(&part).err()?.to_string();
        Some(mistake(value, error))
    });
    found.collect()
}

/// Processors that this process may not use.
fn processors(said: &Said<'_>, matches: &ArgMatches) -> Vec<Mistake> {
    let allowed = allowed_cores();
    let reason = |core: usize| {
        format!(
            "processor {core} is none of those that there are: {}",
            ranges(&allowed)
        )
    };
    let mut found = Vec::new();
    let sending = matches.get_one::<crate::cores::Cores>("cores");
    let sending = sending.map_or(&[][..], |cores| &cores.0[..]);
    let of_channels = matches.get_one::<usize>("channel_core").copied();
    for (id, cores) in [("cores", sending), ("channel_core", of_channels.as_slice())] {
        let missing = cores.iter().find(|core| !allowed.contains(core));
        if let (Some(value), Some(&core)) = (said.of(id).next(), missing) {
            found.push(mistake(value, reason(core)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_overlap_with_what_they_take() {
        let both = |one: &str, other: &str| {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(overlap(&one, &other), overlap(&other, &one));
            overlap(&one, &other)
        };
        assert!(both("[::]:1", "127.0.0.1:1") && both("[::]:1", "0.0.0.0:1"));
        assert!(both("0.0.0.0:1", "127.0.0.1:1") && both("[::1]:1", "[::1]:1"));
        assert!(!both("0.0.0.0:1", "[::1]:1") && !both("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!both("[::]:1", "[::]:2") && !both("[::]:0", "[::]:0"));
        // Of one link and of two.
        assert!(both("[fe80::1%2]:1", "[fe80::1%2]:1"));
        assert!(both("[::]:1", "[fe80::1%2]:1") && !both("[fe80::1%2]:1", "[fe80::1%3]:1"));
    }
}
