//! A chain of calls that leads straight down: shows repeated frames once and leaves out long rows of dull ones.
//! The caller decides what is dull.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

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

/// One line for one or several frames of a chain; positions count from the chain's first frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// The frame at `first`, and every `period` frames again, `times` in all.
    Frame { first: usize, times: usize, period: usize },
    /// These many frames in which nothing happens.
    Skipped { first: usize, frames: usize },
}

/// Condenses these frames of a chain. `key(i)` is equal for frames of one name; a frame is dull when it costs
/// next to nothing itself. Of more than `ahead + behind` dull lines in a row these many stay at each end.
pub(super) fn condense(
    frames: Range<usize>,
    key: impl Fn(usize) -> u64,
    dull: impl Fn(&Link) -> bool,
    (ahead, behind): (usize, usize),
) -> Vec<Link> {
    leave_out(repeats(frames, key), dull, ahead, behind)
}

fn repeats(frames: Range<usize>, key: impl Fn(usize) -> u64) -> Vec<Link> {
    let from = frames.start;
    let keys: Vec<u64> = frames.map(key).collect();
    let mut links = Vec::new();
    let mut at = 0;
    while at < keys.len() {
        // The period that covers most; of equals, the shortest. It must save two lines, or be a plain repetition.
        let (mut period, mut times) = (1, 1);
        for candidate in 1..=MAX_PERIOD.min((keys.len() - at) / 2) {
            let unit = &keys[at..at + candidate];
            let found = keys[at..].chunks_exact(candidate).take_while(|chunk| *chunk == unit).count();
            let saves = found > 1 && (candidate == 1 || candidate * (found - 1) > 2);
            if saves && candidate * found > period * times {
                (period, times) = (candidate, found);
            }
        }
        links.extend((0..period).map(|phase| Link::Frame { first: from + at + phase, times, period }));
        at += period * times;
    }
    links
}

fn leave_out(links: Vec<Link>, dull: impl Fn(&Link) -> bool, ahead: usize, behind: usize) -> Vec<Link> {
    let mut kept = Vec::with_capacity(links.len());
    let mut rest = links.into_iter().peekable();
    while rest.peek().is_some() {
        let mut run = Vec::new();
        while let Some(link) = rest.next_if(|link| dull(link)) {
            run.push(link);
        }
        if run.len() > ahead.saturating_add(behind).saturating_add(1) {
            let middle = ahead..run.len() - behind;
            let skipped = &run[middle.clone()];
            let frames = skipped.iter().map(|link| if let Link::Frame { times, .. } = link { *times } else { 1 }).sum();
            let first = if let Some(Link::Frame { first, .. }) = skipped.first() { *first } else { 0 };
            run.splice(middle, [Link::Skipped { first, frames }]);
        }
        kept.append(&mut run);
        kept.extend(rest.next());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters are frames, upper case ones cost something themselves.
    fn check(chain: &str, ends: usize, expected: &str) {
        let frames: Vec<char> = chain.chars().collect();
        let costs = |link: &Link| matches!(link, Link::Frame { first, .. } if frames[*first].is_uppercase());
        let links = condense(0..frames.len(), |i| frames[i] as u64, |link| !costs(link), (ends, ends));
        let shown: Vec<String> = links
            .iter()
            .map(|link| match link {
                Link::Frame { first, times: 1, .. } => frames[*first].to_string(),
                Link::Frame { first, times, .. } => format!("{}*{times}", frames[*first]),
                Link::Skipped { frames, .. } => format!("({frames})"),
            })
            .collect();
        assert_eq!(shown.join(" "), expected, "{chain}");
    }

    #[test]
    fn recursion_is_said_once() {
        check("", 9, "");
        check("mfffffg", 9, "m f*5 g");
        check("mabababag", 9, "m a*3 b*3 a g");
        check("abab", 9, "a b a b");
        check("abcabcd", 9, "a*2 b*2 c*2 d");
        check("aabaabaabx", 9, "a*3 a*3 b*3 x");
    }

    #[test]
    fn a_long_dull_chain_loses_its_middle() {
        check("abcdefghij", 2, "a b (6) i j");
        check("abcdEfghijk", 2, "a b c d E f g (2) j k");
        check("abcde", 2, "a b c d e");
        check("abcd", 2, "a b c d");
        check("abxxxxxyzcdX", 2, "a b (7) c d X");
    }
}
