//! Frames between requests: RTP and RTCP in the connection that RTSP goes over (RFC 2326, section
//! 10.12).
//!
//! A frame is `$`, a channel, the length of a packet, and the packet. A track has two channels, on
//! which both sides send: one for RTP and one for RTCP.

use super::request::number;

/// Bytes of what stands in front of a packet.
pub const FRAME_PREFIX_BYTES: usize = 4;

/// What a frame begins with.
pub(super) const FRAME_MARK: u8 = b'$';

/// What stands in front of a packet of so many bytes.
#[must_use]
pub fn frame_prefix(channel: u8, packet_bytes: u16) -> [u8; FRAME_PREFIX_BYTES] {
    let [high, low] = packet_bytes.to_be_bytes();
    [FRAME_MARK, channel, high, low]
}

/// A frame that has come whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    /// The channel that its sender has named, whether or not there is one.
    pub channel: u8,
    /// The packet.
    pub packet: Vec<u8>,
}

/// The channels of a track.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Channels {
    /// For RTP.
    pub rtp: u8,
    /// For RTCP.
    pub rtcp: u8,
}

impl Channels {
    /// `a-b`, or `a` for `a` and the one above (RFC 2326, section 12.39).
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let channel = |digits: &str| number::<u8>(digits.trim());
        let channels = match value.split_once('-') {
            Some((rtp, rtcp)) => Self {
                rtp: channel(rtp)?,
                rtcp: channel(rtcp)?,
            },
            None => {
                let rtp = channel(value)?;
                let rtcp = rtp.checked_add(1)?;
                Self { rtp, rtcp }
            }
        };
        (channels.rtp != channels.rtcp).then_some(channels)
    }

    /// Whether the two have a channel in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let own = [self.rtp, self.rtcp];
        own.contains(&other.rtp) || own.contains(&other.rtcp)
    }

    /// The lowest even channel and the one above it that none of `taken` has.
    #[must_use]
    pub fn free_of(taken: &[Self]) -> Option<Self> {
        let pairs = (0..=u8::MAX - 1)
            .step_by(2)
            .map(|rtp| Self { rtp, rtcp: rtp + 1 });
        let is_free = |pair: &Self| !taken.iter().any(|other| pair.overlaps(*other));
        pairs.into_iter().find(is_free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(rtp: u8, rtcp: u8) -> Channels {
        Channels { rtp, rtcp }
    }

    #[test]
    fn a_prefix_says_channel_and_length() {
        assert_eq!(frame_prefix(3, 0x0530), [b'$', 3, 5, 0x30]);
        assert_eq!(frame_prefix(255, u16::MAX), [b'$', 255, 255, 255]);
    }

    #[test]
    fn channels_are_read_as_a_pair_or_by_the_first() {
        for (value, channels) in [
            ("0-1", Some(pair(0, 1))),
            ("4", Some(pair(4, 5))),
            (" 7 - 3 ", Some(pair(7, 3))),
            ("254-255", Some(pair(254, 255))),
            ("255", None),
            ("256-257", None),
            ("1-1", None),
            ("-1", None),
            ("1-", None),
            ("+1-2", None),
            ("", None),
        ] {
            assert_eq!(Channels::parse(value), channels, "{value}");
        }
    }

    #[test]
    fn the_lowest_free_pair_is_found_until_there_is_none() {
        assert_eq!(Channels::free_of(&[]), Some(pair(0, 1)));
        assert_eq!(Channels::free_of(&[pair(0, 1)]), Some(pair(2, 3)));
        assert_eq!(Channels::free_of(&[pair(3, 0)]), Some(pair(4, 5)));
        let mut taken = Vec::new();
        while let Some(free) = Channels::free_of(&taken) {
            taken.push(free);
        }
        assert_eq!(taken.len(), 128);
    }
}
