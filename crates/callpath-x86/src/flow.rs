//! Abstract frames along control flow: from a procedure's start to every instruction that is reached from it.
//! Knows nothing of how starts are found.
//!
//! Tallent et al. 2009, section 2.2, scan a procedure's code in order and mend the state behind each return by the
//! canonical frame; here states travel along branches, jumps and jump tables, meet where flow meets, and the states of
//! cold fragments are those of the jumps into them. Control does not flow past a call that never returns, nor over the
//! start of another procedure.

use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use iced_x86::{Code, Instruction, Mnemonic, OpKind};
use rustc_hash::FxHashMap;

use crate::bitmap::Bitmap;
use crate::claims::Claims;
use crate::decode::{Flow, Instructions, flow_of, is_padding, is_sure_prologue, number};
use crate::effect::{Effects, load};
use crate::idioms;
use crate::input::CodeInput;
use crate::places::{NOWHERE, Places};
use crate::pool::{Pool, UNKNOWN, UNSEEN};
use crate::recipe::{plain_recipe_of, recipe_of};
use crate::returns::Returns;
use crate::state::{RSP, State};
use crate::sweep::Sweep;
use crate::tables::{Data, Entry, targets};
use crate::trial::Trial;
use crate::value::{Base, Value};

/// A byte inside of an instruction that was reached.
pub(crate) const INSIDE: u16 = u16::MAX;

/// What is known of a module's code while it is being analysed.
pub(crate) struct Module<'a> {
    /// What is to be judged.
    pub(crate) claims: Option<Claims<'a>>,
    pub(crate) places: Places<'a>,
    pub(crate) data: Data<'a>,
    pub(crate) sweep: Sweep,
    pub(crate) returns: Returns,
    /// Code whose recipes are known otherwise.
    pub(crate) known: Bitmap,
    /// Sorted.
    pub(crate) no_return_slots: Vec<u64>,
    /// Where procedures begin: control from elsewhere comes here as to a procedure, or not at all.
    pub(crate) starts: Bitmap,
    /// For each position, the number of its recipe; [`INSIDE`]; or [`UNSEEN`] where control has not come.
    pub(crate) recipes: Vec<u16>,
    pub(crate) pool: Pool,
    /// Starts that were found and not yet followed.
    pub(crate) found: Vec<u32>,
    pub(crate) effects: Effects,
    /// Where control has come, and what holds there: `states` are indices in `arrivals`.
    states: FxHashMap<u32, u32>,
    arrivals: Vec<Arrival>,
    pending: Vec<u32>,
    /// So many instructions may still be followed in trials.
    pub(crate) trial_budget: u32,
    /// How the procedure that is being followed ends.
    ends: Ends,
    /// Stretches that were followed, and from which root: `(from, to, root)`.
    pub(crate) owned: Vec<(u32, u32, u32)>,
    /// How many of them, from the first on, are sorted.
    pub(crate) owned_sorted: usize,
    pub(crate) is_owned_sorted: bool,
    /// The frames at the calls of each root's code.
    pub(crate) calls: FxHashMap<u32, CallFrames>,
    /// Control is followed to learn what held at the start, and nothing is kept.
    pub(crate) trial: Option<Trial>,
}

/// Where rsp is when a procedure ends, from the CFA.
#[derive(Clone, Copy, Default)]
struct Ends {
    offset: Option<i32>,
    differ: bool,
}

impl Ends {
    fn note(&mut self, offset: i32) {
        self.differ |= self.offset.is_some_and(|known| known != offset);
        self.offset = Some(offset);
    }

    /// Bytes that all ends leave on the stack beyond the return address.
    fn surplus(&self) -> Option<i32> {
        let surplus = self.offset?.checked_add(8)?;
        (!self.differ && surplus > 0 && surplus % 8 == 0).then_some(surplus)
    }
}

/// The recipes that hold at a procedure's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallFrames {
    pub(crate) recipe: u16,
    pub(crate) is_unique: bool,
}

/// How control came to a place.
struct Arrival {
    state: State,
    /// Only behind a call, which may not come back after all.
    is_soft: bool,
    /// How far it was followed from here already.
    end: u32,
}

impl<'a> Module<'a> {
    pub(crate) fn new(
        input: &CodeInput<'a>,
        places: Places<'a>,
        sweep: Sweep,
        returns: Returns,
        known: Bitmap,
        starts: Bitmap,
        no_return_slots: Vec<u64>,
    ) -> Module<'a> {
        let len = places.len() as usize;
        Module {
            claims: None,
            places,
            data: Data::new(input),
            sweep,
            returns,
            known,
            no_return_slots,
            starts,
            recipes: vec![UNSEEN; len],
            pool: Pool::new(),
            found: Vec::new(),
            effects: Effects::new(),
            states: FxHashMap::default(),
            arrivals: Vec::new(),
            pending: Vec::new(),
            // As many as there may be, once.
            trial_budget: len as u32,
            ends: Ends::default(),
            owned: Vec::new(),
            owned_sorted: 0,
            is_owned_sorted: false,
            calls: FxHashMap::default(),
            trial: None,
        }
    }

    fn arrival(&mut self, at: u32) -> Option<&mut Arrival> {
        self.states.get(&at).and_then(|&index| self.arrivals.get_mut(index as usize))
    }

    /// Control comes to `at` for the first time.
    fn come(&mut self, at: u32, arrival: Arrival) {
        self.states.insert(at, self.arrivals.len() as u32);
        self.arrivals.push(arrival);
        self.pending.push(at);
    }

    /// An instruction here has been followed.
    fn is_followed(&self, at: u32) -> bool {
        self.recipes.get(at as usize).is_some_and(|&recipe| !matches!(recipe, UNSEEN | INSIDE))
    }

    /// Control has come to this position.
    pub(crate) fn is_seen(&self, at: u32) -> bool {
        self.recipes.get(at as usize).is_none_or(|&recipe| recipe != UNSEEN)
    }

    /// Follows control from `root`, where `state` holds, unless it has come there before.
    pub(crate) fn follow(&mut self, root: u32, state: State) {
        if self.is_seen(root) || self.known.get(root) {
            return;
        }
        self.ends = Ends::default();
        let begun = self.owned.len();
        self.run(root, state.clone());
        // The return-state check: where all ways out leave too much on the stack, as much was there at the start.
        if let Some(surplus) = self.ends.surplus()
            && let Value::Stack { base: Base::CFA, offset } = state.get(RSP)
        {
            for (from, to, _) in self.owned.split_off(begun) {
                if let Some(recipes) = self.recipes.get_mut(from as usize..to as usize) {
                    recipes.fill(UNSEEN);
                }
            }
            self.calls.remove(&root);
            let mut repaired = state;
            repaired.set(RSP, Value::cfa(offset - surplus), root);
            self.run(root, repaired);
        }
    }

    /// Follows control from `root`, where `state` holds.
    pub(crate) fn run(&mut self, root: u32, state: State) {
        self.states.clear();
        self.arrivals.clear();
        self.pending.clear();
        self.come(root, Arrival { state, is_soft: false, end: root });
        while let Some(block) = self.pending.pop() {
            if let Some(arrival) = self.arrival(block) {
                let (state, known_end) = (arrival.state.clone(), arrival.end);
                let end = self.block(root, block, known_end, state);
                if let Some(arrival) = self.arrival(block) {
                    arrival.end = end.max(known_end);
                }
                if self.trial.is_none() && end > known_end {
                    self.owned.push((known_end, end, root));
                }
            }
        }
    }

    /// Follows all starts that were found.
    pub(crate) fn follow_found(&mut self) {
        while let Some(start) = self.found.pop() {
            let state = idioms::linkage_stub(self.places.bytes(start)).unwrap_or_else(State::at_entry);
            self.follow(start, state);
        }
    }

    /// Makes `at` a start that is to be followed.
    pub(crate) fn find(&mut self, at: u32) {
        if self.trial.is_none() && at != NOWHERE && self.starts.insert(at) && !self.known.get(at) {
            self.found.push(at);
        }
    }

    /// From `block` on, one instruction after the other, up to where other control flow may come in, or up to what was
    /// followed from elsewhere; `known_end` is how far it was followed from here before. Where it ended.
    fn block(&mut self, root: u32, block: u32, known_end: u32, mut state: State) -> u32 {
        let Some(mut instructions) = Instructions::new(&self.places, block) else { return block };
        let mut instruction = Instruction::default();
        let mut number_here = UNKNOWN;
        // The last instruction was a call.
        let mut after_call = false;
        // The last instruction compared rsp with this register.
        let mut compared = None;
        state.is_changed = true;
        loop {
            let at = instructions.position();
            if at != block {
                if self.sweep.jump_targets.get(at) || self.starts.get(at) {
                    self.arrive(root, at, &state, after_call);
                    return at;
                }
                if self.known.get(at) || (at >= known_end && self.is_followed(at)) {
                    return at;
                }
            }
            if !instructions.decode(&mut instruction) || instruction.is_invalid() {
                return at;
            }
            let next = instructions.position();
            if after_call || (at == block && is_padding(&instruction)) {
                if self.is_end_behind_call(at, &instruction) {
                    return at;
                }
                after_call = is_padding(&instruction);
            }
            if state.is_changed {
                number_here = match plain_recipe_of(&state) {
                    Some(packed) => self.pool.intern_packed(&packed),
                    None => self.pool.intern(&recipe_of(&state)),
                };
                state.is_changed = false;
            }
            if let Some(trial) = &mut self.trial {
                if !trial.allow(&mut self.effects, &state, &instruction) {
                    return at;
                }
            } else {
                self.mark(at, next, number_here);
            }
            if let Some(claims) = &mut self.claims
                && self.trial.is_none()
            {
                claims.judge(at, &state);
            }
            match flow_of(&instruction, &self.places) {
                Flow::Next => {
                    self.effects.apply(&mut state, &instruction, at);
                    compared = compared_with_rsp(&instruction);
                    continue;
                }
                Flow::Branch(target) => {
                    let mut taken = None;
                    if let Some(register) = compared.take() {
                        let limit = state.get(register);
                        match instruction.code() {
                            Code::Jne_rel8_64 | Code::Jne_rel32_64 => {
                                self.arrive(root, target, &state, false);
                                state.set(RSP, limit, at);
                                continue;
                            }
                            Code::Je_rel8_64 | Code::Je_rel32_64 => {
                                let mut equal = state.clone();
                                equal.set(RSP, limit, at);
                                taken = Some(equal);
                            }
                            _ => {}
                        }
                    }
                    self.arrive(root, target, taken.as_ref().unwrap_or(&state), false);
                }
                Flow::Jump(target) => {
                    self.jump(root, at, target, &state);
                    return next;
                }
                Flow::JumpIndirect => {
                    self.jump_indirect(root, next, &instruction, &state);
                    return next;
                }
                Flow::Call(target) => {
                    if target != NOWHERE {
                        self.find(target);
                        if !self.known.get(target) && !self.returns.of(&self.sweep.events, target) {
                            return next;
                        }
                    }
                    self.note_call(root, &state, number_here);
                    self.effects.apply(&mut state, &instruction, at);
                    after_call = true;
                }
                Flow::CallIndirect => {
                    if instruction.is_ip_rel_memory_operand()
                        && self.no_return_slots.binary_search(&instruction.ip_rel_memory_address()).is_ok()
                    {
                        return next;
                    }
                    self.note_call(root, &state, number_here);
                    self.effects.apply(&mut state, &instruction, at);
                    after_call = true;
                }
                Flow::Return => {
                    self.leave(&state, false);
                    return next;
                }
                Flow::Stop => return next,
            }
        }
    }

    /// A call that comes back, and may throw instead.
    fn note_call(&mut self, root: u32, state: &State, recipe: u16) {
        if let Some(trial) = &mut self.trial {
            trial.note_call(state);
            return;
        }
        let frames = self.calls.entry(root).or_insert(CallFrames { recipe, is_unique: true });
        frames.is_unique &= frames.recipe == recipe;
    }

    /// The procedure ends here: its caller's registers are in place. Where it jumps to an address that nobody knows,
    /// perhaps: that may be a table that was not recognised.
    fn leave(&mut self, state: &State, by_jump: bool) {
        match &mut self.trial {
            Some(trial) if by_jump => trial.suspect_end(state),
            Some(trial) => trial.learn(state, &Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 })),
            None => {
                if let Value::Stack { base: Base::CFA, offset } = state.get(RSP) {
                    self.ends.note(offset);
                }
            }
        }
    }

    fn mark(&mut self, at: u32, next: u32, recipe: u16) {
        if let Some((first, rest)) = self.recipes.get_mut(at as usize..next as usize).and_then(<[u16]>::split_first_mut)
        {
            *first = recipe;
            for inside in rest.iter_mut().filter(|inside| **inside == UNSEEN) {
                *inside = INSIDE;
            }
        }
    }

    fn jump(&mut self, root: u32, at: u32, target: u32, state: &State) {
        if target == NOWHERE {
            return;
        }
        let looks_like_start = self.places.is_aligned(target) && !(root..at).contains(&target) && !self.is_seen(target);
        if looks_like_start && state.is_like_entry() && !self.states.contains_key(&target) {
            return self.find(target);
        }
        self.arrive(root, target, state, false);
    }

    fn jump_indirect(&mut self, root: u32, next: u32, instruction: &Instruction, state: &State) {
        if instruction.is_ip_rel_memory_operand() && idioms::linkage_stub(self.places.bytes(next)).is_some() {
            // The lazy half of a stub: the jump leads there until the symbol is bound.
            return self.find(next);
        }
        let value = match instruction.op0_kind() {
            OpKind::Memory => load(state, instruction),
            _ => number(instruction.op0_register()).map_or(Value::Unknown, |register| state.get(register)),
        };
        let (table, entry) = match value {
            Value::TableTarget { table, base } => (table, Entry::Distance(base)),
            Value::TablePointer(table) => (table, Entry::Pointer),
            _ => return self.leave(state, true),
        };
        let references = &self.sweep.data_references;
        let next_reference = references.get(references.partition_point(|&address| address <= table)).copied();
        let is_credible = |target: u32| {
            // Where no case is possible, compilers let the table lead behind the procedure.
            let is_next = self.places.is_aligned(target) && is_sure_prologue(self.places.bytes(target));
            !is_next
                && self.sweep.boundaries.get(target)
                && !self.known.get(target)
                && (!self.starts.get(target) || target == root)
        };
        let list = targets(&self.data, &self.places, table, entry, state.bound, next_reference, is_credible);
        for target in list {
            self.sweep.jump_targets.insert(target);
            self.arrive(root, target, state, false);
        }
    }

    /// Control comes to `at`, which begins a block.
    fn arrive(&mut self, root: u32, at: u32, state: &State, is_soft: bool) {
        if let Some(trial) = &mut self.trial
            && let Some(&number) = self.recipes.get(at as usize)
            && !matches!(number, UNSEEN | UNKNOWN | INSIDE)
            && !is_soft
        {
            if let Some(recipe) = self.pool.recipes.get(usize::from(number)) {
                trial.learn(state, recipe);
            }
            return;
        }
        if at == NOWHERE || self.known.get(at) || (self.starts.get(at) && at != root) {
            return;
        }
        if at == root && !self.arrival(at).is_some_and(|first| first.state.get(RSP) == state.get(RSP)) {
            return;
        }
        if let Some(arrival) = self.arrival(at) {
            let (here, there) = (arrival.state.get(RSP), state.get(RSP));
            let differs = here != there && here.base() == there.base();
            if differs && is_soft && !arrival.is_soft {
                return;
            }
            if differs && arrival.is_soft && !is_soft {
                arrival.state = state.clone();
                arrival.is_soft = false;
                self.pending.push(at);
                return;
            }
            arrival.is_soft &= is_soft;
            if arrival.state.merge(state, at) {
                self.pending.push(at);
            }
        } else if !self.is_seen(at) {
            self.come(at, Arrival { state: state.clone(), is_soft, end: at });
        }
    }

    /// Behind a call, where `instruction` stands at `at`, something else begins: the call does not return.
    fn is_end_behind_call(&mut self, at: u32, instruction: &Instruction) -> bool {
        if instruction.mnemonic() == Mnemonic::Int3 {
            return true;
        }
        if !is_padding(instruction) {
            let begins = self.places.is_aligned(at) && is_sure_prologue(self.places.bytes(at));
            if begins {
                self.find(at);
            }
            return begins;
        }
        let end = self.padding_end(at);
        if self.starts.get(end) {
            return true;
        }
        let begins = self.sweep.begins_behind_padding(&self.places, end);
        if begins {
            self.find(end);
        }
        begins
    }

    /// The first position from `at` on that is no padding.
    pub(crate) fn padding_end(&self, at: u32) -> u32 {
        let Some(mut instructions) = Instructions::new(&self.places, at) else { return at };
        let mut instruction = Instruction::default();
        loop {
            let at = instructions.position();
            if !instructions.decode(&mut instruction) || instruction.is_invalid() || !is_padding(&instruction) {
                return at;
            }
        }
    }
}

/// The register that a `cmp` of all 64 bits compares rsp with.
fn compared_with_rsp(instruction: &Instruction) -> Option<usize> {
    let registers = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
    if instruction.mnemonic() != Mnemonic::Cmp || !registers || instruction.op0_register().size() != 8 {
        return None;
    }
    match (number(instruction.op0_register())?, number(instruction.op1_register())?) {
        (RSP, other) | (other, RSP) => Some(other),
        _ => None,
    }
}
