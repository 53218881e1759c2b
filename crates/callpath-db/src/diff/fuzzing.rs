//! The entry of the fuzzer of differences.

use super::{Diff, DiffError, DiffOptions};
use crate::{Metric, MetricId, NodeId, Profile, Scope, ScopeKind, ViewKind};

/// What scopes are called: pairs that are one procedure, and others that look like it.
const NAMES: [&str; 12] = [
    "f",
    "f(int)",
    "f(long)",
    "g.part.0",
    "g",
    "std::v<int>::at",
    "int& std::v<int, std::allocator<int> >::at(unsigned long)",
    "h::{lambda#1}",
    "h()::{lambda(int)#1}::operator()(int) const",
    "<A as B<fn() -> C>>::deref",
    "operator<",
    "",
];

/// For a fuzzer: any bytes as two trees. Whatever they are, what they cost adds up.
pub fn fuzz_diff(bytes: &[u8]) {
    let Some((at, rest)) = bytes.split_first() else { return };
    let (a, b) = rest.split_at(rest.len() * usize::from(*at) / 256);
    let sides = [profile(a), profile(b)];
    for view in [ViewKind::Callers, ViewKind::Flat] {
        let options = DiffOptions { view: Some(view), fail_above: Some(0.05), ..DiffOptions::default() };
        match Diff::of(&sides[..1], &sides[1..], &options) {
            Ok(diff) => check(&diff, &sides),
            Err(DiffError::Query(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn check(diff: &Diff, sides: &[Profile; 2]) {
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()));
    for (side, profile) in sides.iter().enumerate() {
        let of = |change: &super::Change| [change.a, change.b][side];
        let total: u64 = profile.tree.nodes().map(|node| profile.tree.values(node).get(0)).sum();
        assert!(is_near(of(&diff.total), total as f64), "{total}");
        let frames = diff.contexts.iter().filter(|row| row.kind != ScopeKind::Loop);
        assert!(is_near(frames.map(|row| of(&row.own)).sum(), total as f64), "contexts");
        for rows in [&diff.callers, &diff.flat].into_iter().filter(|rows| !rows.is_empty()) {
            let top: f64 = rows.iter().filter(|row| row.parent == Some(0)).map(|row| of(&row.own)).sum();
            let of_root = diff.contexts.first().map_or(0.0, |root| of(&root.own));
            assert!(is_near(top + of_root, total as f64), "{top} of {total}");
        }
        let matched = [diff.matched.both, diff.matched.at_caller].map(|shares| shares[side]);
        assert!(
            matched.iter().all(|share| (0.0..=1.0 + 1e-9).contains(share)) && matched[0] + matched[1] <= 1.0 + 1e-9
        );
    }
}

/// A tree that is walked as the bytes say: up, down into a scope, or a cost where it stands.
fn profile(bytes: &[u8]) -> Profile {
    const MOST_STEPS: usize = 4096;
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)]);
    let mut path = vec![NodeId::ROOT];
    for pair in bytes.chunks_exact(2).take(MOST_STEPS) {
        let node = path.last().copied().unwrap_or(NodeId::ROOT);
        match pair[0] % 8 {
            0 if path.len() > 1 => {
                path.pop();
            }
            1..=4 => {
                let name = NAMES[usize::from(pair[1]) % NAMES.len()];
                let kind = [ScopeKind::Procedure, ScopeKind::Inlined, ScopeKind::Loop, ScopeKind::Partial]
                    [usize::from(pair[0] % 4)];
                let module = Some(profile.strings.intern(["app", "lib.so.1", ""][usize::from(pair[1] / 16) % 3]));
                let line = Some(u32::from(pair[1] / 64));
                let address = Some(u64::from(pair[1]));
                let name = profile.strings.intern(name);
                path.push(profile.tree.child(node, Scope { module, line, address, ..Scope::new(kind, name) }));
            }
            _ => {
                let samples = u64::from(pair[1]);
                profile.tree.add(node, &[samples * 1000, samples]);
            }
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_compared_adds_up() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..400 {
            let bytes: Vec<u8> = (0..random.usize(0..600)).map(|_| random.u8(..)).collect();
            // Half of them have more in common.
            let bytes: Vec<u8> = bytes.iter().map(|byte| if round % 2 == 0 { byte % 37 } else { *byte }).collect();
            fuzz_diff(&bytes);
        }
        fuzz_diff(&[]);
        fuzz_diff(&[128]);
    }
}
