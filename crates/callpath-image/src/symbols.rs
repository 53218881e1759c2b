//! The procedures of an image and their linker's names: from symbol tables, PLT stubs and frame description entries.
//! Names are not demangled here.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashMap;

use crate::elf::Image;
use crate::fde::FdeBounds;
use crate::go_table::GoTable;
use crate::plt;
use crate::symbol_table::{self, Symbol};

/// How many procedures that begin before an address are tried before giving up on finding one around it: they nest
/// in hand-written assembly, never deep.
const NESTING_LIMIT: usize = 64;

/// A stretch of code that belongs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Procedure<'a> {
    /// Where it begins.
    pub start: LinkAddr,
    /// Its length in bytes.
    pub len: u64,
    /// The linker's name, still mangled, without a symbol version. `None` where only a frame description entry, or
    /// the gap between two procedures, shows that something is here.
    pub name: Option<&'a str>,
}

/// A named procedure.
struct Named {
    start: LinkAddr,
    end: LinkAddr,
    /// The greatest `end` of this one and all before it: where it is not above an address, no need to look further.
    greatest_end: LinkAddr,
    name: Range<usize>,
}

/// All procedures of an image.
pub struct Procedures {
    /// Sorted by start, starts differ.
    named: Vec<Named>,
    /// Their names, one after the other.
    names: String,
    fdes: FdeBounds,
    executable: Vec<Range<LinkAddr>>,
    is_complete: bool,
    /// See [`Procedures::ordinal`]; found when first asked for.
    ordinals: OnceCell<FxHashMap<LinkAddr, u32>>,
}

impl Procedures {
    /// Reads the symbols of `image` and of its separate debug file, which must be of the same build.
    pub fn new(image: Arc<Image>, debug_file: Option<&Image>) -> Procedures {
        let executable = image.executable_ranges();
        let is_complete = [Some(&*image), debug_file].into_iter().flatten().any(symbol_table::has_full_table);
        let is_complete = is_complete || GoTable::of(&image).is_some();
        let fdes = FdeBounds::new(Arc::clone(&image));
        let mut symbols = symbol_table::procedure_symbols(&image, &executable);
        if let Some(debug_file) = debug_file {
            symbols.extend(symbol_table::procedure_symbols(debug_file, &executable));
        }
        // Few share an address: a rank takes longer than all else.
        symbols.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| a.rank().cmp(&b.rank())));
        let symbols = without_inner_labels(best_of_aliases(symbols));

        let mut procedures = Procedures {
            named: Vec::new(),
            names: String::new(),
            fdes,
            executable,
            is_complete,
            ordinals: OnceCell::new(),
        };
        let mut stubs = plt::stubs(&image, |resolver| {
            let found = symbols.binary_search_by_key(&resolver, |symbol| symbol.start);
            found.ok().and_then(|index| symbols.get(index)).map(|symbol| symbol.name.to_string())
        });
        stubs.retain(|stub| symbols.binary_search_by_key(&stub.start, |symbol| symbol.start).is_err());
        let mut stubs = stubs.into_iter().peekable();
        for (index, symbol) in symbols.iter().enumerate() {
            while let Some(stub) = stubs.next_if(|stub| stub.start < symbol.start) {
                procedures.push(stub.start, LinkAddr(stub.start.0.saturating_add(stub.len)), &stub.name);
            }
            let end = match symbol.len {
                0 => {
                    let next_symbol = symbols.get(index + 1).map(|next| next.start);
                    let next_stub = stubs.peek().map(|stub| stub.start);
                    procedures.end_of_unsized(symbol.start, next_symbol.into_iter().chain(next_stub))
                }
                len => LinkAddr(symbol.start.0.saturating_add(len)),
            };
            procedures.push(symbol.start, end, &symbol.name);
        }
        for stub in stubs {
            procedures.push(stub.start, LinkAddr(stub.start.0.saturating_add(stub.len)), &stub.name);
        }
        procedures
    }

    /// Where named procedures begin, ascending.
    pub fn starts(&self) -> impl Iterator<Item = LinkAddr> {
        self.named.iter().map(|named| named.start)
    }

    /// There is a full symbol table (`.symtab`), not just the names that other modules need.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Call frame information describes the code at `addr`: it is of a procedure, not between two.
    pub fn is_described(&self, addr: LinkAddr) -> bool {
        self.fdes.around(addr).is_ok()
    }

    /// How many procedures with the name of the one that begins at `start`, which are others, begin before it: `static`
    /// ones of several files. Copies of one procedure, and stubs of one, count as one.
    pub fn ordinal(&self, start: LinkAddr) -> u32 {
        let find = || {
            let mut counts: FxHashMap<&str, u32> = FxHashMap::default();
            let mut found = FxHashMap::default();
            for procedure in self.named() {
                let Some(name) = procedure.name.filter(|name| may_be_several(name)) else { continue };
                let count = counts.entry(name).or_default();
                if *count > 0 {
                    found.insert(procedure.start, *count);
                }
                *count += 1;
            }
            found
        };
        self.ordinals.get_or_init(find).get(&start).copied().unwrap_or(0)
    }

    /// All named procedures, by ascending start.
    pub fn named(&self) -> impl Iterator<Item = Procedure<'_>> {
        self.named.iter().map(|named| self.procedure(named))
    }

    /// The procedure that holds `addr`: the innermost named one, else the frame description entry, else the gap
    /// between procedures in which executable bytes lie. `None` outside of executable bytes.
    pub fn procedure_at(&self, addr: LinkAddr) -> Option<Procedure<'_>> {
        let after = self.named.partition_point(|named| named.start <= addr);
        let before = self.named.get(..after)?;
        let nearest = before.iter().rev().take(NESTING_LIMIT).take_while(|named| named.greatest_end > addr);
        if let Some(named) = nearest.into_iter().find(|named| named.end > addr) {
            return Some(self.procedure(named));
        }
        let bounds = match self.fdes.around(addr) {
            Ok(entry) => entry,
            Err(gap) => {
                let segment = self.executable.iter().find(|range| range.contains(&addr))?;
                let after_named = before.last().map_or(LinkAddr(0), |named| named.greatest_end);
                let before_named = self.named.get(after).map_or(LinkAddr(u64::MAX), |named| named.start);
                // Broken tables may contradict each other, but the gap holds the address.
                let start = gap.start.max(segment.start).max(after_named).min(addr);
                let end = gap.end.min(segment.end).min(before_named);
                start..end.max(LinkAddr(addr.0.saturating_add(1)))
            }
        };
        Some(Procedure { start: bounds.start, len: bounds.end.0 - bounds.start.0, name: None })
    }

    fn procedure(&self, named: &Named) -> Procedure<'_> {
        let name = self.names.get(named.name.clone());
        Procedure { start: named.start, len: named.end.0 - named.start.0, name }
    }

    /// A symbol without a size extends to the next one, but not over code of a frame description entry that
    /// begins behind it.
    fn end_of_unsized(&self, start: LinkAddr, next: impl Iterator<Item = LinkAddr>) -> LinkAddr {
        let segment_end = self.executable.iter().find(|range| range.contains(&start)).map(|range| range.end);
        let ends = next.chain(self.fdes.next_start(start)).chain(segment_end);
        ends.filter(|&end| end > start).min().unwrap_or(LinkAddr(start.0.saturating_add(1)))
    }

    /// Takes procedures by ascending start.
    fn push(&mut self, start: LinkAddr, end: LinkAddr, name: &str) {
        let greatest_end = self.named.last().map_or(end, |last| last.greatest_end.max(end));
        let name_start = self.names.len();
        self.names.push_str(name);
        self.named.push(Named { start, end, greatest_end, name: name_start..self.names.len() });
    }
}

/// Procedures of one unit may have that name, each unit another. What C++ and Rust mangle means the same everywhere,
/// but for what is internal to a unit.
fn may_be_several(name: &str) -> bool {
    let is_internal = || {
        let begins = ["_ZL", "_ZZL", "_ZNL", "_ZNKL"];
        name.contains("_GLOBAL__N_") || begins.iter().any(|begin| name.starts_with(begin))
    };
    let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
    !name.ends_with("@plt") && (!is_mangled || is_internal())
}

/// Of each run of symbols at one address, the first, with the first length that is known.
fn best_of_aliases(sorted: Vec<Symbol<'_>>) -> Vec<Symbol<'_>> {
    let mut best: Vec<Symbol<'_>> = Vec::with_capacity(sorted.len());
    for symbol in sorted {
        match best.last_mut() {
            Some(last) if last.start == symbol.start => {
                if last.len == 0 {
                    last.len = symbol.len;
                    last.is_typed |= symbol.is_typed;
                }
            }
            _ => best.push(symbol),
        }
    }
    best
}

/// Labels inside of a procedure with a size (a loop in hand-written assembly) are no procedures.
fn without_inner_labels(mut sorted: Vec<Symbol<'_>>) -> Vec<Symbol<'_>> {
    let mut procedure_end = LinkAddr(0);
    sorted.retain(|symbol| {
        if symbol.len == 0 && !symbol.is_typed && symbol.start < procedure_end {
            return false;
        }
        procedure_end = procedure_end.max(LinkAddr(symbol.start.0.saturating_add(symbol.len)));
        true
    });
    sorted
}
