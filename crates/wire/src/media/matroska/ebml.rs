//! EBML (RFC 8794): the heads of elements, and what is in small ones.

/// Element IDs of EBML (RFC 8794, section 11.2) and Matroska (RFC 9559, section 5.1), as far as
/// they are looked at.
pub(super) mod id {
    pub(in super::super) const EBML: u32 = 0x1a45_dfa3;
    pub(in super::super) const READ_VERSION: u32 = 0x42f7;
    pub(in super::super) const MAX_ID_LENGTH: u32 = 0x42f2;
    pub(in super::super) const MAX_SIZE_LENGTH: u32 = 0x42f3;
    pub(in super::super) const DOC_TYPE: u32 = 0x4282;
    pub(in super::super) const DOC_TYPE_READ_VERSION: u32 = 0x4285;
    pub(in super::super) const CRC_32: u32 = 0xbf;
    pub(in super::super) const VOID: u32 = 0xec;
    pub(in super::super) const SEGMENT: u32 = 0x1853_8067;
    pub(in super::super) const SEEK_HEAD: u32 = 0x114d_9b74;
    pub(in super::super) const SEEK: u32 = 0x4dbb;
    pub(in super::super) const SEEK_ID: u32 = 0x53ab;
    pub(in super::super) const SEEK_POSITION: u32 = 0x53ac;
    pub(in super::super) const INFO: u32 = 0x1549_a966;
    pub(in super::super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
    pub(in super::super) const DURATION: u32 = 0x4489;
    pub(in super::super) const DATE_UTC: u32 = 0x4461;
    pub(in super::super) const TRACKS: u32 = 0x1654_ae6b;
    pub(in super::super) const CUES: u32 = 0x1c53_bb6b;
    pub(in super::super) const CHAPTERS: u32 = 0x1043_a770;
    pub(in super::super) const ATTACHMENTS: u32 = 0x1941_a469;
    pub(in super::super) const TAGS: u32 = 0x1254_c367;
    pub(in super::super) const CLUSTER: u32 = 0x1f43_b675;
    pub(in super::super) const TIMESTAMP: u32 = 0xe7;
    pub(in super::super) const SILENT_TRACKS: u32 = 0x5854;
    pub(in super::super) const POSITION: u32 = 0xa7;
    pub(in super::super) const PREV_SIZE: u32 = 0xab;
    pub(in super::super) const SIMPLE_BLOCK: u32 = 0xa3;
    pub(in super::super) const ENCRYPTED_BLOCK: u32 = 0xaf;
    pub(in super::super) const BLOCK_GROUP: u32 = 0xa0;
    pub(in super::super) const BLOCK: u32 = 0xa1;
    pub(in super::super) const BLOCK_DURATION: u32 = 0x9b;
    pub(in super::super) const REFERENCE_BLOCK: u32 = 0xfb;
    pub(in super::super) const REFERENCE_PRIORITY: u32 = 0xfa;
    pub(in super::super) const BLOCK_ADDITIONS: u32 = 0x75a1;
    pub(in super::super) const BLOCK_MORE: u32 = 0xa6;
    pub(in super::super) const BLOCK_ADDITIONAL: u32 = 0xa5;
    pub(in super::super) const CODEC_STATE: u32 = 0xa4;
    pub(in super::super) const DISCARD_PADDING: u32 = 0x75a2;
}

/// Whether such elements are children of the segment, or beside it.
pub(super) fn is_of_segment(id: u32) -> bool {
    matches!(
        id,
        id::EBML
            | id::SEGMENT
            | id::SEEK_HEAD
            | id::INFO
            | id::TRACKS
            | id::CLUSTER
            | id::CUES
            | id::CHAPTERS
            | id::ATTACHMENTS
            | id::TAGS
    )
}

/// What is no EBML.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Malformed;

/// The head of an element.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// Its ID, with the marker bit.
    pub(super) id: u32,
    /// Bytes behind the head, below 2^56; `None` if they are not known (RFC 8794, section 6.2).
    pub(super) body_bytes: Option<u64>,
    /// Bytes of the head.
    pub(super) head_bytes: usize,
}

/// The head that `data` begins with; `None` if more of it is to come.
pub(super) fn head(data: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some(&first) = data.first() else {
        return Ok(None);
    };
    let id_bytes = first.leading_zeros() as usize + 1;
    if id_bytes > 4 {
        return Err(Malformed);
    }
    let Some((id, rest)) = data.split_at_checked(id_bytes) else {
        return Ok(None);
    };
    let id = id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
    Ok(vint(rest)?.map(|(size, size_bytes)| Head {
        id,
        body_bytes: (size != unknown(size_bytes)).then_some(size),
        head_bytes: id_bytes + size_bytes,
    }))
}

/// The number of variable length (RFC 8794, section 4) that `data` begins with, without its marker,
/// and its bytes; `None` if more of it is to come.
pub(super) fn vint(data: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let Some(&first) = data.first() else {
        return Ok(None);
    };
    let bytes = first.leading_zeros() as usize + 1;
    if bytes > 8 {
        return Err(Malformed);
    }
    let Some(all) = data.get(..bytes) else {
        return Ok(None);
    };
    let number = all
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    Ok(Some((number & unknown(bytes), bytes)))
}

/// What a size of so many bytes is that is not known: all bits are set.
fn unknown(bytes: usize) -> u64 {
    (1 << (7 * bytes)) - 1
}

/// The elements in the body of another, as far as they are whole.
pub(super) fn children(body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let head = head(rest).ok()??;
        let bytes = usize::try_from(head.body_bytes?).ok()?;
        let (child, after) = rest.get(head.head_bytes..)?.split_at_checked(bytes)?;
        rest = after;
        Some((head.id, child))
    })
}

/// An unsigned integer; none if it has more than eight bytes.
pub(super) fn unsigned(body: &[u8]) -> Option<u64> {
    let number = |number, &byte| number << 8 | u64::from(byte);
    (body.len() <= 8).then(|| body.iter().fold(0, number))
}

/// The integer in an element, if it is one of at most eight bytes. `None` if more of it is to
/// come.
pub(super) fn integer(head: Head, data: &[u8]) -> Option<Option<u64>> {
    let Some(bytes) = head.body_bytes.filter(|&bytes| bytes <= 8) else {
        return Some(None);
    };
    let end = head.head_bytes + usize::try_from(bytes).ok()?;
    data.get(head.head_bytes..end).map(unsigned)
}

/// A number with a fraction; none if it is not finite.
pub(super) fn float(body: &[u8]) -> Option<f64> {
    let number = match body.len() {
        0 => 0.0,
        4 => f32::from_be_bytes(body.try_into().ok()?).into(),
        8 => f64::from_be_bytes(body.try_into().ok()?),
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// Text, up to its first zero, and of that so many bytes.
pub(super) fn text(body: &[u8], bytes_max: usize) -> String {
    let body = body.split(|&byte| byte == 0).next().unwrap_or_default();
    let body = &body[..body.len().min(bytes_max)];
    String::from_utf8_lossy(body).into_owned()
}
