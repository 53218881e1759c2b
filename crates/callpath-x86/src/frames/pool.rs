//! The distinct recipes of a module, by number.

use callpath_format::recipe::{Packed, Recipe};
use rustc_hash::FxHashMap;

use crate::recipe::Expressions;

/// The recipe of code that was not analysed.
pub(crate) const UNSEEN: u16 = 0;
/// The recipe of code that was analysed without a result.
pub(crate) const UNKNOWN: u16 = 1;

/// Distinct recipes. Numbers 0 and 1 are the unknown recipe.
pub(crate) struct Pool {
    pub(crate) recipes: Vec<Recipe>,
    packed: FxHashMap<[u8; Packed::LEN_BYTES], u16>,
    wide: FxHashMap<Recipe, u16>,
    /// The last lookup, which is mostly repeated.
    last: (Packed, u16),
    /// The expressions of the recipes.
    pub(crate) expressions: Expressions,
    /// How many recipes got no number.
    pub(crate) surplus: u64,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        let recipes = vec![Recipe::UNKNOWN, Recipe::UNKNOWN];
        let last = (Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] }, UNKNOWN);
        Pool {
            recipes,
            packed: FxHashMap::default(),
            wide: FxHashMap::default(),
            last,
            expressions: Expressions::default(),
            surplus: 0,
        }
    }

    /// The number of a packed recipe that is not wide.
    pub(crate) fn intern_packed(&mut self, packed: &Packed) -> u16 {
        if self.last.0 != *packed {
            let number = match self.packed.get(&packed.to_bytes()) {
                Some(&known) => known,
                None => packed.unpack().map_or(UNKNOWN, |recipe| self.intern(&recipe)),
            };
            if number == UNKNOWN {
                return UNKNOWN;
            }
            self.last = (*packed, number);
        }
        self.last.1
    }

    /// The number of a recipe.
    pub(crate) fn intern(&mut self, recipe: &Recipe) -> u16 {
        let packed = Packed::pack(recipe).map(|packed| packed.to_bytes());
        let known = match &packed {
            Some(bytes) => self.packed.get(bytes),
            None => self.wide.get(recipe),
        };
        if let Some(&known) = known {
            return known;
        }
        if *recipe == Recipe::UNKNOWN {
            return UNKNOWN;
        }
        let Ok(number) = u16::try_from(self.recipes.len()) else {
            self.surplus += 1;
            return UNKNOWN;
        };
        self.recipes.push(*recipe);
        match packed {
            Some(bytes) => self.packed.insert(bytes, number),
            None => self.wide.insert(*recipe, number),
        };
        number
    }
}
