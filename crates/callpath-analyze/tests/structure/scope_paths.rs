//! The scopes that a structure has, as paths to compare with annotations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use callpath_analyze::structure::{
    ModuleSource, ModuleStructure, ProcedureStructure, SourceLocation, StaticKind, structure,
};
use callpath_image::elf::Image;
use callpath_image::symbols::Procedures;
use callpath_tables::module::Module;

/// The structure of a file; a procedure that DWARF does not name has its symbol's name.
pub(crate) fn structure_of(program: &Path) -> ModuleStructure {
    let image = Arc::new(Image::read(program).unwrap());
    let source =
        ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None };
    let mut found = structure(&source, None, &|_, _| {});
    let symbols = Procedures::new(Arc::clone(source.module.image()), None);
    for procedure in found.procedures.iter_mut().filter(|procedure| procedure.name.is_none()) {
        let symbol = symbols.procedure_at(procedure.entry).and_then(|symbol| symbol.name);
        procedure.name = symbol.map(ToOwned::to_owned);
    }
    found
}

/// A scope as an annotation names it.
pub(crate) struct ScopePath {
    pub(crate) path: String,
    pub(crate) is_loop: bool,
}

/// The scopes of a procedure. `loops` says what the loop of a line is called.
pub(crate) fn scopes(procedure: &ProcedureStructure, loops: &BTreeMap<(String, u32), String>) -> Vec<ScopePath> {
    let mut paths: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for scope in &procedure.scopes {
        let around = match scope.parent {
            Some(parent) => paths[parent as usize].clone(),
            None => short(procedure.name.as_deref().unwrap_or("?")),
        };
        let is_loop = matches!(scope.kind, StaticKind::Loop { .. });
        let path = match (is_loop, scope.location) {
            (false, _) => format!("{around} > {}()", short(scope.name.as_deref().unwrap_or("?"))),
            (true, None) => format!("{around} > somewhere"),
            (true, Some(location)) => {
                let file = procedure.file(location).rsplit('/').next().unwrap().to_owned();
                let unknown = || format!("{file}:{}", location.line);
                format!("{around} > {}", loops.get(&(file.clone(), location.line)).cloned().unwrap_or_else(unknown))
            }
        };
        let shown = match scope.call_site {
            Some(site) => format!("{path} at {}", site.line),
            None => path.clone(),
        };
        found.push(ScopePath { path: shown, is_loop });
        paths.push(path);
    }
    found
}

/// The scopes that the code of a line is in.
pub(crate) fn scopes_of_line(
    procedure: &ProcedureStructure,
    loops: &BTreeMap<(String, u32), String>,
    line: &(String, u32),
) -> Vec<String> {
    let all = scopes(procedure, loops);
    let host = short(procedure.name.as_deref().unwrap_or("?"));
    let is_its = |location: SourceLocation| location.line == line.1 && procedure.file(location).ends_with(&line.0);
    let its = procedure.scoped_ranges.iter().filter(|scoped_range| scoped_range.location.is_some_and(is_its));
    its.map(|scoped_range| scoped_range.scope.map_or(host.clone(), |scope| all[scope as usize].path.clone())).collect()
}

/// A procedure's own name, without parameters, template arguments what it is declared in,
/// and what gfortran adds at its end.
pub(crate) fn short(name: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0u32;
    for letter in name.trim_end_matches(" const").chars() {
        match letter {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    let words = kept.rsplit("::").find(|part| !part.is_empty()).unwrap_or("?");
    words.rsplit(' ').next().unwrap_or(words).trim_end_matches('_').to_owned()
}
