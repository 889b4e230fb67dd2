//! What a file says of itself as a whole (RFC 9559, sections 5.1.1 and 5.1.2; RFC 8794, section
//! 11.2).

use super::ebml::{self, children, float, id, unsigned};

/// Units of `Info` that are not said to be others, in ns.
const UNIT_NS: u64 = 1_000_000;

/// Where dates begin.
const UNIX_2001_NS: i64 = 978_307_200_000_000_000;

/// What `Info` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    /// ns of a unit in which the file counts time. Not 0.
    pub(super) unit_ns: u64,
    /// How long the file is, if it says.
    pub(super) duration_ns: Option<u64>,
    /// When it was begun to be written, in ns since 1970, if it says.
    pub(super) date_ns: Option<u64>,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            unit_ns: UNIT_NS,
            duration_ns: None,
            date_ns: None,
        }
    }
}

impl Info {
    pub(super) fn read(body: &[u8]) -> Self {
        let (mut unit_ns, mut units, mut date_ns) = (UNIT_NS, 0.0, None);
        for (id, body) in children(body) {
            match id {
                id::TIMESTAMP_SCALE => unit_ns = unsigned(body).unwrap_or(UNIT_NS),
                id::DURATION => units = float(body).unwrap_or(0.0),
                id::DATE_UTC => date_ns = date(body),
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
            date_ns,
        }
    }

    /// The same, of a file whose time 0 is at `base_ns` of its clock. A clock that began before the
    /// file makes of its date nobody knows what.
    pub(super) fn on_line_of(self, base_ns: u64) -> Self {
        let since = |ns: u64| ns.checked_sub(base_ns).unwrap_or(ns);
        Self {
            duration_ns: self.duration_ns.map(since),
            date_ns: self.date_ns.filter(|_| base_ns == 0),
            ..self
        }
    }
}

/// A date (RFC 8794, section 7.6), in ns since 1970.
fn date(body: &[u8]) -> Option<u64> {
    let since_2001_ns = i64::from_be_bytes(body.try_into().ok()?);
    let unix_ns = since_2001_ns.checked_add(UNIX_2001_NS)?;
    u64::try_from(unix_ns).ok()
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
