//! The distinct recipes and expressions of a module's call frame information.

use callpath_format::recipe::{Expression, Packed, Recipe};
use rustc_hash::FxHashMap;

/// Recipes and expressions, each kept once. Recipe 0 is the unknown one.
pub(super) struct RecipePool {
    pub(super) recipes: Vec<Recipe>,
    pub(super) expressions: Vec<u8>,
    /// Nearly all recipes have a packed form, which is quicker to look for.
    packed: FxHashMap<[u8; Packed::LEN_BYTES], u32>,
    wide: FxHashMap<Recipe, u32>,
    known_expressions: FxHashMap<Box<[u8]>, Expression>,
}

impl RecipePool {
    pub(super) const UNKNOWN: u32 = 0;

    pub(super) fn new() -> RecipePool {
        let mut pool = RecipePool {
            recipes: Vec::new(),
            expressions: Vec::new(),
            packed: FxHashMap::default(),
            wide: FxHashMap::default(),
            known_expressions: FxHashMap::default(),
        };
        pool.recipe(&Recipe::UNKNOWN);
        pool
    }

    /// The index of a recipe.
    pub(super) fn recipe(&mut self, recipe: &Recipe) -> u32 {
        let next = self.recipes.len() as u32;
        let index = match Packed::pack(recipe) {
            Some(packed) => *self.packed.entry(packed.to_bytes()).or_insert(next),
            None => *self.wide.entry(*recipe).or_insert(next),
        };
        if index == next {
            self.recipes.push(*recipe);
        }
        index
    }

    /// Where an expression is kept; `None` if it is longer than any may be or the pool is full.
    pub(super) fn expression(&mut self, code: &[u8]) -> Option<Expression> {
        if let Some(known) = self.known_expressions.get(code) {
            return Some(*known);
        }
        if code.len() > Expression::MAX_LEN_BYTES {
            return None;
        }
        let start = u32::try_from(self.expressions.len()).ok()?;
        let expression = Expression { start, len: code.len() as u16 };
        self.expressions.extend_from_slice(code);
        self.known_expressions.insert(code.into(), expression);
        Some(expression)
    }
}
