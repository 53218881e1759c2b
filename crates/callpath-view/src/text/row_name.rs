//! What a row of a tree is called. Rows that hang on the same one never look the same where their names differ.

use std::collections::HashMap;

use callpath_db::{Profile, Scope, ScopeKind, View};

use super::label::{RIVALS, label, pruned};
use super::outline::{Row, Shows};
use super::printable::{columns, cut_end, printable};
use super::run::{Run, between, nearest};

/// How rows are named.
pub(super) struct RowNames<'a> {
    pub(super) view: &'a View,
    pub(super) profile: &'a Profile,
    /// Rows may be left out because they lie too deep.
    pub(super) is_cut: bool,
}

/// A row to be named.
pub(super) struct Place<'r> {
    pub(super) row: &'r Row,
    /// The place of the step next to the cost, if it stands beside the name.
    pub(super) source: String,
    /// Columns for the name.
    pub(super) room: usize,
}

impl RowNames<'_> {
    /// The names of all rows of a tree, which come from top to bottom.
    pub(super) fn names(&self, places: &[Place<'_>]) -> Vec<String> {
        let mut names: Vec<String> = places.iter().map(|place| self.name(place, &[])).collect();
        let mut siblings: HashMap<(Option<usize>, &str), Vec<usize>> = HashMap::new();
        for (index, parent) in parents(places).into_iter().enumerate() {
            siblings.entry((parent, &names[index])).or_default().push(index);
        }
        let alike: Vec<Vec<usize>> = siblings.into_values().filter(|rows| rows.len() > 1).collect();
        for rows in alike {
            let procedures = rows.iter().take(RIVALS).filter_map(|&row| procedure(self.view, places[row].row));
            let rivals: Vec<String> = procedures.map(|scope| printable(self.profile.strings.get(scope.name))).collect();
            for row in rows {
                names[row] = self.name(&places[row], &rivals);
            }
        }
        names
    }

    fn name(&self, place: &Place<'_>, rivals: &[String]) -> String {
        let Place { row, source, room } = place;
        if row.shows != Shows::Code {
            let nodes: Vec<usize> = row.steps.iter().map(|step| step.node).collect();
            let elsewhere = if row.shows == Shows::LeftOutElsewhere { " elsewhere" } else { "" };
            let words = pruned(self.view, &nodes, self.is_cut);
            let fits = columns(&words) + columns(elsewhere) <= *room;
            return cut_end(&(if fits { &words } else { without_noun(&words) }.to_owned() + elsewhere), *room);
        }
        let left_out = self.inside(row, *room);
        let names_room = room.saturating_sub(columns(&left_out));
        let names = match row.steps.as_slice() {
            [_] => self.name_of_one(place, names_room, rivals),
            steps => Run::new(self.view, self.profile, steps).in_row(source, rivals).fit(names_room),
        };
        cut_end(&(names + &left_out), *room)
    }

    /// What was left out and is a part of a row, to follow the names.
    fn inside(&self, row: &Row, room: usize) -> String {
        if row.left_out.is_empty() {
            return String::new();
        }
        // In less room the names say that they are callees.
        const LEAST_ROOM: usize = 54;
        let words = pruned(self.view, &row.left_out, self.is_cut);
        let words = if room < LEAST_ROOM { without_noun(&words) } else { &words };
        format!("{}{words}", between(self.view.kind))
    }

    /// The name of a row of one step.
    fn name_of_one(&self, place: &Place<'_>, room: usize, rivals: &[String]) -> String {
        let Place { row, source, .. } = place;
        let step = row.steps[0];
        let times = if step.times > 1 { format!(" ×{}", step.times) } else { String::new() };
        // Its line stands in the column beside it.
        if self.view.nodes[step.node].scope.kind == ScopeKind::Loop && !source.is_empty() {
            return format!("loop{times}");
        }
        let label = label(self.view, step.node, self.profile, self.is_cut);
        label.among(rivals).fit_beside(source, room.saturating_sub(columns(&times))) + &times
    }
}

/// `3 smaller` of `3 smaller callees`.
fn without_noun(words: &str) -> &str {
    words.rsplit_once(' ').map_or(words, |(words, _)| words)
}

/// The procedure or inlined call of a row that is next to the cost.
pub(super) fn procedure<'v>(view: &'v View, row: &Row) -> Option<&'v Scope> {
    let nearest = nearest(view, &row.steps);
    let mut steps: Vec<usize> = (0..row.steps.len()).collect();
    steps.sort_by_key(|step| step.abs_diff(nearest));
    let mut scopes = steps.into_iter().map(|step| &view.nodes[row.steps[step].node].scope);
    scopes.find(|scope| scope.kind.is_frame())
}

/// Of each row, which one it hangs on.
fn parents(places: &[Place<'_>]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let of = |(index, place): (usize, &Place<'_>)| {
        open.truncate(place.row.depth);
        let parent = open.last().copied();
        open.push(index);
        parent
    };
    places.iter().enumerate().map(of).collect()
}
