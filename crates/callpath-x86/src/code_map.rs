//! The map of a module's code: each byte has a position, a number below 2^32, counted over all its ranges.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::decoded::Decoded;

/// No position.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// How many bytes of code are analysed; the excess has no recipes.
const MAX_CODE_BYTES: u64 = 1 << 31;

/// One range of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) start: LinkAddr,
    pub(crate) bytes: &'a [u8],
    /// Position of its first byte.
    pub(crate) first: u32,
}

impl Part<'_> {
    /// One past the position of its last byte.
    pub(crate) fn end(&self) -> u32 {
        self.first + self.bytes.len() as u32
    }
}

/// A module's code: sorted, disjoint. Between two parts an unused position keeps instructions from running into the
/// next part.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeMap<'a> {
    parts: Vec<Part<'a>>,
    len: u32,
    /// The instructions that were decoded already.
    pub(crate) decoded: Arc<Decoded>,
}

impl<'a> CodeMap<'a> {
    /// Maps the code. The flag: there was more than [`MAX_CODE_BYTES`].
    pub(crate) fn new(code: &[(LinkAddr, &'a [u8])]) -> (CodeMap<'a>, bool) {
        let mut code: Vec<_> = code.to_vec();
        code.sort_by_key(|(start, _)| *start);
        let mut code_map = CodeMap::default();
        let mut cut = false;
        let mut end = 0;
        for (start, mut bytes) in code {
            let from = start.0.max(end);
            bytes = bytes.get((from - start.0).min(bytes.len() as u64) as usize..).unwrap_or(&[]);
            let left = MAX_CODE_BYTES.saturating_sub(u64::from(code_map.len));
            let fits = left.min(u64::MAX - from);
            if bytes.len() as u64 > fits {
                cut = true;
                bytes = bytes.get(..fits as usize).unwrap_or(&[]);
            }
            if bytes.is_empty() {
                continue;
            }
            end = from + bytes.len() as u64;
            let part = Part { start: LinkAddr(from), bytes, first: code_map.len };
            code_map.len = part.end() + 1;
            code_map.parts.push(part);
        }
        (code_map, cut)
    }

    /// One past the last position.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn parts(&self) -> &[Part<'a>] {
        &self.parts
    }

    /// The position of an address of code.
    #[inline]
    pub(crate) fn position(&self, addr: u64) -> Option<u32> {
        let part = match self.parts.as_slice() {
            [part] => part,
            parts => parts.get(parts.partition_point(|part| part.start.0 <= addr).checked_sub(1)?)?,
        };
        let offset = addr.checked_sub(part.start.0)?;
        (offset < part.bytes.len() as u64).then(|| part.first + offset as u32)
    }

    /// The part that holds a position.
    #[inline]
    pub(crate) fn part(&self, at: u32) -> Option<&Part<'a>> {
        let part = match self.parts.as_slice() {
            [part] => part,
            parts => parts.get(parts.partition_point(|part| part.first <= at).checked_sub(1)?)?,
        };
        (at < part.end()).then_some(part)
    }

    /// The address of a position; also of the one after a part's last byte.
    pub(crate) fn address(&self, at: u32) -> LinkAddr {
        let part = match self.parts.as_slice() {
            [part] => Some(part),
            parts => parts.get(parts.partition_point(|part| part.first <= at).saturating_sub(1)),
        };
        part.map_or(LinkAddr(0), |part| LinkAddr(part.start.0 + u64::from(at - part.first)))
    }

    /// Whether the position's address is a multiple of 16: compilers align procedures so.
    pub(crate) fn is_aligned(&self, at: u32) -> bool {
        self.address(at).0.is_multiple_of(16)
    }

    /// The bytes from a position to the end of its part.
    pub(crate) fn bytes(&self, at: u32) -> &'a [u8] {
        self.part(at).and_then(|part| part.bytes.get((at - part.first) as usize..)).unwrap_or(&[])
    }

    /// The positions of the bytes of `range` that are code.
    pub(crate) fn positions(&self, range: &Range<LinkAddr>) -> Vec<Range<u32>> {
        let clip = |part: &Part<'_>| {
            let part_end = part.start.0 + part.bytes.len() as u64;
            let (from, to) = (range.start.0.max(part.start.0), range.end.0.min(part_end));
            let position = |addr: u64| part.first + (addr - part.start.0) as u32;
            (from < to).then(|| position(from)..position(to))
        };
        let first = self.parts.partition_point(|part| part.start.0 + part.bytes.len() as u64 <= range.start.0);
        let after = self.parts.partition_point(|part| part.start < range.end);
        self.parts.get(first..after.max(first)).unwrap_or(&[]).iter().filter_map(clip).collect()
    }
}
