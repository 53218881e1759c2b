//! The recipe at each position of a module's code, as far as control was followed.

use callpath_format::recipe::Recipe;

use super::pool::{Pool, UNKNOWN, UNSEEN};
use crate::bitmap::Bitmap;
use crate::recipe::{plain_recipe_of, recipe_of};
use crate::state::State;

/// The number of a byte inside an instruction that was reached, other than its first.
pub(crate) const INSIDE: u16 = u16::MAX;

/// The recipes of a module's code.
pub(crate) struct RecipeMap {
    /// For each position, the number of its recipe; [`INSIDE`]; or [`UNSEEN`] where control has not come.
    pub(crate) numbers: Vec<u16>,
    pub(crate) pool: Pool,
    /// Blocks that are reachable only if a call returns.
    pub(crate) need_return: Bitmap,
}

/// The index of the first number for which `is_found` holds. Tests many at once.
#[inline]
pub(crate) fn first_where(numbers: &[u16], is_found: impl Fn(u16) -> bool) -> Option<usize> {
    const STEP: usize = 16;
    let (steps, _) = numbers.as_chunks::<STEP>();
    // A step has no early exit, so that it compiles to a few vector instructions.
    let is_in = |step: &&[u16; STEP]| step.iter().fold(false, |found, &number| found | is_found(number));
    let skipped = steps.iter().take_while(|step| !is_in(step)).count() * STEP;
    let rest = numbers.get(skipped..)?;
    rest.iter().position(|&number| is_found(number)).map(|index| skipped + index)
}

impl RecipeMap {
    /// For `len` positions, without recipes.
    pub(crate) fn new(len: u32) -> RecipeMap {
        RecipeMap { numbers: vec![UNSEEN; len as usize], pool: Pool::new(), need_return: Bitmap::new(len) }
    }

    /// The number of the recipe of an instruction that was followed.
    pub(crate) fn number_at(&self, at: u32) -> Option<u16> {
        self.numbers.get(at as usize).copied().filter(|&number| !matches!(number, UNSEEN | INSIDE))
    }

    /// The recipe of an instruction that was followed, if it is known.
    pub(crate) fn known_at(&self, at: u32) -> Option<&Recipe> {
        let number = self.number_at(at).filter(|&number| number != UNKNOWN)?;
        self.pool.recipes.get(usize::from(number))
    }

    /// Whether control has reached this position, or it lies outside the code.
    pub(crate) fn is_seen(&self, at: u32) -> bool {
        self.numbers.get(at as usize).is_none_or(|&number| number != UNSEEN)
    }

    /// The first position from `at` up to `end` that control has not reached, or `end`.
    pub(crate) fn next_unseen(&self, at: u32, end: u32) -> u32 {
        let rest = self.numbers.get(at as usize..end as usize).unwrap_or(&[]);
        first_where(rest, |number| number == UNSEEN).map_or(end, |skipped| at + skipped as u32)
    }

    /// The first position from `at` up to `end` that control has reached, or `end`.
    pub(crate) fn next_seen(&self, at: u32, end: u32) -> u32 {
        let rest = self.numbers.get(at as usize..end as usize).unwrap_or(&[]);
        first_where(rest, |number| number != UNSEEN).map_or(end, |skipped| at + skipped as u32)
    }

    /// Sets the recipe of the instruction from `at` up to `next`.
    #[inline]
    pub(crate) fn mark(&mut self, at: u32, next: u32, number: u16) {
        if let Some((first, rest)) = self.numbers.get_mut(at as usize..next as usize).and_then(<[u16]>::split_first_mut)
        {
            *first = number;
            for inside in rest.iter_mut().filter(|inside| **inside == UNSEEN) {
                *inside = INSIDE;
            }
        }
    }

    /// Sets the recipe during the call that ends at `next`: it is looked up by the call's last byte.
    pub(crate) fn mark_call(&mut self, next: u32, number: u16) {
        if let Some(last) = next.checked_sub(1).and_then(|last| self.numbers.get_mut(last as usize)) {
            *last = number;
        }
    }

    /// Marks these positions as not reached.
    pub(crate) fn forget(&mut self, from: u32, to: u32) {
        if let Some(numbers) = self.numbers.get_mut(from as usize..to as usize) {
            numbers.fill(UNSEEN);
        }
    }

    /// The number of the recipe that holds in a state.
    #[inline]
    pub(crate) fn number_of(&mut self, state: &State) -> u16 {
        match plain_recipe_of(state) {
            Some(packed) => self.pool.intern_packed(&packed),
            None => {
                let recipe = recipe_of(state, &mut self.pool.expressions);
                self.pool.intern(&recipe)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_found_in_steps_and_behind_them() {
        for len in [0, 1, 15, 16, 17, 40] {
            let mut numbers = vec![7; len];
            assert_eq!(first_where(&numbers, |number| number == 3), None);
            for at in (0..len).rev() {
                numbers[at] = 3;
                assert_eq!(first_where(&numbers, |number| number == 3), Some(at));
            }
        }
    }
}
