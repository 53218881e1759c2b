//! The processors of this machine.

/// The processors that are online.
pub(crate) fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = parse_processors(&text);
    if online.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        return (0..count).collect();
    }
    online
}

/// From the kernel's form: numbers and ranges, with commas.
fn parse_processors(text: &str) -> Vec<u32> {
    const MOST: u32 = 1 << 14;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(MOST))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_as_the_kernel_lists_them() {
        assert_eq!(parse_processors("0-2,4,6-7\n"), [0, 1, 2, 4, 6, 7]);
        assert_eq!(parse_processors(""), [0; 0]);
        assert_eq!(processors().len(), std::thread::available_parallelism().map_or(1, usize::from));
    }
}
