//! Published facts about code that was moved at run time (copies of procedures, jumps that lead to them) or is ours: to
//! which code of its module each address belongs, and its recipes.
//!
//! Addresses are link-time addresses of the module that the code comes from, as if it were a part of that. Whoever
//! meets such an address in a walk takes the frame for one of the module, at the address where the code comes from.
//!
//! ```text
//! head     32 bytes  { magic "CPMOVE01", base: u64, pieces: u32, zero: u32, table: u32, zero: u32 }
//! pieces   12 each   { at: i32, home: i32, kind: u16, clone: u16 }, by `at`; both count from `base`
//! table              `crate::table`, at offset `table`, a multiple of 8
//! ```
//!
//! A piece reaches up to the next one. Its kind says what `home` means. `clone`: the number of the clone that it is in, or 0.
//!
//! | kind | the address `at + n` belongs to |
//! |---|---|
//! | 0 | `home`, whatever n is: one instruction that became several, or code inserted before it |
//! | 1 | `home + n`: instructions that were moved as they are |
//! | 2 | our own code: [`FrameKey::PROBE`] |
//! | 3 | nothing |

use crate::address::LinkAddr;
use crate::frame::{CloneNumber, FrameKey, ModuleIndex};
use crate::table::Table;

/// Facts about moved code in place.
#[derive(Clone, Copy, Debug)]
pub struct MovedCode<'m> {
    base: u64,
    pieces: &'m [[u8; Piece::LEN_BYTES]],
}

/// Where code comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// From one instruction, or it was inserted before that.
    At(LinkAddr),
    /// From instructions that lie one behind the other as they do here; from this address on.
    From(LinkAddr),
    /// It is our own.
    Ours,
    /// There is no code.
    Nowhere,
}

/// A range of moved code, up to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its first address.
    pub at: LinkAddr,
    /// Where it comes from.
    pub home: Home,
    /// The clone that it is in.
    pub clone: CloneNumber,
}

impl Piece {
    /// Size in a block, bytes.
    pub const LEN_BYTES: usize = 12;

    /// Its bytes in a block with this base; `None`: it is too far away.
    pub fn to_bytes(&self, base: LinkAddr) -> Option<[u8; Piece::LEN_BYTES]> {
        let distance = |address: LinkAddr| i32::try_from(address.0.wrapping_sub(base.0) as i64).ok();
        let (home, kind) = match self.home {
            Home::At(home) => (distance(home)?, 0u16),
            Home::From(home) => (distance(home)?, 1),
            Home::Ours => (0, 2),
            Home::Nowhere => (0, 3),
        };
        let mut b = [0; Piece::LEN_BYTES];
        b[0..4].copy_from_slice(&distance(self.at)?.to_le_bytes());
        b[4..8].copy_from_slice(&home.to_le_bytes());
        b[8..10].copy_from_slice(&kind.to_le_bytes());
        b[10..12].copy_from_slice(&self.clone.0.to_le_bytes());
        Some(b)
    }

    /// What the piece says of an address in it.
    pub fn home_of(&self, at: LinkAddr) -> Home {
        match self.home {
            Home::From(home) => Home::At(LinkAddr(home.0.wrapping_add(at.0.wrapping_sub(self.at.0)))),
            other => other,
        }
    }
}

/// Where the head says where the table begins, bytes.
pub(crate) const TABLE_AT: u64 = 24;

const MAGIC: [u8; 8] = *b"CPMOVE01";
/// Size of the head, bytes.
pub const HEAD_LEN_BYTES: usize = 32;

/// The head of a block; its table begins `table` bytes after the head's first byte.
pub fn head_bytes(base: LinkAddr, pieces: u32, table: u32) -> [u8; HEAD_LEN_BYTES] {
    let mut b = [0; HEAD_LEN_BYTES];
    b[0..8].copy_from_slice(&MAGIC);
    b[8..16].copy_from_slice(&base.0.to_le_bytes());
    b[16..20].copy_from_slice(&pieces.to_le_bytes());
    b[24..28].copy_from_slice(&table.to_le_bytes());
    b
}

impl<'m> MovedCode<'m> {
    /// The block at the beginning of `bytes`; `None` if there is none.
    pub fn new(bytes: &'m [u8]) -> Option<MovedCode<'m>> {
        let head: &[u8; HEAD_LEN_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..8] != MAGIC {
            return None;
        }
        let base = u64::from(word(8)) | u64::from(word(12)) << 32;
        let len = (word(16) as usize).checked_mul(Piece::LEN_BYTES)?;
        let pieces = bytes.get(HEAD_LEN_BYTES..)?.get(..len)?;
        Some(MovedCode { base, pieces: pieces.as_chunks().0 })
    }

    /// A whole block, with its recipe table.
    pub fn with_table(block: &'m [u8]) -> Option<(MovedCode<'m>, Table<'m>)> {
        let at: &[u8; 4] = block.get(TABLE_AT as usize..)?.first_chunk()?;
        let table = Table::new(block.get(u32::from_le_bytes(*at) as usize..)?).ok()?;
        Some((MovedCode::new(block)?, table))
    }

    /// Where the code at an address comes from: [`Home::At`], [`Home::Ours`] or [`Home::Nowhere`].
    pub fn home_of(&self, at: LinkAddr) -> Home {
        self.piece_at(at).map_or(Home::Nowhere, |piece| piece.home_of(at))
    }

    /// The clone that an address is in.
    pub fn clone_at(&self, at: LinkAddr) -> CloneNumber {
        self.piece_at(at).map_or(CloneNumber::NONE, |piece| piece.clone)
    }

    fn piece_at(&self, at: LinkAddr) -> Option<Piece> {
        let (mut low, mut high) = (0, self.pieces.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let piece = self.pieces.get(middle)?;
            if self.decode(piece).at > at {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low.checked_sub(1).and_then(|last| self.pieces.get(last)).map(|piece| self.decode(piece))
    }

    /// The frame's key of an address; `None` where there is no code.
    pub fn key_of(&self, module: ModuleIndex, at: LinkAddr) -> Option<FrameKey> {
        match self.home_of(at) {
            Home::At(home) | Home::From(home) => Some(FrameKey::in_module(module, home)),
            Home::Ours => Some(FrameKey::PROBE),
            Home::Nowhere => None,
        }
    }

    fn decode(&self, b: &[u8; Piece::LEN_BYTES]) -> Piece {
        let address = |distance: [u8; 4]| LinkAddr(self.base.wrapping_add(i32::from_le_bytes(distance) as u64));
        let home = address([b[4], b[5], b[6], b[7]]);
        let home = match b[8] {
            0 => Home::At(home),
            1 => Home::From(home),
            2 => Home::Ours,
            _ => Home::Nowhere,
        };
        Piece { at: address([b[0], b[1], b[2], b[3]]), home, clone: CloneNumber(u16::from_le_bytes([b[10], b[11]])) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_address_belongs_where_its_piece_says() {
        let base = LinkAddr(0x10_0000);
        let piece = |at: u64, home: Home| Piece { at: LinkAddr(at), home, clone: CloneNumber(at as u16) };
        let pieces = [
            // A springboard in the original code, before the copies.
            piece(0x1010, Home::At(LinkAddr(0x1000))),
            piece(0x1015, Home::Nowhere),
            piece(0x10_0000, Home::Ours),
            piece(0x10_0018, Home::From(LinkAddr(0x1000))),
            piece(0x10_0020, Home::At(LinkAddr(0x1008))),
            piece(0x10_0026, Home::Nowhere),
        ];
        let mut bytes: Vec<u8> = head_bytes(base, pieces.len() as u32, 0).to_vec();
        bytes.extend(pieces.iter().flat_map(|piece| piece.to_bytes(base).unwrap()));
        let code = MovedCode::new(&bytes).unwrap();
        for (at, expected) in [
            (0x100f, Home::Nowhere),
            (0x1010, Home::At(LinkAddr(0x1000))),
            (0x1014, Home::At(LinkAddr(0x1000))),
            (0x1015, Home::Nowhere),
            (0x10_0017, Home::Ours),
            (0x10_0018, Home::At(LinkAddr(0x1000))),
            (0x10_001f, Home::At(LinkAddr(0x1007))),
            (0x10_0025, Home::At(LinkAddr(0x1008))),
            (0x10_0026, Home::Nowhere),
        ] {
            assert_eq!(code.home_of(LinkAddr(at)), expected, "{at:#x}");
        }
        let clones = [0x100f, 0x1014, 0x10_0017, 0x10_0025].map(|at| code.clone_at(LinkAddr(at)));
        assert_eq!(clones, [0, 0x1010, 0, 0x20].map(CloneNumber));
        let module = ModuleIndex(3);
        assert_eq!(code.key_of(module, LinkAddr(0x10_001a)), Some(FrameKey::in_module(module, LinkAddr(0x1002))));
        assert_eq!(code.key_of(module, LinkAddr(0x10_0001)), Some(FrameKey::PROBE));
        assert_eq!(code.key_of(module, LinkAddr(0)), None);
        // What is cut, or something else, is nothing.
        assert!(MovedCode::new(&bytes[..bytes.len() - 1]).is_none() && MovedCode::new(&bytes[1..]).is_none());
        assert_eq!(piece(0x1_0000_0000, Home::Ours).to_bytes(base), None);
    }
}
