//! Values that are dropped when a call unwinds.
unsafe extern "Rust" {
    fn out(value: usize) -> bool;
}

pub struct Guard(usize);

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: never run.
        unsafe { out(self.0) };
    }
}

#[unsafe(no_mangle)]
pub fn drops(n: usize) {
    for at in 0..n {
        let _guard = Guard(at);
        // SAFETY: never run.
        if unsafe { out(at + 1) } {
            let _other = Guard(at + 2);
            // SAFETY: never run.
            unsafe { out(at + 3) };
        }
    }
}
