//! Recipe tables: the frames of a module, from all sources, in one table.

mod build;
mod builder;
mod comparison;
mod encode;
pub mod generated;
mod inner;
pub(crate) mod machine_code;
mod moved;
mod pinned;
mod pool;
mod spans;
pub mod starts;
mod switches;
mod table_build;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::table::{RecipeId, Table};

pub(crate) use build::TablePart;
pub use build::build_table;
pub use builder::{Origin, RecipeRef, RecipeTableBuilder};
pub use callpath_x86::cross_validation::Evidence;
pub use comparison::{Disagreement, compare, disagreements};
pub use machine_code::procedures;
pub use moved::{Detour, Moved, MovedRecipe};
pub use table_build::{RecipeDiagnostic, RecipeOptions, TableBuild, TableStats};

/// For fuzzing: look-ups in a table of any bytes end without a panic; a table that passes its check has a recipe for
/// every address of its regions.
#[doc(hidden)]
pub fn fuzz_table(bytes: &[u8]) {
    let Ok(table) = Table::new(bytes) else { return };
    let is_sound = table.check().is_ok();
    let recipe_at = |addr| table.find(addr).and_then(|id| table.recipe(id));
    for id in 0..=u16::MAX {
        let recipe = table.recipe(RecipeId(id));
        assert!(!is_sound || recipe.is_some() == (RecipeId(id).is_short() || u32::from(id) < table.header().recipes));
        if let Some(Recipe { cfa: Cfa::Expression(expression), .. }) = recipe {
            assert!(table.expression(expression).is_some());
        }
    }
    // The list of an unsound table may be long.
    if is_sound || bytes.len() <= 4096 {
        let mut last = None;
        table.for_each_row(|start, id| {
            if is_sound {
                assert!(last <= Some(start));
                assert!(id.is_none() || (table.find(start) == id && recipe_at(start).is_some()));
                last = Some(start);
            }
        });
    }
    for addr in (0..0x4000).map(LinkAddr).chain([LinkAddr(u64::MAX), LinkAddr(1 << 47)]) {
        assert!(!is_sound || table.find(addr).is_some() == recipe_at(addr).is_some());
    }
}
