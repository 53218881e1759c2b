//! Ranks of parallel jobs: each is recorded by a recorder of its own into one directory, and they are read as one measurement.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use callpath_end_to_end::{C, Program, callpath, is_root, skip};
use serde_json::Value;

const PLAIN: C = C { source: "ranks.c", output: "ranks", options: &["-g", "-O2"] };
const MPI: C = C { source: "ranks.c", output: "ranks-mpi", options: &["compiler=mpicc", "-g", "-O2", "-DWITH_MPI"] };

/// A recording by one rank. The launcher's variables are ours.
fn rank(rank: u32, size: u32, job: &str, directory: &Path) -> Command {
    let program = Program::compiled(PLAIN).path().to_owned();
    let mut command = Command::new(callpath());
    for name in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "CALLPATH_RANK", "CALLPATH_JOB"] {
        command.env_remove(name);
    }
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string()).env("PBS_JOBID", job);
    command.env("RANK", rank.to_string()).args(["record", "-o"]).arg(directory).arg("--").arg(program);
    command
}

/// Ranks that run at once; all succeed.
fn run_ranks(ranks: impl IntoIterator<Item = u32>, size: u32, directory: &Path, arguments: &[&str]) {
    let ranks = ranks.into_iter().map(|number| {
        let mut command = rank(number, size, "7.host", directory);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("callpath can be run")
    });
    for rank in ranks.collect::<Vec<_>>() {
        let output = rank.wait_with_output().expect("an end");
        assert!(output.status.success(), "{}", text(&output));
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn run(arguments: &[&str], directory: &Path) -> Output {
    Command::new(callpath()).args(arguments).current_dir(directory).output().expect("callpath can be run")
}

fn json(arguments: &[&str], directory: &Path) -> Value {
    let output = run(arguments, directory);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
}

fn numbers(values: &Value) -> Vec<u64> {
    values.as_array().expect("a list").iter().map(|value| value.as_u64().expect("a number")).collect()
}

/// What a procedure costs in each rank, with all that it calls.
fn costs(ranks: &Value, procedure: &str) -> Vec<u64> {
    let procedures = ranks["procedures"].as_array().expect("procedures");
    let found = procedures.iter().find(|found| found["name"] == procedure);
    numbers(&found.unwrap_or_else(|| panic!("no {procedure}"))["inclusive"])
}

/// The first rank does one part, the second two, and so on, of `uneven`; all do one part of `even`.
fn are_as_uneven_as_they_were_made(ranks: &Value, count: u64) {
    let (even, uneven) = (costs(ranks, "even"), costs(ranks, "uneven"));
    assert_eq!((even.len() as u64, uneven.len() as u64), (count, count));
    for rank in 0..count as usize {
        // On a busy machine a processor's speed varies; parts differ by more than this.
        let parts = uneven[rank] as f64 / even[rank] as f64;
        let expected = rank as f64 + 1.0;
        assert!(
            (parts / expected - 1.0).abs() < 0.3,
            "rank {rank}: {parts:.2} parts of {expected}: {even:?} {uneven:?}"
        );
    }
}

#[test]
fn ranks_that_the_environment_says_are_one_measurement() {
    let here = tempfile::tempdir().expect("a directory");
    let all = here.path().join("all");
    run_ranks(0..8, 8, &all, &["100"]);
    let page = text(&run(&["report", "all"], here.path()));
    assert!(page.contains("  8 ranks, ran ") && page.contains("exit status 0, 8 processes"), "{page}");
    assert!(page.contains(" at most (rank 7)"), "{page}");
    let ranks = json(&["report", "all", "--ranks", "--json"], here.path());
    assert_eq!(numbers(&ranks["ranks"]), (0..8).collect::<Vec<_>>());
    are_as_uneven_as_they_were_made(&ranks, 8);

    // The same from a database, alone and merged with another job.
    for merged in [&["merge", "all", "-o", "one.db"][..], &["merge", "one.db", "all", "-o", "two.db"]] {
        let output = run(merged, here.path());
        assert!(output.status.success(), "{}", text(&output));
    }
    assert_eq!(json(&["report", "one.db", "--ranks", "--json"], here.path()), ranks);
    let twice = json(&["report", "two.db", "--ranks", "--json"], here.path());
    assert_eq!(costs(&twice, "uneven"), costs(&ranks, "uneven").iter().map(|cost| 2 * cost).collect::<Vec<_>>());

    // JSON has each rank, and in it its process.
    let view = json(&["report", "all", "--json"], here.path());
    let nodes = view["nodes"].as_array().expect("nodes");
    let of_kind = |kind: &str| nodes.iter().filter(|node| node["kind"] == kind).count();
    assert_eq!((of_kind("rank"), of_kind("process")), (8, 8));
    assert_eq!(view["run"]["processes"][3]["rank"], 3);
    assert_eq!(view["run"]["jobs"][0]["id"], "7.host");
    let total: u64 =
        nodes.iter().filter(|node| node["kind"] == "rank").map(|node| node["inclusive"][0].as_u64().unwrap()).sum();
    assert_eq!(Some(total), nodes[0]["inclusive"][0].as_u64());

    let page = text(&run(&["report", "all", "--ranks", "--plot", "main > uneven"], here.path()));
    assert!(page.contains("main › uneven in each rank by cpu-time") && page.contains("████████"), "{page}");
    assert!(page.contains("▁▂") && page.contains("main › uneven › work"), "{page}");
    let page = text(&run(&["report", "all", "--per-rank"], here.path()));
    assert!(page.contains(" rank 0\n") && page.contains(" rank 7\n"), "{page}");
    // One run of eight ranks, not eight runs.
    let diff = json(&["diff", "all", "one.db", "--json"], here.path());
    assert_eq!(diff["runs"], serde_json::json!([1, 1]));
    let folded = text(&run(&["export", "--format", "folded", "all"], here.path()));
    assert!(folded.lines().any(|line| line.starts_with("ranks;") || line.contains(";main;uneven;")), "{folded}");
    assert!(!folded.contains("rank 3"), "{folded}");
}

#[test]
fn processes_that_a_rank_forks_are_the_rank_s() {
    let here = tempfile::tempdir().expect("a directory");
    run_ranks(0..3, 3, &here.path().join("forks"), &["100", "fork"]);
    let ranks = json(&["report", "forks", "--ranks", "--json"], here.path());
    are_as_uneven_as_they_were_made(&ranks, 3);
    let view = json(&["report", "forks", "--json"], here.path());
    let of: Vec<u64> =
        view["run"]["processes"].as_array().expect("processes").iter().map(|p| p["rank"].as_u64().unwrap()).collect();
    assert_eq!(of, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn what_is_there_is_kept_and_what_is_missing_is_said() {
    let here = tempfile::tempdir().expect("a directory");
    let all = here.path().join("all");
    run_ranks([0, 1, 3], 6, &all, &["20"]);
    let before = json(&["report", "all", "--ranks", "--json"], here.path());
    let refused = |mut command: Command, said: &str| {
        let output = command.arg("20").output().expect("callpath can be run");
        assert_eq!(output.status.code(), Some(125), "{}", text(&output));
        assert!(text(&output).contains(said) && !text(&output).contains("rank 1\n"), "{}", text(&output));
    };
    refused(rank(1, 6, "7.host", &all), "rank 1 of this job is there already");
    refused(rank(2, 6, "8.host", &all), "it holds job 7.host of 6 ranks, and this is job 8.host of 6 ranks");
    refused(rank(2, 5, "7.host", &all), "and this is job 7.host of 5 ranks");
    refused(rank(6, 6, "7.host", &all), "it is rank 6 of 6 by the environment");
    let mut absurd = rank(2, 6, "7.host", &all);
    absurd.env("PMI_RANK", "18446744073709551616");
    refused(absurd, "PMI_RANK is \"18446744073709551616\"");
    let mut alone = rank(0, 6, "7.host", &all);
    alone.env("CALLPATH_RANK", "none");
    refused(alone, "it exists already");
    assert_eq!(json(&["report", "all", "--ranks", "--json"], here.path()), before);

    let page = text(&run(&["report", "all"], here.path()));
    assert!(page.contains("3 of 6 ranks") && page.contains("RANKS 2, 4, 5 ARE MISSING"), "{page}");
    // Files of a rank are cut: of its process, then of the whole.
    let of_rank = |rank: u32| -> PathBuf {
        let entries = std::fs::read_dir(all.join(format!("rank-{rank}"))).expect("the rank's directory");
        let mut files = entries.map(|entry| entry.expect("an entry").path());
        files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("process-")).expect("a process")
    };
    let cut = |path: &Path, len: usize| {
        let bytes = std::fs::read(path).expect("the file");
        std::fs::write(path, &bytes[..len.min(bytes.len() - 1)]).expect("it can be written");
    };
    cut(&of_rank(1), 40);
    let page = text(&run(&["report", "all"], here.path()));
    assert!(page.contains("rank-1/process-0-") && page.contains("3 of 6 ranks"), "{page}");
    cut(&all.join("rank-3/session"), 100);
    let page = text(&run(&["report", "all"], here.path()));
    assert!(
        page.contains("rank-3/session: it ends at byte 100") && page.contains("RANKS 2 to 5 ARE MISSING"),
        "{page}"
    );
    assert_eq!(numbers(&json(&["report", "all", "--ranks", "--json"], here.path())["ranks"]), [0, 1]);
    std::fs::remove_dir_all(all.join("rank-0")).expect("it goes");
    std::fs::remove_dir_all(all.join("rank-1")).expect("it goes");
    let output = run(&["report", "all"], here.path());
    assert!(output.status.code() == Some(1) && text(&output).contains("rank-3/session"), "{}", text(&output));
}

#[test]
fn ranks_without_a_name_go_to_the_directory_of_their_job() {
    let here = tempfile::tempdir().expect("a directory");
    let program = Program::compiled(PLAIN).path().to_owned();
    let run_both = || {
        for number in 0..2 {
            let mut command = rank(number, 2, "7.host", Path::new("x"));
            let command = command.current_dir(here.path()).env_remove("CALLPATH_OUTPUT");
            let mut unnamed = Command::new(callpath());
            unnamed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(here.path());
            let output = unnamed.args(["record", "--"]).arg(&program).arg("10").output().expect("callpath can be run");
            assert!(output.status.success(), "{}", text(&output));
            // One says it for all.
            assert_eq!(
                text(&output).contains("recorded 2 ranks to ranks-job-7.host"),
                number == 0,
                "{}",
                text(&output)
            );
        }
    };
    run_both();
    run_both();
    for directory in ["ranks-job-7.host.callpath", "ranks-job-7.host-2.callpath"] {
        let page = text(&run(&["report", directory], here.path()));
        assert!(page.contains("  2 ranks, ran "), "{page}");
    }
    // The newest one.
    let page = text(&run(&["report"], here.path()));
    assert!(page.contains("report ranks-job-7.host-2.callpath"), "{page}");
}

/// Runs `mpirun -n 4 callpath record -o DIRECTORY`.
fn mpirun(directory: &Path, arguments: &[&str]) -> Output {
    let program = Program::compiled(MPI).path().to_owned();
    let mut command = Command::new("mpirun");
    if is_root() {
        command.arg("--allow-run-as-root");
    }
    command.args(["--oversubscribe", "-n", "4"]).arg(callpath()).args(["record", "-o"]).arg(directory).arg("--");
    command.arg(program).args(arguments).output().expect("mpirun can be run")
}

fn there_is_no_mpi(test: &str) -> bool {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let lacks = !there("mpirun") || !there("mpicc");
    if lacks {
        skip(test, "there is no Open MPI (the Debian packages openmpi-bin and libopenmpi-dev are missing)");
    }
    lacks
}

#[test]
fn open_mpi_s_ranks_are_one_measurement() {
    if there_is_no_mpi("open_mpi_s_ranks_are_one_measurement") {
        return;
    }
    let here = tempfile::tempdir().expect("a directory");
    let output = mpirun(&here.path().join("all"), &["100"]);
    assert!(output.status.success(), "{}", text(&output));
    let mut said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["rank 0", "rank 1", "rank 2", "rank 3"]);
    let ranks = json(&["report", "all", "--ranks", "--json"], here.path());
    are_as_uneven_as_they_were_made(&ranks, 4);
    assert_eq!((&ranks["jobs"][0]["launcher"], &ranks["jobs"][0]["size"]), (&"Open MPI".into(), &4.into()));
    // Another job.
    let output = mpirun(&here.path().join("all"), &["1"]);
    assert!(!output.status.success() && text(&output).contains("it holds job "), "{}", text(&output));
    assert_eq!(json(&["report", "all", "--ranks", "--json"], here.path()), ranks);
    let forks = mpirun(&here.path().join("forks"), &["100", "fork"]);
    assert!(forks.status.success(), "{}", text(&forks));
    are_as_uneven_as_they_were_made(&json(&["report", "forks", "--ranks", "--json"], here.path()), 4);
}

#[test]
fn of_a_rank_that_was_killed_what_it_did_is_there() {
    if there_is_no_mpi("of_a_rank_that_was_killed_what_it_did_is_there") {
        return;
    }
    let here = tempfile::tempdir().expect("a directory");
    let output = mpirun(&here.path().join("all"), &["100", "die"]);
    assert!(!output.status.success(), "{}", text(&output));
    let ranks = json(&["report", "all", "--ranks", "--json"], here.path());
    let of_last = &ranks["jobs"][0]["ranks"][3];
    assert_eq!((&of_last["rank"], &of_last["exit"]), (&3.into(), &"signal 9".into()), "{}", text(&output));
    let (even, uneven) = (costs(&ranks, "even"), costs(&ranks, "uneven"));
    assert!(uneven[3] > 2 * even[3], "{even:?} {uneven:?}");
    // Wherever its lines break.
    let page = text(&run(&["report", "all"], here.path())).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("rank 3: signal 9") || page.contains("rank 3 ended with signal 9"), "{page}");
}
