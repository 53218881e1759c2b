//! What is known of a process that is sampled from outside, before its first sample.

use std::path::PathBuf;
use std::sync::Arc;

use callpath_target::{MapEntry, Maps, Pid, ProcessHandle, control_group_of};

use super::heights::FirstStack;
use crate::time_base::monotonic_ns;

/// What is known of a process before its first sample.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    pub(super) maps: Arc<Maps>,
    /// What it runs, as far as that is known: it may have ended already.
    pub(super) program: PathBuf,
    pub(super) command: Vec<String>,
    pub(super) is_forked: bool,
    /// The control group that it is in, if that is known.
    pub(super) control_group: Arc<str>,
    /// It has executed a program since it is known.
    pub(super) is_new: bool,
    /// What its samples of earlier programs come to, nanoseconds of CPU time.
    pub(crate) before_ns: u64,
    /// Since when its memory map is known, by the monotonic clock.
    pub(super) known_from_ns: u64,
    /// The stack of its first thread, if heights are kept.
    pub(super) first_stack: Option<FirstStack>,
}

impl Origin {
    /// Of a process that runs, and has run before: what it was then is not known.
    pub(crate) fn read_late(pid: Pid) -> Origin {
        let origin = Origin::read(pid);
        Origin { known_from_ns: monotonic_ns(), ..origin }
    }

    /// Of a process that runs, as it is now.
    pub(crate) fn read(pid: Pid) -> Origin {
        let handle = ProcessHandle::open(pid);
        let (mut program, mut command) = (handle.program().unwrap_or_default(), handle.command_line());
        if command.is_empty() && program.as_os_str().is_empty() {
            // The kernel's own have a name alone. It is shown as other tools do, but for what would make it a path.
            command.extend(handle.thread_name(pid.0).map(|name| format!("[{}]", name.replace('/', ":"))));
            program.extend(&command);
        }
        let maps = Arc::new(Maps::read(pid).unwrap_or_default());
        Origin { maps, program, command, control_group: group_of(pid), ..Origin::default() }
    }

    /// Of a process that has just executed a program. `before_ns`: what its samples of earlier ones come to.
    pub(crate) fn executed(pid: Pid, name: String, before_ns: u64) -> Origin {
        let control_group = group_of(pid);
        Origin { command: vec![name], control_group, is_new: true, before_ns, ..Origin::default() }
    }

    /// Of samples that were lost, and may have been anyone's.
    pub(crate) fn of_lost() -> Origin {
        const NAME: &str = "[lost samples]";
        Origin { program: NAME.into(), command: vec![NAME.to_owned()], ..Origin::default() }
    }

    /// It has executed a program, and mapped nothing since.
    pub(crate) fn has_just_executed(&self) -> bool {
        self.is_new && self.maps.entries.is_empty()
    }

    /// With the stack of its first thread, which may not be there any more at its first sample.
    pub(crate) fn with_stack(self, first_stack: Option<FirstStack>) -> Origin {
        Origin { first_stack, ..self }
    }

    /// Of a process that this one has forked.
    pub(crate) fn of_fork(&self) -> Origin {
        Origin { is_forked: true, is_new: false, before_ns: 0, ..self.clone() }
    }

    /// Enters what it has mapped.
    pub(crate) fn has_mapped(&mut self, entry: MapEntry) {
        if self.program.as_os_str().is_empty() && entry.executable && entry.path.is_absolute() {
            self.program.clone_from(&entry.path);
        }
        Arc::make_mut(&mut self.maps).map(entry);
    }
}

fn group_of(pid: Pid) -> Arc<str> {
    control_group_of(pid).unwrap_or_default().into()
}
