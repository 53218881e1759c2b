//! Which procedures of a file call which others by name, where both can run as copies: their calls can be led elsewhere.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::exports::Exports;
use callpath_image::plt;
use callpath_infer::MapModule;
use callpath_tables::call_graph::{Callee, module_calls};
use callpath_tables::copies::copyable;
use callpath_tables::graphs::with_flow;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::identity_bytes;
use crate::attribute::AttributeOptions;
use crate::exact::open;

/// The calls of a file. What jumps to a procedure is not among them, nor what calls it through a linkage table that the loader does not close
/// when the program starts.
#[derive(Debug, Default)]
pub struct NamedCalls {
    /// Those within the file: where the caller and what it calls begin, link-time addresses.
    own: FxHashSet<(u64, u64)>,
    /// Those of what the file imports: where the caller begins, and the name.
    imported: FxHashSet<(u64, String)>,
    /// What the file exports and can be copied: the names of what begins there.
    exported: FxHashMap<u64, Vec<String>>,
}

impl NamedCalls {
    /// Those of a file.
    ///
    /// # Errors
    /// If it cannot be read, or is another build: a sentence.
    pub fn of(of: &MapModule, options: &AttributeOptions) -> Result<NamedCalls, String> {
        let names = open(std::slice::from_ref(&of.path), None, options);
        let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
            return Err(format!("{} cannot be read: none of its procedures are cloned", of.path.display()));
        };
        if identity_bytes(&source.module.image().identity()) != of.identity {
            return Err(format!(
                "{} is another build than the map's: none of its procedures are cloned",
                of.path.display()
            ));
        }
        let copyable: FxHashSet<u64> =
            copyable(&source.module).into_iter().filter(|of| of.refusal.is_none()).map(|of| of.entry.0).collect();
        let image = source.module.image();
        let closed =
            image.relocated_range().filter(|closed| plt::words(image).iter().all(|word| closed.contains(word)));
        let exports = Exports::of(image);
        let calls = with_flow(&source.module, |flow, _| module_calls(&source.module, flow));
        names.end_analysis();
        let stubs: Vec<Range<LinkAddr>> = plt::sections(image).into_iter().map(|section| section.code).collect();
        let mut named = NamedCalls::default();
        // A stub is a procedure that jumps.
        let through = |stub: LinkAddr| {
            let found = calls.procedures.binary_search_by_key(&stub, |of| of.entry).ok();
            found.and_then(|index| calls.procedures.get(index)).map_or(&[][..], |of| &of.jumps)
        };
        for of in calls.procedures.iter().filter(|of| copyable.contains(&of.entry.0)) {
            for call in &of.calls {
                let callees = match &call.callee {
                    Callee::Procedure(callee) if stubs.iter().any(|stubs| stubs.contains(callee)) => through(*callee),
                    other => std::slice::from_ref(other),
                };
                for callee in callees {
                    match callee {
                        Callee::Procedure(callee) => drop(named.own.insert((of.entry.0, callee.0))),
                        Callee::Named(name) if closed.is_some() => {
                            // Another file may export the name, too, and come first: then what is led there is not called.
                            let own = exports.named(name).iter().filter(|export| !export.chooses);
                            named.own.extend(own.map(|export| (of.entry.0, export.start.0)));
                            named.imported.insert((of.entry.0, name.clone()));
                        }
                        _ => {}
                    }
                }
            }
        }
        named.own.retain(|(_, callee)| copyable.contains(callee));
        for (name, export) in exports.names().filter(|(_, export)| copyable.contains(&export.start.0)) {
            named.exported.entry(export.start.0).or_default().push(name.to_owned());
        }
        Ok(named)
    }

    /// Whether a procedure calls another of the file, by where they begin.
    pub fn has(&self, caller: u64, callee: u64) -> bool {
        self.own.contains(&(caller, callee))
    }

    /// Whether a procedure calls one of another file, by where they begin.
    pub fn has_outward(&self, caller: u64, (other, callee): (&NamedCalls, u64)) -> bool {
        let names = other.exported.get(&callee).map_or(&[][..], Vec::as_slice);
        names.iter().any(|name| self.imported.contains(&(caller, name.clone())))
    }
}
