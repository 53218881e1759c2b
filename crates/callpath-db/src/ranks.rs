//! The ranks of parallel jobs: which there are and which are missing, and what each costs.

mod cost;

pub use cost::{OverRanks, RankCosts, RankRow, Spread};

use crate::Name;
use crate::{Scope, ScopeKind};

/// The parallel job that a run is, with its ranks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct JobInfo {
    /// The number of its run, from 0.
    pub run: u32,
    /// What started it: `Open MPI`.
    pub launcher: String,
    /// The launcher's id of it.
    pub id: String,
    /// How many ranks it has had; none where that is not known.
    pub size: Option<u32>,
    /// The ranks that there is data of, in order.
    pub ranks: Vec<RankInfo>,
}

/// One rank of a job.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RankInfo {
    /// Its number, from 0.
    pub rank: u32,
    /// The host's name.
    pub host: String,
    /// Wall-clock time from start to end (or until now), in nanoseconds.
    pub duration_ns: u64,
    /// How it ended, as [`crate::RunInfo::exit`]; none while it runs.
    pub exit: Option<String>,
}

impl JobInfo {
    /// Ranks of which there is no data: first and last of each gap.
    pub fn missing(&self) -> Vec<(u32, u32)> {
        let mut missing = Vec::new();
        let mut next = 0;
        // As far as is known there is none behind the last.
        let ends = self.ranks.iter().map(|rank| rank.rank).chain(self.size);
        for end in ends {
            if end > next {
                missing.push((next, end - 1));
            }
            next = next.max(end.saturating_add(1));
        }
        missing
    }

    /// How many these are.
    pub fn missing_count(&self) -> u64 {
        self.missing().iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// How many hosts its ranks ran on.
    pub fn hosts(&self) -> usize {
        self.ranks.iter().map(|rank| rank.host.as_str()).collect::<std::collections::BTreeSet<_>>().len()
    }
}

/// Numbers in order, as words: `2, 5 to 7`.
pub fn listed(ranges: &[(u32, u32)]) -> String {
    const NAMED: usize = 8;
    let word = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let count = |ranges: &[(u32, u32)]| ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum::<u64>();
    let (named, more) = ranges.split_at(ranges.len().min(NAMED));
    let mut words = named.iter().map(word).collect::<Vec<_>>().join(", ");
    if !more.is_empty() {
        words += &format!(" and {} more", count(more));
    }
    words
}

/// Ascending numbers as ranges.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

impl Scope {
    /// The scope of a rank; `name` is its number as a text.
    pub fn rank(name: Name, rank: u32) -> Scope {
        Scope { discriminator: u64::from(rank), ..Scope::new(ScopeKind::Rank, name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_found_at_both_ends_and_between() {
        let job = |size, ranks: &[u32]| {
            let ranks = ranks.iter().map(|&rank| RankInfo { rank, ..RankInfo::default() }).collect();
            let job = JobInfo { size, ranks, ..JobInfo::default() };
            assert_eq!(job.missing_count(), job.missing().iter().map(|(a, b)| u64::from(b - a) + 1).sum::<u64>());
            listed(&job.missing())
        };
        assert_eq!(job(Some(4), &[0, 1, 2, 3]), "");
        assert_eq!(job(Some(9), &[1, 2, 5]), "0, 3, 4, 6 to 8");
        assert_eq!(job(None, &[1, 5]), "0, 2 to 4");
        assert_eq!(job(Some(16_000_000), &[]), "0 to 15999999");
        let odd: Vec<u32> = (0..20).map(|number| 2 * number + 1).collect();
        assert_eq!(job(Some(40), &odd), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
        assert_eq!(ranges([1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
    }
}
