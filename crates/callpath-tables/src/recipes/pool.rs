//! The distinct recipes of a table under construction, from all their sources.

use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use rustc_hash::FxHashMap;

/// Recipes and expressions, without duplicates. Recipe 0 is the unknown one.
pub(super) struct RecipePool {
    pub(super) recipes: Vec<Recipe>,
    /// For each recipe, the flags in its head besides those of its kind.
    pub(super) bits: Vec<u16>,
    with_bits: FxHashMap<(u32, u16), u32>,
    expressions: Vec<u8>,
    packed: FxHashMap<[u8; Packed::LEN_BYTES], u32>,
    wide: FxHashMap<Recipe, u32>,
    known_expressions: FxHashMap<Box<[u8]>, Expression>,
}

impl RecipePool {
    pub(super) const UNKNOWN: u32 = 0;

    pub(super) fn new() -> RecipePool {
        let mut pool = RecipePool {
            recipes: Vec::new(),
            bits: Vec::new(),
            with_bits: FxHashMap::default(),
            expressions: Vec::new(),
            packed: FxHashMap::default(),
            wide: FxHashMap::default(),
            known_expressions: FxHashMap::default(),
        };
        pool.intern(&Recipe::UNKNOWN, &[]);
        pool
    }

    /// The index of a recipe whose expressions are in `expressions`. If an expression is not there, or too long for a
    /// table, it is the index of the unknown recipe.
    pub(super) fn intern(&mut self, recipe: &Recipe, expressions: &[u8]) -> u32 {
        let next = self.recipes.len() as u32;
        let (recipe, index) = match Packed::pack(recipe) {
            Some(packed) => (*recipe, *self.packed.entry(packed.to_bytes()).or_insert(next)),
            None => {
                let Some(recipe) = self.relocated(recipe, expressions) else { return Self::UNKNOWN };
                (recipe, *self.wide.entry(recipe).or_insert(next))
            }
        };
        if index == next {
            self.recipes.push(recipe);
            self.bits.push(0);
        }
        index
    }

    /// The index of the same recipe with another flag. An unknown or wide recipe cannot have one, and is returned
    /// unchanged.
    pub(super) fn with_bits(&mut self, index: u32, bit: u16) -> u32 {
        let (Some(recipe), Some(bits)) = (self.recipes.get(index as usize), self.bits.get(index as usize)) else {
            return index;
        };
        let (recipe, bits) = (*recipe, bits | bit);
        if let Some(&with) = self.with_bits.get(&(index, bits)) {
            return with;
        }
        if Packed::pack(&recipe).is_none_or(|packed| packed.kind() == Packed::UNKNOWN) {
            return index;
        }
        let with = self.recipes.len() as u32;
        self.with_bits.insert((index, bits), with);
        self.recipes.push(recipe);
        self.bits.push(bits);
        with
    }

    /// A recipe in packed form, if it has one.
    pub(super) fn packed(&self, index: u32) -> Option<Packed> {
        let packed = self.recipes.get(index as usize).and_then(Packed::pack)?;
        Some(Packed { head: packed.head | self.bits.get(index as usize)?, ..packed })
    }

    pub(super) fn bytes_of(&self, expression: Expression) -> &[u8] {
        bytes_of(&self.expressions, expression).unwrap_or(&[])
    }

    fn relocated(&mut self, recipe: &Recipe, expressions: &[u8]) -> Option<Recipe> {
        let mut recipe = *recipe;
        if let Cfa::Expression(expression) = &mut recipe.cfa {
            *expression = self.expression(*expression, expressions)?;
        }
        for rule in recipe.registers.iter_mut().chain([&mut recipe.return_address]) {
            if let Rule::AtExpression(expression) | Rule::ExpressionValue(expression) = rule {
                *expression = self.expression(*expression, expressions)?;
            }
        }
        Some(recipe)
    }

    fn expression(&mut self, expression: Expression, expressions: &[u8]) -> Option<Expression> {
        let code = bytes_of(expressions, expression)?;
        if let Some(known) = self.known_expressions.get(code) {
            return Some(*known);
        }
        if code.is_empty() || code.len() > Expression::MAX_LEN_BYTES {
            return None;
        }
        let start = i32::try_from(self.expressions.len()).ok()? as u32;
        let known = Expression { start, len: expression.len };
        self.expressions.extend_from_slice(code);
        self.known_expressions.insert(code.into(), known);
        Some(known)
    }
}

fn bytes_of(pool: &[u8], expression: Expression) -> Option<&[u8]> {
    let start = expression.start as usize;
    pool.get(start..start + usize::from(expression.len))
}
