//! `--state`: where what is known of files outlives the server.
//!
//! Without the option it is where a service manager says, or where the account keeps the state of
//! programs; where neither is known, or nothing can be written there, a server goes on without. A
//! directory that was named is used, or the server does not start. The library and the laboratory
//! have no such default: who calls them says what is written where, and what is measured does not
//! depend on what ran before.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use onrush_server::library::prepare_state;

/// What `--state` says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum StateOption {
    Off,
    In(PathBuf),
}

impl FromStr for StateOption {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "off" => Self::Off,
            path => Self::In(path.into()),
        })
    }
}

impl StateOption {
    /// The directory that it names.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Off => None,
            Self::In(path) => Some(path),
        }
    }
}

/// The state directory of a server that was told of none, made if there is none.
pub(crate) fn usable_default() -> Option<PathBuf> {
    default_state().filter(|path| is_usable(path))
}

/// Where it is by itself, if anywhere.
pub(crate) fn default_state() -> Option<PathBuf> {
    default_by(|name| std::env::var_os(name))
}

fn is_usable(path: &Path) -> bool {
    match prepare_state(path) {
        Ok(()) => true,
        Err(error) => {
            let path = path.display();
            tracing::info!(
                "what is known of files is lost at the end: {path}: {error}; --state names another \
                 directory"
            );
            false
        }
    }
}

/// systemd's directory for the service (`StateDirectory=`, systemd.exec(5)), of several the first;
/// else that of the XDG base directory specification.
fn default_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let of_service = variable("STATE_DIRECTORY");
    let of_service = of_service.and_then(|list| std::env::split_paths(&list).next());
    let of_account = || absolute(variable("XDG_STATE_HOME")?.into());
    let of_home = || Some(absolute(variable("HOME")?.into())?.join(".local/state"));
    let of_ours = || Some(of_account().or_else(of_home)?.join("onrush"));
    of_service.and_then(absolute).or_else(of_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_goes_before_the_account() {
        let state = |set: &[(&str, &str)]| {
            let set: Vec<_> = set.to_vec();
            default_by(|name| {
                let found = set.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| value.into())
            })
        };
        let home = ("HOME", "/home/me");
        let xdg = ("XDG_STATE_HOME", "/state");
        let service = ("STATE_DIRECTORY", "/var/lib/onrush:/var/lib/more");
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(state(&[home]), path("/home/me/.local/state/onrush"));
        assert_eq!(state(&[home, xdg]), path("/state/onrush"));
        assert_eq!(state(&[home, xdg, service]), path("/var/lib/onrush"));
        // The specification has relative paths ignored.
        let relative = ("XDG_STATE_HOME", "state");
        assert_eq!(
            state(&[relative, home]),
            path("/home/me/.local/state/onrush")
        );
        assert_eq!(state(&[("STATE_DIRECTORY", "")]), None);
        assert_eq!(state(&[]), None);
    }

    #[test]
    fn a_named_directory_is_taken_and_off_is_none() {
        let option = |text: &str| text.parse::<StateOption>().unwrap();
        assert_eq!(option("off").directory(), None);
        assert_eq!(option("./off").directory(), Some(Path::new("./off")));
    }
}
