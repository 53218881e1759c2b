//! Memory of which most was never written: only what was is read, since reading would give it memory.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use callpath_measurement::MeasurementError;
use callpath_target::SharedMemory;

const WORD_BYTES: usize = size_of::<u64>();

/// Hands all words in a range of offsets to `each` that may be other than zeroes: where some begin, in bytes, and these. The range, and what is
/// handed over, begin and end at multiples of `unit` bytes, a power of two of words.
pub(super) fn read_written(
    memory: &SharedMemory,
    range: Range<u64>,
    unit: u64,
    mut each: impl FnMut(u64, &[u64]),
) -> Result<(), MeasurementError> {
    const STEP_BYTES: u64 = 1 << 16;
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.descriptor()));
    let failed = |source| MeasurementError::Read { path: path.clone(), source };
    let file = std::fs::File::open(&path).map_err(failed)?;
    let mut bytes = vec![0; STEP_BYTES as usize];
    let mut words = Vec::with_capacity(STEP_BYTES as usize / WORD_BYTES);
    let mut at = range.start;
    while let Some(data) = next_data(&file, at).map_err(failed)?.filter(|data| *data < range.end) {
        let from = range.start + (data.max(range.start) - range.start) / unit * unit;
        let len = STEP_BYTES.min(range.end - from);
        let Some(page) = bytes.get_mut(..len as usize) else { break };
        file.read_exact_at(page, from).map_err(failed)?;
        words.clear();
        words.extend(page.as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_le_bytes(*word)));
        each(from, &words);
        at = from + len;
    }
    Ok(())
}

/// Where the next page is that was written, from an offset on. `None`: there is none.
fn next_data(file: &std::fs::File, from: u64) -> std::io::Result<Option<u64>> {
    // SAFETY: moves the position of a descriptor of our own.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, libc::SEEK_DATA) };
    let error = std::io::Error::last_os_error();
    match u64::try_from(at) {
        Ok(at) => Ok(Some(at)),
        Err(_) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(_) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_in_whole_units() {
        let memory = SharedMemory::create(c"test", 1 << 20).unwrap();
        let put = |at: usize, value: u64| {
            // SAFETY: within the memory, aligned.
            unsafe { memory.base().add(at).cast::<u64>().write(value) };
        };
        put(8, 1);
        put(0x1_0040, 2);
        put(0xf_fff8, 3);
        for unit in [8, 64] {
            let mut found = Vec::new();
            let mut read = 0;
            let range = 0x40..1 << 20;
            read_written(&memory, range, unit, |at, words| {
                assert_eq!(at % unit, 0);
                read += words.len();
                let some = words.iter().enumerate().filter(|(_, word)| **word != 0);
                found.extend(some.map(|(index, word)| (at + 8 * index as u64, *word)));
            })
            .unwrap();
            assert_eq!(found, [(0x1_0040, 2), (0xf_fff8, 3)]);
            assert!(read < (1 << 20) / 8 / 2, "{read} words");
        }
    }
}
