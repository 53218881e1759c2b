//! A database that answers queries and reads no more of its file than an answer needs: of the calling context view the rows that are shown
//! and those beside them; of the callers view the contexts of procedures that are; of the flat view its own table. What is asked of a part of the
//! whole (some processes, threads or paths), of other levels or of single ranks is answered by the tree, which is loaded then.

use std::cell::OnceCell;

use super::answers::{AnswerError, Answers};
use super::layout::{SectionKind, TablePart, TreePart, ViewTable, ViewTree, u32_at, u64_at};
use super::preorder::{Expand, Preorder};
use super::{Database, DatabaseError};
use crate::query::{self, Counted, whole};
use crate::rows::Rows;
use crate::{Inlined, Name, NodeId, ProcedureCost, Profile, Query, Recursion, Scope, View, ViewKind};

/// An opened database that is asked for views.
pub struct Mapped {
    database: Database,
    /// All but what is below threads.
    outline: Profile,
    /// By number, with the outline's strings; none in a file without views.
    scopes: Vec<Scope>,
    /// Workers execute regions of others: which of them stands where, only the whole tree says.
    has_regions: bool,
    /// Once it was needed.
    loaded: OnceCell<Profile>,
}

impl Mapped {
    /// Reads what ran, and the scopes.
    pub fn new(database: Database) -> Result<Mapped, DatabaseError> {
        let mut outline = Profile::new(database.metrics().to_vec());
        let names = database.begin(&mut outline)?;
        for entry in database.profiles() {
            let node = super::load::member(&mut outline, entry);
            for column in &entry.columns {
                outline.tree.add_one(node, column.metric as usize, column.total);
            }
        }
        let mut scopes = Vec::new();
        if database.has(SectionKind::ViewScopes) {
            scopes = database.named_scopes(SectionKind::Scopes, &names)?;
            scopes.extend(database.named_scopes(SectionKind::ViewScopes, &names)?);
        }
        let has_regions = query::has_regions(scopes.iter(), &outline.strings);
        Ok(Mapped { database, outline, scopes, has_regions, loaded: OnceCell::new() })
    }

    /// The same, as a person may type it, for the next command that is recommended.
    #[must_use]
    pub fn called(mut self, name: &str) -> Mapped {
        self.outline.info.directory = name.to_owned();
        self
    }

    /// The whole tree in memory.
    pub fn loaded(&self) -> Result<&Profile, DatabaseError> {
        if let Some(profile) = self.loaded.get() {
            return Ok(profile);
        }
        let mut profile = self.database.to_profile()?;
        profile.info.directory.clone_from(&self.outline.info.directory);
        Ok(self.loaded.get_or_init(|| profile))
    }

    /// Whether something was asked that took the whole tree.
    pub fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }

    fn has_answer(&self, query: &Query) -> bool {
        let meets = query.regions_meet && self.has_regions;
        !self.scopes.is_empty() && !self.is_loaded() && !meets && whole::is_of_whole(query)
    }

    fn tree(&self, which: ViewTree) -> Result<Preorder<'_>, DatabaseError> {
        Preorder::of(&self.database, which, &self.scopes)
    }

    /// The tree of which the callers view shows what that of the whole would: what the first level leaves out has no callers.
    fn origins(&self, which: ViewTree, query: &Query) -> Result<Counted, DatabaseError> {
        let table = match which {
            ViewTree::Folded => ViewTable::Folded,
            ViewTree::Collapsed => ViewTable::Collapsed,
        };
        let Table { scopes, own, .. } = self.table(table)?;
        let kind = |part| SectionKind::Tree(which, part);
        let starts = self.database.bytes_of_kind(kind(TreePart::OriginStarts), 0)?;
        let origins = self.database.bytes_of_kind(kind(TreePart::Origins), 0)?;
        let mut tree = self.tree(which)?;
        let threshold = query.min_share * tree.total() as f64;
        let mut to = Counted::by_rules(self.outline.metrics.iter().map(crate::Metric::rule));
        let (mut wanted, mut behind): (Vec<u32>, usize) = (Vec::new(), 0);
        for (row, scope) in scopes.into_iter().enumerate() {
            let places = u32_at(starts, row) as usize..u32_at(starts, row + 1) as usize;
            // One behind the other: together, they are no more than there are.
            if places.start != behind || places.end < behind || places.end > origins.len() / 4 {
                return Err(self.database.nonsense_in(kind(TreePart::OriginStarts), "rows of a procedure"));
            }
            behind = places.end;
            if row > 0 && own.get(row, 0) as f64 >= threshold {
                wanted.extend(places.map(|place| u32_at(origins, place)));
                continue;
            }
            let here = if row == 0 { NodeId::ROOT } else { to.append(NodeId::ROOT, scope) };
            for (metric, value) in own.row(row).iter().enumerate() {
                to.tree.add_one(here, metric, value);
            }
            to.origins_left_out += places.len().saturating_sub(usize::from(!own.row(row).is_zero()));
        }
        tree.add_paths(which, wanted.into_iter(), &mut to)?;
        Ok(to)
    }

    fn table(&self, which: ViewTable) -> Result<Table, DatabaseError> {
        let kind = |part| SectionKind::Table(which, part);
        let scope_of = self.database.bytes_of_kind(kind(TablePart::ScopeOf), 0)?;
        let len = scope_of.len() / 4;
        let nonsense = || self.database.nonsense_in(kind(TablePart::ScopeOf), "table of views");
        let scope = |row| self.scopes.get(u32_at(scope_of, row) as usize).copied().ok_or_else(nonsense);
        let scopes = (0..len).map(scope).collect::<Result<Vec<Scope>, _>>()?;
        let rows = |part| {
            let mut rows = Rows::new(self.outline.metrics.iter().map(crate::Metric::rule)).zeros_like(len);
            for metric in 0..self.outline.metrics.len() {
                let bytes = self.database.bytes_of_kind(kind(part), metric)?;
                let (at, values) = bytes.split_at(bytes.len() / 12 * 4);
                for cell in 0..at.len() / 4 {
                    let row = u32_at(at, cell) as usize;
                    if row >= len {
                        return Err(nonsense());
                    }
                    rows.add(row, metric, u64_at(values, cell));
                }
            }
            Ok(rows)
        };
        Ok(Table { scopes, own: rows(TablePart::Own)?, inclusive: rows(TablePart::Inclusive)? })
    }

    /// The flat view's tree.
    fn code(&self) -> Result<(Counted, Rows), DatabaseError> {
        let Table { scopes, own, inclusive } = self.table(ViewTable::Code)?;
        let kind = SectionKind::Table(ViewTable::Code, TablePart::Parents);
        let parents = self.database.bytes_of_kind(kind, 0)?;
        let mut to = Counted::by_rules(own.rules());
        for (row, scope) in scopes.into_iter().enumerate().skip(1) {
            let parent = u32_at(parents, row) as usize;
            if parent >= row {
                return Err(self.database.nonsense_in(kind, "parent of a row"));
            }
            to.append(NodeId::at(parent), scope);
        }
        if to.tree.len() != own.len() {
            return Err(self.database.nonsense_in(kind, "number of rows"));
        }
        let Counted { tree, .. } = to;
        Ok((Counted { tree: tree.with_costs(own), ..to }, inclusive))
    }
}

/// For a fuzzer: what is asked for a report.
pub(super) fn ask(mapped: &Mapped) {
    for view in [ViewKind::Context, ViewKind::Callers, ViewKind::Flat] {
        for (recursion, min_share) in [(Recursion::Full, 0.0), (Recursion::Collapse, 0.01)] {
            let query = Query { view, recursion, min_share, fold: whole::FOLDED.to_vec(), ..Query::default() };
            drop(Answers::view(mapped, &query));
        }
    }
    let whole = Query { recursion: Recursion::Collapse, fold: whole::FOLDED.to_vec(), ..Query::default() };
    drop(mapped.hottest(&whole));
    drop(mapped.procedures(&whole, Inlined::Apart));
}

/// Scopes with costs.
struct Table {
    scopes: Vec<Scope>,
    own: Rows,
    inclusive: Rows,
}

impl Answers for Mapped {
    fn profile(&self) -> &Profile {
        &self.outline
    }

    fn profile_for(&self, query: &Query) -> Result<&Profile, AnswerError> {
        let Query { focus, ignore, hide, prune_from, procedure, .. } = query;
        let names = [focus, ignore, hide, prune_from].into_iter().flatten().chain(procedure);
        if names.count() > 0 { Ok(self.loaded()?) } else { Ok(&self.outline) }
    }

    fn view(&self, query: &Query) -> Result<View, AnswerError> {
        if !self.has_answer(query) {
            return Ok(self.loaded()?.view(query)?);
        }
        let which = match query.recursion {
            Recursion::Collapse => ViewTree::Collapsed,
            Recursion::Full | Recursion::Suffix(_) => ViewTree::Folded,
        };
        let (counted, costs) = match query.view {
            ViewKind::Context => {
                let tree = self.tree(which)?;
                let threshold = query.min_share * tree.total() as f64;
                query::of_contexts(tree.part(&Expand::From(threshold))?)
            }
            ViewKind::Callers => query::of_callers(&self.origins(which, query)?, query),
            ViewKind::Flat => {
                let (code, inclusive) = self.code()?;
                query::of_code(code, inclusive)
            }
        };
        Ok(query::emit(&self.outline, query, counted, costs))
    }

    fn hottest(&self, query: &Query) -> Result<View, AnswerError> {
        let is_path =
            query.view == ViewKind::Context && query.recursion == Recursion::Collapse && query.order.is_none();
        if !is_path || !self.has_answer(query) {
            return self.view(query);
        }
        let part = self.tree(ViewTree::Collapsed)?.part(&Expand::Costliest(&self.outline.strings))?;
        let (counted, costs) = query::of_contexts(part);
        Ok(query::emit(&self.outline, query, counted, costs))
    }

    fn procedures(&self, query: &Query, inlined: Inlined) -> Result<Vec<ProcedureCost>, AnswerError> {
        let whole = Query { recursion: Recursion::Full, flatten: 0, ..query.clone() };
        if !self.has_answer(&whole) {
            return Ok(self.loaded()?.procedures(query, inlined)?);
        }
        let which = match inlined {
            Inlined::InTheirProcedures => ViewTable::Procedures,
            Inlined::Apart => ViewTable::WithInlined,
        };
        let Table { scopes, own, inclusive } = self.table(which)?;
        let tree = self.tree(ViewTree::Folded)?;
        Ok(query::of_procedures(&self.outline, scopes, (own, inclusive), tree.totals()))
    }
}

impl Database {
    /// Gives a profile what is said of the whole, and its strings; the names of these, by number.
    pub(super) fn begin(&self, profile: &mut Profile) -> Result<Vec<Name>, DatabaseError> {
        for run in self.runs() {
            profile.info.merge(&run.info);
            profile.quality.add(&run.quality);
        }
        Ok(self.strings()?.iter().map(|text| profile.strings.intern(text)).collect())
    }

    /// The scopes of a section, with these names.
    pub(super) fn named_scopes(&self, kind: SectionKind, names: &[Name]) -> Result<Vec<Scope>, DatabaseError> {
        let mut name = |name: Name| names.get(name.index()).copied().unwrap_or(Name::EMPTY);
        let scopes = self.scopes_of(kind, names.len())?;
        Ok(scopes.iter().map(|scope| super::union::renamed(scope, &mut name)).collect())
    }
}
