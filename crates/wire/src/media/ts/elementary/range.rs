//! The dynamic range of a transport stream's pictures, which none of its tables tells: what the
//! parameter sets say that come with the first picture at which a decoder can start.

use std::ops::Range;

use super::pes::Reader;
use super::stream::config;
use super::{Coding, coding, streams_of};
use crate::media::colour::VideoRange;
use crate::media::ts::index::{Index, TS_PACKET_BYTES};

/// Packets of the file that are looked at, from the picture's first on, at the most: its parameter
/// sets are among them, also where many programs share the stream.
const PACKETS_MAX: u32 = 256;

/// The range of pictures in H.264 and H.265, if they tell it; `read` gives the bytes of a part of
/// the file.
pub(in crate::media) fn video_range(
    index: &Index,
    read: &mut dyn FnMut(Range<u64>) -> Option<Vec<u8>>,
) -> Option<VideoRange> {
    let facts = &index.facts.streams;
    let pid = facts.sync_pid?;
    let (_, stream) = streams_of(&facts.programs).find(|(_, it)| it.pid == pid)?;
    let coding = match coding(stream) {
        Ok(Coding::Pictures(coding)) if coding.has_nals() => coding,
        _ => return None,
    };
    let mut pictures = index.seek_points.iter().zip(&index.pictures);
    let (point, picture) = pictures.find(|(_, it)| it.is_there())?;
    let first = point.ts_packet + u64::from(picture.ahead);
    let run = &index.runs[index.run_of(first)];
    let looked_at = u64::from(picture.span.min(PACKETS_MAX));
    let end = run.end().min(first + looked_at);
    let last = end.checked_sub(1).filter(|&it| it >= first)?;
    let bytes = read(run.offset_of(first)..run.offset_of(last) + TS_PACKET_BYTES as u64)?;
    let mut reader = Reader::new(pid);
    let mut data = Vec::new();
    for packet in bytes.chunks(run.packet_stride.into()) {
        let packet = packet.first_chunk::<TS_PACKET_BYTES>()?;
        if let Some(brought) = reader.packet(packet) {
            data.extend_from_slice(&packet[brought.start.min(TS_PACKET_BYTES)..]);
        }
    }
    let config = config(coding, &mut Vec::new(), &data)?;
    config.codec().ok()?.video_range
}
