//! The tables of contexts, and of the functions, modules and files that they name.

use callpath_db::database::Content;
use callpath_db::{Name, Scope};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::column::Cell;
use crate::error::ExportError;
use crate::ids;
use crate::tables::{FILE, FUNCTION, MODULE, NODE};
use crate::written::Written;

/// What scopes name, each once.
#[derive(Default)]
pub(crate) struct Names {
    functions: Vec<(u64, Scope)>,
    known_functions: FxHashSet<u64>,
    modules: FxHashMap<Name, u64>,
    files: FxHashMap<Name, u64>,
}

/// The ids of what a scope names.
#[derive(Clone, Copy)]
struct Named {
    function: Option<u64>,
    module: Option<u64>,
    file: Option<u64>,
    call_file: Option<u64>,
}

impl Names {
    fn of(&mut self, content: &Content<'_>, scope: &Scope) -> Named {
        let id_of = |ids: &mut FxHashMap<Name, u64>, name: Name| {
            *ids.entry(name).or_insert_with(|| ids::text(content.text(name)))
        };
        let module = scope.module.map(|name| id_of(&mut self.modules, name));
        let file = scope.file.map(|name| id_of(&mut self.files, name));
        let call_file = scope.call_site.map(|site| id_of(&mut self.files, site.file));
        let function = (scope.name != Name::EMPTY).then(|| {
            let texts = [ids::text(content.text(scope.name)), module.unwrap_or(0), file.unwrap_or(0)];
            let id = ids::function(scope, texts);
            if self.known_functions.insert(id) {
                self.functions.push((id, *scope));
            }
            id
        });
        Named { function, module, file, call_file }
    }

    /// Writes what the contexts name.
    pub(crate) fn write(&self, content: &Content<'_>, written: &mut Written<'_>) -> Result<(), ExportError> {
        let mut table = written.begin(&FUNCTION)?;
        for (id, scope) in &self.functions {
            let module = scope.module.and_then(|name| self.modules.get(&name));
            let file = scope.file.and_then(|name| self.files.get(&name));
            table.row([
                Cell::bits(*id),
                Cell::Text(content.text(scope.name)),
                bits(module.copied()),
                bits(file.copied()),
                Cell::bits(scope.discriminator),
            ])?;
        }
        let mut len_bytes = table.finish()?;
        for (which, ids) in [(&MODULE, &self.modules), (&FILE, &self.files)] {
            let mut table = written.begin(which)?;
            let mut rows: Vec<(&str, u64)> = ids.iter().map(|(name, id)| (content.text(*name), *id)).collect();
            rows.sort_unstable();
            for (text, id) in rows {
                table.row([Cell::bits(id), Cell::Text(text)])?;
            }
            len_bytes += table.finish()?;
        }
        written.add(len_bytes);
        Ok(())
    }
}

/// Writes the contexts; what they name is written next.
pub(crate) fn write(content: &Content<'_>, export: u64, written: &mut Written<'_>) -> Result<Names, ExportError> {
    let mut names = Names::default();
    let named: Vec<Named> = content.scopes().iter().map(|scope| names.of(content, scope)).collect();
    let mut table = written.begin(&NODE)?;
    for place in 0..content.len() {
        let context = content.context(place);
        let (scope, named) = (content.scopes()[context.scope as usize], named[context.scope as usize]);
        table.row([
            Cell::bits(export),
            Cell::bits(context.id),
            bits(context.parent.map(|parent| content.context(parent as usize).id)),
            Cell::Integer(place as i64),
            Cell::Integer(i64::from(context.end) - 1),
            Cell::Integer(context.depth.into()),
            Cell::Text(scope.kind.word()),
            bits(named.function),
            bits(named.module),
            bits(named.file),
            Cell::known(scope.line),
            Cell::known(scope.column.map(|column| column.get())),
            bits(scope.address),
            bits(named.call_file),
            Cell::known(scope.call_site.map(|site| site.line)),
            Cell::bits(scope.discriminator),
        ])?;
    }
    let len_bytes = table.finish()?;
    written.add(len_bytes);
    Ok(names)
}

fn bits<'a>(bits: Option<u64>) -> Cell<'a> {
    bits.map_or(Cell::Null, Cell::bits)
}
