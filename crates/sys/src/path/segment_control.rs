//! A control message that says how long the packets of one send are: udp(7), UDP_SEGMENT.

use std::ffi::c_void;
use std::mem;

/// `struct cmsghdr` with its 16 bits of data, and what aligns the next. The kernel only reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentControl {
    header: libc::cmsghdr,
    segment_bytes: u16,
}

/// Bytes of the header and the data, without what aligns the next (CMSG_LEN).
const LENGTH: usize = mem::offset_of!(SegmentControl, segment_bytes) + size_of::<u16>();

impl SegmentControl {
    /// Says that packets have `segment_bytes`; the last may be shorter.
    pub(super) fn new(segment_bytes: u16) -> Self {
        // SAFETY: a cmsghdr is a length and two numbers, for which all zeroes is valid.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = LENGTH as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self {
            header,
            segment_bytes,
        }
    }

    /// Has `message` say it; it lives in the same place until the kernel has read the message.
    pub(super) fn attach_to(&mut self, message: &mut libc::msghdr) {
        let control: *mut c_void = (&raw mut *self).cast();
        message.msg_control = control;
        message.msg_controllen = size_of::<Self>() as _;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_long_as_the_macros_of_cmsg_say() {
        let data_bytes = u32::try_from(size_of::<u16>()).expect("two");
        // SAFETY: it computes from the number alone.
        let space = unsafe { libc::CMSG_SPACE(data_bytes) };
        // SAFETY: so does this.
        let length = unsafe { libc::CMSG_LEN(data_bytes) };
        assert_eq!(size_of::<SegmentControl>(), space as usize);
        assert_eq!(LENGTH, length as usize);
        let mut control = SegmentControl::new(1328);
        // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        control.attach_to(&mut message);
        // SAFETY: the message has one control message, which lies in `control`.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        assert_eq!(header.cast_const(), (&raw const control).cast());
        // SAFETY: the header is that of `control`, whose data are behind it.
        let data = unsafe { libc::CMSG_DATA(header) };
        assert_eq!(data.cast_const(), (&raw const control.segment_bytes).cast());
        let whole = libc::cmsghdr {
            cmsg_len: LENGTH as _,
            ..control.header
        };
        assert_eq!(control.header.cmsg_len, whole.cmsg_len);
    }
}
