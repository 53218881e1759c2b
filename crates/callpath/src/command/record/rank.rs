//! Which rank of a parallel job this process is, by what launchers put into the environment.

use callpath_measurement::{Job, MOST_RANKS, Rank};

/// The variables of a launcher.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// The first that is set counts.
    size: &'static [&'static str],
    /// The first list of which all are set is the job's id.
    id: &'static [&'static [&'static str]],
}

/// What batch systems call a job. One job may start programs several times.
const BATCH: [&[&str]; 7] = [
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    &["PALS_APID"],
    &["PMI_JOBID"],
    &["PBS_JOBID"],
    &["LSB_JOBID"],
    &["COBALT_JOBID"],
    &["SLURM_JOB_ID"],
];

/// The first whose rank is set counts. An MPI library comes before the batch system: that may have started its daemons only, one a
/// host, whose ranks are no program's.
const LAUNCHERS: [Launcher; 6] = [
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        id: &[&["PMIX_NAMESPACE"], &["OMPI_MCA_ess_base_jobid"]],
    },
    Launcher { name: "MVAPICH2", rank: "MV2_COMM_WORLD_RANK", size: &["MV2_COMM_WORLD_SIZE"], id: &[&["MPIRUN_ID"]] },
    Launcher { name: "PMI", rank: "PMI_RANK", size: &["PMI_SIZE"], id: &BATCH },
    Launcher { name: "PMIx", rank: "PMIX_RANK", size: &["PMIX_SIZE"], id: &[&["PMIX_NAMESPACE"]] },
    Launcher { name: "Flux", rank: "FLUX_TASK_RANK", size: &["FLUX_JOB_SIZE"], id: &[&["FLUX_JOB_ID"]] },
    // Only `srun` sets the number of a step's tasks: a batch script has a rank, too, and is none.
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS"],
        id: &[&["SLURM_JOB_ID", "SLURM_STEP_ID"]],
    },
];

/// What a person says instead of a launcher: a rank, `RANK/SIZE`, or `none`.
const OWN_RANK: &str = "CALLPATH_RANK";
/// The id of the job, whatever the launcher calls it.
const OWN_JOB: &str = "CALLPATH_JOB";

/// No child of ours is a rank, whatever the environment says: its name and value.
pub(crate) const NO_RANK: (&str, &str) = (OWN_RANK, "none");

/// The rank that this process's environment says: see [`of_environment`].
pub(crate) fn own() -> anyhow::Result<Option<Rank>> {
    of_environment(|name| std::env::var(name).ok())
}

/// The rank that the environment says, by `variable`. None where it says none, or a job of one. An error where it makes no sense.
fn of_environment(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Rank>> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let number = |name: &str, text: &str, most: u32| {
        text.trim().parse::<u32>().ok().filter(|number| *number <= most).ok_or_else(|| {
            anyhow::anyhow!(
                "failed to find out which rank this is: {name} is {text:?}, and not a number up to {most}; {OWN_RANK}=none \
                 records no rank"
            )
        })
    };
    let (launcher, rank, size) = match set(OWN_RANK) {
        Some(none) if none == NO_RANK.1 => return Ok(None),
        Some(own) => {
            let (rank, size) = own.split_once('/').map_or((&*own, None), |(rank, size)| (rank, Some(size)));
            let size = size.map(|size| number(OWN_RANK, size, MOST_RANKS)).transpose()?;
            (None, number(OWN_RANK, rank, MOST_RANKS - 1)?, size)
        }
        None => {
            let Some((launcher, rank)) = LAUNCHERS.iter().find_map(|of| Some((of, set(of.rank)?))) else {
                return Ok(None);
            };
            let size = launcher.size.iter().find_map(|name| Some((name, set(name)?)));
            if size.is_none() && launcher.rank == "SLURM_PROCID" {
                return Ok(None);
            }
            let size = size.map(|(name, size)| number(name, &size, MOST_RANKS)).transpose()?;
            (Some(launcher), number(launcher.rank, &rank, MOST_RANKS - 1)?, size)
        }
    };
    if size.is_some_and(|size| rank >= size) {
        let size = size.unwrap_or_default();
        anyhow::bail!(
            "failed to find out which rank this is: it is rank {rank} of {size} by the environment, and ranks begin at 0; \
             {OWN_RANK}=none records no rank"
        );
    }
    if size == Some(1) {
        return Ok(None);
    }
    let ids = launcher.map_or(&BATCH[..], |launcher| launcher.id);
    let id = |names: &&[&str]| names.iter().map(|name| set(name)).collect::<Option<Vec<_>>>();
    let id = set(OWN_JOB).or_else(|| ids.iter().find_map(id).map(|words| words.join(".")));
    let id = match id {
        Some(id) => id,
        None => parent()?,
    };
    let launcher = launcher.map_or("environment", |launcher| launcher.name).to_owned();
    Ok(Some(Rank { job: Job { launcher, id, size }, number: rank }))
}

/// Ranks whose launcher says no id have a parent in common, on one host.
fn parent() -> anyhow::Result<String> {
    let pid = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The 22nd field; a name with blanks ends at the last bracket.
    let began = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(19));
    let began = began.ok_or_else(|| {
        anyhow::anyhow!(
            "failed to find out which job this rank is of: no variable says so; set {OWN_JOB} to a name of the job"
        )
    })?;
    Ok(format!("of-parent-{pid}-{began}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(set: &[(&str, &str)]) -> Result<Option<(u32, Option<u32>, String)>, String> {
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let rank = of_environment(variable).map_err(|error| error.to_string())?;
        Ok(rank.map(|rank| (rank.number, rank.job.size, format!("{} {}", rank.job.launcher, rank.job.id))))
    }

    fn is(rank: u32, size: u32, job: &str) -> Result<Option<(u32, Option<u32>, String)>, String> {
        Ok(Some((rank, Some(size), job.to_owned())))
    }

    #[test]
    fn each_launcher_says_it() {
        assert_eq!(found(&[("HOME", "/")]), Ok(None));
        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "18@1"),
            ("PMIX_RANK", "3"),
        ];
        assert_eq!(found(&ompi), is(3, 4, "Open MPI 18@1"));
        let slurm =
            [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "0")];
        assert_eq!(found(&slurm), is(1, 2, "Slurm 77.0"));
        // A batch script has no step's tasks.
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64"), ("SLURM_JOB_ID", "77")]), Ok(None));
        // Slurm started a library's daemons, one a host.
        assert_eq!(found(&[&ompi[..], &slurm[..]].concat()), is(3, 4, "Open MPI 18@1"));
        let hydra = [("PMI_RANK", "5"), ("PMI_SIZE", "8")];
        assert_eq!(found(&[&hydra[..], &slurm[..]].concat()), is(5, 8, "PMI 77.0"));
        assert_eq!(found(&[&hydra[..], &[("PBS_JOBID", "9.host")]].concat()), is(5, 8, "PMI 9.host"));
        let (_, _, job) = found(&hydra).unwrap().unwrap();
        assert!(job.starts_with("PMI of-parent-") && job == found(&hydra).unwrap().unwrap().2, "{job}");
        let flux = [("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2"), ("FLUX_JOB_ID", "f12")];
        assert_eq!(found(&flux), is(0, 2, "Flux f12"));
        let mv2 = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2"), ("MPIRUN_ID", "4711")];
        assert_eq!(found(&mv2), is(0, 2, "MVAPICH2 4711"));
        assert_eq!(found(&[("PMIX_RANK", "2"), ("PMIX_NAMESPACE", "n")]), Ok(Some((2, None, "PMIx n".into()))));
    }

    #[test]
    fn a_person_overrides_it() {
        let flux = [("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2"), ("FLUX_JOB_ID", "f12")];
        assert_eq!(found(&[&flux[..], &[("CALLPATH_JOB", "mine")]].concat()), is(0, 2, "Flux mine"));
        assert_eq!(found(&[&flux[..], &[NO_RANK]].concat()), Ok(None));
        assert_eq!(found(&[("CALLPATH_RANK", "7/9"), ("CALLPATH_JOB", "a b")]), is(7, 9, "environment a b"));
        assert_eq!(
            found(&[("CALLPATH_RANK", "7"), ("CALLPATH_JOB", "j")]),
            Ok(Some((7, None, "environment j".into())))
        );
    }

    #[test]
    fn nonsense_is_said_and_one_rank_is_none() {
        assert_eq!(found(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None));
        for (rank, size) in
            [("x", "4"), ("-1", "4"), ("4294967296", "4"), ("16777216", ""), ("0", "none"), ("4", "4"), ("0", "0")]
        {
            let said = found(&[("PMI_RANK", rank), ("PMI_SIZE", size)]).unwrap_err();
            assert!(
                said.starts_with("failed to find out which rank this is: ") && said.contains("CALLPATH_RANK=none"),
                "{said}"
            );
        }
    }
}
