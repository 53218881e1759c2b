//! Exact calling contexts, of procedures whose frames have no word for a node ([`super::activation`]): their calls are made at home,
//! or their frames cannot be enlarged. They note their nodes in a table, by where their return addresses are; of the return addresses
//! of their calls it is known how far that is.

use super::activation::CalleeTable;
use super::probe::Slot;

/// A table of the process's, of the nodes of activations that have no word in their frame: their calls are made at home, or their
/// frames cannot be enlarged. By the address that the activation's return address is at: of a node, with some bits of that address
/// above its own. An activation is the last one that has been noted for its place on the stack.
pub struct ActivationTable;

impl ActivationTable {
    /// How many there are: all numbers of 16 bits.
    pub const COUNT: usize = 1 << 16;
    /// Where it begins, counted from the table of callees, bytes.
    pub const AT: usize = CalleeTable::COUNT * size_of::<u64>();
    /// The lowest bit of an address that tells its place; the next 16 bits do.
    pub const PLACE_SHIFT: u8 = 4;
    /// The lowest bit of an address that is kept with the node; 16 bits are.
    pub const TAG_SHIFT: u8 = 20;
    /// By how many bits those are shifted in the word; below them is the node's address.
    pub const NODE_BITS: u8 = 48;

    /// The place of an address.
    pub const fn place(address: u64) -> usize {
        (address >> ActivationTable::PLACE_SHIFT) as usize & (ActivationTable::COUNT - 1)
    }

    /// The address of the node that is noted for an address, if it is.
    pub const fn node(word: u64, address: u64) -> Option<u64> {
        let tag = (address >> ActivationTable::TAG_SHIFT) as u16;
        let node = word & ((1 << ActivationTable::NODE_BITS) - 1);
        if (word >> ActivationTable::NODE_BITS) as u16 == tag && node != 0 { Some(node) } else { None }
    }
}

/// What is known of a return address that no mark stands at: of a call by a procedure whose activations are in the table of
/// activations. The table of returns is memory of the process's: entries of two words, the return address and this as a word. An
/// address is searched from its place on; a zero ends the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownReturn {
    /// How far above rsp, as it is before the call, or above rbp, the caller's own return address is, in words of eight bytes; less
    /// than 2^15.
    pub words: u16,
    /// Above rbp.
    pub is_above_rbp: bool,
    /// The number of the call site in the caller, from 1 on.
    pub site: u16,
    /// The caller's number.
    pub procedure: u32,
}

impl KnownReturn {
    /// The bit of [`KnownReturn::is_above_rbp`].
    pub const RBP_BIT: u32 = 15;

    /// As one word.
    pub const fn to_word(self) -> u64 {
        let words = self.words as u64 | (self.is_above_rbp as u64) << KnownReturn::RBP_BIT;
        words | (self.site as u64) << 16 | (self.procedure as u64) << 32
    }

    /// From one word.
    pub const fn from_word(word: u64) -> KnownReturn {
        KnownReturn {
            words: word as u16 & !(1 << KnownReturn::RBP_BIT),
            is_above_rbp: word >> KnownReturn::RBP_BIT & 1 != 0,
            site: (word >> 16) as u16,
            procedure: (word >> 32) as u32,
        }
    }

    /// Where the search for a return address begins in a table.
    pub const fn place(returns_to: u64, shift: u64) -> usize {
        ((returns_to as u32).wrapping_mul(Slot::SPREAD) >> (shift & 31)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_there_and_back() {
        let returned = KnownReturn { words: 0x7fff, is_above_rbp: true, site: 9, procedure: 0xdead_beef };
        assert_eq!(KnownReturn::from_word(returned.to_word()), returned);
        let returned = KnownReturn { is_above_rbp: false, ..returned };
        assert_eq!(KnownReturn::from_word(returned.to_word()), returned);
        let at = 0x7ffc_1234_5678;
        let word = 0x5555_0000_1000 | (at >> 20 & 0xffff) << 48;
        assert_eq!(ActivationTable::node(word, at), Some(0x5555_0000_1000));
        assert_eq!(ActivationTable::node(word, at + (1 << 20)), None);
    }
}
