//! What stands behind a block in its group (RFC 9559, section 5.1.3.5): of subtitles how long they
//! are shown, and what WebVTT has beside its text. Programs write them in either order.

use super::ebml::{self, id};

/// What a group tells behind its block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::media) struct GroupRest<'a> {
    /// How long the block lasts, in units of the file.
    pub(in crate::media) lasts: Option<u64>,
    /// What is added to the block.
    pub(in crate::media) added: Option<&'a [u8]>,
}

impl<'a> GroupRest<'a> {
    /// Reads it from the bytes behind a block, as far as they are there: what no group has ends it.
    pub(in crate::media) fn read(bytes: &'a [u8]) -> Self {
        let mut rest = Self::default();
        for (id, body) in ebml::children(bytes) {
            match id {
                id::BLOCK_DURATION => rest.lasts = ebml::unsigned(body),
                id::BLOCK_ADDITIONS => rest.added = added(body),
                id::REFERENCE_BLOCK
                | id::REFERENCE_PRIORITY
                | id::CODEC_STATE
                | id::DISCARD_PADDING
                | id::VOID
                | id::CRC_32 => {}
                _ => break,
            }
        }
        rest
    }
}

/// The first addition.
fn added(additions: &[u8]) -> Option<&[u8]> {
    child(child(additions, id::BLOCK_MORE)?, id::BLOCK_ADDITIONAL)
}

fn child(body: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut all = ebml::children(body);
    all.find(|(id, _)| *id == wanted).map(|(_, body)| body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::matroska::testing::{element, integer};

    #[test]
    fn durations_and_additions_are_read_in_any_order() {
        let duration = integer(id::BLOCK_DURATION, 1500);
        let additional = element(id::BLOCK_ADDITIONAL, b"line:0");
        let more = element(id::BLOCK_MORE, &[integer(0xee, 1), additional].concat());
        let additions = element(id::BLOCK_ADDITIONS, &more);
        let padding = element(id::DISCARD_PADDING, &[1]);
        let next = element(id::BLOCK_GROUP, &duration);
        let expected = GroupRest {
            lasts: Some(1500),
            added: Some(b"line:0"),
        };
        for group in [
            [&additions[..], &duration, &padding, &next].concat(),
            [&padding[..], &duration, &additions, &[0; 9]].concat(),
        ] {
            assert_eq!(GroupRest::read(&group), expected);
        }
        for other in [&next[..], &duration[..3], &additions[1..], &[]] {
            assert_eq!(GroupRest::read(other), GroupRest::default());
        }
    }
}
