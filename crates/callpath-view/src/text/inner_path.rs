//! The innermost frames of a call path, in a line.

use callpath_db::{Profile, ScopeKind, View};

use super::label::{pruned, scope_label};
use super::printable::{columns, cut_end};
use super::run::between;

/// A name takes at most so many columns.
pub(super) const NAME_COLUMNS: usize = 40;

/// The innermost frames of a path in at most `room` columns: `… main › run ×3 › step`.
pub(super) fn inner_path(view: &View, profile: &Profile, node: usize, room: usize) -> String {
    let up = std::iter::successors(Some(node), |&node| view.nodes.get(node)?.parent);
    let mut named = up.filter_map(|at| {
        let scope = &view.nodes.get(at)?.scope;
        let is_shown = at == node || scope.kind.is_frame();
        is_shown.then(|| match scope.kind {
            ScopeKind::Pruned => pruned(view, &[at], false),
            _ => scope_label(scope, profile).bare().fit(NAME_COLUMNS.min(room)),
        })
    });
    // From the innermost on, each with how often it recurs: more than there is room for, or all.
    let mut frames: Vec<(String, usize)> = Vec::new();
    let mut used = 0;
    // Nothing is between the last one and the next.
    let room_and_more = room + columns(between(view.kind));
    while let Some(name) = named.next().filter(|_| used <= room_and_more) {
        match frames.last_mut().filter(|(last, _)| *last == name) {
            Some((_, times)) => *times += 1,
            None => {
                used += columns(&name) + columns(between(view.kind));
                frames.push((name, 1));
            }
        }
    }
    let is_all = named.next().is_none() && used <= room_and_more;
    let whole = if is_all { Some(joined(view, &frames)) } else { None };
    let of_some = |count: usize| format!("… {}", joined(view, frames.get(..count).unwrap_or(&[])));
    let forms = whole.into_iter().chain((1..=frames.len()).rev().map(of_some));
    let innermost = frames.first().map_or("", |(name, _)| name);
    forms.into_iter().find(|form| columns(form) <= room).unwrap_or_else(|| match room {
        0 => String::new(),
        _ => cut_end(innermost, room),
    })
}

/// The outermost first.
fn joined(view: &View, frames: &[(String, usize)]) -> String {
    let words = frames.iter().rev().map(|(name, times)| match times {
        1 => name.clone(),
        times => format!("{name} ×{times}"),
    });
    words.collect::<Vec<_>>().join(between(view.kind))
}
