//! What the manifests of films and of live channels say of a track: the representation, and the
//! template and time line of its segments (ISO/IEC 23009-1, sections 5.3.5 and 5.3.9).

use std::fmt::{Arguments, Write};

use super::xml::escaped;
use crate::hls::Version;

/// A track of pictures or sound.
pub(crate) struct Representation<'a> {
    /// What it is called in URLs, too.
    pub(crate) name: &'a str,
    pub(crate) peak_bps: u64,
    /// How it is coded (RFC 6381); empty if that is not known.
    pub(crate) codec: &'a str,
    pub(crate) dimensions: Option<(u32, u32)>,
    /// Thousandths of a picture a second.
    pub(crate) frame_rate_milli: Option<u64>,
    pub(crate) sample_rate_hz: Option<u32>,
    pub(crate) channels: Option<u32>,
    pub(crate) segments: Template<'a>,
}

/// Where its segments are.
pub(crate) struct Template<'a> {
    /// Ticks a second of all times.
    pub(crate) timescale: u32,
    /// What the times of the segments say where the period begins, if that is not 0.
    pub(crate) offset_ticks: Option<i64>,
    /// The number of the first, where URLs have numbers; else they have the time at which a segment
    /// begins.
    pub(crate) first: Option<u64>,
    pub(crate) version: Version,
    /// What URLs end in.
    pub(crate) query: &'a str,
}

/// Segments that last equally long, one behind the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Row {
    /// When the first of them begins, where that is not when the one before ends.
    pub(crate) starts_ticks: Option<i64>,
    /// How long each lasts.
    pub(crate) lasts_ticks: i64,
    /// How many follow on the first.
    pub(crate) more: usize,
}

impl Representation<'_> {
    /// Writes it with the time line of these rows.
    pub(crate) fn write(&self, out: &mut String, rows: &[Row]) {
        let mut text = |arguments: Arguments<'_>| {
            out.write_fmt(arguments).expect("a string takes all");
        };
        text(format_args!(
            "<Representation id=\"{}\" bandwidth=\"{}\" codecs=\"{}\"",
            self.name,
            self.peak_bps.max(1),
            escaped(self.codec),
        ));
        if let Some((width, height)) = self.dimensions {
            text(format_args!(" width=\"{width}\" height=\"{height}\""));
        }
        if let Some(thousandths) = self.frame_rate_milli.filter(|&it| it > 0) {
            text(format_args!(" frameRate=\"{thousandths}/1000\""));
        }
        if let Some(rate_hz) = self.sample_rate_hz {
            text(format_args!(" audioSamplingRate=\"{rate_hz}\""));
        }
        text(format_args!(">\n"));
        if let Some(channels) = self.channels {
            text(format_args!(
                "<AudioChannelConfiguration \
                 schemeIdUri=\"urn:mpeg:dash:23003:3:audio_channel_configuration:2011\" \
                 value=\"{channels}\"/>\n"
            ));
        }
        self.segments.write(out, rows);
        *out += "</Representation>\n";
    }
}

impl Template<'_> {
    fn write(&self, out: &mut String, rows: &[Row]) {
        let mut text = |arguments: Arguments<'_>| {
            out.write_fmt(arguments).expect("a string takes all");
        };
        let (version, query) = (self.version, escaped(self.query));
        let offset = self.offset_ticks;
        let offset = offset.map(|it| format!(" presentationTimeOffset=\"{it}\""));
        let first = self.first.map(|it| format!(" startNumber=\"{it}\""));
        let name = first.as_ref().map_or("t$Time$", |_| "$Number$");
        text(format_args!(
            "<SegmentTemplate timescale=\"{}\"{}{} \
             initialization=\"../hls/$RepresentationID$/{version}/init.mp4{query}\" \
             media=\"../hls/$RepresentationID$/{version}/{name}.m4s{query}\">\n\
             <SegmentTimeline>\n",
            self.timescale,
            offset.unwrap_or_default(),
            first.unwrap_or_default(),
        ));
        for row in rows {
            let start = row.starts_ticks.map(|it| format!(" t=\"{it}\""));
            let more = Some(row.more).filter(|&it| it > 0);
            let more = more.map(|it| format!(" r=\"{it}\""));
            text(format_args!(
                "<S{} d=\"{}\"{}/>\n",
                start.unwrap_or_default(),
                row.lasts_ticks,
                more.unwrap_or_default()
            ));
        }
        *out += "</SegmentTimeline>\n</SegmentTemplate>\n";
    }
}
