//! Rust that unwinds: values are dropped on the way, panics are caught.
#![no_std]

unsafe extern "Rust" {
    safe fn out(value: usize) -> bool;
}

pub struct Guard(usize);

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        out(self.0);
    }
}

#[unsafe(no_mangle)]
pub fn drops(n: usize) {
    let mut at = 0;
    while at < n { //@ loop drops: drops
        let _guard = Guard(at);
        out(at + 1);
        at += 1;
    }
}

pub struct Rows(usize);

impl Drop for Rows {
    #[inline(always)]
    fn drop(&mut self) {
        while self.0 > 0 { //@ O1+ may loop rows: drains > turns > drop_in_place() > drop(), drains > turns > drop_in_place() > drop(); O0 may loop rows: drop_in_place > drop()
            self.0 -= 1;
            out(self.0);
        }
    }
}

#[unsafe(no_mangle)]
pub fn drains(n: usize) {
    let mut at = 0;
    while at < n { //@ loop turns: drains
        let _rows = Rows(at);
        out(at + 1);
        out(at + 2);
        at += 1;
    }
}
