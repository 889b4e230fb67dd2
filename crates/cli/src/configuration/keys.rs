//! The keys of the configuration file, from the options of `onrush serve`.
//!
//! An option is declared once, for clap. What it is called in the file, what may be written there,
//! its help, its default and its bounds follow from that: a new option is a key of the section
//! that has its heading, or of `[server]`. Bounds are asked of the parser itself.

use std::any::TypeId;
use std::error::Error as _;
use std::ffi::OsStr;
use std::net::SocketAddr;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command};

use super::repeated::{CHANNELS, LIBRARY, REPEATED, Repeated};
use crate::serve_options::Serve;
use crate::units::{Percent, Rate, Size, Time};
use crate::values::Listen;

/// A section: what it says, and which options are in it.
#[derive(Debug)]
struct Rule {
    section: &'static str,
    about: &'static str,
    /// Those of this heading of `--help`, or of one that begins so.
    heading: &'static str,
    /// What the names of its options begin with, which the section says already.
    prefix: &'static str,
    /// More of them, by name.
    options: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule {
        section: "library",
        about: "What is served, and where is kept what is known of it.",
        heading: "-",
        prefix: "",
        options: &[
            "media_dir",
            "state",
            "object_cache",
            "object_cache_size",
            "object_endpoint",
        ],
    },
    Rule {
        section: "listen",
        about: "Where clients are heard. As of the options: where rtsp is said, http and metrics \
                listen only where they are said; so does https where rtsps is, and rtsps where \
                https is.",
        heading: "-",
        prefix: "",
        options: &[
            "rtsp",
            "rtsps",
            "http",
            "https",
            "ftp",
            "metrics",
            "api",
            "rtp_ports",
            "ftp_ports",
        ],
    },
    Rule {
        section: "server",
        about: "How it sends.",
        heading: "",
        prefix: "",
        options: &[],
    },
    Rule {
        section: CHANNELS,
        about: "What all channels have in common. Each has a section [[channel]] of its own.",
        heading: "Live channels",
        prefix: "",
        options: &[],
    },
    Rule {
        section: "downloads",
        about: "Files by HTTP and FTP.",
        heading: "Downloads",
        prefix: "download_",
        options: &[],
    },
    Rule {
        section: "uploads",
        about: "Files that come by HTTP and FTP.",
        heading: "Uploads",
        prefix: "upload_",
        options: &[],
    },
    Rule {
        section: "hls",
        about: "Live channels by HLS.",
        heading: "Live channels by HLS",
        prefix: "hls_",
        options: &[],
    },
    Rule {
        section: "tls",
        about: "Certificates, and what is encrypted.",
        heading: "TLS",
        prefix: "tls_",
        options: &[],
    },
    Rule {
        section: "users",
        about: "Who may do what.",
        heading: "Users",
        prefix: "",
        options: &[],
    },
    Rule {
        section: "multicast",
        about: "What is sent to groups.",
        heading: "Multicast",
        prefix: "multicast_",
        options: &[],
    },
    Rule {
        section: "cluster",
        about: "Other servers of the same files, and how they are found.",
        heading: "Cluster",
        prefix: "cluster_",
        options: &[],
    },
    Rule {
        section: "log",
        about: "What is written of what happens.",
        heading: "-",
        prefix: "log_",
        options: &[
            "log_format",
            "access_log",
            "access_log_format",
            "status_at_exit",
        ],
    },
    Rule {
        section: "limits",
        about: "What peers and files can make the server hold.",
        heading: "Limits (*",
        prefix: "",
        options: &["session_timeout"],
    },
];

/// Options whose key is not their name without the section's prefix.
const RENAMED: &[(&str, &str)] = &[
    ("media_dir", "folder"),
    ("users", "file"),
    ("tls", "mode"),
    ("uploads", "on"),
    ("multicast", "groups"),
    ("cluster", "name"),
    ("access_log", "access"),
    ("access_log_format", "access_format"),
    ("channels", "input"),
    ("libraries", "path"),
];

/// The section of what several libraries have in common: that of one, without its folder.
const LIBRARIES: &str = "libraries";

/// What stands in the section of one library alone.
const FOLDER: &str = "media_dir";

/// The key that names a channel or a library; no option has it alone.
pub(crate) const NAME: &str = "name";

/// What stands in the file for an option that names the file.
const APART: &[&str] = &["config", "help"];

/// What may be written behind a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A number with a decimal at the most.
    Percent,
    /// A port, which is a number, or an address, which is a string.
    Address,
    /// A string.
    Text,
}

/// A key of the file, and the option that says the same.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether it may have several values.
    pub(crate) is_list: bool,
    /// The section, if there may be several of it.
    pub(crate) repeated: Option<&'static Repeated>,
    arg: Arg,
}

/// All sections with their keys, in the order in which they are shown.
#[derive(Debug)]
pub(crate) struct Keys {
    sections: Vec<Section>,
    command: Command,
}

/// A section.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) keys: Vec<Key>,
    /// If there may be several of it: what these are.
    pub(crate) repeated: Option<&'static Repeated>,
    /// Whether its keys say what those of another section say.
    pub(crate) is_alias: bool,
}

impl Section {
    fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            keys: Vec::new(),
            repeated: None,
            is_alias: false,
        }
    }

    /// As it is headed in a file.
    pub(super) fn heading(&self) -> String {
        match self.repeated {
            Some(_) => format!("[[{}]]", self.name),
            None => format!("[{}]", self.name),
        }
    }

    pub(crate) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Key {
    /// What clap calls the option.
    pub(crate) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// The option as it is typed; `None` of one without a name, whose value alone is typed.
    pub(crate) fn option(&self) -> Option<&str> {
        self.arg.get_long()
    }

    /// `section.key`.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable that says the same.
    pub(crate) fn variable(&self) -> String {
        let name = self.option().unwrap_or_else(|| self.id());
        format!("ONRUSH_{}", name.replace('-', "_").to_uppercase())
    }

    /// What a value is called in the help.
    pub(crate) fn value_name(&self) -> String {
        let names = self.arg.get_value_names().unwrap_or_default();
        names.first().map(ToString::to_string).unwrap_or_default()
    }

    /// The manual's text, or that of the section where it says something else.
    pub(crate) fn help(&self) -> String {
        let mut of_section = self.repeated.into_iter().flat_map(|of| of.help);
        if let Some((_, help)) = of_section.find(|(option, _)| *option == self.id()) {
            return (*help).to_owned();
        }
        let help = self.arg.get_long_help().or_else(|| self.arg.get_help());
        help.map(StyledStr::to_string).unwrap_or_default()
    }

    /// The word as it is typed after `onrush serve` to say that value; a flag has none.
    pub(crate) fn word(&self, value: &str) -> String {
        match (self.option(), self.kind) {
            (Some(option), Kind::Flag) => format!("--{option}"),
            (Some(option), _) => format!("--{option}={value}"),
            // It would be taken for an option.
            (None, _) if value.starts_with('-') => format!("./{value}"),
            (None, _) => value.to_owned(),
        }
    }

    /// Whether that is what holds without being said.
    pub(crate) fn is_default(&self, value: &str) -> bool {
        self.arg.get_default_values() == [OsStr::new(value)]
    }
}

impl Keys {
    /// All there are.
    pub(crate) fn new() -> Self {
        let command = Serve::augment_args(Command::new("onrush serve"));
        let sections = RULES.iter().map(|it| Section::new(it.section, it.about));
        let mut sections: Vec<_> = sections.collect();
        let mut several: Vec<_> = REPEATED
            .iter()
            .map(|of| Section {
                repeated: Some(of),
                ..Section::new(of.section, of.about)
            })
            .collect();
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let id = arg.get_id().as_str();
            if APART.contains(&id) {
                continue;
            }
            if let Some(number) = REPEATED.iter().position(|of| of.options.contains(&id)) {
                let of = &REPEATED[number];
                several[number].keys.push(Key {
                    is_list: of.lists.contains(&id),
                    repeated: Some(of),
                    ..key(of.section, "", arg)
                });
                continue;
            }
            let rule = rule_of(arg);
            let section = sections
                .iter_mut()
                .find(|it| it.name == RULES[rule].section);
            let found = key(RULES[rule].section, RULES[rule].prefix, arg);
            section.expect("made of the rules").keys.push(found);
        }
        several.insert(1, common(&sections));
        for section in several {
            let before = section.repeated.map_or("listen", |of| of.before);
            let place = sections.iter().position(|it| it.name == before);
            sections.insert(place.unwrap_or(0), section);
        }
        Self { sections, command }
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section of this name, and where there are both, the one that is written `[[...]]` if it
    /// `is_repeated`.
    pub(crate) fn section(&self, name: &str, is_repeated: bool) -> Option<&Section> {
        let all = || self.sections.iter().filter(|it| it.name == name);
        let meant = all().find(|it| it.repeated.is_some() == is_repeated);
        meant.or_else(|| all().next())
    }

    /// The keys of all options, each once.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Key> {
        let sections = self.sections.iter().filter(|section| !section.is_alias);
        sections.flat_map(|section| &section.keys)
    }

    /// The key of an option, by its long name.
    pub(crate) fn of_option(&self, option: &str) -> Option<&Key> {
        self.all().find(|key| key.option() == Some(option))
    }

    /// The options, to be parsed.
    pub(crate) fn command(&self) -> Command {
        self.command.clone()
    }

    /// Why an option does not take this value, whatever else is said.
    pub(crate) fn fault(&self, key: &Key, value: &str) -> Option<String> {
        let words = ["onrush serve".to_owned(), key.word(value)];
        let error = self.command().try_get_matches_from(words).err()?;
        match error.kind() {
            ErrorKind::ValueValidation => error.source().map(ToString::to_string),
            ErrorKind::InvalidValue => Some(format!("write {}", one_of(&valid_values(&error)))),
            _ => None,
        }
    }

    /// What may be written, by what the parser says of what may not; empty if it takes all.
    pub(crate) fn bounds(&self, key: &Key) -> String {
        if key.kind == Kind::Flag || key.value_name() == "FILE" {
            return String::new();
        }
        let is_of = |id: TypeId| key.arg.get_value_parser().type_id() == id;
        let outside = match key.kind {
            Kind::Count | Kind::Percent => "99999999999999",
            _ if is_of(TypeId::of::<Size>()) => "16000000TiB",
            _ if is_of(TypeId::of::<Time>()) => "36500days",
            _ if is_of(TypeId::of::<Rate>()) => "9999999Gbit/s",
            _ => NOTHING,
        };
        let said = self.fault(key, outside).unwrap_or_default();
        match said.split_once(" is not in ") {
            Some((_, range)) => format!("allowed is {}", range.replace("..=", " to ")),
            // Else it may say what is wrong with that value.
            None => ["allowed is ", "write "]
                .iter()
                .find_map(|it| said.find(it))
                .map_or_else(String::new, |at| said[at..].to_owned()),
        }
    }

    /// Its default, as it is typed; `None` if there is none, or one that cannot be typed.
    pub(crate) fn default_of(&self, key: &Key) -> Option<String> {
        let defaults = key.arg.get_default_values();
        if let Some(default) = defaults.first() {
            return default.to_str().map(str::to_owned);
        }
        // Of an option whose default depends on others the help tells it.
        let help = key.help();
        let (_, default) = help.split_once("[default: ")?;
        let (default, _) = default.split_once(']')?;
        let words = ["onrush serve".to_owned(), key.word(default)];
        let is_value = !default.contains(' ') && self.command().try_get_matches_from(words).is_ok();
        is_value.then(|| default.to_owned())
    }
}

/// What several libraries have in common, by what one has.
fn common(sections: &[Section]) -> Section {
    let one = sections.iter().filter(|section| section.name == LIBRARY);
    let keys = one.flat_map(|section| &section.keys);
    let keys = keys.filter(|key| key.id() != FOLDER).map(|key| Key {
        section: LIBRARIES,
        ..key.clone()
    });
    Section {
        keys: keys.collect(),
        is_alias: true,
        ..Section::new(
            LIBRARIES,
            "What several libraries have in common: the keys of [library] without folder.",
        )
    }
}

/// No value of any option but of those that take all.
const NOTHING: &str = "?";

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

fn valid_values(error: &clap::Error) -> Vec<String> {
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) => valid.clone(),
        _ => Vec::new(),
    }
}

/// The rule that an option is under: by its name, by its heading, or that for all others.
fn rule_of(arg: &Arg) -> usize {
    let id = arg.get_id().as_str();
    let heading = arg.get_help_heading().unwrap_or_default();
    let is_of = |rule: &Rule| match rule.heading.strip_suffix('*') {
        Some(begin) => heading.starts_with(begin),
        None => heading == rule.heading,
    };
    let by_name = RULES.iter().position(|rule| rule.options.contains(&id));
    let by_heading = || RULES.iter().position(is_of);
    let for_others = || RULES.iter().position(|rule| rule.heading.is_empty());
    by_name.or_else(by_heading).or_else(for_others).unwrap_or(0)
}

fn key(section: &'static str, prefix: &str, arg: &Arg) -> Key {
    let id = arg.get_id().as_str();
    let named = arg.get_long().unwrap_or(id).replace('-', "_");
    let renamed = RENAMED.iter().find(|(of, _)| *of == id);
    let name = match renamed {
        Some((_, name)) => (*name).to_owned(),
        None => named.strip_prefix(prefix).unwrap_or(&named).to_owned(),
    };
    Key {
        section,
        name,
        kind: kind(arg),
        is_list: matches!(arg.get_action(), ArgAction::Append),
        repeated: None,
        arg: arg.clone(),
    }
}

fn kind(arg: &Arg) -> Kind {
    let is = |id: TypeId| arg.get_value_parser().type_id() == id;
    let counts = [
        TypeId::of::<usize>(),
        TypeId::of::<u64>(),
        TypeId::of::<u32>(),
        TypeId::of::<u16>(),
        TypeId::of::<u8>(),
    ];
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => Kind::Flag,
        _ if counts.into_iter().any(is) => Kind::Count,
        _ if is(TypeId::of::<Percent>()) => Kind::Percent,
        _ if is(TypeId::of::<SocketAddr>()) || is(TypeId::of::<Listen>()) => Kind::Address,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// None is lost, and none is said in two places.
    #[test]
    fn every_option_is_one_key() {
        let keys = Keys::new();
        let paths: HashSet<_> = keys.all().map(Key::path).collect();
        assert_eq!(paths.len(), keys.all().count());
        let command = keys.command();
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let options: HashSet<_> = shown.map(|arg| arg.get_id().as_str().to_owned()).collect();
        let known = keys.all().map(|key| key.id().to_owned());
        let known: HashSet<_> = known.chain(APART.iter().map(|&it| it.to_owned())).collect();
        let missing: Vec<_> = options.difference(&known).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for (id, _) in RENAMED {
            assert!(options.contains(*id), "{id} is no option");
        }
        for id in RULES.iter().flat_map(|rule| rule.options) {
            assert!(options.contains(*id), "{id} is no option");
        }
    }

    #[test]
    fn keys_are_named_without_their_section() {
        let keys = Keys::new();
        let path = |option: &str| keys.of_option(option).unwrap().path();
        assert_eq!(path("download-rate"), "downloads.rate");
        assert_eq!(path("hls-window"), "hls.window");
        assert_eq!(path("tls-key"), "tls.key");
        assert_eq!(path("users"), "users.file");
        assert_eq!(path("access-log"), "log.access");
        assert_eq!(path("sessions-max"), "limits.sessions_max");
        assert_eq!(path("to"), "channel.to");
        assert_eq!(path("library"), "library.path");
        assert_eq!(path("delay"), "channels.delay");
        assert_eq!(path("cache"), "server.cache");
    }

    #[test]
    fn bounds_and_defaults_are_those_of_the_options() {
        let keys = Keys::new();
        let of = |option: &str| {
            let key = keys.of_option(option).unwrap();
            (keys.bounds(key), keys.default_of(key))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of("burst"),
            ("allowed is 1ms to 1s".to_owned(), some("20ms"))
        );
        assert_eq!(
            of("multicast-ttl"),
            ("allowed is 1 to 255".to_owned(), some("1"))
        );
        assert_eq!(of("rtsp").1, some("8554"));
        assert_eq!(of("rtsps").1, None, "only where TLS is asked for");
        assert_eq!(of("state").1, None);
        assert_eq!(of("object-cache").1, None, "files without names");
        assert_eq!(of("log-format").0, "write text or json");
    }
}
