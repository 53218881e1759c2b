//! Reads and writes decimal numbers, without allocation.

/// Parses a number. `None`: no digits, another character, or too many digits.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| {
        let digit = d.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The digits of a number.
pub fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut begin = digits.len();
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        if number == 0 && begin < 10 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        begin = index;
    }
    digits.get(begin..).unwrap_or(b"0")
}
