//! Reading little-endian numbers and slices at untrusted offsets.

/// Checked reads: `None` where the bytes are not there.
pub(crate) trait Bytes {
    /// `len` bytes at `offset`.
    fn slice(&self, offset: u64, len: u64) -> Option<&[u8]>;
    fn u16_at(&self, offset: u64) -> Option<u16>;
    fn u32_at(&self, offset: u64) -> Option<u32>;
    fn u64_at(&self, offset: u64) -> Option<u64>;
}

impl Bytes for [u8] {
    fn slice(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.get(start..end)
    }

    fn u16_at(&self, offset: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.slice(offset, 2)?.try_into().ok()?))
    }

    fn u32_at(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.slice(offset, 4)?.try_into().ok()?))
    }

    fn u64_at(&self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.slice(offset, 8)?.try_into().ok()?))
    }
}

/// The zero-terminated bytes at `offset`, without the zero.
pub(crate) fn cstr_at(bytes: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = bytes.get(usize::try_from(offset).ok()?..)?;
    let len = rest.iter().position(|&byte| byte == 0)?;
    rest.get(..len)
}
