//! Many machines and millions of viewers under a virtual clock.
//!
//! Viewers come, ask some node, are sent on or served, and leave; nodes tell a registry how much
//! they play; some nodes die. Who is sent where decides the code that the product has for it,
//! [`onrush_wire::route`], or, beside it, the two ways that need no code: a plain ring of
//! consistent hashing, and whichever node was asked. Nothing is sent and no clock is read, so that
//! one seed gives one result.
//!
//! `settings` and `script` (names, and who came) stand alone, `audience` (films and viewers),
//! `shelf` (what a node keeps) and `routing` stand on them, `world` on all of these, and `run`
//! carries a simulation out and counts.

#![forbid(unsafe_code)]

mod audience;
mod routing;
mod run;
mod script;
mod settings;
mod shelf;
mod world;

pub use routing::Policy;
pub use run::{EVEN, Loss, Run, run, run_with_arrivals};
pub use script::{Arrival, film_path, node_name};
pub use settings::{FILMS_MAX, NODES_MAX, Settings, SettingsError, VIEWERS_MAX};
