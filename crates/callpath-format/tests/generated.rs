//! A stretch of generated code, its bytes written out by hand from the description.

use callpath_format::address::RunAddr;
use callpath_format::shared::generated::{CheckedProcedure, GeneratedStretch, head_bytes};

const START: u64 = 0x7f00_0000_1000;

/// Two procedures, at -4 and at 0x20 of 16 and 9 bytes; the stretch is 64 bytes long; a call ends at 0x25.
fn block() -> Vec<u8> {
    let mut bytes = b"CPWRIT01".to_vec();
    bytes.extend(START.to_le_bytes());
    for word in [64u32, 2, 72, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for (start, len, mark) in [(-4i32, 16u32, 7u64), (0x20, 9, 8)] {
        bytes.extend(start.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(mark.to_le_bytes());
    }
    bytes.extend([0, 0, 0, 0, 0x20, 0, 0, 0]);
    bytes
}

#[test]
fn what_the_bytes_say() {
    let bytes = block();
    assert_eq!(bytes[..32], head_bytes(RunAddr(START), 64, 2, 72));
    let generated = GeneratedStretch::new(&bytes).unwrap();
    let first = CheckedProcedure { start: RunAddr(START - 4), len_bytes: 16, mark: 7 };
    let second = CheckedProcedure { start: RunAddr(START + 0x20), len_bytes: 9, mark: 8 };
    assert_eq!(bytes[32..48], first.to_bytes(RunAddr(START)));
    for (offset, expected) in
        [(-5i64, None), (-4, Some(first)), (11, Some(first)), (12, None), (0x20, Some(second)), (0x29, None)]
    {
        assert_eq!(generated.procedure_at(RunAddr(START.wrapping_add_signed(offset))), expected, "{offset}");
    }
    let ends: Vec<u64> = (0..64).filter(|&offset| generated.is_call_end(RunAddr(START + offset))).collect();
    assert_eq!(ends, [0x25]);
    assert!(!generated.is_call_end(RunAddr(START - 1)) && !generated.is_call_end(RunAddr(START + 64)));
    assert!(generated.table().is_none(), "there is none behind the last byte");
}

#[test]
fn a_mark_takes_in_every_byte_and_no_other() {
    let code: Vec<u8> = (0..40).collect();
    let read = |code: &[u8], at: u64| {
        let bytes = code.get(at as usize..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    for len_bytes in 8..=24 {
        let procedure = CheckedProcedure { start: RunAddr(5), len_bytes, mark: 0 };
        let mark = procedure.mark_now(|at| read(&code, at)).unwrap();
        for index in 0..code.len() {
            let mut other = code.clone();
            other[index] ^= 1;
            let is_inside = (5..5 + len_bytes as usize).contains(&index);
            let now = procedure.mark_now(|at| read(&other, at)).unwrap();
            assert_eq!(now != mark, is_inside, "{len_bytes} bytes, byte {index}");
        }
        assert_eq!(procedure.mark_now(|at| read(&code[..5 + len_bytes as usize - 1], at)), None);
    }
    assert_eq!(CheckedProcedure { start: RunAddr(0), len_bytes: 7, mark: 0 }.mark_now(|_| Some(0)), None);
}

#[test]
fn cut_and_damaged_blocks_are_none_or_end() {
    let bytes = block();
    for len in 0..72 {
        assert!(GeneratedStretch::new(&bytes[..len]).is_none(), "{len}");
    }
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << bit;
            let Some(generated) = GeneratedStretch::new(&damaged) else { continue };
            for addr in [0, START - 4, START, START + 0x25, u64::MAX] {
                if let Some(procedure) = generated.procedure_at(RunAddr(addr)) {
                    assert!(procedure.start.0 <= addr);
                }
                generated.is_call_end(RunAddr(addr));
            }
            generated.table();
        }
    }
}
