//! Writing boxes (ISO/IEC 14496-12, section 4.2).

/// Boxes as they are written, one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    /// A box of that name, and in it what `inside` writes.
    ///
    /// # Panics
    ///
    /// If that is more than 4 GiB: what is written here is bounded far below.
    pub(super) fn nest(&mut self, name: &[u8; 4], inside: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.u32(0);
        self.bytes(name);
        inside(self);
        let bytes = u32::try_from(self.0.len() - start).expect("a box of headers is small");
        self.0[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
    }

    /// The same of a full box, which begins with its version and flags.
    pub(super) fn full(
        &mut self,
        name: &[u8; 4],
        version: u8,
        flags: u32,
        inside: impl FnOnce(&mut Self),
    ) {
        self.nest(name, |this| {
            this.u32(u32::from(version) << 24 | flags);
            inside(this);
        });
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.bytes(&value.to_be_bytes());
    }
}
