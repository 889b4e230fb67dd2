//! What somebody may do with a path.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Something that is done with a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Playing a file or a channel by RTSP.
    Play,
    /// Giving a live channel its stream.
    Publish,
    /// Reading a file by HTTP or FTP, and listing a folder.
    Download,
    /// Changing what the server does.
    Admin,
    /// Storing files by HTTP or FTP, and removing, renaming and replacing them.
    Upload,
}

/// A set of actions. Written as their names with commas between them: `play,download`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rights(u8);

/// What was read names no action.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "\"{0}\" is no right; there are play, publish, download, admin and upload, with commas between"
)]
pub struct RightsError(String);

impl Action {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Play,
        Self::Publish,
        Self::Download,
        Self::Admin,
        Self::Upload,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Play => "play",
            Self::Publish => "publish",
            Self::Download => "download",
            Self::Admin => "admin",
            Self::Upload => "upload",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Rights {
    /// Those to read, in whatever way.
    pub const READ: Self = Self(Action::Play.bit() | Action::Download.bit());

    /// Whether this action is among them.
    #[must_use]
    pub const fn allow(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// These, and this one.
    #[must_use]
    pub const fn with(self, action: Action) -> Self {
        Self(self.0 | action.bit())
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for action in Action::ALL.into_iter().filter(|&action| self.allow(action)) {
            write!(f, "{comma}{}", action.as_str())?;
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        text.split(',').try_fold(Self::default(), |rights, name| {
            let mut known = Action::ALL.into_iter();
            let action = known.find(|action| action.as_str() == name);
            action
                .map(|action| rights.with(action))
                .ok_or_else(|| RightsError(name.to_owned()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_as_they_are_written() {
        for bits in 1..32 {
            let rights = Rights(bits);
            assert_eq!(rights.to_string().parse(), Ok(rights));
        }
        assert_eq!("download,play".parse(), Ok(Rights::READ));
        assert!(Rights::READ.allow(Action::Play) && !Rights::READ.allow(Action::Publish));
        assert!(!Rights::READ.allow(Action::Upload));
        for text in ["", "Play", "play,", "play;download", "all"] {
            assert!(text.parse::<Rights>().is_err(), "{text}");
        }
    }
}
