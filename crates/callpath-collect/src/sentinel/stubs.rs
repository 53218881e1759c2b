//! The stubs that replace marked return addresses. The stubs' code is the preloaded object's.
//!
//! A stub belongs to one return address for ever, in any frame and thread. A return to the stub continues at that
//! address, also after the stack was copied away and back, a context was switched, or a jump has left the frame and
//! come back. Wrong facts about frames cannot lead elsewhere. An unwinder may hold its address as long as it likes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::frames::Frames;

/// Bytes from one stub to the next.
pub(super) const STUB_BYTES: u64 = 32;
/// How many stubs a process has: so many different return addresses can be marked.
pub const STUBS: usize = 1 << 14;
/// Buckets of the hash table of stubs: twice as many.
pub const BUCKETS: usize = 2 * STUBS;
/// How many procedures that read their own return address are known at most.
pub const MAX_RETURN_ADDRESS_USERS: usize = 24;

/// How many buckets are looked at for one return address.
const LOOKS: usize = 32;

/// A thread's frames.
#[derive(Clone, Copy)]
pub enum Own {
    /// None yet.
    NotYet,
    /// None, and none must be made.
    Never,
    /// These.
    Has(&'static Frames),
}

/// The stubs of this process.
#[derive(Clone, Copy)]
pub struct Stubs {
    /// Where the first one begins.
    pub first: u64,
    /// The code that all stubs continue to; it begins where the last one ends.
    pub common: u64,
    /// From here on in that code, the return address is at rsp - 8.
    pub left: u64,
    /// One past that code.
    pub end: u64,
    /// The return address of each stub, 0: it is free.
    pub reals: &'static [AtomicU64; STUBS],
    /// Numbers of stubs, plus one, by what their return addresses hash to; 0: none.
    pub buckets: &'static [AtomicU16; BUCKETS],
    /// How many stubs are in use, or more.
    pub used: &'static AtomicU32,
    /// Start addresses of procedures that read their own return address, zeros behind the last.
    pub return_address_users: &'static [AtomicU64; MAX_RETURN_ADDRESS_USERS],
    /// Memory for the frames of one more thread.
    pub make: fn() -> Option<&'static Frames>,
    /// The calling thread's frames.
    pub own: fn() -> Own,
    /// Sets the calling thread's frames.
    pub set_own: fn(Own),
}

/// How long a procedure that reads its own return address is at most, bytes.
const LONGEST_USER_BYTES: u64 = 384;

impl Stubs {
    /// The return address of the stub that begins at `addr`, if there is one.
    #[inline]
    pub(crate) fn real(&self, addr: u64) -> Option<u64> {
        let offset = addr.wrapping_sub(self.first);
        if offset >= STUBS as u64 * STUB_BYTES || !offset.is_multiple_of(STUB_BYTES) {
            return None;
        }
        let real = self.reals.get((offset / STUB_BYTES) as usize)?.load(Relaxed);
        (real != 0).then_some(real)
    }

    /// The stub of a return address. `None`: it has none.
    #[inline]
    pub(crate) fn find(&self, real: u64) -> Option<u64> {
        self.look(real).ok()
    }

    /// The same, with a new one if it has none. `None`: all are in use.
    pub(crate) fn find_or_make(&self, real: u64) -> Option<u64> {
        let mut free = match self.look(real) {
            Ok(stub) => return Some(stub),
            Err(free) => free?,
        };
        if real == 0 || self.used.load(Relaxed) as usize >= STUBS {
            return None;
        }
        let number = self.used.fetch_add(1, Relaxed) as usize;
        self.reals.get(number)?.store(real, Relaxed);
        loop {
            let bucket = self.buckets.get(free)?;
            if bucket.compare_exchange(0, number as u16 + 1, Release, Relaxed).is_ok() {
                return Some(self.first + number as u64 * STUB_BYTES);
            }
            // Another thread was faster, if with the same address, then `number` is unused.
            free = match self.look(real) {
                Ok(stub) => return Some(stub),
                Err(free) => free?,
            };
        }
    }

    /// The stub of `real`, or a bucket where it may be entered.
    fn look(&self, real: u64) -> Result<u64, Option<usize>> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let start = (real.wrapping_mul(SPREAD) >> 32) as usize;
        for look in 0..LOOKS {
            let at = start.wrapping_add(look) % BUCKETS;
            let Some(number) = usize::from(self.buckets[at].load(Acquire)).checked_sub(1) else { return Err(Some(at)) };
            if self.reals.get(number).is_some_and(|other| other.load(Relaxed) == real) {
                return Ok(self.first + number as u64 * STUB_BYTES);
            }
        }
        Err(None)
    }

    /// Whether an address is that of a stub, or within one.
    #[inline]
    pub(crate) fn contain(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.first) < STUBS as u64 * STUB_BYTES
    }

    /// Whether a program counter is in the stubs' code.
    pub(crate) fn contain_pc(&self, pc: u64) -> bool {
        (self.first..self.end).contains(&pc)
    }

    /// Where a thread that was interrupted in that code is about to return to. `rax`: its register.
    pub(crate) fn target(&self, pc: u64, rax: u64, at_left: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if pc >= self.left {
            return at_left();
        }
        if pc < self.common {
            return self.real(pc - (pc - self.first) % STUB_BYTES);
        }
        let offset = rax.checked_sub(self.reals.as_ptr() as u64)?;
        if !offset.is_multiple_of(size_of::<AtomicU64>() as u64) {
            return None;
        }
        Some(self.reals.get(offset as usize / size_of::<AtomicU64>())?.load(Relaxed))
    }

    /// Whether the code at `pc` may be of a procedure that reads its own return address: setjmp keeps it for later.
    pub(crate) fn is_return_address_user(&self, pc: u64) -> bool {
        self.return_address_users.iter().any(|at| pc.wrapping_sub(at.load(Relaxed)) < LONGEST_USER_BYTES)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    extern crate std;

    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    pub(crate) const FIRST: u64 = 0x10_0000;

    /// Stubs without code, in separate memory.
    pub(crate) fn stubs() -> Stubs {
        Stubs {
            first: FIRST,
            common: FIRST + STUBS as u64 * STUB_BYTES,
            left: u64::MAX,
            end: u64::MAX,
            reals: Box::leak(Box::new([const { AtomicU64::new(0) }; STUBS])),
            buckets: Box::leak(Box::new([const { AtomicU16::new(0) }; BUCKETS])),
            used: Box::leak(Box::new(AtomicU32::new(0))),
            return_address_users: Box::leak(Box::new([const { AtomicU64::new(0) }; MAX_RETURN_ADDRESS_USERS])),
            make: || None,
            own: || Own::NotYet,
            set_own: |_| (),
        }
    }

    #[test]
    fn a_stub_stands_for_one_return_address_for_ever() {
        let stubs = stubs();
        let address = |n: usize| 0x40_0000 + 5 * n as u64;
        let made: Vec<_> = (0..2 * STUBS).map(|n| stubs.find_or_make(address(n))).collect();
        let count = made.iter().flatten().count();
        assert!(STUBS * 9 / 10 < count && count <= STUBS, "{count}");
        for (n, stub) in made.into_iter().enumerate() {
            assert_eq!(stubs.find_or_make(address(n)), stub);
            if let Some(stub) = stub {
                assert_eq!((stubs.find(address(n)), stubs.real(stub)), (Some(stub), Some(address(n))));
                assert_eq!(stubs.real(stub + 1), None);
            }
        }
        assert_eq!((stubs.find(7), stubs.find_or_make(0)), (None, None));
        assert_eq!((stubs.real(FIRST - 32), stubs.real(stubs.common)), (None, None));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same() {
        let stubs = stubs();
        let ask = || (0..4000).map(|n| stubs.find_or_make(0x40_0000 + n * 8)).collect::<Vec<_>>();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| *answer == answers[0] && answer.iter().all(Option::is_some)));
    }
}
