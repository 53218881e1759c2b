//! The same as an ordinary user, when the tests run as root.

use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_end_to_end::{Ended, Profile, Program, callpath, copy_program, is_root, skip};
use tempfile::TempDir;

/// A directory of an ordinary user's own, with a copy of the command.
pub(crate) struct UserDirectory {
    directory: TempDir,
}

impl UserDirectory {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("callpath-user").tempdir().expect("a temp directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).unwrap();
        copy_program(callpath(), &directory.path().join("callpath"));
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A copy of a program where everybody can read it.
    pub(crate) fn copy(&self, program: &Path) -> PathBuf {
        let copy = self.path().join(program.file_name().expect("a program has a name"));
        copy_program(program, &copy);
        copy
    }

    /// Runs callpath as user 65534 with nothing of root's.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_through(&[], arguments)
    }

    /// The same through another command, which gets callpath and its arguments behind its own.
    pub(crate) fn run_through(&self, prefix: &[&str], arguments: &[&str]) -> Ended {
        let callpath = self.path().join("callpath");
        self.run_bare(&[prefix, &[callpath.to_str().expect("its path is text")], arguments].concat())
    }

    /// The same with any command.
    pub(crate) fn run_bare(&self, words: &[&str]) -> Ended {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.args(words).current_dir(self.path());
        command.env("HOME", self.path()).env("CALLPATH_CACHE_DIR", self.path().join("cache"));
        Ended::of(&command.output().expect("setpriv can be run"))
    }

    pub(crate) fn profile(&self, measurement: &str) -> Profile {
        let said = self.run(&["report", measurement, "--json"]);
        assert_eq!(said.status, 0, "{said:?}");
        let profile = Profile::of_json(&said.stdout);
        profile.assert_sound();
        profile
    }
}

#[test]
fn paths_and_status() {
    if !is_root() {
        return skip("ordinary_user::paths_and_status", "the tests run as an ordinary user anyway");
    }
    let place = UserDirectory::new();
    let burn = place.copy(Program::nasty("burn.c").path());
    let said = place.run(&["record", "-o", "m", "--", burn.to_str().unwrap(), "500", "exit"]);
    assert_eq!((said.status, said.stdout.as_str()), (3, "burnt, now exit\n"), "{said:?}");
    let profile = place.profile("m");
    profile.assert_full(990);
    assert!(profile.percent_through(&["main", "outer", "inner"]) > 90.0);
}

#[test]
fn time_is_the_kernels() {
    if !is_root() {
        return skip("ordinary_user::time_is_the_kernels", "the tests run as an ordinary user anyway");
    }
    for (name, program) in crate::time::programs() {
        let place = UserDirectory::new();
        let rusage = place.copy(Program::nasty("rusage.c").path());
        let copy = place.copy(program.path());
        let mut words = vec!["record".into(), "-o".into(), "m".into(), "--".into(), rusage.display().to_string()];
        words.extend(["cost".to_owned(), copy.display().to_string()]);
        for argument in program.words() {
            // Inputs lie where only root may read.
            let path = Path::new(&argument);
            let readable =
                if path.is_file() && path.is_absolute() { place.copy(path).display().to_string() } else { argument };
            words.push(readable);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = place.run(&words);
        assert_eq!(said.status, 0, "{name}: {}", said.stderr);
        let text = std::fs::read_to_string(place.path().join("cost")).expect("rusage leaves its file");
        let cost_ns: u64 = text.split_whitespace().map(|micros| micros.parse::<u64>().unwrap() * 1000).sum();
        let profile = place.profile("m");
        let total = profile.total("cpu-time");
        assert!(
            total.abs_diff(cost_ns) < cost_ns / 50 + 8_000_000,
            "{name}: {total} of {cost_ns}; {:?}",
            profile.quality
        );
        profile.assert_full(980);
    }
}
