//! Processes by control group: containers and services.

use crate::profile::Profile;
use crate::scope::ScopeKind;

/// Of a container's number, so many digits are shown, as container engines show it.
const SHOWN_DIGITS: usize = 12;
/// So many digits a container's number has.
const NUMBER_DIGITS: usize = 64;

/// What stands for a control group in reports: of a container its number behind what runs it (`docker 3f2a9c1b8d7e`), else the group's path.
/// `path`: below the root of all groups; empty: it is not known.
fn label(path: &str) -> String {
    let numbered = path.split('/').rev().find_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let (engine, number) = part.rsplit_once('-').unwrap_or(("container", part));
        let is_number = number.len() == NUMBER_DIGITS && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number.then(|| format!("{engine} {}", &number[..SHOWN_DIGITS]))
    });
    match (numbered, path.trim_matches('/')) {
        (Some(numbered), _) => numbered,
        (None, "") if path.is_empty() => "[unknown control group]".to_owned(),
        (None, "") => "[root control group]".to_owned(),
        (None, path) => path.to_owned(),
    }
}

impl Profile {
    /// Names processes by the control groups that they were in: those of one group have one name.
    /// `false`: the profile knows of no groups.
    pub fn name_processes_by_group(&mut self) -> bool {
        if self.info.processes.iter().all(|process| process.control_group.is_empty()) {
            return false;
        }
        for node in self.tree.nodes() {
            let scope = self.tree.scope(node);
            if scope.kind != ScopeKind::Process {
                continue;
            }
            let (run, pid) = (scope.run(), scope.unit_id());
            let is_it = |process: &&crate::ProcessInfo| (process.run, u64::from(process.pid)) == (run, pid);
            let group = self.info.processes.iter().find(is_it).map_or("", |process| &process.control_group);
            let name = self.strings.intern(&label(group));
            self.tree.rename(node, name);
        }
        for process in &mut self.info.processes {
            process.name = label(&process.control_group);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn containers_are_called_as_their_engines_call_them() {
        let number = "3f2a9c1b8d7e".to_owned() + &"0".repeat(52);
        for (path, expected) in [
            (format!("/system.slice/docker-{number}.scope"), "docker 3f2a9c1b8d7e"),
            (format!("/docker/{number}"), "container 3f2a9c1b8d7e"),
            (format!("/docker/{number}/init.scope"), "container 3f2a9c1b8d7e"),
            (format!("/kubepods/besteffort/pod7-1/cri-containerd-{number}.scope"), "cri-containerd 3f2a9c1b8d7e"),
            ("/system.slice/ssh.service".to_owned(), "system.slice/ssh.service"),
            (format!("/docker/{}", &number[1..]), &*format!("docker/{}", &number[1..])),
            ("/".to_owned(), "[root control group]"),
            (String::new(), "[unknown control group]"),
        ] {
            assert_eq!(label(&path), expected, "{path}");
        }
    }
}
