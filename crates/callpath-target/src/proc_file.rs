//! Files under /proc, which say no length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Such a file, whole. Each small piece would be a system call.
pub(crate) fn read_whole(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_rest(&mut File::open(path)?)
}

/// What follows in such a file.
pub(crate) fn read_rest(file: &mut File) -> io::Result<Vec<u8>> {
    // The kernel gives a page at a time.
    const BLOCK_BYTES: usize = 4096;
    let (mut bytes, mut len) = (vec![0; BLOCK_BYTES], 0);
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() - len < BLOCK_BYTES {
            bytes.resize(len.next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}
