//! Boxes and their fields (ISO/IEC 14496-12, section 4.2): bytes that begin with their length and
//! a name of four characters.
//!
//! Nothing here is copied or allocated. What a box says to be longer than what it lies in ends
//! there; what cannot be a box ends the list that it is in.

use std::fmt::Write;

/// The name of a box, a sample entry, a handler.
pub(super) type Name = [u8; 4];

/// The most bytes that a box's header has, without those of `uuid`.
pub(super) const HEADER_BYTES_MAX: usize = 16;

/// The start of a box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) name: Name,
    pub(super) header_bytes: u8,
    /// Bytes of the box, its header included; `None` if it goes to the end of what it lies in.
    pub(super) bytes: Option<u64>,
}

impl Header {
    /// The header that `bytes` begin with; `None` if they are too few.
    ///
    /// # Errors
    ///
    /// The length that it tells, if that is less than its own.
    pub(super) fn read(bytes: &[u8]) -> Option<Result<Self, u64>> {
        let mut fields = Fields(bytes);
        let short = fields.u32()?;
        let name = fields.array()?;
        let (header_bytes, told) = match short {
            0 => (8, None),
            1 => (16, Some(fields.u64()?)),
            _ => (8, Some(u64::from(short))),
        };
        if let Some(told) = told.filter(|&told| told < header_bytes.into()) {
            return Some(Err(told));
        }
        Some(Ok(Self {
            name,
            header_bytes,
            bytes: told,
        }))
    }
}

/// The boxes that lie in a box.
#[derive(Clone, Debug)]
pub(super) struct Boxes<'a>(pub(super) &'a [u8]);

impl<'a> Boxes<'a> {
    /// What is in the first box of that name.
    pub(super) fn first(&self, name: &Name) -> Option<&'a [u8]> {
        let mut boxes = self.clone();
        boxes.find(|it| it.0 == *name).map(|it| it.1)
    }

    /// What is in the box at the end of a path of names.
    pub(super) fn at(&self, path: &[&Name]) -> Option<&'a [u8]> {
        let (first, rest) = path.split_first()?;
        let inside = self.first(first)?;
        match rest {
            [] => Some(inside),
            rest => Self(inside).at(rest),
        }
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = (Name, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = Header::read(self.0)?.ok()?;
        let told = header.bytes.unwrap_or(u64::MAX);
        let bytes = usize::try_from(told).unwrap_or(usize::MAX);
        let (this, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        Some((header.name, this.get(header.header_bytes.into()..)?))
    }
}

/// Numbers, one behind the other, the most significant byte first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Version and flags, which full boxes begin with.
    pub(super) fn version_and_flags(&mut self) -> Option<(u8, u32)> {
        let both = self.u32()?;
        Some(((both >> 24) as u8, both & 0x00ff_ffff))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// A number that has 64 bits in boxes of version 1, and 32 in those of version 0.
    pub(super) fn wide(&mut self, version: u8) -> Option<u64> {
        match version {
            0 => self.u32().map(u64::from),
            _ => self.u64(),
        }
    }
}

/// A name for people.
pub(super) fn spelled(name: &Name) -> String {
    let mut out = String::with_capacity(4);
    for &byte in name {
        match byte {
            b' '..=b'~' => out.push(byte.into()),
            _ => write!(out, "\\x{byte:02x}").expect("a string takes all"),
        }
    }
    out.trim_end().to_owned()
}

/// Text of a file, as far as it can be shown: up to the first zero, and no more than
/// [`TEXT_BYTES_MAX`]. `None` if it is empty.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&it| it == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end.min(TEXT_BYTES_MAX)]);
    let text: String = text.chars().filter(|it| !it.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Bytes of a text of a file that are kept.
const TEXT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_form_are_read() {
        let of = |size: u32, more: &[u8]| [&size.to_be_bytes(), &b"free"[..], more].concat();
        let header = |bytes: &[u8]| Header::read(bytes);
        let is = |bytes, header_bytes| {
            let name = *b"free";
            Some(Ok(Header {
                name,
                header_bytes,
                bytes,
            }))
        };
        assert_eq!(header(&of(8, b"")), is(Some(8), 8));
        assert_eq!(header(&of(0, b"")), is(None, 8));
        assert_eq!(header(&of(1, &16_u64.to_be_bytes())), is(Some(16), 16));
        let most = 1 << 63;
        assert_eq!(header(&of(1, &u64::to_be_bytes(most))), is(Some(most), 16));
        for size in 2..8 {
            assert_eq!(header(&of(size, b"")), Some(Err(size.into())));
        }
        assert_eq!(header(&of(1, &15_u64.to_be_bytes())), Some(Err(15)));
        for bytes in 0..16 {
            assert_eq!(header(&of(1, &16_u64.to_be_bytes())[..bytes]), None);
        }
    }

    #[test]
    fn a_list_ends_where_no_box_can_be() {
        let one = [&12_u32.to_be_bytes(), &b"onesabcd"[..]].concat();
        let names = |bytes: &[u8]| Boxes(bytes).map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(names(&[&one[..], &one].concat()), [*b"ones", *b"ones"]);
        assert_eq!(names(&[&one[..], &[0; 4]].concat()), [*b"ones"]);
        assert_eq!(
            names(&[&one[..], &[0, 0, 0, 7, 1, 1, 1, 1]].concat()),
            [*b"ones"]
        );
        // Longer than what it lies in: it has what is there.
        let long = [&99_u32.to_be_bytes(), &b"longab"[..]].concat();
        let all: Vec<_> = Boxes(&long).collect();
        assert_eq!(all, [(*b"long", &b"ab"[..])]);
    }

    #[test]
    fn names_and_texts_are_made_fit_to_show() {
        assert_eq!(spelled(b"mp4 "), "mp4");
        assert_eq!(spelled(b"\xa9nam"), "\\xa9nam");
        assert_eq!(text(b"Sound\0more"), Some("Sound".to_owned()));
        assert_eq!(text(b"\x01\x02\0"), None);
        assert_eq!(text(&[b'x'; 9999]).unwrap().len(), TEXT_BYTES_MAX);
    }
}
