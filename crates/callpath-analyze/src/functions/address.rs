//! What begins at an address of a module, and of which procedure the code there is.

use callpath_format::address::LinkAddr;
use callpath_image::demangle::demangle;
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use rustc_hash::FxHashMap;

use super::pattern::What;
use super::{Function, Functions, NotEntry, Pattern};

/// Where the procedures of addresses without a name begin: their parts may lie elsewhere.
pub(super) type Wholes = FxHashMap<LinkAddr, LinkAddr>;

/// What begins at an address.
pub(super) enum Begun {
    /// A function with a name, by index.
    Listed(usize),
    /// One without.
    Nameless(Function),
}

impl Functions {
    /// Where the procedures begin in which the addresses of `patterns` lie, of those that symbols do not name: by the
    /// module's control flow, which is found only if there are any.
    pub(super) fn wholes(&self, patterns: &[Pattern]) -> Wholes {
        let of_module = patterns.iter().filter(|pattern| pattern.is_of(&self.path));
        let addresses = of_module.filter_map(|pattern| match &pattern.what {
            What::At(address) => Some(*address),
            What::Named { .. } => None,
        });
        let is_nameless = |address: &LinkAddr| {
            let procedure = self.procedures.procedure_at(*address);
            procedure.is_some_and(|procedure| procedure.name.is_none()) && self.procedures.is_described(*address)
        };
        let nameless: Vec<LinkAddr> = addresses.filter(is_nameless).collect();
        if nameless.is_empty() {
            return Wholes::default();
        }
        with_flow(&Module::new(self.image.clone()), |flow, _| {
            let whole = |address: &LinkAddr| Some((*address, flow.entry(flow.procedure_at(*address)?)?));
            nameless.iter().filter_map(whole).collect()
        })
    }

    /// What begins at an address, or where that lies.
    pub(super) fn at(&self, address: LinkAddr, pattern: usize, wholes: &Wholes) -> Result<Begun, NotEntry> {
        let not_entry = |within: Option<String>, entry| NotEntry { pattern, address, within, entry };
        if let Ok(index) = self.listed.binary_search_by_key(&address, |listed| listed.entry) {
            return Ok(Begun::Listed(index));
        }
        let procedure = self.procedures.procedure_at(address);
        let procedure = procedure.filter(|found| found.name.is_some() || self.procedures.is_described(address));
        let Some(procedure) = procedure else { return Err(not_entry(None, None)) };
        let Some(name) = procedure.name else {
            let entry = wholes.get(&address).copied().unwrap_or(procedure.start);
            if entry != address {
                let named = self.listed.binary_search_by_key(&entry, |listed| listed.entry).ok();
                let named = named.and_then(|index| Some(self.listed.get(index)?.name.clone()));
                return Err(not_entry(Some(named.unwrap_or_else(|| self.address_text(entry))), Some(entry)));
            }
            return Ok(Begun::Nameless(Function {
                entry: address,
                size_bytes: procedure.len,
                name: self.address_text(address),
                raw_name: String::new(),
                place: None,
                unit_file: None,
                is_exported: false,
                distinguishing: None,
                pattern,
            }));
        };
        let within = Some(demangle(name).into_owned());
        let is_listed = self.listed.binary_search_by_key(&procedure.start, |listed| listed.entry).is_ok();
        let entry = if is_listed { Some(procedure.start) } else { self.whole_of(procedure.start, name) };
        Err(not_entry(within, entry))
    }

    /// Where the procedure begins that a part (`f.cold`) belongs to: the nearest of several of its name.
    fn whole_of(&self, part: LinkAddr, name: &str) -> Option<LinkAddr> {
        let (whole, _) = name.rsplit_once(".cold")?;
        if !self.parts.iter().any(|code| code.start == part) {
            return None;
        }
        let file = |at| self.symbols.at(at).iter().find_map(|symbol| symbol.file.as_deref());
        let named = self.listed.iter().filter(|listed| listed.raw_name == whole);
        let of_file = named
            .filter(|listed| file(part).is_none_or(|file| self.unit_file_of(listed).is_none_or(|own| own == file)));
        of_file.map(|listed| listed.entry).min_by_key(|entry| entry.0.abs_diff(part.0))
    }
}
