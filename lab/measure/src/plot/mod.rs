//! Pictures of figures: one self-contained SVG each, for documents, reports and browsers.
//!
//! A [`Chart`] is told what it shows and lays itself out: title, legend, picture, source, one below
//! the other, so that nothing covers data. Series differ in colour, marker and dash (bars: in
//! colour and hatching), so that they can be told apart by the colour-blind and in grey. Colours
//! follow the reader's choice of light or dark. Linear axes that can begin at zero do, bars always.
//!
//! It draws what it is given and computes nothing; what samples say is the business of
//! [`crate::stats`]. The SVG is written here, by the macro that writes the pages too: a library of
//! charts was asked for lines and text alone, and its output mended by search and replace.
//!
//! ```
//! use onrush_measure::plot::{Chart, Unit};
//!
//! let svg = Chart::lines("What a send costs")
//!     .x("packet size", Unit::Bytes)
//!     .log_x(2)
//!     .y("CPU per packet", Unit::Nanoseconds)
//!     .series("sendto", [(128.0, 1510.0), (1024.0, 1580.0)])
//!     .series("sendmmsg", [(128.0, 1320.0), (1024.0, 1390.0)])
//!     .render()?;
//! assert!(svg.starts_with("<svg "));
//! # Ok::<(), onrush_measure::plot::PlotError>(())
//! ```
//!
//! Its files, each on those before it: `unit` (numbers in words), `axis` (where lines are), `chart`
//! (what is shown), `draw` (how it looks).

mod axis;
mod chart;
mod draw;
mod unit;

pub use chart::{BAR_SERIES_MAX, Chart, Drawing, PlotError, SERIES_MAX, Value};
pub use draw::styles;
pub use unit::Unit;

#[cfg(test)]
mod tests;
