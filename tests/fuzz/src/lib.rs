//! What is fuzzed: each target is a function of some bytes, which does with them what the server
//! does, and panics where a promise is broken.
//!
//! An input decides all: what comes from elsewhere (how many bytes are read at a time, where is
//! sought) follows from the input's last bytes. So a finding repeats, by `onrush-fuzz-targets
//! TARGET FILE`. Coverage-guided fuzzers in `fuzz/` call these functions, and so does the test of
//! this crate, on the stable compiler, with changed copies of the inputs in `fuzz/seeds`.

pub mod depacketizers;
pub mod memory;
pub mod mutate;
pub mod random;

mod auth;
mod cluster;
mod config;
mod cut;
mod datagrams;
mod file;
mod ftp;
mod group;
mod http;
mod incoming;
mod lock;
mod mikey;
mod plan;
mod playlist;
mod rtsp;
mod saved;
mod sdp;
mod segments;
mod subtitles;
mod tls;

/// One thing that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of the program which fuzzes it, and of the folder of its inputs.
    pub name: &'static str,
    /// Takes an input.
    pub run: fn(&[u8]),
    /// Makes another input of one.
    pub mutate: mutate::Mutate,
}

/// All of them.
pub const TARGETS: [Target; 21] = [
    Target {
        name: "mp4",
        run: file::check,
        mutate: mutate::mp4,
    },
    Target {
        name: "matroska",
        run: file::check,
        mutate: mutate::matroska,
    },
    Target {
        name: "ts",
        run: datagrams::transport_stream,
        mutate: mutate::ts,
    },
    Target {
        name: "subtitles",
        run: subtitles::check,
        mutate: mutate::text,
    },
    Target {
        name: "packetizers",
        run: onrush_wire::media::testing::packetize,
        mutate: mutate::bytes,
    },
    Target {
        name: "depacketizers",
        run: depacketizers::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "rtsp",
        run: rtsp::check,
        mutate: mutate::text,
    },
    Target {
        name: "incoming",
        run: incoming::check,
        mutate: mutate::text,
    },
    Target {
        name: "http",
        run: http::check,
        mutate: mutate::text,
    },
    Target {
        name: "ftp",
        run: ftp::check,
        mutate: mutate::text,
    },
    Target {
        name: "rtcp",
        run: datagrams::rtcp,
        mutate: mutate::bytes,
    },
    Target {
        name: "mikey",
        run: mikey::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "auth",
        run: auth::check,
        mutate: mutate::text,
    },
    Target {
        name: "sdp",
        run: sdp::check,
        mutate: mutate::text,
    },
    Target {
        name: "tls",
        run: tls::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "saved",
        run: saved::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "cluster",
        run: cluster::check,
        mutate: mutate::text,
    },
    Target {
        name: "config",
        run: config::check,
        mutate: mutate::text,
    },
    Target {
        name: "store",
        run: onrush_server::store::sequence::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "lock",
        run: lock::check,
        mutate: mutate::bytes,
    },
    Target {
        name: "group",
        run: group::check,
        mutate: mutate::bytes,
    },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
