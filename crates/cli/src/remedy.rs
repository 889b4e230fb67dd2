//! What to do about an error of the library, in words of the command line: libraries know no
//! options.

use std::io;

use onrush_server::channels::ChannelError;
use onrush_server::data::DataError;
use onrush_server::library::LibraryError;
use onrush_server::server::{Service, StartError};

/// What may help, where there is something.
pub(crate) trait Remedy {
    /// Words to follow the error.
    fn remedy(&self) -> Option<String>;
}

/// The error, and what may help.
pub(crate) fn with_remedy<E>(error: E) -> anyhow::Error
where
    E: Remedy + std::error::Error + Send + Sync + 'static,
{
    match error.remedy() {
        Some(remedy) => anyhow::anyhow!("{error}; {remedy}"),
        None => error.into(),
    }
}

impl Remedy for StartError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Listen {
                service, source, ..
            } => Some(listen_elsewhere(*service, source)),
            Self::NoAddress => Some("give one with --rtsp".to_owned()),
            Self::Library(LibraryError::Root { source, .. }) => Some(
                match source.kind() {
                    io::ErrorKind::NotFound => "check the name, and whether its disk is mounted",
                    io::ErrorKind::NotADirectory => "name the directory that it is in",
                    io::ErrorKind::PermissionDenied => "let this account read it (chmod +rx)",
                    _ => "name another",
                }
                .to_owned(),
            ),
            Self::Library(LibraryError::State { .. }) => {
                Some("name another with --state, or off for none".to_owned())
            }
            Self::HlsStore { .. } => Some("name another with --hls-store".to_owned()),
            Self::Data(DataError::Cache { .. }) => Some("raise --cache".to_owned()),
            Self::Channel(error) => error.remedy(),
            _ => None,
        }
    }
}

impl Remedy for ChannelError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Listen {
                service, source, ..
            } => Some(listen_elsewhere(*service, source)),
            Self::Kernel { .. } => Some("leave --in-kernel out to relay from a process".to_owned()),
            _ => None,
        }
    }
}

fn listen_elsewhere(service: Service, source: &io::Error) -> String {
    let option = match service {
        Service::Rtsp => "--rtsp",
        Service::Rtsps => "--rtsps",
        Service::Http => "--http",
        Service::Https => "--https",
        Service::Ftp => "--ftp",
        Service::Metrics => "--metrics",
        Service::Api => "--api",
    };
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => format!(
            "this machine has no such address (yet): wait for it, or choose another with {option}"
        ),
        _ => format!("choose another with {option}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_option_that_helps() {
        let source = || io::Error::from_raw_os_error(libc::EADDRINUSE);
        let address = ([127, 0, 0, 1], 554).into();
        let service = Service::Http;
        let error = StartError::Listen {
            service,
            address,
            source: source(),
        };
        let text = with_remedy(error).to_string();
        assert!(text.ends_with("; choose another with --http"), "{text}");
        assert!(text.contains("at 127.0.0.1:554 for HTTP: "), "{text}");
        let service = Service::Api;
        let error = ChannelError::Listen {
            service,
            address,
            source: source(),
        };
        let text = with_remedy(error).to_string();
        assert!(text.ends_with("; choose another with --api"), "{text}");
        let error = StartError::Control { source: source() };
        assert_eq!(
            with_remedy(error).to_string(),
            StartError::Control { source: source() }.to_string()
        );
    }

    #[test]
    fn an_address_that_may_come_is_told_from_one_in_use() {
        let text = |errno| {
            let error = StartError::Listen {
                service: Service::Rtsp,
                address: ([192, 0, 2, 1], 8554).into(),
                source: io::Error::from_raw_os_error(errno),
            };
            with_remedy(error).to_string()
        };
        let missing = text(libc::EADDRNOTAVAIL);
        assert!(missing.contains("no such address (yet)"), "{missing}");
        assert!(missing.ends_with("with --rtsp"), "{missing}");
        let in_use = text(libc::EADDRINUSE);
        assert!(!in_use.contains("no such address"), "{in_use}");
    }

    #[test]
    fn a_folder_that_is_not_there_may_be_of_a_disk() {
        let error = StartError::Library(LibraryError::Root {
            path: "/srv/nas/films".into(),
            source: io::Error::from_raw_os_error(libc::ENOENT),
        });
        let text = with_remedy(error).to_string();
        assert!(text.contains("whether its disk is mounted"), "{text}");
    }
}
