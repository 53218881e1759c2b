//! Allocations that may fail, where the caller can do without the memory.

use std::cell::Cell;

thread_local! {
    static MAY_BE_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// What this thread allocates right now it can do without. A global allocator that
/// ends the process for want of memory asks.
pub fn may_be_refused() -> bool {
    MAY_BE_REFUSED.get()
}

/// Reserves `len` more bytes for a buffer; false if the memory is lacking.
pub fn reserve(buffer: &mut Vec<u8>, len: usize) -> bool {
    MAY_BE_REFUSED.set(true);
    let is_there = buffer.try_reserve_exact(len).is_ok();
    MAY_BE_REFUSED.set(false);
    is_there
}

/// There is room for so many bytes more.
pub fn has_room(len: usize) -> bool {
    let mut room = Vec::new();
    let is_there = reserve(&mut room, len);
    // Else it is not even tried.
    std::hint::black_box(&mut room);
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(has_room(1 << 20) && !has_room(1 << 60) && !may_be_refused());
        let mut buffer = vec![1];
        assert!(!reserve(&mut buffer, usize::MAX - 1) && reserve(&mut buffer, 100) && buffer.capacity() > 100);
    }
}
