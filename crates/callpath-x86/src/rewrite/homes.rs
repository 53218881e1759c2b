//! The table that says which module's code copies are of: for procedures that ask which module called them.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::find_object::KnownCode;
use crate::encode::{self, Register};
use crate::encoding;

/// The length of an entry, bytes: the first address of copies, one past the last, an address of the module's code.
const ENTRY_BYTES: u64 = KnownCode::ENTRY_BYTES;
const END: i8 = 8;
const HOME: i8 = 16;

/// The table's bytes. It ends with an entry of zeroes.
pub fn homes(known: &[KnownCode]) -> Vec<u8> {
    let words = known.iter().flat_map(home).chain([0; 3]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// An entry of it.
pub fn home(known: &KnownCode) -> [u64; 3] {
    [known.start, known.end, known.home].map(|address| address.0)
}

/// Writes what gives a register an address of the module whose copy it has one of. Flags change, and the second register does.
///
/// ```text
///         lea scratch, [rip + table]
/// each:   cmp qword [scratch], 0
///         je done
///         cmp [scratch], register         first address
///         ja next
///         cmp [scratch + 8], register     one past the last
///         ja found
/// next:   lea scratch, [scratch + 24]
///         jmp each
/// found:  mov register, [scratch + 16]
/// done:
/// ```
pub(super) fn look_up(out: &mut Assembler, register: Register, scratch: Register, table: LinkAddr) {
    const IS_EQUAL: u8 = 4;
    const IS_ABOVE: u8 = 7;
    let [each, next, found, done] = [(); 4].map(|()| out.label());
    out.opcode_to(&encode::address_beside_code(scratch), Target::Fixed(table.0));
    out.set_label(each);
    out.bytes(&encode::compare_long(scratch, 0, 0));
    out.near_to(encoding::near_branch(IS_EQUAL), Target::Label(done));
    out.bytes(&encode::compare_with(scratch, 0, register));
    out.near_to(encoding::near_branch(IS_ABOVE), Target::Label(next));
    out.bytes(&encode::compare_with(scratch, END, register));
    out.near_to(encoding::near_branch(IS_ABOVE), Target::Label(found));
    out.set_label(next);
    out.bytes(&encode::add_without_flags(scratch, ENTRY_BYTES as i32));
    out.near_to(encoding::SHORT_JUMP, Target::Label(each));
    out.set_label(found);
    out.bytes(&encode::load_from(register, scratch, HOME));
    out.set_label(done);
}

#[cfg(test)]
mod tests {
    use callpath_format::address::RunAddr;

    use super::*;
    use crate::listing::listing;

    #[test]
    fn it_reads_as_it_is_described() {
        let mut out = Assembler::new(0x1000);
        look_up(&mut out, 10, 1, LinkAddr(0x2000));
        let (code, _) = out.finish(|_| None).expect("it is near");
        let lines = listing(&code, LinkAddr(0x1000)).into_iter();
        let lines: Vec<String> = lines.map(|line| format!("{:x} {}", line.address.0, line.text)).collect();
        assert_eq!(lines.join("\n").replace("qword ptr ", ""), EXPECTED);
        let known = KnownCode { start: RunAddr(5), end: RunAddr(6), header: RunAddr(7), home: RunAddr(8) };
        let words: Vec<u8> = homes(&[known]).chunks(8).map(|word| word[0]).collect();
        assert_eq!(words, [5, 6, 8, 0, 0, 0]);
    }

    const EXPECTED: &str = "\
1000 lea rcx, [0x2000]
1007 cmp [rcx], 0
100f je short 0x102a
1011 cmp [rcx], r10
1015 ja short 0x101d
1017 cmp [rcx+8], r10
101b ja short 0x1026
101d lea rcx, [rcx+0x18]
1024 jmp short 0x1007
1026 mov r10, [rcx+0x10]";
}
