//! The routine that takes the place of glibc's `_dl_find_object` (`<dlfcn.h>`, glibc 2.35), which unwinders ask which
//! object contains an address and where its `.eh_frame_hdr` is. It knows the copies, and leaves all else to the original.

use callpath_format::address::RunAddr;

use crate::encoding;

/// Copies, and what unwinders ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownCode {
    /// The first address.
    pub start: RunAddr,
    /// One past the last.
    pub end: RunAddr,
    /// Where `.eh_frame_hdr` is, which speaks of them.
    pub header: RunAddr,
    /// An address of the code that they are copies of.
    pub home: RunAddr,
}

/// ```text
///         lea rax, [rip + table]
/// each:   mov rcx, [rax]                  first address
///         test rcx, rcx
///         je ...                          to the original
/// ```
const BEGIN: [u8; 3] = [0x48, 0x8d, 0x05];
const EACH: [u8; 8] = [0x48, 0x8b, 0x08, 0x48, 0x85, 0xc9, 0x0f, 0x84];
/// ```text
///         cmp rdi, rcx
///         jb next
///         cmp rdi, [rax + 8]              one past the last
///         jb found
/// next:   add rax, 24
///         jmp each
/// found:  mov qword [rsi], 0              dlfo_flags
///         mov [rsi + 8], rcx              dlfo_map_start
///         mov rcx, [rax + 8]
///         mov [rsi + 16], rcx             dlfo_map_end
///         mov qword [rsi + 24], 0         dlfo_link_map
///         mov rcx, [rax + 16]
///         mov [rsi + 32], rcx             dlfo_eh_frame
///         xor eax, eax
///         ret
/// ```
const END: [u8; 55] = [
    0x48, 0x39, 0xcf, 0x72, 6, 0x48, 0x3b, 0x78, 8, 0x72, 6, // compared
    0x48, 0x83, 0xc0, 24, 0xeb, 0xe3, // next
    0x48, 0xc7, 0x06, 0, 0, 0, 0, 0x48, 0x89, 0x4e, 8, 0x48, 0x8b, 0x48, 8, 0x48, 0x89, 0x4e, 16, // found
    0x48, 0xc7, 0x46, 24, 0, 0, 0, 0, 0x48, 0x8b, 0x48, 16, 0x48, 0x89, 0x4e, 32, 0x31, 0xc0, 0xc3,
];

impl KnownCode {
    /// The length of an entry of the routine's table, bytes.
    pub const ENTRY_BYTES: u64 = 24;

    /// The entry of the routine's table: first what lets it be found.
    pub fn entry(&self) -> [u64; 3] {
        [self.start, self.end, self.header].map(|address| address.0)
    }
}

/// The routine's code and table, to lie at `at`, and where the table begins in it: entries in any order, the last of which is a zero.
/// `original`: where it continues with what it does not know. `None`: that is more than 2 GB away.
pub fn find_object(at: RunAddr, original: RunAddr, known: &[KnownCode]) -> Option<(Vec<u8>, usize)> {
    const DISTANCE_BYTES: usize = 4;
    let code_len = BEGIN.len() + EACH.len() + 2 * DISTANCE_BYTES + END.len();
    let table = code_len.next_multiple_of(size_of::<u64>());
    let mut code = BEGIN.to_vec();
    let behind = |code: &[u8]| at.0.wrapping_add((code.len() + DISTANCE_BYTES) as u64);
    let distance = encoding::distance(behind(&code), at.0.wrapping_add(table as u64))?;
    code.extend(distance.to_le_bytes());
    code.extend(EACH);
    let distance = encoding::distance(behind(&code), original.0)?;
    code.extend(distance.to_le_bytes());
    code.extend(END);
    code.resize(table, encoding::INT3);
    code.extend(known.iter().flat_map(KnownCode::entry).flat_map(u64::to_le_bytes));
    code.extend(0u64.to_le_bytes());
    Some((code, table))
}

#[cfg(test)]
mod tests {
    use callpath_format::address::LinkAddr;

    use super::*;
    use crate::listing::listing;

    #[test]
    fn it_reads_as_it_is_described() {
        let known =
            KnownCode { start: RunAddr(0x5000), end: RunAddr(0x6000), header: RunAddr(0x5800), home: RunAddr(0x4000) };
        let (code, table) = find_object(RunAddr(0x1000), RunAddr(0x900), &[known]).expect("it is near");
        assert_eq!(table, 80);
        let lines: Vec<String> = listing(&code[..74], LinkAddr(0x1000))
            .into_iter()
            .map(|line| format!("{:x} {}", line.address.0, line.text))
            .collect();
        assert_eq!(lines.join("\n").replace("qword ptr ", ""), EXPECTED);
        let words: Vec<u64> = code[80..].chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [0x5000, 0x6000, 0x5800, 0]);
        assert_eq!(find_object(RunAddr(0x1000), RunAddr(0x1_0000_0000), &[]), None);
    }

    const EXPECTED: &str = "\
1000 lea rax, [0x1050]
1007 mov rcx, [rax]
100a test rcx, rcx
100d je 0x900
1013 cmp rdi, rcx
1016 jb short 0x101e
1018 cmp rdi, [rax+8]
101c jb short 0x1024
101e add rax, 0x18
1022 jmp short 0x1007
1024 mov [rsi], 0
102b mov [rsi+8], rcx
102f mov rcx, [rax+8]
1033 mov [rsi+0x10], rcx
1037 mov [rsi+0x18], 0
103f mov rcx, [rax+0x10]
1043 mov [rsi+0x20], rcx
1047 xor eax, eax
1049 ret";
}
