//! A run of frames on one line: as many names as fit, first those that tell most.

use std::collections::BTreeSet;

use callpath_db::{Name, Profile, Scope, ScopeKind, View, ViewKind};

use super::label::label;
use super::outline::Step;
use super::printable::columns;

/// A name among others takes at most so many columns.
const NAME_COLUMNS: usize = 40;
/// So many frames at most are considered for a name.
const CONSIDERED: usize = 4096;

/// Frames that call each other, to be written on one line.
pub(super) struct Run<'a> {
    pub(super) view: &'a View,
    pub(super) profile: &'a Profile,
    /// From the outermost on.
    pub(super) steps: &'a [Step],
    /// The last one's source line stands beside the names.
    pub(super) has_source: bool,
}

impl Run<'_> {
    /// The names in at most `room` columns, with what is left out between them: `clone3 › … 28 more › worker ×10`.
    pub(super) fn fit(&self, room: usize) -> String {
        let Some(last) = self.steps.len().checked_sub(1) else { return String::new() };
        if last == 0 {
            return self.name(0, room);
        }
        let mut shown = BTreeSet::from([last]);
        let considered = self.steps.len().saturating_sub(CONSIDERED)..self.steps.len();
        // The procedure of a loop, the program's own code next to the cost, the outermost frame, the rest from the inside out.
        let is_frame = |&step: &usize| self.scope(step).kind.is_frame();
        let innermost = considered.clone().rev().find(is_frame);
        let own = || considered.clone().rev().filter(|&step| self.is_own(step));
        let near = own().take(2);
        let frames = considered.clone().rev().filter(is_frame);
        let bodies = considered.clone().rev().filter(|step| !is_frame(step));
        for step in innermost.into_iter().chain(near).chain([0]).chain(own()).chain(frames).chain(bodies) {
            if !shown.insert(step) {
                continue;
            }
            if columns(&self.line(&shown, NAME_COLUMNS)) > room {
                shown.remove(&step);
                // The next one may be shorter, but much does not fit any more.
                if columns(&self.line(&shown, NAME_COLUMNS)) + 12 > room {
                    break;
                }
            }
        }
        // Names get what room is left.
        let wider = [room, 96, 72, 56, 48].into_iter().filter(|&name_columns| name_columns > NAME_COLUMNS);
        let fitting = wider.map(|name_columns| self.line(&shown, name_columns)).find(|line| columns(line) <= room);
        let line = fitting.unwrap_or_else(|| self.line(&shown, NAME_COLUMNS));
        if shown.len() > 1 || columns(&line) <= room {
            return line;
        }
        let beside = columns(&line) - columns(&self.name(last, NAME_COLUMNS));
        self.line(&shown, NAME_COLUMNS.min(room.saturating_sub(beside)))
    }

    fn line(&self, shown: &BTreeSet<usize>, name_columns: usize) -> String {
        let between = self.between();
        let mut line = String::new();
        let mut next = 0;
        for &step in shown {
            let skipped = self.steps[next..step].iter().fold(0usize, |sum, step| sum + step.frames);
            if skipped > 0 {
                line += &format!("… {skipped} more{between}");
            }
            line += &self.name(step, name_columns);
            next = step + 1;
            if next < self.steps.len() {
                line += between;
            }
        }
        line
    }

    /// Between a frame and the next.
    fn between(&self) -> &'static str {
        if self.view.kind == ViewKind::Callers { " ‹ " } else { " › " }
    }

    fn name(&self, step: usize, max: usize) -> String {
        let Step { node, times, .. } = self.steps[step];
        // Where it is stands beside the row, if it is the last one.
        if self.scope(step).kind == ScopeKind::Loop && self.has_source && step + 1 == self.steps.len() {
            return "loop".into();
        }
        let times = if times > 1 { format!(" ×{times}") } else { String::new() };
        let label = label(self.view, node, self.profile, false);
        // Among others, what a name is called says enough.
        let label = if step + 1 < self.steps.len() && self.scope(step).kind.is_frame() { label.bare() } else { label };
        label.fit(max.saturating_sub(columns(&times))) + &times
    }

    fn scope(&self, step: usize) -> &Scope {
        &self.view.nodes[self.steps[step].node].scope
    }

    fn is_own(&self, step: usize) -> bool {
        let scope = self.scope(step);
        scope.kind.is_frame() && is_own_code(scope, self.profile)
    }
}

/// Whether a procedure is the program's own, as far as its file or name tells: not the language's or a package's.
fn is_own_code(scope: &Scope, profile: &Profile) -> bool {
    let text = |name: Name| profile.strings.get(name);
    if let Some(file) = scope.file.map(text).filter(|file| !file.is_empty()) {
        const OTHERS: [&str; 6] =
            ["/rustc/", "/usr/", "/.cargo/registry/", "/.cargo/git/", "/rustlib/", "/library/std/"];
        return !OTHERS.iter().any(|others| file.contains(others)) && !file.starts_with("./");
    }
    const LANGUAGES: [&str; 8] = ["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__", "_start"];
    let name = text(scope.name);
    let is_main = scope.module.is_some_and(|module| text(module) == profile.info.program);
    is_main && !name.is_empty() && !LANGUAGES.iter().any(|language| name.starts_with(language))
}
