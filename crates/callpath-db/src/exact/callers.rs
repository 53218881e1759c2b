//! The callers of procedures whose paths were counted in their calling contexts: Ammons, Ball and Larus 1997, section 5.

use rustc_hash::FxHashMap;

/// A path was executed in a context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InContext {
    /// The callers: their number in [`ExactCallers`].
    pub callers: u32,
    /// How often.
    pub executions: u64,
}

/// The chains of callers of all contexts, each once. Contexts that differ only in the call site within the same callers have the same chain.
#[derive(Clone, Default, Debug)]
pub struct ExactCallers {
    procedures: Vec<Caller>,
    chains: Vec<Chain>,
    by_procedure: FxHashMap<Caller, u32>,
    by_chain: FxHashMap<Chain, u32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Caller {
    name: String,
    module: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Chain {
    procedures: Vec<u32>,
    is_partial: bool,
}

impl ExactCallers {
    /// A chain has no more callers. Of deeper contexts the innermost ones tell them apart: each depth of a recursion is a context.
    pub const MOST: usize = 128;

    /// The number of a procedure, by its name and its module's file.
    pub fn procedure(&mut self, name: String, module: String) -> u32 {
        let caller = Caller { name, module };
        let next = self.procedures.len() as u32;
        let number = *self.by_procedure.entry(caller.clone()).or_insert(next);
        if number == next {
            self.procedures.push(caller);
        }
        number
    }

    /// The number of a chain of procedures by their numbers, innermost first, of which [`ExactCallers::MOST`] are kept. `is_whole`: the last
    /// one is the outermost caller.
    pub fn chain(&mut self, innermost_first: impl IntoIterator<Item = u32>, is_whole: bool) -> u32 {
        let mut rest = innermost_first.into_iter();
        let mut procedures: Vec<u32> = rest.by_ref().take(ExactCallers::MOST).collect();
        procedures.reverse();
        let chain = Chain { procedures, is_partial: !is_whole || rest.next().is_some() };
        let next = self.chains.len() as u32;
        if let Some(number) = self.by_chain.get(&chain) {
            return *number;
        }
        self.chains.push(chain.clone());
        self.by_chain.insert(chain, next);
        next
    }

    /// The names of the callers of a chain, the outermost first.
    pub fn names(&self, chain: u32) -> impl DoubleEndedIterator<Item = &str> {
        let procedures = self.chains.get(chain as usize).map_or(&[][..], |chain| &chain.procedures);
        procedures.iter().filter_map(|number| self.procedures.get(*number as usize).map(|caller| caller.name.as_str()))
    }

    /// Whether further callers outside are not known, or were not kept.
    pub fn is_partial(&self, chain: u32) -> bool {
        self.chains.get(chain as usize).is_some_and(|chain| chain.is_partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_one_number_and_the_innermost_callers() {
        let mut callers = ExactCallers::default();
        let [main, down, other] =
            ["main", "down", "main"].map(|name| callers.procedure(name.into(), format!("app{}", name.len())));
        assert_eq!((main, other), (0, 0));
        assert_eq!(callers.procedure("main".into(), "libx.so".into()), 2);
        let chain = callers.chain([down, main], true);
        assert_eq!(callers.chain([down, main], true), chain);
        assert_eq!(callers.names(chain).collect::<Vec<_>>(), ["main", "down"]);
        let part = callers.chain([down, main], false);
        assert_eq!((part, callers.is_partial(part), callers.is_partial(chain)), (1, true, false));
        // As deep as may be, and deeper.
        let recursion = |depth: usize| std::iter::repeat_n(down, depth - 1).chain([main]);
        let whole = callers.chain(recursion(ExactCallers::MOST), true);
        let [deep, deeper] = [1, 2].map(|more| callers.chain(recursion(ExactCallers::MOST + more), true));
        assert_eq!((callers.is_partial(whole), callers.names(whole).next()), (false, Some("main")));
        assert_eq!((deep, callers.is_partial(deep)), (deeper, true));
        assert!(callers.names(deep).count() == ExactCallers::MOST && callers.names(deep).all(|name| name == "down"));
        assert_eq!(callers.names(99).count(), 0);
    }
}
