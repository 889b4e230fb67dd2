//! What a file says of itself as a whole (RFC 9559, sections 5.1.1 and 5.1.2; RFC 8794, section
//! 11.2).

use super::ebml::{self, children, float, id, unsigned};

/// Units of `Info` that are not said to be others, in ns.
const UNIT_NS: u64 = 1_000_000;

/// What `Info` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    /// ns of a unit in which the file counts time. Not 0.
    pub(super) unit_ns: u64,
    /// How long the file is, if it says.
    pub(super) duration_ns: Option<u64>,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            unit_ns: UNIT_NS,
            duration_ns: None,
        }
    }
}

impl Info {
    pub(super) fn read(body: &[u8]) -> Self {
        let (mut unit_ns, mut units) = (UNIT_NS, 0.0);
        for (id, body) in children(body) {
            match id {
                id::TIMESTAMP_SCALE => unit_ns = unsigned(body).unwrap_or(UNIT_NS),
                id::DURATION => units = float(body).unwrap_or(0.0),
                _ => {}
            }
        }
        let unit_ns = if unit_ns == 0 { UNIT_NS } else { unit_ns };
        #[allow(clippy::cast_precision_loss, reason = "a duration need not be exact")]
        let ns = units * unit_ns as f64;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 1 and 1e18"
        )]
        let duration_ns = (1.0..1e18).contains(&ns).then_some(ns as u64);
        Self {
            unit_ns,
            duration_ns,
        }
    }
}

/// How far behind the start of the segment a `SeekHead` says that `Tracks` is.
pub(super) fn tracks_position(seek_head: &[u8]) -> Option<u64> {
    let mut entries = children(seek_head).filter(|&(id, _)| id == id::SEEK);
    entries.find_map(|(_, entry)| {
        let of = |wanted| children(entry).find(|&(id, _)| id == wanted);
        let (_, id) = of(id::SEEK_ID)?;
        let (_, position) = of(id::SEEK_POSITION)?;
        let is_tracks = unsigned(id) == Some(id::TRACKS.into());
        unsigned(position).filter(|_| is_tracks)
    })
}

/// Which format the EBML header says that it is, if that can be read.
///
/// # Errors
///
/// Why it cannot.
pub(super) fn format(body: &[u8]) -> Result<&'static str, String> {
    let mut doc_type = "matroska".to_owned();
    for (id, body) in children(body) {
        let most = match id {
            id::READ_VERSION => 1,
            id::MAX_ID_LENGTH | id::DOC_TYPE_READ_VERSION => 4,
            id::MAX_SIZE_LENGTH => 8,
            id::DOC_TYPE => {
                doc_type = ebml::text(body, 32);
                continue;
            }
            _ => continue,
        };
        if unsigned(body).is_none_or(|number| number > most) {
            return Err(format!("its header's element {id:#x} is more than {most}"));
        }
    }
    match doc_type.as_str() {
        "matroska" => Ok("Matroska"),
        "webm" => Ok("WebM"),
        _ => Err(format!("its DocType is {doc_type:?}")),
    }
}
