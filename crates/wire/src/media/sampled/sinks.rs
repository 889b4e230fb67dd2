//! What becomes of packets as a packetizer tells them: their lengths, or their images.

use std::borrow::Cow;
use std::ops::Range;

use crate::media::packetizer::PacketSink;
use crate::media::plan::RtpOrigin;
use crate::rtp::{HEADER_BYTES, Header, PADDING_BIT};

/// The lengths of packets' payloads, and how many ticks behind its unit each is stamped.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    pub(super) of: Vec<usize>,
    pub(super) ticks: Vec<u32>,
    open: usize,
    advanced_ticks: u32,
}

impl Lengths {
    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.ticks.clear();
        (self.open, self.advanced_ticks) = (0, 0);
    }
}

impl PacketSink for Lengths {
    fn literal(&mut self, bytes: &[u8]) {
        self.open += bytes.len();
    }

    fn sample(&mut self, _sample: usize, part: Range<usize>) {
        self.open += part.len();
    }

    fn end(&mut self, _marker: bool) {
        self.of.push(std::mem::take(&mut self.open));
        self.ticks.push(self.advanced_ticks);
    }

    fn advance(&mut self, ticks: u32) {
        self.advanced_ticks = self.advanced_ticks.wrapping_add(ticks);
    }

    fn pad(&mut self, bytes: u8) {
        self.open += usize::from(bytes);
    }
}

/// Writes the images of those packets of a unit that are asked for.
pub(super) struct Images<'a, 'b> {
    pub(super) data: &'b [Cow<'a, [u8]>],
    /// The number of the packet that is being told.
    pub(super) number: u64,
    pub(super) wanted: Range<u64>,
    /// Of the packet being told: marker and sequence number are still to come.
    pub(super) header: Header,
    pub(super) origin: RtpOrigin,
    pub(super) out: &'b mut [u8],
    /// Where the image of the packet begins, and where its next byte goes.
    pub(super) start: usize,
    pub(super) at: usize,
    /// The packet that is being told ends with padding.
    pub(super) is_padded: bool,
    /// Something did not fit, or was not there.
    pub(super) failed: bool,
}

impl Images<'_, '_> {
    fn put(&mut self, bytes: &[u8]) {
        if !self.wanted.contains(&self.number) {
            return;
        }
        if self.at == self.start {
            self.at += HEADER_BYTES;
        }
        let end = self.at + bytes.len();
        match self.out.get_mut(self.at..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.failed = true,
        }
        self.at = end;
    }
}

impl PacketSink for Images<'_, '_> {
    fn literal(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    fn sample(&mut self, sample: usize, part: Range<usize>) {
        let data = self.data;
        match data.get(sample).and_then(|data| data.get(part)) {
            Some(bytes) => self.put(bytes),
            None => self.failed = true,
        }
    }

    fn end(&mut self, marker: bool) {
        let is_padded = std::mem::take(&mut self.is_padded);
        if self.wanted.contains(&self.number) {
            let header = Header {
                marker,
                sequence: self.origin.sequence_of(self.number),
                ..self.header
            };
            let mut header = header.to_bytes();
            if is_padded {
                header[0] |= PADDING_BIT;
            }
            match self.out.get_mut(self.start..self.start + HEADER_BYTES) {
                Some(place) => place.copy_from_slice(&header),
                None => self.failed = true,
            }
            self.start = self.at;
        }
        self.number += 1;
    }

    fn advance(&mut self, ticks: u32) {
        self.header.timestamp = self.header.timestamp.wrapping_add(ticks);
    }

    fn pad(&mut self, bytes: u8) {
        const ZEROS: [u8; 255] = [0; 255];
        self.put(&ZEROS[usize::from(bytes.min(1))..usize::from(bytes)]);
        self.put(&[bytes]);
        self.is_padded = true;
    }
}
