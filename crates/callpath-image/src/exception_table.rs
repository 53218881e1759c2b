//! What a procedure's exceptions are answered with: its calls, where they land, and the clauses there, in order. All
//! that is in one table of `.gcc_except_table`, so that the table of moved code can be written anew.
//!
//! `lsda` describes the layout. Tables are read one at a time, on demand: those of a large C++ library together are
//! longer than most of what else is known of it. Actions and lists that no call site leads to are not there.

use std::collections::BTreeMap;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::cfi::FrameRange;
use crate::landing_pads::LandingPadDiagnostic;
pub use crate::lsda::LsdaTrouble;
use crate::lsda::{Cursor, Header, LISTED_LIMIT, RawCallSite};
use crate::module_file::ModuleFile;

/// The table of a procedure, or of a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExceptionTable {
    /// Where the table lies.
    pub at: LinkAddr,
    /// The code of the frame description entry that names it. Calls in it that no call site
    /// holds must not throw: that ends the program.
    pub code: Range<LinkAddr>,
    /// What the table's pads count from; `None`: from where `code` begins.
    pub pads_from: Option<LinkAddr>,
    /// How a call site's numbers are written (`DW_EH_PE_*`).
    pub call_site_encoding: u8,
    /// How types are written (`DW_EH_PE_*`: format, what they are relative to, whether the word there
    /// leads to the type); `None`: there are none.
    pub type_encoding: Option<u8>,
    /// In the order of the table, which ascends.
    pub call_sites: Vec<CallSite>,
    /// In the order of the table.
    pub actions: Vec<Action>,
    /// By their numbers, from 1 on in the table and from 0 on here: as many as actions and lists name.
    pub types: Vec<TypeEntry>,
    /// Lists of the types that may be thrown on, as indices in `types`; in the order of the table.
    pub lists: Vec<Vec<u32>>,
}

/// A stretch of calls whose exceptions are answered alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// The code.
    pub calls: Range<LinkAddr>,
    /// Where control continues; `None`: the exception passes.
    pub pad: Option<LinkAddr>,
    /// The first action, as an index in [`ExceptionTable::actions`]; `None`: the pad cleans up, nothing more.
    pub action: Option<u32>,
}

/// A clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// What it is.
    pub clause: Clause,
    /// The one that is asked if this does not apply, as an index in [`ExceptionTable::actions`]: that of a `try`
    /// further out follows that of the inner one.
    pub next: Option<u32>,
}

/// What a clause asks of an exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clause {
    /// Nothing: destructors run, and the exception continues.
    CleanUp,
    /// It is caught if it has the type with this index in [`ExceptionTable::types`].
    Catch(u32),
    /// It must not continue unless its type is in the list with this index in
    /// [`ExceptionTable::lists`]: an exception specification.
    OnlyListed(u32),
}

/// A type that a clause names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeEntry {
    /// `catch (...)`
    Any,
    /// The `type_info`, or whatever the language has, at this address; where the encoding says that it is indirect, the
    /// word there, which the loader fills, leads to it.
    At(LinkAddr),
}

/// `DW_EH_PE_indirect`
pub(crate) const INDIRECT: u8 = 0x80;

impl ExceptionTable {
    /// The table that a frame description entry of the module names; `None` if it names none.
    pub fn of(module: &ModuleFile, range: &FrameRange) -> Result<Option<ExceptionTable>, LandingPadDiagnostic> {
        let Some(at) = range.landing_table else { return Ok(None) };
        let nowhere = LandingPadDiagnostic { table: at, offset: 0, trouble: LsdaTrouble::Nowhere };
        let bytes = module.image().bytes_from(at).ok_or(nowhere)?;
        ExceptionTable::parse(bytes, at, range.code.clone()).map(Some)
    }

    /// The table that `bytes` begin with, which lie at `at`; a frame description entry of `code` names it.
    pub fn parse(bytes: &[u8], at: LinkAddr, code: Range<LinkAddr>) -> Result<ExceptionTable, LandingPadDiagnostic> {
        let mut cursor = Cursor { bytes, at: 0, table: at };
        let table = ExceptionTable::read(&mut cursor, code);
        table.map_err(|trouble| LandingPadDiagnostic { table: at, offset: cursor.at as u64, trouble })
    }

    /// Whether types are named by a word that leads to them.
    pub fn types_are_indirect(&self) -> bool {
        self.type_encoding.is_some_and(|encoding| encoding & INDIRECT != 0)
    }

    /// What is asked of an exception of a call site's calls, in order. None if it passes or the pad only cleans up.
    pub fn clauses(&self, site: &CallSite) -> impl Iterator<Item = Clause> {
        let mut next = site.action;
        std::iter::from_fn(move || {
            let action = self.actions.get(next? as usize)?;
            next = action.next;
            Some(action.clause)
        })
        // Reading refuses circles; a table that somebody has made may have one.
        .take(self.actions.len())
    }

    fn read(cursor: &mut Cursor<'_>, code: Range<LinkAddr>) -> Result<ExceptionTable, LsdaTrouble> {
        let header = Header::read(cursor)?;
        let pads_from = header.pads_from.unwrap_or(code.start);
        let (mut call_sites, mut firsts) = (Vec::new(), Vec::new());
        while cursor.at < header.call_sites.end {
            let site = RawCallSite::read(cursor, header.call_site_encoding)?;
            let start = LinkAddr(code.start.0.wrapping_add(site.start));
            let calls = start..LinkAddr(start.0.saturating_add(site.len));
            if calls.start < code.start || calls.end > code.end {
                return Err(LsdaTrouble::Outside);
            }
            let pad = (site.pad != 0).then(|| LinkAddr(pads_from.0.wrapping_add(site.pad)));
            call_sites.push(CallSite { calls, pad, action: None });
            firsts.push(site.action);
        }
        let mut behind = Behind { header: &header, actions: BTreeMap::new() };
        for first in &firsts {
            behind.follow(cursor, *first)?;
        }
        let places: Vec<u64> = behind.actions.keys().copied().collect();
        let index_of = |at: u64| places.binary_search(&at).ok().map(|index| index as u32);
        for (site, first) in call_sites.iter_mut().zip(firsts) {
            site.action = first.checked_sub(1).and_then(index_of);
        }
        let (lists, starts) = behind.lists(cursor)?;
        let action = |raw: &RawAction| {
            let clause = match raw.what {
                0 => Clause::CleanUp,
                what @ 1.. => Clause::Catch(u32::try_from(what - 1).map_err(|_| LsdaTrouble::Type)?),
                what => {
                    let list = starts.binary_search(&what.unsigned_abs()).map_err(|_| LsdaTrouble::Type)?;
                    Clause::OnlyListed(list as u32)
                }
            };
            Ok(Action { clause, next: raw.next.and_then(index_of) })
        };
        let actions: Vec<Action> = behind.actions.values().map(action).collect::<Result<_, _>>()?;
        let named = actions.iter().filter_map(|action| match action.clause {
            Clause::Catch(index) => Some(index),
            Clause::CleanUp | Clause::OnlyListed(_) => None,
        });
        let count = named.chain(lists.iter().flatten().copied()).max().map_or(0, |last| u64::from(last) + 1);
        let types = behind.types(cursor, count)?;
        Ok(ExceptionTable {
            at: cursor.table,
            code,
            pads_from: header.pads_from,
            call_site_encoding: header.call_site_encoding,
            type_encoding: header.types.map(|(encoding, _)| encoding),
            call_sites,
            actions,
            types,
            lists,
        })
    }
}

/// An action as it is written.
struct RawAction {
    what: i64,
    /// From the first byte behind the call sites.
    next: Option<u64>,
}

/// What follows the call sites.
struct Behind<'h> {
    header: &'h Header,
    /// By where they are, from the first byte behind the call sites.
    actions: BTreeMap<u64, RawAction>,
}

impl Behind<'_> {
    /// Reads the actions from one on, up to those that are known. `first`: as a call site says it.
    fn follow(&mut self, cursor: &mut Cursor<'_>, first: u64) -> Result<(), LsdaTrouble> {
        let start = self.header.call_sites.end as u64;
        let mut new = BTreeMap::new();
        let mut next = first.checked_sub(1).filter(|at| !self.actions.contains_key(at));
        while let Some(at) = next {
            let place = start.checked_add(at).and_then(|place| usize::try_from(place).ok());
            cursor.at = place.filter(|place| *place < cursor.bytes.len()).ok_or(LsdaTrouble::Action)?;
            let what = cursor.sleb()?;
            let number_at = cursor.at as u64;
            next = match cursor.sleb()? {
                0 => None,
                distance => {
                    let place = number_at.checked_add_signed(distance).and_then(|place| place.checked_sub(start));
                    Some(place.ok_or(LsdaTrouble::Action)?)
                }
            };
            if new.insert(at, RawAction { what, next }).is_some() {
                return Err(LsdaTrouble::Action);
            }
            next = next.filter(|at| !self.actions.contains_key(at));
        }
        // Appending would go through all of them for each call site.
        self.actions.extend(new);
        Ok(())
    }

    /// The lists that actions name, and the number that each is named by: ascending.
    fn lists(&self, cursor: &mut Cursor<'_>) -> Result<(Vec<Vec<u32>>, Vec<u64>), LsdaTrouble> {
        let mut starts: Vec<u64> =
            self.actions.values().filter(|action| action.what < 0).map(|action| action.what.unsigned_abs()).collect();
        starts.sort_unstable();
        starts.dedup();
        // Compilers let lists end alike.
        let mut numbers_left = LISTED_LIMIT;
        let mut lists = Vec::with_capacity(starts.len());
        for start in &starts {
            let (_, end) = self.header.types.ok_or(LsdaTrouble::Type)?;
            let place = end.checked_add(start - 1).and_then(|place| usize::try_from(place).ok());
            cursor.at = place.ok_or(LsdaTrouble::Cut)?;
            let mut list = Vec::new();
            loop {
                numbers_left = numbers_left.checked_sub(1).ok_or(LsdaTrouble::Lists)?;
                match cursor.uleb()? {
                    0 => break,
                    number => list.push(u32::try_from(number - 1).map_err(|_| LsdaTrouble::Type)?),
                }
            }
            lists.push(list);
        }
        Ok((lists, starts))
    }

    /// The first `count` types.
    fn types(&self, cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<TypeEntry>, LsdaTrouble> {
        let Some((encoding, end)) = self.header.types else {
            return if count == 0 { Ok(Vec::new()) } else { Err(LsdaTrouble::Type) };
        };
        if count == 0 {
            return Ok(Vec::new());
        }
        let len = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => 8,
            0x02 | 0x0a => 2,
            0x03 | 0x0b => 4,
            _ => return Err(LsdaTrouble::Encoding(encoding)),
        };
        let first = self.header.call_sites.end as u64;
        let start = count.checked_mul(len).and_then(|len| end.checked_sub(len)).filter(|start| *start >= first);
        if start.is_none() || end > cursor.bytes.len() as u64 {
            return Err(LsdaTrouble::Type);
        }
        let entry = |number: u64| {
            cursor.at = (end - number * len) as usize;
            Ok(match cursor.pointer_or_none(encoding & !INDIRECT)? {
                Some(address) => TypeEntry::At(LinkAddr(address)),
                None => TypeEntry::Any,
            })
        };
        (1..=count).map(entry).collect()
    }
}

/// For fuzzing: any bytes as a table give one whose indices all lead somewhere, or what is odd.
#[doc(hidden)]
pub fn fuzz_exception_table(bytes: &[u8]) {
    let code = LinkAddr(0x2000)..LinkAddr(0x3000);
    let mut cursor = Cursor { bytes, at: 0, table: LinkAddr(0x10_0000) };
    let Ok(table) = ExceptionTable::read(&mut cursor, code.clone()) else { return };
    let has = |index: u32, len: usize| assert!((index as usize) < len);
    for site in &table.call_sites {
        assert!(code.start <= site.calls.start && site.calls.start <= site.calls.end && site.calls.end <= code.end);
        site.action.into_iter().for_each(|action| has(action, table.actions.len()));
        assert!(table.clauses(site).count() <= table.actions.len());
    }
    for action in &table.actions {
        action.next.into_iter().for_each(|next| has(next, table.actions.len()));
        match action.clause {
            Clause::CleanUp => {}
            Clause::Catch(index) => has(index, table.types.len()),
            Clause::OnlyListed(list) => has(list, table.lists.len()),
        }
    }
    table.lists.iter().flatten().for_each(|index| has(*index, table.types.len()));
}
