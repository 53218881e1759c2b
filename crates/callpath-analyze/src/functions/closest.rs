//! What somebody may have meant whose pattern names nothing.

use std::fmt;
use std::path::Path;

use callpath_db::nearest;

use super::{Functions, NotEntry, Pattern};

/// The texts that somebody may have meant by a pattern that names nothing in any of `modules`: five at most, the
/// nearest first. Names of functions have the module before them where the pattern has one; where no module has its
/// name, names of modules are given.
pub fn closest(pattern: &Pattern, modules: &[&Functions]) -> Vec<String> {
    let Some((of_module, module)) = meant(pattern, modules) else {
        let names = modules.iter().map(|functions| &*functions.module);
        let near = nearest(pattern.module().unwrap_or_default(), names);
        let rest = pattern.text().strip_prefix(pattern.module().unwrap_or_default()).unwrap_or_default();
        return near.into_iter().map(|module| module + rest).collect();
    };
    let Some(name) = pattern.name() else { return Vec::new() };
    let near = nearest(name, of_module.iter().flat_map(|functions| functions.names()));
    let with_module = |name: String| module.map_or_else(|| name.clone(), |module| format!("{module}!{name}"));
    near.into_iter().map(with_module).collect()
}

/// Why a pattern names nothing in any of `modules`, in a sentence for a person with what may have been meant. Ask
/// [`Functions::inlined`] before: it may have been inlined everywhere.
pub fn unknown(pattern: &Pattern, modules: &[&Functions]) -> String {
    let near = closest(pattern, modules);
    let near = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
    let Some((of_module, _)) = meant(pattern, modules) else {
        let module = pattern.module().unwrap_or_default();
        return format!("{pattern}: no module was seen that is called {module}{near}");
    };
    let stripped: Vec<&&Functions> = of_module.iter().filter(|functions| functions.is_stripped()).collect();
    let names =
        |of: &[&&Functions]| of.iter().map(|functions| functions.module.as_str()).collect::<Vec<_>>().join(", ");
    let of = match &of_module[..] {
        [one] => format!(" of {}", one.module),
        _ => String::new(),
    };
    let hint = match &stripped[..] {
        [] => String::new(),
        [one] => format!(
            "; {module} is stripped: name its other procedures by address, as in {module}+0x1234",
            module = one.module
        ),
        several => format!(
            "; these are stripped: {}: name their other procedures by address, as in MODULE+0x1234",
            names(several)
        ),
    };
    format!("{pattern}: no function{of} has this name{near}{hint}")
}

/// The modules that the pattern may be of, and the module's part of it.
fn meant<'a, 'm>(pattern: &'a Pattern, modules: &[&'m Functions]) -> Option<(Vec<&'m Functions>, Option<&'a str>)> {
    let of_module: Vec<&Functions> =
        modules.iter().copied().filter(|functions| pattern.is_of(&functions.path)).collect();
    (!of_module.is_empty() || pattern.module().is_none()).then_some((of_module, pattern.module()))
}

impl NotEntry {
    /// Says where the address lies, and what to type for the procedure around it. `module` is the path of its module.
    pub fn describe(&self, module: &Path) -> impl fmt::Display {
        let module = module.file_name().unwrap_or(module.as_os_str()).to_string_lossy().into_owned();
        let text = format!("{module}+{:#x}", self.address);
        match (&self.within, self.entry) {
            (Some(within), Some(entry)) => {
                format!("{text} is not where a procedure begins: it lies in {within}; name that by {module}+{entry:#x}")
            }
            (Some(within), None) => format!("{text} is not where a procedure begins: it lies in {within}"),
            (None, _) => format!("{text} is not where a procedure begins: no procedure of {module} is known there"),
        }
    }
}
