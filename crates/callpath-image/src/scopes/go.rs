//! Source structure of a Go program without DWARF: its own table (`go_table`) says which calls were inlined, and the lines. Each procedure
//! is a unit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use super::unit::{END, Language, NONE, OriginRecord, Row, STATEMENT, ScopeRecord, Text, UnitId, UnitScopes};
use crate::elf::Image;
use crate::error::ImageError;
use crate::go_table::{GoInlinedCall, GoProcedure, GoTable};

/// DW_LANG_Go
const GO: u16 = 0x16;
/// Inlined calls of a procedure, and ranges of code that belong to them, at most.
const CALL_LIMIT: usize = 1 << 14;
const RANGE_LIMIT: usize = 1 << 17;
/// Names and files of a procedure, bytes.
const TEXT_LIMIT: usize = 1 << 24;
/// Inlined calls are not nested deeper.
const DEPTH_LIMIT: usize = 256;

/// No unit is read once those before have this many times more rows, ranges and bytes of text than the file has bytes.
const AMPLIFICATION: u64 = 64;

/// An image with a table, and where its trees of inlined calls are.
pub(super) struct GoScopes {
    image: Arc<Image>,
    /// What offsets of trees count from.
    trees: LinkAddr,
    /// How much more may be read.
    left: AtomicU64,
}

impl GoScopes {
    /// Those of an image, if its table says which calls were inlined: from Go 1.18 on.
    pub(super) fn of(image: &Arc<Image>) -> Option<GoScopes> {
        let trees = GoTable::of(image)?.inlined_calls(image)?;
        let left = image.file_len().saturating_mul(AMPLIFICATION).into();
        Some(GoScopes { image: Arc::clone(image), trees, left })
    }

    pub(super) fn units(&self) -> impl Iterator<Item = UnitId> + use<> {
        let count = GoTable::of(&self.image).map_or(0, |table| table.procedures().count());
        (0..count as u64).map(UnitId)
    }

    pub(super) fn unit_at(&self, addr: LinkAddr) -> Option<UnitId> {
        GoTable::of(&self.image)?.index_at(addr).map(|index| UnitId(index as u64))
    }

    pub(super) fn read(&self, id: UnitId) -> Result<UnitScopes, ImageError> {
        let broken = |why: &str| ImageError::Malformed {
            path: self.image.origin().to_path_buf(),
            what: "Go's table of procedures, .gopclntab",
            offset: 0,
            why: format!("procedure {}: {why}", id.0),
        };
        let table = GoTable::of(&self.image).ok_or_else(|| broken("there is no table"))?;
        let index = usize::try_from(id.0).ok();
        let procedure = index.and_then(|index| table.procedure(index)).ok_or_else(|| broken("there is none"))?;
        if self.left.load(Relaxed) == 0 {
            return Err(broken("the table describes more than a program of this size can have"));
        }
        let mut reading = Reading {
            scopes: self,
            table: &table,
            procedure: &procedure,
            innermost: table.inlined(&procedure).take(RANGE_LIMIT).collect(),
            calls: FxHashMap::default(),
            unit: empty(id),
            files: FxHashMap::default(),
        };
        reading.read();
        let unit = reading.unit;
        let spent = unit.rows.len() + unit.ranges.len() + unit.paint_addrs.len() + unit.text.len();
        let take = |left: u64| Some(left.saturating_sub(spent as u64));
        // It always succeeds.
        let _ = self.left.fetch_update(Relaxed, Relaxed, take);
        Ok(unit)
    }
}

fn empty(id: UnitId) -> UnitScopes {
    UnitScopes {
        id,
        language: Language(GO),
        text: String::new(),
        files: Vec::new(),
        scopes: Vec::new(),
        ranges: Vec::new(),
        origins: Vec::new(),
        containers: Vec::new(),
        paint_addrs: Vec::new(),
        paint_scopes: Vec::new(),
        rows: Vec::new(),
        bare: Vec::new(),
        is_gcc: false,
        has_inlined_calls: true,
        declarations: Vec::new(),
        elsewhere: Vec::new(),
        diagnostics: Vec::new(),
    }
}

/// A call of a tree.
struct Call<'t> {
    said: GoInlinedCall<'t>,
    parent: Option<u32>,
    depth: usize,
    ranges: Vec<Range<LinkAddr>>,
    /// Start of its first code that belongs to no nested call.
    own: Option<LinkAddr>,
}

struct Reading<'a, 't> {
    scopes: &'a GoScopes,
    table: &'t GoTable<'t>,
    procedure: &'a GoProcedure,
    /// The innermost inlined call of each range of code: its index in the tree.
    innermost: Vec<(Range<LinkAddr>, Option<u32>)>,
    calls: FxHashMap<u32, Call<'t>>,
    unit: UnitScopes,
    files: FxHashMap<&'t str, u32>,
}

impl<'t> Reading<'_, 't> {
    fn read(&mut self) {
        let mut rows = Vec::new();
        for (code, file, line) in self.table.lines(self.procedure).take(RANGE_LIMIT) {
            let file = self.file(file);
            rows.push(Row { addr: code.start.0, file: file | STATEMENT, line, discriminator: 0, column: 0 });
            rows.push(Row { addr: code.end.0, file: END, line: 0, discriminator: 0, column: 0 });
        }
        // An end row is dropped where the next range begins.
        let (mut kept, mut rows) = (Vec::with_capacity(rows.len()), rows.into_iter().peekable());
        while let Some(row) = rows.next() {
            if row.file != END || rows.peek().is_none_or(|next| next.addr != row.addr) {
                kept.push(row);
            }
        }
        self.unit.rows = kept;
        self.enter_calls();
        self.make_scopes();
    }

    fn file(&mut self, path: &'t str) -> u32 {
        if let Some(number) = self.files.get(path) {
            return *number;
        }
        let text = self.text(path);
        self.unit.files.push(text);
        let number = self.unit.files.len() as u32 - 1;
        self.files.insert(path, number);
        number
    }

    fn text(&mut self, text: &str) -> Text {
        // In a malicious file, names may overlap.
        if self.unit.text.len() + text.len() > TEXT_LIMIT {
            return Text::default();
        }
        let start = self.unit.text.len() as u32;
        self.unit.text.push_str(text);
        Text { start, len: text.len() as u32 }
    }

    /// Reads the calls that have code, and those around them.
    fn enter_calls(&mut self) {
        let innermost = std::mem::take(&mut self.innermost);
        let mut range_count = 0;
        for (code, index) in &innermost {
            if range_count >= RANGE_LIMIT {
                break;
            }
            let mut next = *index;
            let mut chain = Vec::new();
            while let Some(index) = next {
                if chain.len() >= DEPTH_LIMIT || chain.contains(&index) {
                    break;
                }
                let parent = match self.calls.get(&index) {
                    Some(call) => call.parent,
                    None => {
                        let (image, trees) = (&self.scopes.image, self.scopes.trees);
                        let said = self.table.inlined_call(image, trees, (self.procedure, index));
                        let Some(said) = said.filter(|_| self.calls.len() < CALL_LIMIT) else { break };
                        let parent = match said.parent {
                            Some(parent) => u32::try_from(parent).ok(),
                            None => {
                                let at = self.procedure.code.start.0.saturating_add(said.called_at.into());
                                let around = innermost.partition_point(|(code, _)| code.end.0 <= at);
                                innermost
                                    .get(around)
                                    .filter(|(code, _)| code.start.0 <= at)
                                    .and_then(|(_, index)| *index)
                            }
                        };
                        self.calls.insert(index, Call { said, parent, depth: 0, ranges: Vec::new(), own: None });
                        parent
                    }
                };
                chain.push(index);
                next = parent;
            }
            // What is around a call that cannot be read is not known: it stands in the procedure.
            for (depth, index) in chain.iter().rev().enumerate() {
                range_count += 1;
                let Some(call) = self.calls.get_mut(index) else { continue };
                if call.ranges.is_empty() {
                    call.depth = depth;
                }
                if depth + 1 == chain.len() {
                    call.own.get_or_insert(code.start);
                }
                match call.ranges.last_mut() {
                    Some(last) if last.end == code.start => last.end = code.end,
                    _ => call.ranges.push(code.clone()),
                }
            }
        }
        self.calls.retain(|_, call| !call.ranges.is_empty());
        self.innermost = innermost;
    }

    fn make_scopes(&mut self) {
        let (code, entry) = (self.procedure.code.clone(), self.unit.rows.first().copied());
        let (decl_file, first_line) = entry.map_or((NONE, 0), |row| (row.file & !STATEMENT, row.line));
        let name = self.table.name(self.procedure).unwrap_or_default();
        let decl_line = self.table.start_line(self.procedure).unwrap_or(first_line);
        self.scope((None, None), (name, decl_file, decl_line), std::slice::from_ref(&code));
        let mut order: Vec<(usize, u32)> = self.calls.iter().map(|(index, call)| (call.depth, *index)).collect();
        order.sort_unstable();
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        let mut calls = std::mem::take(&mut self.calls);
        for (_, index) in order {
            let Some(call) = calls.remove(&index) else { continue };
            let parent = call.parent.and_then(|parent| numbers.get(&parent)).copied().unwrap_or(0);
            let of_callee = call.own.and_then(|own| self.unit.line_at(own));
            let decl_file = of_callee.and_then(|run| run.file).map_or(NONE, |file| file.0);
            let site = match call.said.site {
                Some((file, line)) => Some((self.file(file), line)),
                None => {
                    let at = LinkAddr(code.start.0.saturating_add(call.said.called_at.into()));
                    self.unit.line_at(at).and_then(|run| Some((run.file?.0, run.line)))
                }
            };
            let (declared, line) = call.said.start_line.map_or((NONE, 0), |line| (decl_file, line));
            numbers.insert(index, self.unit.scopes.len() as u32);
            self.scope((Some(parent), site), (call.said.name, declared, line), &call.ranges);
        }
        for (code, index) in std::mem::take(&mut self.innermost) {
            let scope = index.and_then(|index| numbers.get(&index)).copied().unwrap_or(0);
            self.unit.paint_addrs.push(code.start.0);
            self.unit.paint_scopes.push(scope);
        }
        if self.unit.paint_addrs.first() != Some(&code.start.0) {
            self.unit.paint_addrs.insert(0, code.start.0);
            self.unit.paint_scopes.insert(0, 0);
        }
        self.unit.paint_addrs.push(code.end.0);
        self.unit.paint_scopes.push(NONE);
    }

    /// Of an inlined call, the scope around it and its call site.
    fn scope(
        &mut self,
        (parent, site): (Option<u32>, Option<(u32, u32)>),
        (name, decl_file, decl_line): (&str, u32, u32),
        ranges: &[Range<LinkAddr>],
    ) {
        let (name, first_range) = (self.text(name), self.unit.ranges.len() as u32);
        let (call_file, call_line) = site.unwrap_or((NONE, 0));
        self.unit.ranges.extend_from_slice(ranges);
        self.unit.origins.push(OriginRecord {
            name,
            linkage_name: Text::default(),
            decl_file,
            decl_line,
            container: NONE,
            code: 0,
        });
        self.unit.scopes.push(ScopeRecord {
            parent: parent.unwrap_or(NONE),
            origin: self.unit.origins.len() as u32 - 1,
            first_range,
            call_file,
            call_line,
            call_column: 0,
            call_discriminator: 0,
            is_inlined: parent.is_some(),
        });
    }
}
