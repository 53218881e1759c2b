//! Control groups (cgroups), by which containers and services are told apart: those of the hierarchy that the kernel's events know.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::pid::Pid;

/// A control group.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    directory: File,
}

/// There is no such group, or not one alone.
#[derive(Debug, thiserror::Error)]
pub enum ControlGroupError {
    /// Nothing is mounted that has groups.
    #[error("no control groups of the kind that events know are mounted (cgroup2, or cgroup with perf_event)")]
    NotMounted,
    /// No group has the name.
    #[error("there is no such control group under {}; systemd-cgls or docker ps --no-trunc name them", root.display())]
    NoSuch {
        /// Where they are.
        root: PathBuf,
    },
    /// Several have.
    #[error("several control groups are called so: {}", list(found))]
    Several {
        /// The first of them.
        found: Vec<PathBuf>,
    },
    /// It cannot be opened.
    #[error("open {}: {source}", path.display())]
    Open {
        /// Its directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

impl ControlGroup {
    /// The group of a name: its directory, its path below the root of all groups, or a part of its last component, of four letters at least (the number
    /// of a container).
    ///
    /// # Errors
    /// There is no such group, or there are several.
    pub fn find(name: &str) -> Result<ControlGroup, ControlGroupError> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = root_in(&mounts).ok_or(ControlGroupError::NotMounted)?;
        ControlGroup::find_below(root, name)
    }

    fn find_below(root: PathBuf, name: &str) -> Result<ControlGroup, ControlGroupError> {
        let group = |path: PathBuf| {
            let path = path.canonicalize().ok()?;
            (path.starts_with(&root) && path.join("cgroup.procs").exists()).then_some(path)
        };
        let below = root.join(name.trim_start_matches('/'));
        if let Some(path) = [PathBuf::from(name), below].into_iter().find_map(group) {
            return ControlGroup::open(path);
        }
        let mut found = if name.len() < SHORTEST || name.contains('/') { Vec::new() } else { search(&root, name) };
        found.truncate(SHOWN);
        match found.len() {
            0 => Err(ControlGroupError::NoSuch { root }),
            1 => ControlGroup::open(found.remove(0)),
            _ => Err(ControlGroupError::Several { found }),
        }
    }

    fn open(path: PathBuf) -> Result<ControlGroup, ControlGroupError> {
        match File::open(&path) {
            Ok(directory) => Ok(ControlGroup { path, directory }),
            Err(source) => Err(ControlGroupError::Open { path, source }),
        }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processes that are in it, or in a group below it, now.
    pub fn processes(&self) -> Vec<Pid> {
        let mut processes = Vec::new();
        for group in groups(&self.path) {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            processes.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
        }
        processes
    }
}

/// The control group that a process is in, by its path below the root of all groups. `None`: it has ended, or there are no groups.
pub fn control_group_of(pid: Pid) -> Option<String> {
    group_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// From lines as in /proc/PID/cgroup: `NUMBER:CONTROLLERS:PATH`. Of hierarchies of version 1, the one that has the process deepest.
fn group_in(text: &str) -> Option<String> {
    let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let unified = text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| *path != "/");
    let deepest =
        || paths().max_by_key(|path| path.bytes().filter(|byte| *byte == b'/').count() + usize::from(*path != "/"));
    unified.or_else(deepest).map(str::to_owned)
}

impl AsFd for ControlGroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Shorter parts of names say nothing.
const SHORTEST: usize = 4;
/// So many groups of one name are shown.
const SHOWN: usize = 5;
/// So many groups are looked at.
const MOST_GROUPS: usize = 100_000;

/// Where the groups are that events know: in a hierarchy of their own, or in the one of version 2.
fn root_in(mounts: &str) -> Option<PathBuf> {
    let fields = || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|fields| fields.len() >= 4);
    let own =
        fields().find(|fields| fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "perf_event"));
    let found = own.or_else(|| fields().find(|fields| fields[2] == "cgroup2"))?;
    Some(PathBuf::from(found[1].replace("\\040", " ")))
}

/// A group and all below it.
fn groups(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while let Some(group) = found.get(next).filter(|_| found.len() < MOST_GROUPS) {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<PathBuf> = directories.map(|entry| entry.path()).collect();
        found.extend(below);
        next += 1;
    }
    found
}

/// Groups below a root that have a name, or else a part of it, as their last component.
fn search(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut all = groups(root);
    all.remove(0);
    all.sort_unstable();
    let last = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let whole: Vec<PathBuf> = all.iter().filter(|path| last(path) == name).cloned().collect();
    if whole.is_empty() { all.into_iter().filter(|path| last(path).contains(name)).collect() } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process() {
        for (text, expected) in [
            ("0::/system.slice/ssh.service\n", Some("/system.slice/ssh.service")),
            ("2:cpu:/docker/3f2a\n1:name=systemd:/\n0::/\n", Some("/docker/3f2a")),
            ("2:cpu:/\n1:name=systemd:/user.slice/a:b\n", Some("/user.slice/a:b")),
            ("0::/\n", Some("/")),
            ("", None),
        ] {
            assert_eq!(group_in(text).as_deref(), expected, "{text}");
        }
        assert_eq!(control_group_of(Pid(std::process::id())).is_some(), Path::new("/proc/self/cgroup").exists());
    }

    #[test]
    fn where_groups_are() {
        let second = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(root_in(second), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let both = format!("{second}cgroup /sys/fs/cgroup/perf\\040event cgroup rw,perf_event 0 0\n");
        assert_eq!(root_in(&both), Some(PathBuf::from("/sys/fs/cgroup/perf event")));
        assert_eq!(root_in("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\nodd\n"), None);
    }

    #[test]
    fn groups_by_name() {
        let place = std::env::temp_dir().join(format!("callpath-groups-{}", std::process::id()));
        for group in ["", "system/docker-0123abcd.scope", "system/nginx", "user/docker-0123ffff.scope"] {
            fs::create_dir_all(place.join(group)).unwrap();
        }
        for group in groups(&place) {
            fs::write(group.join("cgroup.procs"), "12\n").unwrap();
        }
        let find = |name: &str| ControlGroup::find_below(place.clone(), name);
        let path = |name: &str| find(name).unwrap().path().strip_prefix(&place).unwrap().to_owned();
        assert_eq!(path("/system/nginx"), Path::new("system/nginx"));
        assert_eq!(path("nginx"), Path::new("system/nginx"));
        assert_eq!(path("0123abcd"), Path::new("system/docker-0123abcd.scope"));
        assert_eq!(path(place.join("user").to_str().unwrap()), Path::new("user"));
        assert!(matches!(find("0123"), Err(ControlGroupError::Several { found }) if found.len() == 2));
        for none in ["ngi", "apache", "/tmp", "system/ngin", ".."] {
            assert!(matches!(find(none), Err(ControlGroupError::NoSuch { .. })), "{none}");
        }
        assert_eq!(find("system").unwrap().processes(), [Pid(12), Pid(12), Pid(12)]);
        fs::remove_dir_all(place).unwrap();
    }
}
