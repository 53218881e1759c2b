//! Measures padding: the instructions and zeros that only fill space between procedures.

use crate::instruction::Listing;

/// The length of the instructions and zeros at the beginning of `code` that only fill space, bytes.
pub fn padding_len(code: &[u8]) -> usize {
    let padding = Listing::new(code, 0).take_while(|(_, instruction)| instruction.is_padding());
    let len = padding.map(|(_, instruction)| instruction.len() as usize).sum();
    let rest = code.get(len..).unwrap_or(&[]);
    if rest.iter().all(|byte| *byte == 0) { code.len() } else { len }
}

#[cfg(test)]
mod tests {
    use super::padding_len;

    #[test]
    fn fillers_end_at_the_first_real_instruction() {
        // nopw cs:[rax+rax]; nop; ret (as objdump reads the bytes)
        let code = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90, 0xc3];
        assert_eq!(padding_len(&code), 11);
        assert_eq!(padding_len(&[0xcc; 5]), 5);
        assert_eq!(padding_len(&[0x90, 0, 0, 0]), 4);
        assert_eq!(padding_len(&[0xc3, 0x90]), 0);
        assert_eq!(padding_len(&[]), 0);
    }
}
