//! The shadow stack: the true call path of one thread, kept up to date from what each instruction did.
//! It must not look at processes and instructions' bytes: its caller says what each instruction did.
//!
//! A call adds a frame: the return address, and its slot on the stack. A return removes the frames up to the slot that
//! it pops. What is raised over by other means (longjmp, an exception) is removed at the next jump or call: until then
//! the path is in doubt, and a path in doubt is not scored. A thread may stand on several stacks in turn (an alternate
//! signal stack, coroutines): each is a segment.

/// One entry of a call path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Where it continues: a return address, or the instruction that a signal interrupted.
    pub address: u64,
    /// Where that address is kept.
    pub slot: u64,
    /// A signal interrupted it.
    pub interrupted: bool,
}

/// Why a path is not known for certain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doubt {
    /// Nobody saw who began this stack.
    UnknownStack,
    /// The stack pointer is above a return address that was not returned to yet.
    Raised,
    /// The procedure is about to switch to another stack.
    Switching,
    /// A return address is no longer where its call left it.
    Overwritten,
    /// The procedure was about to leave its path by other means than a return: what its path is, is a matter of taste.
    Leaving,
}

impl Doubt {
    /// Every doubt.
    pub const ALL: [Doubt; 5] =
        [Doubt::UnknownStack, Doubt::Raised, Doubt::Switching, Doubt::Overwritten, Doubt::Leaving];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Doubt::UnknownStack => "on a stack of unknown origin",
            Doubt::Raised => "stack pointer above a return address",
            Doubt::Switching => "between two stacks",
            Doubt::Overwritten => "return address overwritten",
            Doubt::Leaving => "before a longjmp or the like",
        }
    }
}

/// A signal's frame, as the kernel laid it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalFrame {
    /// The handler's return address, and its slot.
    pub restorer: u64,
    /// The stack pointer at the handler's first instruction.
    pub rsp: u64,
    /// The interrupted instruction.
    pub pc: u64,
    /// Where the frame keeps it.
    pub pc_slot: u64,
    /// The interrupted stack pointer.
    pub interrupted_rsp: u64,
    /// The alternate signal stack, if the frame lies there: its first byte, and one past its last.
    pub alternate: Option<(u64, u64)>,
}

/// A change of the stack pointer other than by pushes, pops and constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackMove {
    /// The stack pointer before.
    pub from: u64,
    /// The stack pointer now.
    pub to: u64,
    /// It comes from memory, as in a switch of stacks.
    pub is_loaded: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    frames: Vec<Frame>,
    /// The segment that continues when this one is empty: the one that a signal interrupted.
    parent: Option<usize>,
    /// The stack pointer when the segment was left.
    low: u64,
    /// Nothing of this segment lies above.
    base: u64,
    known: bool,
    live: bool,
}

/// The call path of one thread.
#[derive(Clone, Debug)]
pub struct Shadow {
    segments: Vec<Segment>,
    current: usize,
    /// A jump came between a popped return address and its use.
    suspended: bool,
    /// The stack is another, and nothing has gone there yet.
    switching: bool,
    unexplained_returns: u64,
    abandoned: u64,
}

impl Shadow {
    /// A thread that begins: no call has been made.
    pub fn new(rsp: u64) -> Shadow {
        let first = Segment { frames: Vec::new(), parent: None, low: rsp, base: rsp, known: true, live: true };
        Shadow {
            segments: vec![first],
            current: 0,
            suspended: false,
            switching: false,
            unexplained_returns: 0,
            abandoned: 0,
        }
    }

    /// A call has pushed `return_address` at `slot`. `is_next`: it went to the next instruction, which only wants to
    /// know where it is.
    pub fn call(&mut self, return_address: u64, slot: u64, is_next: bool) {
        self.drop_while(|frame_slot| frame_slot <= slot);
        if !is_next {
            self.frames().push(Frame { address: return_address, slot, interrupted: false });
        }
    }

    /// A return has popped the address at `slot` and gone to `target`.
    pub fn ret(&mut self, slot: u64, target: u64) {
        if self.drop_while(|frame_slot| frame_slot < slot) {
            self.abandoned += 1;
        }
        match self.frames().last() {
            Some(frame) if frame.slot == slot => {
                // The call was none, as in a retpoline, or its path has been left for good.
                if frame.address != target {
                    self.unexplained_returns += 1;
                    self.abandoned += 1;
                }
                self.frames().pop();
            }
            _ => self.unexplained_returns += 1,
        }
    }

    /// A jump has been taken to `target`. `held`: whether a register holds an address.
    pub fn jump(&mut self, rsp: u64, target: u64, held: impl Fn(u64) -> bool) {
        self.switching = false;
        let frames = &self.segments[self.current].frames;
        let Some(last) = frames.last().filter(|last| last.slot < rsp) else { return };
        let popped = frames.iter().rev().take_while(|frame| frame.slot < rsp).count();
        if popped == 1 && target == last.address {
            self.frames().pop();
        } else if popped == 1 && held(last.address) {
            self.suspended = true;
        } else if self.drop_while(|slot| slot < rsp) {
            self.abandoned += 1;
        }
    }

    /// The kernel has laid a signal's frame.
    pub fn handler(&mut self, signal: &SignalFrame) {
        let was = self.segments[self.current].base;
        if let Some((start, end)) = signal.alternate
            && !(start..=end).contains(&was)
        {
            // What stood on it before was left for good.
            for segment in self.segments.iter_mut().filter(|segment| (start..=end).contains(&segment.base)) {
                segment.live = false;
            }
            self.segments[self.current].low = signal.interrupted_rsp;
            let known = self.segments[self.current].known;
            self.enter(Segment {
                frames: Vec::new(),
                parent: Some(self.current),
                low: signal.rsp,
                base: end,
                known,
                live: true,
            });
        } else {
            self.drop_while(|slot| slot < signal.rsp);
        }
        let frames = self.frames();
        frames.push(Frame { address: signal.pc, slot: signal.pc_slot, interrupted: true });
        frames.push(Frame { address: signal.restorer, slot: signal.rsp, interrupted: false });
    }

    /// rt_sigreturn has returned to what a signal interrupted. `false`: to somewhere else; call [`Shadow::moved`] then.
    pub fn sigreturn(&mut self, pc: u64) -> bool {
        let current = self.current;
        let segment = &mut self.segments[current];
        let Some(at) = segment.frames.iter().rposition(|frame| frame.interrupted) else { return false };
        let as_expected = segment.frames[at].address == pc;
        segment.frames.truncate(at);
        if segment.frames.is_empty()
            && let Some(parent) = segment.parent
        {
            segment.live = false;
            self.current = parent;
        }
        as_expected
    }

    /// rsp has got another value. `same_mapping` tells whether two addresses lie in one mapping.
    pub fn moved(&mut self, by: StackMove, same_mapping: impl Fn(u64, u64) -> bool) {
        let StackMove { from, to, is_loaded } = by;
        /// An allocation on the stack is below this, or is checked to lie in the same mapping.
        const NEAR_BYTES: u64 = 1 << 16;
        let holds = |segment: &Segment, low: u64| segment.live && low <= to && to <= segment.base;
        if holds(&self.segments[self.current], from) {
            return;
        }
        let other =
            (0..self.segments.len()).find(|&i| i != self.current && holds(&self.segments[i], self.segments[i].low));
        if let Some(other) = other {
            self.segments[self.current].low = from;
            self.current = other;
            self.abandoned += 1;
            self.switching = true;
            return;
        }
        let current = &mut self.segments[self.current];
        if to < from && !is_loaded && (from - to <= NEAR_BYTES || same_mapping(from, to)) {
            return;
        }
        if to > from && current.frames.is_empty() && current.parent.is_none() && same_mapping(from, to) {
            current.base = to;
            return;
        }
        current.low = from;
        self.abandoned += 1;
        self.enter(Segment { frames: Vec::new(), parent: None, low: to, base: to, known: false, live: true });
    }

    /// A return has landed on a stack that was not seen before, as when a context that was built by hand begins: `top`
    /// is the return address that was laid there for it, at `rsp`.
    pub fn begin(&mut self, rsp: u64, top: impl FnOnce() -> Option<u64>) {
        let segment = &mut self.segments[self.current];
        if segment.known || !segment.frames.is_empty() {
            return;
        }
        if let Some(address) = top() {
            segment.known = true;
            segment.base = segment.base.max(rsp + 8);
            segment.frames.push(Frame { address, slot: rsp, interrupted: false });
        }
    }

    /// The path from the innermost frame to the outermost, unless it is in doubt.
    pub fn path(&self, rsp: u64, held: impl Fn(u64) -> bool) -> Result<impl Iterator<Item = Frame> + '_, Doubt> {
        let current = &self.segments[self.current];
        if self.switching {
            return Err(Doubt::Switching);
        }
        let raised = current.frames.iter().rev().take_while(|frame| frame.slot < rsp).count();
        match raised {
            0 => {}
            // A popped return address in a register is as good as one on the stack.
            1 if !self.suspended && current.frames.last().is_some_and(|last| held(last.address)) => {}
            _ => return Err(Doubt::Raised),
        }
        let mut at = Some(current);
        let chain = std::iter::from_fn(move || {
            let segment = at?;
            at = segment.parent.map(|parent| &self.segments[parent]);
            Some(segment)
        });
        if chain.clone().any(|segment| !segment.known) {
            return Err(Doubt::UnknownStack);
        }
        Ok(chain.flat_map(|segment| segment.frames.iter().rev().copied()))
    }

    /// Frames on the current stack.
    pub fn depth(&self) -> usize {
        self.segments[self.current].frames.len()
    }

    /// Returns to an address that no call had pushed there.
    pub fn unexplained_returns(&self) -> u64 {
        self.unexplained_returns
    }

    /// How often a path was left by other means than a return.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    fn frames(&mut self) -> &mut Vec<Frame> {
        &mut self.segments[self.current].frames
    }

    fn drop_while(&mut self, gone: impl Fn(u64) -> bool) -> bool {
        self.suspended = false;
        self.switching = false;
        let frames = self.frames();
        let len = frames.len();
        while frames.last().is_some_and(|frame| gone(frame.slot)) {
            frames.pop();
        }
        frames.len() < len
    }

    fn enter(&mut self, segment: Segment) {
        self.suspended = false;
        let ancestors: Vec<usize> = std::iter::successors(Some(self.current), |&i| self.segments[i].parent).collect();
        let free = (0..self.segments.len()).find(|&i| {
            !self.segments[i].live && !ancestors.contains(&i) && !self.segments.iter().any(|s| s.parent == Some(i))
        });
        self.current = match free {
            Some(free) => {
                self.segments[free] = segment;
                free
            }
            None => {
                self.segments.push(segment);
                self.segments.len() - 1
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(shadow: &Shadow, rsp: u64) -> Result<Vec<u64>, Doubt> {
        Ok(shadow.path(rsp, |_| false)?.map(|frame| frame.address).collect())
    }

    /// Three calls deep on a stack that begins at 0x1000.
    fn deep() -> Shadow {
        let mut shadow = Shadow::new(0x1000);
        shadow.call(1, 0xff8, false);
        shadow.call(2, 0xf00, false);
        shadow.call(3, 0xe00, false);
        shadow
    }

    #[test]
    fn calls_and_returns() {
        let mut shadow = deep();
        assert_eq!(path(&shadow, 0xe00), Ok(vec![3, 2, 1]));
        shadow.call(4, 0xdf8, true);
        assert_eq!(path(&shadow, 0xdf8), Ok(vec![3, 2, 1]));
        shadow.ret(0xe00, 3);
        assert_eq!(path(&shadow, 0xe08), Ok(vec![2, 1]));
        assert_eq!((shadow.abandoned(), shadow.unexplained_returns()), (0, 0));
    }

    #[test]
    fn long_jump_drops_what_it_raises_over() {
        let mut shadow = deep();
        shadow.moved(StackMove { from: 0xdf0, to: 0xf80, is_loaded: true }, |_, _| true);
        assert_eq!(path(&shadow, 0xf80), Err(Doubt::Raised));
        shadow.jump(0xf80, 99, |_| false);
        assert_eq!(path(&shadow, 0xf80), Ok(vec![1]));
        assert_eq!(shadow.abandoned(), 1);
    }

    #[test]
    fn popped_return_address_counts_while_a_register_holds_it() {
        let mut shadow = deep();
        assert_eq!(path(&shadow, 0xe08), Err(Doubt::Raised));
        assert_eq!(shadow.path(0xe08, |value| value == 3).map(Iterator::count), Ok(3));
        shadow.jump(0xe08, 3, |value| value == 3);
        assert_eq!(path(&shadow, 0xe08), Ok(vec![2, 1]));
        assert_eq!(shadow.abandoned(), 0);
    }

    #[test]
    fn return_that_is_no_return_abandons() {
        let mut shadow = deep();
        shadow.ret(0xe00, 77);
        assert_eq!(path(&shadow, 0xe08), Ok(vec![2, 1]));
        assert_eq!((shadow.abandoned(), shadow.unexplained_returns()), (1, 1));
    }

    #[test]
    fn signal_on_an_alternate_stack_and_back() {
        let mut shadow = deep();
        let signal = SignalFrame {
            restorer: 50,
            rsp: 0x8e00,
            pc: 33,
            pc_slot: 0x8eb0,
            interrupted_rsp: 0xdf0,
            alternate: Some((0x8000, 0x9000)),
        };
        shadow.handler(&signal);
        assert_eq!(path(&shadow, 0x8e00), Ok(vec![50, 33, 3, 2, 1]));
        shadow.ret(0x8e00, 50);
        assert_eq!(path(&shadow, 0x8e08), Ok(vec![33, 3, 2, 1]));
        assert!(shadow.sigreturn(33));
        assert_eq!(path(&shadow, 0xdf0), Ok(vec![3, 2, 1]));
        // And left by a jump.
        shadow.handler(&signal);
        shadow.moved(StackMove { from: 0x8e00, to: 0xf80, is_loaded: true }, |_, _| false);
        assert_eq!(path(&shadow, 0xf80), Err(Doubt::Switching));
        shadow.jump(0xf80, 99, |_| false);
        assert_eq!(path(&shadow, 0xf80), Ok(vec![1]));
    }

    #[test]
    fn unknown_stack() {
        let mut shadow = deep();
        shadow.moved(StackMove { from: 0xdf0, to: 0x20_0000, is_loaded: true }, |_, _| false);
        assert_eq!(path(&shadow, 0x20_0000), Err(Doubt::UnknownStack));
        shadow.ret(0x20_0000, 700);
        shadow.begin(0x20_0008, || Some(800));
        assert_eq!(path(&shadow, 0x20_0008), Ok(vec![800]));
    }
}
