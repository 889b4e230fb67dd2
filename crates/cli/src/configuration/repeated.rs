//! Sections of the configuration file that there may be several of: of channels, and of libraries.

use onrush_server::channels::config::{SOURCES_MAX, is_source_name};
use onrush_server::library::{LIBRARIES_MAX, check_library_name};

/// The section of all channels.
pub(crate) const CHANNELS: &str = "channels";

/// The section of a channel, and the option that is one.
pub(crate) const CHANNEL: &str = "channel";

/// The section of one library, or of each of several; and the option that is one of several.
pub(crate) const LIBRARY: &str = "library";

/// A section that there may be several of, written `[[...]]`. Values of its options begin with its
/// name.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(super) section: &'static str,
    /// It stands before this one.
    pub(super) before: &'static str,
    pub(super) about: &'static str,
    pub(super) options: &'static [&'static str],
    /// What the keys of these say, whose names stand in the section already.
    pub(super) help: &'static [(&'static str, &'static str)],
    /// Of these, those of which one may have several values.
    pub(super) lists: &'static [&'static str],
    /// Whether a number may stand for a string, since it is a port.
    pub(super) has_ports: bool,
    /// How many there may be, and what they are called.
    pub(crate) count_max: usize,
    pub(crate) of_many: &'static str,
    /// A name.
    pub(crate) example: &'static str,
    pub(crate) check_name: fn(&str) -> Result<(), String>,
    /// What to say where there is no name.
    pub(crate) unnamed: &'static str,
    /// The key that it cannot do without, and what to say where that is missing.
    pub(crate) needed: &'static str,
    pub(crate) without_needed: &'static str,
}

const LIBRARY_PATH: &str = "\
Where its films are: a folder, or s3://BUCKET/FOLDER";

const CHANNEL_INPUT: &str = "\
Where it comes from

PORT, ADDRESS:PORT, GROUP:PORT%INTERFACE or SENDER@GROUP:PORT%INTERFACE, where RTP or a bare \
transport stream comes by UDP, from the first who sends. Or rtsp://USER:PASSWORD@HOST/PATH, a \
camera or another server that is asked, by TCP or UDP, for all of its tracks. Players find it at \
rtsp://HOST:8554/live/NAME; a file of the same path is not played then.";

const CHANNEL_TO: &str = "\
Give it to these receivers

ADDRESS:PORT. Each gets every datagram as it came.";

const CHANNEL_MEMBERS: &str = "\
Give it to all in this file, which is watched

A line holds ADDRESS:PORT; # begins a comment. A change is taken at once and in one step; a file \
with a wrong line is reported and changes nothing.";

const CHANNEL_SDP: &str = "\
What a stream with a dynamic payload type is, for its players

A file with a session description (SDP, RFC 8866) of one track, as ffmpeg's -sdp_file writes it: \
players are told its payload type, encoding and parameters. Streams with a static payload type, \
as transport streams have, need none.";

/// All of them.
pub(super) const REPEATED: &[Repeated] = &[
    Repeated {
        section: LIBRARY,
        before: "listen",
        about: "One of several libraries, in place of [library]: one section [[library]] for \
                each, whose films are below its name. The other keys of [library] stand in \
                [libraries] then.",
        options: &["libraries"],
        help: &[("libraries", LIBRARY_PATH)],
        lists: &[],
        has_ports: false,
        count_max: LIBRARIES_MAX,
        of_many: "libraries",
        example: "films",
        check_name: check_library_name,
        unnamed: "one of several libraries has a name: write name = \"films\"",
        needed: "path",
        without_needed: "a library lies somewhere: write path = \"/srv/films\", or \
                         path = \"s3://BUCKET/FOLDER\"",
    },
    Repeated {
        section: CHANNEL,
        before: CHANNELS,
        about: "A live channel: one section [[channel]] for each.",
        // One channel has one source, and its members in one file.
        options: &["channels", "to", "members", "sdp"],
        help: &[
            ("channels", CHANNEL_INPUT),
            ("to", CHANNEL_TO),
            ("members", CHANNEL_MEMBERS),
            ("sdp", CHANNEL_SDP),
        ],
        lists: &["to"],
        has_ports: true,
        count_max: SOURCES_MAX,
        of_many: "channels",
        example: "tv",
        check_name: check_channel_name,
        unnamed: "a channel has a name: write name = \"tv\"",
        needed: "input",
        without_needed: "a channel comes from somewhere: write input = 5004, or \
                         input = \"rtsp://HOST/PATH\"",
    },
];

fn check_channel_name(name: &str) -> Result<(), String> {
    match is_source_name(name) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name; write up to 64 letters, digits, '.', '-' and '_', as in \"tv\""
        )),
    }
}
