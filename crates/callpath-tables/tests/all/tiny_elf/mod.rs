//! The smallest shared object with call frame information: built by the tests, the same on every machine.
#![allow(dead_code)]

/// The code's link-time address.
pub(crate) const CODE: u64 = 0x1000;
/// The code's length, bytes.
pub(crate) const CODE_LEN_BYTES: u64 = 0x100;

/// One FDE: its code from [`CODE`] on, and its program.
pub(crate) type Fde<'a> = (std::ops::Range<u64>, &'a [u8]);

/// A shared object with code of `nop`s after its first eight bytes, and an `.eh_frame` without section headers. Its CIE
/// says `CFA = rsp + 8, return address = *(CFA - 8)`.
pub(crate) fn shared_object(first_code: [u8; 8], fdes: &[Fde<'_>]) -> Vec<u8> {
    let mut eh_frame = Vec::new();
    entry(&mut eh_frame, 0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1]);
    for (code, program) in fdes {
        let id = eh_frame.len() as u32 + 4;
        let mut body = [(CODE + code.start).to_le_bytes(), (code.end - code.start).to_le_bytes()].concat();
        body.push(0);
        body.extend(*program);
        entry(&mut eh_frame, id, &body);
    }
    eh_frame.extend([0; 4]);
    let hdr_at = CODE + CODE_LEN_BYTES;
    let eh_frame_at = hdr_at + 8;
    let file_len = eh_frame_at + eh_frame.len() as u64;

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([3u16, 62].map(u16::to_le_bytes).concat());
    file.extend(1u32.to_le_bytes());
    file.extend([0, 64, 0].map(u64::to_le_bytes).concat()); // entry, program headers, section headers
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 2, 64, 0, 0].map(u16::to_le_bytes).concat());
    let mut program_header = |kind: u32, flags: u32, at: u64, len: u64| {
        file.extend([kind, flags].map(u32::to_le_bytes).concat());
        file.extend([at, at, at, len, len, 0x1000].map(u64::to_le_bytes).concat());
    };
    program_header(1, 5, 0, file_len); // PT_LOAD, r-x
    program_header(0x6474_e550, 4, hdr_at, 8); // PT_GNU_EH_FRAME
    file.resize(CODE as usize, 0);
    file.extend(first_code);
    file.resize(hdr_at as usize, 0x90);
    // Version 1, the pointer relative to itself in four bytes, no table.
    file.extend([1, 0x1b, 0xff, 0xff]);
    file.extend(4u32.to_le_bytes());
    file.extend(eh_frame);
    file
}

fn entry(section: &mut Vec<u8>, id: u32, body: &[u8]) {
    section.extend((body.len() as u32 + 4).to_le_bytes());
    section.extend(id.to_le_bytes());
    section.extend(body);
}
