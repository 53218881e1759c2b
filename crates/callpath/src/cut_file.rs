//! A mapped file that is cut short, or whose disk fails, while it is read: a sentence and our exit status, where the kernel
//! would end the process.

use std::sync::atomic::{AtomicI32, Ordering};

/// How the command ends.
static STATUS: AtomicI32 = AtomicI32::new(1);

/// Says how the command is to end.
pub(crate) fn begin(status: u8) {
    STATUS.store(status.into(), Ordering::Relaxed);
    // SAFETY: a valid action; the handler calls only what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = end as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// Nothing here allocates: the signal may have interrupted an allocation.
extern "C" fn end(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid record of a SIGBUS, which has an address.
    let address = unsafe { (*info).si_addr() } as u64;
    let mut maps = Maps::default();
    let path = maps.path_at(address).unwrap_or(b"a file");
    for text in
        [b"callpath: failed to read ".as_slice(), path, b": it was cut short, or its disk failed, while it was read\n"]
    {
        // SAFETY: the bytes are there. A standard error that takes no more changes nothing.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: ends the process without running anything.
    unsafe { libc::_exit(STATUS.load(Ordering::Relaxed)) }
}

/// /proc/self/maps, read line by line into memory of its own.
struct Maps {
    line: [u8; 4608],
}

impl Default for Maps {
    fn default() -> Maps {
        Maps { line: [0; 4608] }
    }
}

impl Maps {
    /// The file that is mapped at an address.
    fn path_at(&mut self, address: u64) -> Option<&[u8]> {
        // SAFETY: a path that ends with a zero.
        let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        let mut len = 0;
        loop {
            let mut byte = 0u8;
            // SAFETY: room for one byte. One that cannot be read ends the search.
            if unsafe { libc::read(file, (&raw mut byte).cast(), 1) } != 1 {
                return None;
            }
            if byte != b'\n' {
                // No path is longer.
                len = (len + 1).min(self.line.len());
                self.line[len - 1] = byte;
            } else if is_at(&self.line[..len], address) {
                return path_of(&self.line[..len]);
            } else {
                len = 0;
            }
        }
    }
}

/// Whether a line of the maps, which begins with `START-END `, is about an address.
fn is_at(line: &[u8], address: u64) -> bool {
    let mut bounds = line.splitn(3, |byte| matches!(byte, b'-' | b' '));
    let mut bound = || {
        let digits = bounds.next().unwrap_or_default();
        digits.iter().fold(0u64, |number, digit| number << 4 | u64::from((*digit as char).to_digit(16).unwrap_or(0)))
    };
    let (start, end) = (bound(), bound());
    (start..end).contains(&address)
}

/// What follows the five columns before the path.
fn path_of(line: &[u8]) -> Option<&[u8]> {
    let at = line.iter().position(|byte| *byte == b'/')?;
    line.get(at..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_the_file_that_is_mapped_there() {
        let own = std::env::current_exe().expect("a program");
        let found = Maps::default().path_at(is_at as *const () as u64).map(<[u8]>::to_vec);
        assert_eq!(found.as_deref(), Some(own.as_os_str().as_encoded_bytes()));
        assert_eq!(Maps::default().path_at(1), None);
    }
}
