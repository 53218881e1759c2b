//! Giving descriptors of ours to a stopped process.
//!
//! A message over a socket of the process's own, of which callpath takes a copy (`pidfd_getfd`), carries them. This needs
//! nothing but the right to trace: the process may be another user's, of another PID, mount or network name space,
//! without /proc. A kernel before 5.6 cannot copy the socket: there, the process opens /proc/PID/fd/N of ours.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::pid::Pid;
use crate::remote_memory::{Mapping, PAGE_BYTES, checked, close, unmap};
use crate::traced::Traced;

/// The process's numbers of them, for good.
pub(crate) fn give<const N: usize>(
    traced: &mut impl Traced,
    thread: Pid,
    descriptors: [RawFd; N],
) -> Result<[RawFd; N], TargetError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let page = Mapping { at: None, len_bytes: PAGE_BYTES, protection, descriptor: None }.map(traced, thread)?;
    let given = send(traced, thread, (page, descriptors)).or_else(|by_message| {
        // The first error says more.
        open_all(traced, thread, (page, descriptors)).map_err(|_| by_message)
    });
    unmap(traced, thread, (page, PAGE_BYTES))?;
    given
}

/// By a message.
fn send<const N: usize>(
    traced: &mut impl Traced,
    thread: Pid,
    (page, descriptors): (RunAddr, [RawFd; N]),
) -> Result<[RawFd; N], TargetError> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let arguments = [libc::AF_UNIX as u64, kind as u64, 0, page.0, 0, 0];
    let made = traced.system_call(thread, libc::SYS_socketpair, arguments)?;
    checked(traced, "making a socket in it", made)?;
    let [ours, theirs] = read_pair(traced, page.0)?;
    let sent = copy_of(traced.memory().pid(), ours).and_then(|socket| send_over(&socket, descriptors));
    let got = match sent {
        Ok(()) => receive(traced, thread, (page, theirs)),
        Err(source) => {
            Err(TargetError::Trace { request: "passing memory of ours", pid: traced.memory().pid(), source })
        }
    };
    close(traced, thread, &[ours, theirs])?;
    got
}

fn read_pair(traced: &impl Traced, at: u64) -> Result<[RawFd; 2], TargetError> {
    let word = traced.memory().read_u64(at).ok_or_else(|| traced.failed("a socket in it", "its memory is gone"))?;
    Ok([word as RawFd, (word >> 32) as RawFd])
}

/// A copy of a process's descriptor.
fn copy_of(pid: Pid, descriptor: RawFd) -> io::Result<OwnedFd> {
    let opened = |descriptor: libc::c_long| {
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that no other code owns.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
    };
    // SAFETY: takes numbers.
    let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) })?;
    // SAFETY: takes numbers.
    opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) })
}

/// A control message of descriptors.
#[repr(C)]
struct Rights<const N: usize> {
    len: usize,
    level: i32,
    kind: i32,
    descriptors: [RawFd; N],
}

impl<const N: usize> Rights<N> {
    const DESCRIPTORS: usize = offset_of!(Rights<N>, descriptors);
    /// `CMSG_LEN(4 * N)`
    const LEN: usize = Self::DESCRIPTORS + N * size_of::<RawFd>();
}

fn send_over<const N: usize>(socket: &OwnedFd, descriptors: [RawFd; N]) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut rights = Rights { len: Rights::<N>::LEN, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, descriptors };
    // SAFETY: numbers and null pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut rights).cast(), size_of::<Rights<N>>());
    // SAFETY: the message points to values that live as long as the call.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the process receive them: the message's parts are laid out in `page`.
fn receive<const N: usize>(
    traced: &mut impl Traced,
    thread: Pid,
    (page, socket): (RunAddr, RawFd),
) -> Result<[RawFd; N], TargetError> {
    const PART: u64 = 128;
    const RIGHTS: u64 = 192;
    const BYTE: u64 = 256;
    let (part, rights) = (page.0 + PART, page.0 + RIGHTS);
    // struct msghdr: name, its length, parts, their number, control messages, their length, flags.
    let message = [0, 0, part, 1, rights, size_of::<Rights<N>>() as u64, 0];
    // struct iovec
    let iovec = [page.0 + BYTE, 1];
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    traced.memory().write(page.0, &bytes(&message))?;
    traced.memory().write(part, &bytes(&iovec))?;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    let received = traced.system_call(thread, libc::SYS_recvmsg, [socket as u64, page.0, flags as u64, 0, 0, 0])?;
    checked(traced, "receiving memory of ours", received)?;
    let (len, kind) = (traced.memory().read_u64(rights), traced.memory().read_u64(rights + 8));
    let mut numbers = vec![0; N * size_of::<RawFd>()];
    let read = traced.memory().read(rights + Rights::<N>::DESCRIPTORS as u64, &mut numbers);
    let mut received = numbers.chunks_exact(size_of::<RawFd>()).take(read / size_of::<RawFd>()).map(|number| {
        let number = number.try_into().map(RawFd::from_le_bytes);
        number.unwrap_or(-1)
    });
    let descriptors: Vec<RawFd> = match kind {
        Some(SCM_RIGHTS_OF_SOCKETS) => {
            let of_message = len.unwrap_or(0).saturating_sub(Rights::<N>::DESCRIPTORS as u64) as usize;
            received.by_ref().take(of_message / size_of::<RawFd>()).collect()
        }
        _ => Vec::new(),
    };
    match descriptors.as_slice().try_into() {
        Ok(descriptors) => Ok(descriptors),
        Err(_) => {
            // Its table of descriptors is full; some may have found room.
            close(traced, thread, &descriptors)?;
            Err(traced.failed("passing memory of ours", "it can have no more descriptors (ulimit -n)"))
        }
    }
}

/// `SOL_SOCKET`, and `SCM_RIGHTS` in the upper half.
const SCM_RIGHTS_OF_SOCKETS: u64 = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;

/// By the paths of ours.
fn open_all<const N: usize>(
    traced: &mut impl Traced,
    thread: Pid,
    (page, descriptors): (RunAddr, [RawFd; N]),
) -> Result<[RawFd; N], TargetError> {
    let mut opened = Vec::new();
    let mut outcome = Ok(());
    for descriptor in descriptors {
        match open(traced, thread, (page, descriptor)) {
            Ok(descriptor) => opened.push(descriptor),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    match opened.as_slice().try_into() {
        Ok(all) => Ok(all),
        Err(_) => {
            close(traced, thread, &opened)?;
            Err(outcome.err().unwrap_or_else(|| traced.failed("passing memory of ours", "it has no descriptor of it")))
        }
    }
}

/// By the path of ours.
fn open(traced: &mut impl Traced, thread: Pid, (page, descriptor): (RunAddr, RawFd)) -> Result<RawFd, TargetError> {
    let path = format!("/proc/{}/fd/{descriptor}\0", std::process::id());
    traced.memory().write(page.0, path.as_bytes())?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let arguments = [libc::AT_FDCWD as u64, page.0, flags as u64, 0, 0, 0];
    let opened = traced.system_call(thread, libc::SYS_openat, arguments)?;
    Ok(checked(traced, "opening memory of ours", opened)? as RawFd)
}
