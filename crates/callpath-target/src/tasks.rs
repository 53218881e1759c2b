//! Processes and threads, which the kernel counts together as tasks: whether only a few more can be started.

use std::path::{Path, PathBuf};

/// With fewer than this many to be had, they are few.
const FEW: u64 = 64;

/// Whether this user or container may start only a few more processes and threads (`ulimit -u`, a cgroup's `pids.max`).
/// What counts them cannot always be read: starting one may fail all the same.
pub fn are_scarce() -> bool {
    // SAFETY: a valid place.
    let of_user = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) == 0 { limit.rlim_cur } else { libc::RLIM_INFINITY }
    };
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_user < FEW
        || group_directories(&groups).iter().any(|directory| left_in(directory).is_some_and(|left| left < FEW))
}

/// Where the kernel may count the tasks of this process's control group and of those around it, by the text of
/// `/proc/PID/cgroup`.
fn group_directories(groups: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|controller| controller == "pids") => Path::new("/sys/fs/cgroup/pids"),
            _ => continue,
        };
        let inside = Path::new(path.trim_start_matches('/'));
        directories.extend(inside.ancestors().map(|group| root.join(group)));
    }
    directories
}

/// `None`: the group has no limit, or is not there.
fn left_in(directory: &Path) -> Option<u64> {
    let number = |name: &str| std::fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(number("pids.max")?.saturating_sub(number("pids.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_and_those_around_them() {
        let directories =
            group_directories("9:name=systemd:/\n8:cpu,pids:/docker/1\n4:memory:/x\n0::/user.slice/a:b\n");
        let expected = [
            "/sys/fs/cgroup/pids/docker/1",
            "/sys/fs/cgroup/pids/docker",
            "/sys/fs/cgroup/pids/",
            "/sys/fs/cgroup/user.slice/a:b",
            "/sys/fs/cgroup/user.slice",
            "/sys/fs/cgroup/",
        ];
        assert_eq!(directories, expected.map(PathBuf::from));
    }

    #[test]
    fn what_a_group_has_left() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left_in(group.path()), None);
        write("pids.max", "max\n");
        write("pids.current", "7\n");
        assert_eq!(left_in(group.path()), None);
        write("pids.max", "10\n");
        assert_eq!(left_in(group.path()), Some(3));
        write("pids.max", "5\n");
        assert_eq!(left_in(group.path()), Some(0));
    }
}
