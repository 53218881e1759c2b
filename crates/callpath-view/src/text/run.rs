//! A run of frames on one line: as many names as fit, first those that tell most.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use callpath_db::{Name, Profile, Scope, ScopeKind, View, ViewKind};

use super::label::label;
use super::outline::Step;
use super::printable::columns;

/// A name among others takes at most so many columns, unless there is room left in the end.
const NAME_COLUMNS: usize = 40;
/// Of the name that matters most, so many columns stay for another one's sake.
const LEAST_COLUMNS: usize = 16;
/// So many frames at most are considered for a name.
const CONSIDERED: usize = 4096;
/// So many names that do not fit are tried.
const TRIED: usize = 64;

/// Frames that call each other, to be written on one line.
pub(super) struct Run<'a> {
    view: &'a View,
    profile: &'a Profile,
    /// From the outermost on; in a callers view from the innermost on.
    steps: &'a [Step],
    /// The place of the [`nearest`] step, if it stands beside the names.
    source: &'a str,
    /// Names of the procedures in the rows beside this one.
    rivals: &'a [String],
    /// Names by step and columns.
    names: RefCell<HashMap<(usize, usize), String>>,
    /// Steps without a name are not counted, for lack of room.
    is_terse: Cell<bool>,
    /// Columns for all of it.
    room: usize,
}

/// The steps that are named, with the columns that each may take.
type Shown = BTreeMap<usize, usize>;

/// Which step of a run matters most: what is next to the cost.
pub(super) fn nearest(view: &View, steps: &[Step]) -> usize {
    match view.kind {
        ViewKind::Callers => 0,
        ViewKind::Context | ViewKind::Flat => steps.len().saturating_sub(1),
    }
}

/// Between a frame and the next.
pub(super) fn between(kind: ViewKind) -> &'static str {
    if kind == ViewKind::Callers { " ‹ " } else { " › " }
}

impl<'a> Run<'a> {
    pub(super) fn new(view: &'a View, profile: &'a Profile, steps: &'a [Step]) -> Self {
        let (names, is_terse) = (RefCell::default(), Cell::new(false));
        Run { view, profile, steps, source: "", rivals: &[], names, is_terse, room: 0 }
    }

    /// In a row with the place of the nearest step, among rows with other names.
    pub(super) fn in_row(self, source: &'a str, rivals: &'a [String]) -> Self {
        Run { source, rivals, ..self }
    }

    /// The names in at most `room` columns, with what is left out between them: `clone3 › … 28 more › worker ×10`.
    ///
    /// First comes the procedure next to the cost, then the program's own code next to it, the loop that it is in,
    /// the frame at the far end, and the rest from the cost on.
    pub(super) fn fit(mut self, room: usize) -> String {
        self.room = room;
        if self.steps.len() <= 1 {
            return if self.steps.is_empty() { String::new() } else { self.name(0, room) };
        }
        let nearest = nearest(self.view, self.steps);
        let far = self.steps.len() - 1 - nearest;
        let by_nearness: Vec<usize> = match nearest {
            0 => (0..self.steps.len().min(CONSIDERED)).collect(),
            last => (0..=last).rev().take(CONSIDERED).collect(),
        };
        let frames = || by_nearness.iter().copied().filter(|&step| self.scope(step).kind.is_frame());
        let own = || by_nearness.iter().copied().filter(|&step| self.is_own(step));
        let Some(mut procedure) = frames().next() else { return self.name(nearest, room) };
        let beside = columns(&self.line(&Shown::from([(procedure, 0)]))) - columns(&self.name(procedure, 0));
        if beside + LEAST_COLUMNS > room {
            let mark = if procedure == far { "" } else { "… " };
            return format!("{mark}{}", self.name(procedure, room.saturating_sub(columns(mark))));
        }
        let mut shown = Shown::from([(procedure, LEAST_COLUMNS)]);
        if let Some(own) = own().next().filter(|&own| own != procedure) {
            let mut fits = || [NAME_COLUMNS, 32, 24].into_iter().any(|most| self.add(&mut shown, own, most));
            if !fits() {
                self.is_terse.set(true);
                if !fits() {
                    // There is room for one of them only: the program's own, unless the other one has a cost.
                    let alone = [LEAST_COLUMNS, 12].map(|most| Shown::from([(own, most)]));
                    let alone = alone.into_iter().find(|alone| columns(&self.line(alone)) <= room);
                    match alone.filter(|_| !self.costs_something(nearest)) {
                        Some(alone) => (shown, procedure) = (alone, own),
                        None => self.is_terse.set(false),
                    }
                }
            }
        }
        self.widen(&mut shown, procedure, NAME_COLUMNS);
        self.add(&mut shown, nearest, NAME_COLUMNS);
        let bodies = by_nearness.iter().copied().filter(|&step| !self.scope(step).kind.is_frame());
        let mut tried = 0;
        // Where a callee's path begins tells more than where the path to a caller ends.
        let before_far = if nearest == 0 { usize::MAX } else { 2 };
        for step in own().take(before_far).chain([far]).chain(own()).chain(frames()).chain(bodies) {
            if shown.contains_key(&step) || self.add(&mut shown, step, NAME_COLUMNS) {
                continue;
            }
            tried += 1;
            // The next one may be shorter, but much does not fit any more.
            if tried == TRIED || columns(&self.line(&shown)) + 12 > room {
                break;
            }
        }
        // Names get what room is left.
        let named: Vec<usize> = by_nearness.iter().copied().filter(|step| shown.contains_key(step)).collect();
        for step in named {
            self.widen(&mut shown, step, room);
        }
        self.line(&shown)
    }

    /// Whether a step has a cost of its own that is worth a word.
    fn costs_something(&self, step: usize) -> bool {
        const LEAST_SHARE: f64 = 0.01;
        let own = self.view.exclusive(self.steps[step].node).get(0);
        own as f64 >= LEAST_SHARE * self.view.inclusive(0).get(0) as f64
    }

    /// Names one more step, if it fits.
    fn add(&self, shown: &mut Shown, step: usize, name_columns: usize) -> bool {
        let before = shown.insert(step, name_columns);
        let fits = columns(&self.line(shown)) <= self.room;
        if !fits {
            match before {
                Some(before) => shown.insert(step, before),
                None => shown.remove(&step),
            };
        }
        fits
    }

    /// Gives a name more columns, at most `most`, as far as there is room.
    fn widen(&self, shown: &mut Shown, step: usize, most: usize) {
        let now = shown.get(&step).copied().unwrap_or_default();
        let left = self.room.saturating_sub(columns(&self.line(shown)));
        let all = (columns(&self.name(step, now)) + left).min(most);
        if all > now {
            shown.insert(step, all);
        }
    }

    fn line(&self, shown: &Shown) -> String {
        let between = between(self.view.kind);
        let mut line = String::new();
        let mut next = 0;
        for (&step, &name_columns) in shown {
            line += &self.skipped(next..step);
            line += &self.name(step, name_columns);
            next = step + 1;
            if next < self.steps.len() {
                line += between;
            }
        }
        line += &self.skipped(next..self.steps.len());
        line.truncate(line.trim_end_matches(between).len());
        line
    }

    /// What stands for some steps without a name: how many calls they are. A loop is in its procedure.
    fn skipped(&self, steps: std::ops::Range<usize>) -> String {
        let calls = steps.filter(|&step| self.scope(step).kind.is_frame());
        match calls.fold(0usize, |sum, step| sum.saturating_add(self.steps[step].frames)) {
            0 => String::new(),
            _ if self.is_terse.get() => format!("…{}", between(self.view.kind)),
            calls => format!("… {calls} more{}", between(self.view.kind)),
        }
    }

    fn name(&self, step: usize, max: usize) -> String {
        if let Some(name) = self.names.borrow().get(&(step, max)) {
            return name.clone();
        }
        let name = self.name_anew(step, max);
        self.names.borrow_mut().insert((step, max), name.clone());
        name
    }

    fn name_anew(&self, step: usize, max: usize) -> String {
        let Step { node, times, .. } = self.steps[step];
        let is_nearest = step == nearest(self.view, self.steps);
        // Where it is stands beside the row.
        if self.scope(step).kind == ScopeKind::Loop && !self.source.is_empty() && is_nearest {
            return "loop".into();
        }
        let times = if times > 1 { format!(" ×{times}") } else { String::new() };
        let label = label(self.view, node, self.profile, false);
        // Among others, what a name is called says enough.
        let label = if !is_nearest && self.scope(step).kind.is_frame() { label.bare() } else { label };
        let place = if is_nearest { self.source } else { "" };
        label.among(self.rivals).fit_beside(place, max.saturating_sub(columns(&times))) + &times
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
        // The C library's files are named from the directory that it was built in.
        let is_c_library = file.starts_with("./") || file.starts_with("../sysdeps/");
        return !OTHERS.iter().any(|others| file.contains(others)) && !is_c_library;
    }
    const LANGUAGES: [&str; 8] = ["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__", "_start"];
    let name = text(scope.name);
    let is_main = scope.module.is_some_and(|module| text(module) == profile.info.program);
    is_main && !name.is_empty() && !LANGUAGES.iter().any(|language| name.starts_with(language))
}
