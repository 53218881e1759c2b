//! A built recipe table: the options, its bytes, statistics and diagnostics.

use std::fmt;

use callpath_format::address::LinkAddr;
use callpath_image::cfi::CfiDiagnostic;

use crate::cache_trouble::CacheTrouble;

/// The sources of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecipeOptions {
    /// Read `.debug_frame` where `.eh_frame` has no recipe.
    pub debug_frame: bool,
    /// Read call frame information. Without it (and without local symbols) a module is analysed as if it were
    /// completely stripped.
    pub call_frames: bool,
    /// Analyse machine code where call frame information has no recipe.
    pub machine_code: bool,
}

impl Default for RecipeOptions {
    fn default() -> RecipeOptions {
        RecipeOptions { debug_frame: true, call_frames: true, machine_code: true }
    }
}

/// A table, with its statistics and diagnostics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableBuild {
    /// The table (`callpath_format::table`).
    pub bytes: Vec<u8>,
    /// What was odd. Empty if the table comes from the cache: see [`TableStats::diagnostics`].
    pub diagnostics: Vec<RecipeDiagnostic>,
    /// Figures.
    pub stats: TableStats,
    /// Whether it came from the cache.
    pub from_cache: bool,
}

/// Statistics of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Executable code, bytes.
    pub code_bytes: u64,
    /// Code that has a recipe, bytes.
    pub covered_bytes: u64,
    /// The table, bytes.
    pub table_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Distinct recipes.
    pub recipes: u64,
    /// Recipes without a packed form.
    pub wide_recipes: u64,
    /// FDEs, or procedures of other sources, that cover executable code.
    pub contributions: u64,
    /// The number of diagnostics when the table was built.
    pub diagnostics: u64,
}

/// Something odd found while building a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecipeDiagnostic {
    /// In call frame information.
    Cfi(CfiDiagnostic),
    /// This many more oddities of call frame information are not listed.
    CfiLeftOut(u64),
    /// This many recipes did not fit into the table: their code has none.
    SurplusRecipes(u64),
    /// Executable ranges are longer in total than the file allows: code from this address on has no recipes.
    TooMuchCode(LinkAddr),
    /// The table would exceed 4 GiB: it is empty.
    TooLong,
    /// A cached table could not be used, and was built again.
    Cache(CacheTrouble),
}

impl fmt::Display for RecipeDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeDiagnostic::Cfi(diagnostic) => diagnostic.fmt(f),
            RecipeDiagnostic::CfiLeftOut(count) => write!(f, "{count} more oddities in call frame information"),
            RecipeDiagnostic::SurplusRecipes(count) => {
                write!(f, "{count} distinct recipes more than a table can name; their code has none")
            }
            RecipeDiagnostic::TooMuchCode(from) => {
                write!(f, "executable segments claim more than the file holds; no recipes from {from} on")
            }
            RecipeDiagnostic::TooLong => write!(f, "the recipe table would be longer than 4 GiB; there is none"),
            RecipeDiagnostic::Cache(trouble) => trouble.fmt(f),
        }
    }
}
