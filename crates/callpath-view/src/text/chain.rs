//! A chain of calls that leads straight down: finds frames that recur.

use std::hash::{DefaultHasher, Hash, Hasher};

use callpath_db::{Name, Scope};

/// Equal for scopes that a person calls the same.
pub(super) fn key(scope: &Scope) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope.kind, scope.name, scope.module, scope.file, scope.discriminator).hash(&mut hasher);
    if scope.kind.is_body() || scope.name == Name::EMPTY {
        (scope.line, scope.address).hash(&mut hasher);
    }
    hasher.finish()
}

/// Periods of recursion that are recognised: an interpreter takes a dozen frames for each call that it interprets.
const MAX_PERIOD: usize = 32;

/// A frame that recurs at equal distances; positions count from the chain's first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repeat {
    pub(super) first: usize,
    /// Frames from one to the next.
    pub(super) period: usize,
    /// How often it is there.
    pub(super) times: usize,
}

impl Repeat {
    pub(super) fn once(first: usize) -> Repeat {
        Repeat { first, period: 1, times: 1 }
    }
}

/// The frames of a chain, those that recur once each. `keys` are equal for frames of one name.
pub(super) fn repeats(keys: &[u64]) -> Vec<Repeat> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < keys.len() {
        // The period that covers most; of equals, the shortest. It must save two rows, or be a plain repetition.
        let (mut period, mut times) = (1, 1);
        for candidate in 1..=MAX_PERIOD.min((keys.len() - at) / 2) {
            let unit = &keys[at..at + candidate];
            let count = keys[at..].chunks_exact(candidate).take_while(|chunk| *chunk == unit).count();
            let saves = count > 1 && (candidate == 1 || candidate * (count - 1) > 2);
            if saves && candidate * count > period * times {
                (period, times) = (candidate, count);
            }
        }
        found.extend((0..period).map(|phase| Repeat { first: at + phase, period, times }));
        at += period * times;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chain: &str, expected: &str) {
        let frames: Vec<char> = chain.chars().collect();
        let keys: Vec<u64> = frames.iter().map(|&frame| frame as u64).collect();
        let shown: Vec<String> = repeats(&keys)
            .iter()
            .map(|repeat| match repeat.times {
                1 => frames[repeat.first].to_string(),
                times => format!("{}*{times}", frames[repeat.first]),
            })
            .collect();
        assert_eq!(shown.join(" "), expected, "{chain}");
    }

    #[test]
    fn recursion_is_said_once() {
        check("", "");
        check("mfffffg", "m f*5 g");
        check("mabababag", "m a*3 b*3 a g");
        check("abab", "a b a b");
        check("abcabcd", "a*2 b*2 c*2 d");
        check("aabaabaabx", "a*3 a*3 b*3 x");
    }
}
