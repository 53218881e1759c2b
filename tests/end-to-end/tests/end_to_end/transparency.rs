//! What the program can see of how it was started is what it would be without callpath.

use callpath_end_to_end::{C, Program};

/// The lines of a mirror that may not differ; masks of signals without SIGTRAP.
fn lines(text: &str) -> Vec<String> {
    let kept = text.lines().filter(|line| {
        // What callpath says that it adds; and directory and measurement differ between two runs of the test itself.
        let ours = line.starts_with("environment LD_PRELOAD=") || line.starts_with("environment CALLPATH_SESSION=");
        // The signals that are pending to all processes of this user together.
        let of_others = line.starts_with("status SigQ");
        !ours && !of_others && !line.starts_with("directory ") && !line.starts_with("environment PWD=")
    });
    let trap = 1u64 << 4;
    let masked = kept.map(|line| match line.split_once(":\t") {
        // A handler is neither ignored nor default: both masks may differ by SIGTRAP, and by nothing else.
        Some((name @ ("status SigCgt" | "status SigIgn"), mask)) => {
            format!("{name} {:x}", u64::from_str_radix(mask.trim(), 16).unwrap_or(u64::MAX) & !trap)
        }
        _ => line.to_owned(),
    });
    masked.collect()
}

fn assert_mirrored(program: &Program) {
    let (bare, recorded) = (program.bare(), program.recorded());
    assert_eq!((bare.status, recorded.ended.status), (0, 0), "{}", recorded.ended.stderr);
    assert!(bare.stdout.lines().count() > 20, "the mirror is blind: {bare:?}");
    let (bare, with) = (lines(&bare.stdout), lines(&recorded.ended.stdout));
    for (one, other) in bare.iter().zip(&with) {
        assert_eq!(one, other, "the first line that differs");
    }
    assert_eq!(bare.len(), with.len());
    let directory = format!("directory {}", recorded.surroundings().display());
    assert!(recorded.ended.stdout.contains(&directory), "not in {directory}");
}

#[test]
fn surroundings() {
    assert_mirrored(&Program::nasty("mirror.c").arguments(["a", "", "two words", "-F", "--"]));
}

#[test]
fn surroundings_with_limits_masks_and_ignored_signals() {
    // A shell sets the stage: limits, an ignored SIGPIPE and SIGTRAP, a further descriptor, a umask.
    let mirror = Program::nasty("mirror.c");
    let script = format!(
        "umask 027; ulimit -n 200; ulimit -c 0; trap '' PIPE TRAP USR1; exec 7</dev/null; exec {} x",
        mirror.path().display()
    );
    assert_mirrored(&Program::at("/bin/sh").arguments(["-c", &script]));
    let options = ["-n", "300", "-f", "8000000", "-v", "4000000"];
    let script = format!(
        "for set in '{} {}' '{} {}' '{} {}'; do ulimit $set; done; exec {} y",
        options[0],
        options[1],
        options[2],
        options[3],
        options[4],
        options[5],
        mirror.path().display()
    );
    assert_mirrored(&Program::at("/bin/sh").arguments(["-c", &script]));
}

#[test]
fn the_recorders_own_surroundings_are_passed_on() {
    let mirror = Program::nasty("mirror.c");
    let limited =
        ["/bin/sh", "-c", "umask 027; ulimit -n 100; trap '' PIPE TRAP USR2; exec 9</dev/null; exec \"$@\"", "sh"];
    assert_mirrored(&mirror.clone().through(&limited));
    assert_mirrored(&mirror.clone().through(&["nice", "-n", "5"]));
    assert_mirrored(&mirror.through(&["/bin/sh", "-c", "exec <&- ; exec \"$@\"", "sh"]));
}

#[test]
fn an_odd_environment() {
    // A name twice, no name, no value, nothing at all: as a program can hand it to execve.
    let mirror = Program::nasty("mirror.c");
    let odd = Program::nasty("odd_environment.c");
    let path = odd.path().to_str().expect("its path is text").to_owned();
    assert_mirrored(&mirror.through(&[&path]));
}

#[test]
fn input_and_output() {
    let text: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 % 26 + b'a').collect();
    let recorded = Program::at("/usr/bin/sort").arguments(["-k1.5"]).input(&text).same();
    assert_eq!(recorded.ended.stdout.len(), text.len() + 1);
    let recorded = Program::at("/bin/cat").input(&text).same();
    assert_eq!(recorded.ended.stdout.as_bytes(), text);
    assert_eq!(Program::at("/bin/false").same().ended.status, 1);
}

#[test]
fn a_read_only_current_directory() {
    let burn = Program::nasty("burn.c").arguments(["50"]);
    let place = tempfile::TempDir::new().expect("a temp directory");
    let temp = tempfile::TempDir::new().expect("a temp directory");
    // Root writes anywhere: take a directory in which no user can.
    let mut command = std::process::Command::new(callpath_end_to_end::callpath());
    let nowhere = if callpath_end_to_end::is_root() { std::path::Path::new("/proc/self") } else { place.path() };
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    command.args(["record", "--"]).arg(burn.path()).arg("50").current_dir(nowhere).env("TMPDIR", temp.path());
    let said = callpath_end_to_end::Ended::of(&command.output().expect("callpath can be run"));
    assert_eq!((said.status, said.stdout.as_str()), (0, "burnt, now return\n"), "{}", said.stderr);
    let left: Vec<_> = temp.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 1, "the measurement is under the temp directory: {left:?}");
    assert!(said.stderr.contains(&left[0].display().to_string()), "a message names it: {}", said.stderr);
}

#[test]
fn an_existing_measurement_is_never_overwritten() {
    let burn = Program::nasty("burn.c");
    let place = tempfile::TempDir::new().expect("a temp directory");
    let taken = place.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("mine"), "precious").unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    for existing in [&taken, &file] {
        let mut command = std::process::Command::new(callpath_end_to_end::callpath());
        command.args(["record", "-o"]).arg(existing).arg("--").arg(burn.path()).arg("20");
        let said = callpath_end_to_end::Ended::of(&command.output().expect("callpath can be run"));
        assert!((125..=127).contains(&said.status), "{said:?}");
        assert_eq!(said.stdout, "", "the program did not run");
        assert!(said.stderr.contains(existing.to_str().unwrap()), "{said:?}");
    }
    assert_eq!(std::fs::read_to_string(taken.join("mine")).unwrap(), "precious");
    assert_eq!(taken.read_dir().unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn another_preloaded_object_stays() {
    // The loader's own list of preloaded objects keeps what the caller put there.
    let library =
        C { source: "plug.c", output: "libplug_p.so", options: &["-shared", "-fPIC", "-DNAME=p_work", "-DPADDING=0"] };
    let library = callpath_end_to_end::compiled(library).expect("plug.c compiles");
    let preload = format!("LD_PRELOAD={}", library.display());
    let maps = Program::at("/bin/cat").arguments(["/proc/self/maps"]).through(&["env", &preload]);
    let recorded = maps.recorded();
    assert!(recorded.ended.stdout.contains("libplug_p.so"), "{recorded:?}");
}
