//! Which scope is innermost where: all scopes' ranges laid over each other, inner ones above outer ones.
//!
//! Ranges of broken or careless tables overlap without nesting; the one with the greatest number wins, as in LLVM.

use std::collections::BinaryHeap;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::unit::NONE;

/// Takes ranges with the number of their scope, in any order. Gives where the uppermost scope changes, ascending, and
/// which it is from there on.
pub(super) fn paint(mut ranges: Vec<(Range<LinkAddr>, u32)>) -> (Vec<u64>, Vec<u32>) {
    ranges.sort_unstable_by_key(|(range, scope)| (range.start, *scope));
    let mut painter = Painter::default();
    for (range, scope) in ranges {
        painter.finish_before(range.start.0);
        painter.active.push((scope, range.end.0));
        painter.at = range.start.0;
        painter.show();
    }
    painter.finish_before(u64::MAX);
    (painter.addrs, painter.scopes)
}

#[derive(Default)]
struct Painter {
    /// Scope and end; the greatest scope is above. Some may have ended already.
    active: BinaryHeap<(u32, u64)>,
    at: u64,
    addrs: Vec<u64>,
    scopes: Vec<u32>,
}

impl Painter {
    /// Goes on to `limit`, past the ends of what lies before it.
    fn finish_before(&mut self, limit: u64) {
        while let Some(&(_, end)) = self.active.peek() {
            if end > limit {
                return;
            }
            self.active.pop();
            if end > self.at {
                self.at = end;
            }
            // What ended below it meanwhile goes too.
            while self.active.peek().is_some_and(|&(_, end)| end <= self.at) {
                self.active.pop();
            }
            self.show();
        }
    }

    fn show(&mut self) {
        let scope = self.active.peek().map_or(NONE, |&(scope, _)| scope);
        if self.addrs.last() == Some(&self.at) {
            self.addrs.pop();
            self.scopes.pop();
        }
        if self.scopes.last() != Some(&scope) {
            self.addrs.push(self.at);
            self.scopes.push(scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(ranges: &[(u64, u64, u32)]) -> Vec<(u64, Option<u32>)> {
        let ranges = ranges.iter().map(|&(start, end, scope)| (LinkAddr(start)..LinkAddr(end), scope)).collect();
        let (addrs, scopes) = paint(ranges);
        addrs.into_iter().zip(scopes.into_iter().map(|scope| (scope != NONE).then_some(scope))).collect()
    }

    #[test]
    fn inner_scopes_lie_above_outer_ones() {
        assert_eq!(
            painted(&[(10, 50, 0), (20, 40, 1), (25, 30, 2), (40, 45, 3), (60, 70, 4)]),
            [
                (10, Some(0)),
                (20, Some(1)),
                (25, Some(2)),
                (30, Some(1)),
                (40, Some(3)),
                (45, Some(0)),
                (50, None),
                (60, Some(4)),
                (70, None)
            ]
        );
    }

    #[test]
    fn overlapping_and_touching_ones() {
        assert_eq!(painted(&[(10, 30, 1), (20, 40, 0)]), [(10, Some(1)), (30, Some(0)), (40, None)]);
        assert_eq!(painted(&[(10, 30, 0), (20, 40, 1)]), [(10, Some(0)), (20, Some(1)), (40, None)]);
        assert_eq!(painted(&[(10, 20, 0), (10, 20, 1)]), [(10, Some(1)), (20, None)]);
        assert_eq!(painted(&[(10, 20, 0), (20, 30, 0)]), [(10, Some(0)), (30, None)]);
        assert_eq!(
            painted(&[(10, 20, 2), (12, 15, 0), (30, 31, 1)]),
            [(10, Some(2)), (20, None), (30, Some(1)), (31, None)]
        );
        assert_eq!(painted(&[]), []);
    }
}
