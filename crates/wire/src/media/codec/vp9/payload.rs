//! The payload descriptor of RTP packets (RFC 9628, section 4.2), and what lies behind it.

/// Bits of the descriptor's first byte: a picture ID, predicted from other pictures, layers, in
/// flexible mode, start and end of a frame, a scalability structure.
const HAS_PICTURE_ID: u8 = 0x80;
const PREDICTED: u8 = 0x40;
const HAS_LAYERS: u8 = 0x20;
const IS_FLEXIBLE: u8 = 0x10;
const START: u8 = 0x08;
const END: u8 = 0x04;
const HAS_STRUCTURE: u8 = 0x02;

/// What a packet carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Payload<'a> {
    /// Whether its sender says that it is predicted from other pictures; some never say so.
    pub(crate) is_predicted: bool,
    /// Whether a frame begins or ends with it.
    pub(crate) is_start: bool,
    pub(crate) is_end: bool,
    /// The spatial layer that it belongs to, 0 if there is one alone.
    pub(crate) layer: u8,
    /// Of the frame.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Reads an RTP payload; `None` if it ends within its descriptor.
    pub(crate) fn read(payload: &'a [u8]) -> Option<Self> {
        let first = *payload.first()?;
        let has = |bit: u8| first & bit != 0;
        let (mut at, mut layer) = (1, 0);
        if has(HAS_PICTURE_ID) {
            // Of 7 or 15 bits.
            at += if payload.get(at)? & 0x80 != 0 { 2 } else { 1 };
        }
        if has(HAS_LAYERS) {
            layer = payload.get(at)? >> 1 & 0x07;
            at += if has(IS_FLEXIBLE) { 1 } else { 2 };
        }
        if has(IS_FLEXIBLE) && has(PREDICTED) {
            // Up to three pictures that it is predicted from; each says whether another follows.
            for _ in 0..3 {
                let difference = payload.get(at)?;
                at += 1;
                if difference & 1 == 0 {
                    break;
                }
            }
        }
        if has(HAS_STRUCTURE) {
            at = structure_end(payload, at)?;
        }
        Some(Self {
            is_predicted: has(PREDICTED),
            is_start: has(START),
            is_end: has(END),
            layer,
            bytes: payload.get(at..)?,
        })
    }
}

/// Where the scalability structure ends that begins there (RFC 9628, section 4.2.1).
fn structure_end(payload: &[u8], mut at: usize) -> Option<usize> {
    let header = *payload.get(at)?;
    at += 1;
    if header & 0x10 != 0 {
        at += 4 * (usize::from(header >> 5) + 1);
    }
    if header & 0x08 != 0 {
        let pictures = *payload.get(at)?;
        at += 1;
        for _ in 0..pictures {
            at += 1 + usize::from(payload.get(at)? >> 2 & 0x03);
        }
    }
    Some(at)
}

/// Whether a frame that begins with these bytes is a key frame (VP9 bitstream specification,
/// section 6.2: marker, profile, `show_existing_frame`, `frame_type`).
pub(crate) fn is_key_frame(head: &[u8]) -> bool {
    head.first().is_some_and(|header| {
        let unused = if header & 0x30 == 0x30 { 1 } else { 0 };
        header >> 6 == 2 && header & (0x0c >> unused) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_front_of_a_frame_is_passed_over() {
        let read = |payload| Payload::read(payload).map(|it| (it.layer, it.bytes));
        assert_eq!(read(&[0x0c, 7, 8]), Some((0, &[7, 8][..])));
        // A picture ID of either length.
        assert_eq!(read(&[0x88, 0x01, 7]), Some((0, &[7][..])));
        assert_eq!(read(&[0x88, 0x81, 2, 7]), Some((0, &[7][..])));
        // Layers, with and without the number of their base.
        assert_eq!(read(&[0x28, 0x02, 9, 7]), Some((1, &[7][..])));
        assert_eq!(read(&[0x38, 0x04, 7]), Some((2, &[7][..])));
        // Two pictures that it is predicted from.
        assert_eq!(read(&[0x50, 0x05, 0x02, 7]), Some((0, &[7][..])));
        // Sizes of one layer, and two pictures with no and one reference.
        let structure = [0x0a, 0x18, 1, 2, 3, 4, 2, 0x00, 0x04, 9, 7];
        assert_eq!(read(&structure), Some((0, &[7][..])));
        for end in 0..10 {
            let cut = Payload::read(&structure[..end]);
            assert_eq!(cut, None, "{end}");
        }
        let read = Payload::read(&[0x44]).unwrap();
        assert!(read.is_predicted && read.is_end && !read.is_start);
    }
}
