//! Compares call frame information with the machine code, and reports where their frames differ.

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_format::table::Table;
use callpath_x86::analysis::{CfiRecipe, cross_validate};
use callpath_x86::cross_validation::Evidence;

use super::build::build_table;
use super::machine_code::{Asked, with_input};
use super::table_build::RecipeOptions;
use crate::module::Module;

/// A disagreement of call frame information and machine code about an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The instruction's address.
    pub address: LinkAddr,
    /// The kind of disagreement.
    pub evidence: Evidence,
    /// The recipe of call frame information.
    pub call_frames: Recipe,
    /// The recipe from the code.
    pub machine_code: Recipe,
}

/// Calls `each` with every instruction that call frame information covers, and the evidence from the code alone.
pub fn compare(module: &Module, mut each: impl FnMut(Disagreement)) {
    let options = RecipeOptions { machine_code: false, ..RecipeOptions::default() };
    let build = build_table(module, &options);
    let Ok(table) = Table::new(&build.bytes) else { return };
    let mut cfi_recipes: Vec<CfiRecipe> = Vec::new();
    let mut open: Option<(LinkAddr, Recipe)> = None;
    table.for_each_row(|start, id| {
        if let Some((from, recipe)) = open.take()
            && from < start
        {
            cfi_recipes.push(CfiRecipe { code: from..start, recipe });
        }
        open = id.and_then(|id| table.recipe(id)).filter(|recipe| *recipe != Recipe::UNKNOWN).map(|r| (start, r));
    });
    let compared = with_input(module.file(), Asked::of_stripped(module), |input| cross_validate(input, &cfi_recipes));
    for (address, cfi_recipe, evidence, machine_code) in compared {
        let Some(call_frames) = cfi_recipes.get(cfi_recipe).map(|cfi_recipe| cfi_recipe.recipe) else { continue };
        each(Disagreement { address, evidence, call_frames, machine_code });
    }
}

/// The instructions for which call frame information and machine code contradict each other, by address.
pub fn disagreements(module: &Module) -> Vec<Disagreement> {
    let mut found = Vec::new();
    compare(module, |point| {
        if matches!(point.evidence, Evidence::FrameDiffers | Evidence::RegisterDiffers) {
            found.push(point);
        }
    });
    found
}
