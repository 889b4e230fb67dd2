//! OBUs of AV1 from RTP payloads (AOM, "RTP Payload Format For AV1", v1.0, section 4): each packet
//! has some, of which the first may go on from the packet before and the last in the next.

use crate::media::codec::av1::{PackedObu, element};

/// The aggregation header (section 4.4): the first element goes on, the last is continued; and how
/// many there are, if that is told.
const CONTINUES: u8 = 0x80;
const IS_CONTINUED: u8 = 0x40;

/// OBUs of packets, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Obus {
    /// What has come of one that is continued.
    begun: Option<Vec<u8>>,
}

impl Obus {
    /// Whether the last of them has ended.
    pub(super) fn is_whole(&self) -> bool {
        self.begun.is_none()
    }

    /// Bytes of one that has not ended.
    pub(super) fn bytes(&self) -> usize {
        self.begun.as_ref().map_or(0, Vec::len)
    }

    /// Takes a payload, and tells each OBU that is there with it; `None` if it is broken, or does
    /// not go on where the one before ended.
    pub(super) fn push(
        &mut self,
        payload: &[u8],
        each: &mut dyn FnMut(PackedObu<'_>),
    ) -> Option<()> {
        let (&header, mut rest) = payload.split_first()?;
        if (header & CONTINUES != 0) != self.begun.is_some() || rest.is_empty() {
            return None;
        }
        let (count, mut number) = (header >> 4 & 3, 0);
        while !rest.is_empty() {
            number += 1;
            let (bytes, behind) = if number == count {
                // The last of so many has no length.
                (rest, &[][..])
            } else {
                element(rest)?
            };
            rest = behind;
            let is_continued = rest.is_empty() && header & IS_CONTINUED != 0;
            match self.begun.take() {
                Some(mut begun) => {
                    begun.extend_from_slice(bytes);
                    match is_continued {
                        true => self.begun = Some(begun),
                        false => each(PackedObu::read(&begun)?),
                    }
                }
                None if is_continued => self.begun = Some(bytes.to_vec()),
                None => each(PackedObu::read(bytes)?),
            }
        }
        (count == 0 || number == count).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these payloads are broken, and what the others tell.
    fn told(payloads: &[&[u8]]) -> (usize, Vec<u8>) {
        let (mut obus, mut all, mut broken) = (Obus::default(), Vec::new(), 0);
        for payload in payloads {
            let pushed = obus.push(payload, &mut |obu| obu.write(&mut all));
            broken += usize::from(pushed.is_none());
        }
        assert_eq!(obus.is_whole(), obus.bytes() == 0);
        (broken, all)
    }

    #[test]
    fn obus_come_out_of_packets_whole() {
        let whole = [0x32, 3, 7, 8, 9];
        // One alone; behind its length, and with one more; in three packets.
        assert_eq!(told(&[&[0x10, 0x30, 7, 8, 9]]), (0, whole.to_vec()));
        assert_eq!(told(&[&[0x00, 4, 0x30, 7, 8, 9]]), (0, whole.to_vec()));
        let two = [0x20, 2, 0x28, 5, 0x30, 7, 8, 9];
        assert_eq!(told(&[&two]), (0, [&[0x2a, 1, 5][..], &whole].concat()));
        let cut: [&[u8]; 3] = [&[0x50, 0x30, 7], &[0xd0, 8], &[0x90, 9]];
        assert_eq!(told(&cut), (0, whole.to_vec()));
        assert_eq!(told(&cut[..2]), (0, Vec::new()));
    }

    #[test]
    fn payloads_that_cannot_be_are_told() {
        // Nothing, nothing to go on from, nothing where something goes on, too few, too long.
        assert_eq!(told(&[&[]]).0, 1);
        assert_eq!(told(&[&[0x10]]).0, 1);
        assert_eq!(told(&[&[0x90, 0x30, 7]]).0, 1);
        assert_eq!(told(&[&[0x50, 0x30, 7], &[0x10, 0x30, 7]]).0, 1);
        assert_eq!(told(&[&[0x30, 1, 0x10]]).0, 1);
        assert_eq!(told(&[&[0x00, 9, 0x30]]).0, 1);
    }
}
