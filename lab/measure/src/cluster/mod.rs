//! `onrush-lab bench cluster`: three real nodes beside the same three in the simulation.
//!
//! [`onrush_simulate`] says who comes when, asks which node for which film, and how long it stays.
//! Real nodes of the same names, with films of the same paths, then get these viewers by RTSP, who
//! follow redirects; so each film has the same home here and there, and what differs is what the
//! simulation leaves out: time, the registry, the nodes' own account of their load. Nodes run in
//! one network namespace of a [testbed](onrush_testkit::testbed) with a server of NATS, viewers in
//! the other, where the sink counts and drops what they are sent.
//!
//! Its files, each on those before it: `record` (what is kept), `nodes` (what is started),
//! `viewers` (who watches), `run` (all of it together), `report`.

mod nodes;
mod record;
mod report;
mod run;
mod viewers;

pub use record::{ClusterRecord, NAME, NODES_MAX, Run, Second, Settings, VIEWERS_MAX, Visit};
pub use report::report;
pub use run::run;
