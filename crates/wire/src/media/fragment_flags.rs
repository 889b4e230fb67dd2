//! Flags in the boxes of movie fragments (ISO/IEC 14496-12, sections 8.8.3, 8.8.7 and 8.8.8), as
//! they are read and written.

/// Of a sample: it depends on no other; and of the others, that no decoder can start at them.
pub(super) const SAMPLE_IS_INDEPENDENT: u32 = 0x0200_0000;
pub(super) const SAMPLE_DEPENDS: u32 = 0x0100_0000;
pub(super) const SAMPLE_IS_NOT_SYNC: u32 = 0x0001_0000;

/// What `tfhd` has.
pub(super) mod tfhd {
    pub(in crate::media) const BASE_OFFSET: u32 = 0x1;
    pub(in crate::media) const DESCRIPTION: u32 = 0x2;
    pub(in crate::media) const DEFAULT_DURATION: u32 = 0x8;
    pub(in crate::media) const DEFAULT_BYTES: u32 = 0x10;
    pub(in crate::media) const DEFAULT_FLAGS: u32 = 0x20;
    pub(in crate::media) const BASE_IS_MOOF: u32 = 0x0002_0000;
}

/// What `trun` has: of all samples, and the columns of each.
pub(super) mod trun {
    pub(in crate::media) const DATA_OFFSET: u32 = 0x1;
    pub(in crate::media) const FIRST_FLAGS: u32 = 0x4;
    pub(in crate::media) const DURATIONS: u32 = 0x100;
    pub(in crate::media) const SIZES: u32 = 0x200;
    pub(in crate::media) const FLAGS: u32 = 0x400;
    pub(in crate::media) const COMPOSITIONS: u32 = 0x800;
}
