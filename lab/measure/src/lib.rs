//! Experiments: what a way of doing something costs, beside what it should.
//!
//! An [`experiment`] is a file: where it was measured, with which settings, and every raw sample.
//! All that is printed or published is computed from such a file by [`stats`], so that nothing can
//! drift apart. A run whose mechanism is not proved, or that did other work than it was asked to,
//! is void and says so.
//!
//! Nothing here prints, and nothing is sent outside the namespaces that an experiment makes for
//! itself.

#![forbid(unsafe_code)]

pub mod capacity;
pub mod cluster;
pub mod compare;
pub mod counters;
pub mod cue;
pub mod error;
pub mod experiment;
pub mod film_kind;
pub mod game;
pub mod group;
pub mod histogram;
pub mod http;
pub mod load;
pub mod lock;
pub mod logistic;
pub mod machine;
pub mod mechanisms;
pub mod model;
mod own_folder;
mod page_cache;
pub mod paths;
pub mod plot;
pub mod primitives;
pub mod profile;
mod random;
pub mod relay;
pub mod report;
pub mod serve;
pub mod setup;
pub mod simulate;
pub mod stats;
pub mod table;
mod tls_peer;
pub mod trains;
pub mod trend;
mod window;
pub mod yardstick;
