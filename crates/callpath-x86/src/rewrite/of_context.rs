//! Where the words of the activation's context are, which count its paths (`callpath_format::shared::flows`).

use callpath_format::address::LinkAddr;
use callpath_format::shared::activation::{ContextNode, CopiesWords};
use std::mem::offset_of;

use super::assembler::Assembler;
use super::plan::{Cell, Plan};
use super::refusal::Refusal;
use super::spot::Spot;
use crate::encode::{self, Register};

/// What leads there.
#[derive(Clone, Copy)]
pub(super) struct OfContext {
    /// The word that holds the context's node.
    node: Cell,
    /// The word that holds the address of word 0.
    words: Cell,
}

impl OfContext {
    /// `None`: contexts are not counted, or activations do not keep their nodes.
    pub(super) fn of(plan: &Plan) -> Option<OfContext> {
        let (node, contexts) = (plan.context_word()?, plan.contexts()?);
        let words = Cell::Shared(LinkAddr(contexts.words.0 + CopiesWords::FLOWS_AT as u64));
        Some(OfContext { node, words })
    }

    /// Loads the number of the first word of the context; of a node of which nothing is known that is 0.
    pub(super) fn load_first(self, out: &mut Assembler, to: Register, spot: Spot) -> Result<(), Refusal> {
        const AT_FLOW: i8 = offset_of!(ContextNode, flow) as i8;
        spot.put(out, self.node, |word| encode::load(to, word))?;
        out.bytes(&encode::load_from(to, to, AT_FLOW));
        Ok(())
    }

    /// Loads the address of word 0.
    pub(super) fn load_words(self, out: &mut Assembler, to: Register, spot: Spot) -> Result<(), Refusal> {
        spot.put(out, self.words, |word| encode::load(to, word))
    }

    /// The word that holds the context's node.
    pub(super) fn node(self) -> Cell {
        self.node
    }
}
