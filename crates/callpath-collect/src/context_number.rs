//! The numbers of contexts, by which a program asks where it is. A context has one in all threads of its process.
//!
//! ```text
//! number(root)        = mixed(process, which root)
//! number(child)       = number(parent) * FACTOR + mixed(key)      modulo 2^61 - 1; 0 is none, and becomes 1
//! ```
//!
//! A polynomial (Karp and Rabin 1987) can be summed up from the innermost frame outwards, up to the first one whose number
//! is known: the path need not be kept anywhere.

use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, Node};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::process::Process;
use crate::thread::Thread;

/// A prime (Mersenne).
const MODULUS: u64 = (1 << 61) - 1;
/// Any number below it.
const FACTOR: u64 = 0x1234_9a2b_7d4f_61c7;

/// Gives a node its number, if the program asks for them and it has none.
pub(crate) fn number(process: &Process<'_>, thread: &Thread<'_>, node: ArenaRef) {
    let Some(column) = process.session.context_column else { return };
    let Some(own) = place(process, node, column).filter(|own| own.load(Relaxed) == 0) else { return };
    let (mut sum, mut factor, mut at) = (0, 1, node);
    for _ in 0..layout::DEEPEST {
        let known = place(process, at, column).map_or(0, |place| place.load(Relaxed));
        if known != 0 {
            sum = plus(sum, times(factor, known));
            break;
        }
        let Some(node) = process.arena.get::<Node>(at) else { return };
        let parent = ArenaRef(node.parent.load(Relaxed));
        if parent == ArenaRef::NONE {
            let is_full = thread.record.full_root.load(Relaxed) == at.0;
            let root = u64::from(process.slot.pid.load(Relaxed)) << 1 | u64::from(is_full);
            sum = plus(sum, times(factor, mixed(root)));
            break;
        }
        sum = plus(sum, times(factor, mixed(node.key.load(Relaxed))));
        factor = times(factor, FACTOR);
        at = parent;
    }
    own.store(sum.max(1), Relaxed);
}

/// Where a node's number is.
fn place<'m>(process: &Process<'m>, node: ArenaRef, column: usize) -> Option<&'m AtomicU64> {
    process.session.columns.of_node(&process.arena, node)?.get(column)
}

/// `a` and `b` are below the modulus.
fn plus(a: u64, b: u64) -> u64 {
    reduced(a.wrapping_add(b))
}

/// The same.
fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    reduced((product as u64 & MODULUS).wrapping_add((product >> 61) as u64))
}

/// Of a number below twice the modulus.
fn reduced(number: u64) -> u64 {
    if number >= MODULUS { number.wrapping_sub(MODULUS) } else { number }
}

/// A number below the modulus that depends on all bits of another one (splitmix64: Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    reduced((mixed & MODULUS).wrapping_add(mixed >> 61))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values by Python's integers: `(a * b) % (2**61 - 1)`.
    #[test]
    fn products_are_those_of_whole_numbers() {
        for (a, b, product) in [
            (0, 5, 0),
            (1, MODULUS - 1, 2_305_843_009_213_693_950),
            (MODULUS - 1, MODULUS - 1, 1),
            (0x0123_4567_89ab_cdef, 0x0fed_cba9_8765_4321, 194_897_821_954_081_904),
        ] {
            assert_eq!(times(a, b), product, "{a} * {b}");
        }
        assert_eq!((plus(MODULUS - 1, 1), plus(MODULUS - 1, 2)), (0, 1));
    }

    #[test]
    fn mixed_numbers_are_below_the_modulus() {
        assert!((0..10_000).map(|n| mixed((u64::MAX / 9973).wrapping_mul(n))).all(|mixed| mixed < MODULUS));
    }
}
