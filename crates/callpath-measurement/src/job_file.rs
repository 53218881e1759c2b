//! The job file: which parallel job a measurement of several ranks is of, and which rank one of its directories.

use std::path::Path;

use crate::bytes::{KIND_JOB, Reader, finished, started};
use crate::error::MeasurementError;

/// No job has more ranks.
pub const MOST_RANKS: u32 = 1 << 24;

/// A parallel job, as its launcher names it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// What started it: `Open MPI`, `Slurm`, ...
    pub launcher: String,
    /// The launcher's id of the job: equal in all its ranks, and in no other job.
    pub id: String,
    /// How many ranks it has; none where the launcher does not say.
    pub size: Option<u32>,
}

/// One rank of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rank {
    /// The job.
    pub job: Job,
    /// Its number in the job, from 0.
    pub number: u32,
}

/// The bytes of a job file: of the whole (`rank` is none), or of the directory of one rank.
pub fn encode_job(job: &Job, rank: Option<u32>) -> Vec<u8> {
    let mut w = started(KIND_JOB);
    w.string(&job.launcher);
    w.string(&job.id);
    w.optional(job.size.map(u64::from));
    w.optional(rank.map(u64::from));
    finished(w)
}

/// A job file from its bytes: the job, and the rank if it is a rank's. `path` is for errors only.
pub fn decode_job(bytes: &[u8], path: &Path) -> Result<(Job, Option<u32>), MeasurementError> {
    let mut r = Reader::open(bytes, path, KIND_JOB)?;
    let mut job = Job { launcher: r.string()?, id: r.string()?, size: None };
    let mut number = |what, most: u32| match r.read(|r| r.optional())? {
        None => Ok(None),
        Some(number) => match u32::try_from(number).ok().filter(|number| *number <= most) {
            None => Err(r.error(what)),
            known => Ok(known),
        },
    };
    job.size = number("number of ranks", MOST_RANKS)?;
    let rank = number("rank", MOST_RANKS - 1)?;
    if job.size == Some(0) || rank.zip(job.size).is_some_and(|(rank, size)| rank >= size) {
        return Err(r.error("rank of a job"));
    }
    r.finish()?;
    Ok((job, rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nonsense_is_refused() {
        let job = Job { launcher: "Open MPI".into(), id: "1849688065".into(), size: Some(4) };
        let read = |bytes: &[u8]| decode_job(bytes, Path::new("J")).map_err(|error| error.to_string());
        for rank in [None, Some(0), Some(3)] {
            assert_eq!(read(&encode_job(&job, rank)), Ok((job.clone(), rank)));
        }
        let unknown = Job { size: None, ..job.clone() };
        assert_eq!(read(&encode_job(&unknown, Some(9))), Ok((unknown, Some(9))));
        let nonsense = |size, rank| read(&encode_job(&Job { size, ..job.clone() }, rank)).unwrap_err();
        assert!(nonsense(Some(u32::MAX), None).contains("number of ranks"));
        assert!(nonsense(None, Some(MOST_RANKS)).contains("nonsense") && nonsense(Some(0), None).contains("nonsense"));
        assert!(nonsense(Some(4), Some(4)).contains("rank of a job"));
        let whole = encode_job(&job, Some(1));
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            assert!(read(&damaged).is_err(), "{at}");
        }
    }
}
