//! Which system calls a seccomp filter refuses to this process, by making them in children.

use callpath_format::shared::refused::Calls;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Those of `calls` that are refused. What cannot be tried is taken for allowed.
pub fn refused_calls(calls: Calls) -> Calls {
    // What a child says, in memory that it shares with us: which call it has come to, and which ones were refused.
    // SAFETY: a new mapping at a place of the kernel's choice.
    let shared = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0)
    };
    if shared == libc::MAP_FAILED {
        return Calls(0);
    }
    // SAFETY: a page of zeros, which stays mapped until the end of this function.
    let said: &[AtomicU32; 2] = unsafe { &*shared.cast() };
    let [next, refused] = said;
    // One child, if it lives through all of them; each that is killed is followed by one that begins behind the call.
    while (next.load(Relaxed) as usize) < Calls::ALL.len() {
        let at = next.load(Relaxed);
        // SAFETY: the child makes system calls only, on memory that was made before the fork.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            break;
        }
        if pid == 0 {
            for (call, number, _) in Calls::ALL.iter().skip(at as usize) {
                next.fetch_add(1, Relaxed);
                // SAFETY: these calls do nothing with the arguments that they get.
                if calls.has(*call) && unsafe { is_refused(*call, *number) } {
                    refused.fetch_or(call.0, Relaxed);
                }
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our own child, for which no other code waits.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        let come_to = next.load(Relaxed);
        if libc::WIFSIGNALED(status)
            && let Some((call, ..)) = (come_to as usize).checked_sub(1).and_then(|last| Calls::ALL.get(last))
        {
            refused.fetch_or(call.0, Relaxed);
        }
        if come_to == at {
            break;
        }
    }
    let refused = Calls(refused.load(Relaxed));
    // SAFETY: mapped above; not used any more.
    unsafe { libc::munmap(shared, 4096) };
    refused
}

/// Makes a call in a way that does nothing.
///
/// # Safety
/// In a child that makes nothing but system calls.
unsafe fn is_refused(call: Calls, number: usize) -> bool {
    let mut place = [0u64; 32];
    let at = place.as_mut_ptr() as usize;
    let arguments: [usize; 6] = match call {
        Calls::CLOCK_GETTIME => [libc::CLOCK_THREAD_CPUTIME_ID as usize, at, 0, 0, 0, 0],
        Calls::GETRUSAGE => [libc::RUSAGE_THREAD as usize, at, 0, 0, 0, 0],
        Calls::RT_SIGPROCMASK => [libc::SIG_BLOCK as usize, 0, at, 8, 0, 0],
        Calls::FUTEX => [at, libc::FUTEX_WAKE as usize, 1, 0, 0, 0],
        Calls::GETTID | Calls::GETPID => [0; 6],
        // Without it no signal could be handled anywhere; it cannot be tried.
        Calls::RT_SIGRETURN => return false,
        // A length of zero: EINVAL.
        Calls::MMAP => {
            [0, 0, libc::PROT_READ as usize, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize, usize::MAX, 0]
        }
        Calls::MUNMAP => [0; 6],
        _ => return false,
    };
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: as said; the kernel writes no further than the place's length.
    let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
    let error = std::io::Error::last_os_error().raw_os_error();
    // What the calls say themselves is success or EINVAL.
    result < 0 && error != Some(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_here() {
        assert_eq!(refused_calls(Calls::OF_SAMPLES), Calls(0));
    }
}
