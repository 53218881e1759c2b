//! Which calls a module's copies can make themselves, with return addresses in the copies: those of callees that do not look
//! where they were called from, where unwinders can be told of the copy. The others are made at home.

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::exports::Exports;
use callpath_image::moved_frames::{MovableFrames, MovedCode, MovedFrames, Piece, Size};
use callpath_image::plt;
use callpath_image::return_use::ReturnUse;
use callpath_x86::graph::{CallSite, ModuleFlow, ProcedureGraph};
use callpath_x86::rewrite::{Callee, FrameSize, Plan, Rewritten, callee};
use rustc_hash::FxHashMap;

use crate::copies::Copies;
use crate::module::Module;
use crate::return_users::{self, ReturnUsers};

/// What unwinders ask, if the C library has it: with this they can be told.
pub const FIND_OBJECT: &str = "_dl_find_object";
/// What older unwinders ask.
const ITERATE: &str = "dl_iterate_phdr";
/// What the names of an unwinder's procedures begin with.
const UNWIND: &str = "_Unwind_";

/// What is known of a module's calls.
pub struct CallsInCopies<'m> {
    users: &'m ReturnUsers,
    /// The module's index there.
    index: usize,
    frames: MovableFrames<'m>,
    /// Where the table of modules is, for those who ask which one called them.
    homes: LinkAddr,
    /// By where they begin: the names of stubs; and where stubs begin that have none.
    stubs: FxHashMap<LinkAddr, String>,
    stub_sections: Vec<std::ops::Range<LinkAddr>>,
    /// Words that the loader fills with what a name stands for.
    slots: FxHashMap<LinkAddr, String>,
}

impl<'m> CallsInCopies<'m> {
    /// Of a module, by its index in what `users` was made of. `homes`: where the table of modules is to be
    /// ([`crate::unwinders::tell`]), by a link-time address of this module.
    pub fn of(module: &'m Module, (users, index): (&'m ReturnUsers, usize), homes: LinkAddr) -> CallsInCopies<'m> {
        let image = module.image();
        let plain = |name: &str| name.trim_end_matches("@plt").split('@').next().unwrap_or_default().to_owned();
        CallsInCopies {
            users,
            index,
            homes,
            frames: MovableFrames::of(module.file()),
            stubs: plt::stubs(image, |_| None).into_iter().map(|stub| (stub.start, plain(&stub.name))).collect(),
            stub_sections: plt::sections(image).into_iter().map(|section| section.code).collect(),
            slots: module.file().loading().symbols.iter().map(|(slot, name)| (*slot, plain(name))).collect(),
        }
    }

    /// Whether a procedure has to have a copy: it asks which module called it.
    pub fn needs_copy(&self, procedure: LinkAddr) -> bool {
        self.users.loads(self.index, procedure).is_some()
    }

    /// Lets the copy of a procedure make the calls that it can, and ask which module called it, if it does.
    pub fn plan(&self, flow: &ModuleFlow<'_>, graph: &ProcedureGraph, plan: &mut Plan) {
        if let Some(loads) = self.users.loads(self.index, graph.entry) {
            return_users::ask(plan, loads, self.homes);
        }
        for call in &graph.calls {
            if self.can_be_in_copy(flow, call) {
                plan.call_in_copy(call.code.start);
            }
            let last = LinkAddr(call.code.end.0.saturating_sub(1));
            plan.pops_arguments(call.code.start, u32::try_from(self.frames.arguments_at(last)).unwrap_or(u32::MAX));
        }
    }

    /// Whether the frames of a procedure's copy can be larger: it makes all calls itself, and unwinders can be told.
    pub fn can_enlarge(&self, flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> bool {
        self.are_all_in_copy(flow, graph) && graph.blocks.iter().all(|block| self.frames.can_enlarge(&block.code))
    }

    /// Whether a procedure's copy makes all calls itself: no callee looks at its return address, as `setjmp` does, which returns twice.
    pub fn are_all_in_copy(&self, flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> bool {
        graph.calls.iter().all(|call| self.can_be_in_copy(flow, call))
    }

    fn can_be_in_copy(&self, flow: &ModuleFlow<'_>, call: &CallSite) -> bool {
        let may_look = || match callee(flow, call) {
            None => true,
            Some(Callee::At(address)) => match self.stubs.get(&address) {
                Some(name) => self.users.named_may_look(name),
                // What such a stub stands for is chosen when the module is loaded.
                None if self.stub_sections.iter().any(|stubs| stubs.contains(&address)) => {
                    self.users.unknown_may_look()
                }
                None => self.users.may_look(self.index, address),
            },
            Some(Callee::Through(word)) => match self.slots.get(&word) {
                Some(name) => self.users.named_may_look(name),
                None => self.users.unknown_may_look(),
            },
            Some(Callee::Unknown) => self.users.unknown_may_look(),
        };
        self.frames.speak_of(call.code.start) && !may_look()
    }

    /// What tells unwinders of copies, to lie at `at`, a multiple of 8. `None`: something is more than 2 GB away.
    pub fn frames(&self, copies: &Copies, at: LinkAddr) -> Option<MovedFrames> {
        let moved: Vec<MovedCode> = copies.made.iter().map(|made| moved(&made.copy)).collect();
        self.frames.write(&moved, at)
    }
}

/// Whether the unwinders of a process can be told of copies: they ask the C library's [`FIND_OBJECT`], and no module
/// walks the stack in a way of its own.
pub fn unwinders_can_be_told(modules: &[&Module]) -> bool {
    let has_it = |module: &&Module| !Exports::of(module.image()).named(FIND_OBJECT).is_empty();
    modules.iter().any(has_it) && own_unwinder(modules).is_none()
}

/// The index of a module that walks the stack in a way of its own.
pub fn own_unwinder(modules: &[&Module]) -> Option<usize> {
    let is_other = |module: &&Module| {
        let asks = |name: &str| module.file().loading().symbols.iter().any(|(_, asked)| asked == name);
        let has_unwinder = || module.file().loading().symbols.iter().any(|(_, asked)| asked.starts_with(UNWIND));
        let walks = ReturnUse::of(module.image(), module.image().origin()).walks;
        walks || asks(ITERATE) && !asks(FIND_OBJECT) && !has_unwinder() && names_frame_segment(module.image())
    };
    modules.iter().position(is_other)
}

/// Whether its code contains the number of the segment where unwinders find call frame information, or a neighbouring number (of
/// other segments), or one of these negated: compilers compare with those as well. Modules list modules for other reasons, too: libbsd makes random
/// numbers of the list. A limit: the number may be in data, or in another module.
fn names_frame_segment(image: &Image) -> bool {
    /// `PT_GNU_EH_FRAME`
    const FRAMES: u32 = 0x6474_e550;
    let names = |range: std::ops::Range<LinkAddr>| {
        let code = image.bytes_at(range.start, range.end.0.saturating_sub(range.start.0) as usize);
        // What cannot be read may be anything.
        code.is_none_or(|code| {
            let has = |number: u32| memchr::memmem::find(code, &number.to_le_bytes()).is_some();
            (FRAMES - 1..=FRAMES + 4).any(|number| has(number) || has(number.wrapping_neg()))
        })
    };
    image.instruction_ranges().into_iter().any(names)
}

/// A copy, piece by piece.
fn moved(copy: &Rewritten) -> MovedCode {
    let origins = copy.origins.iter().map(|(offset, _)| *offset);
    let sizes = copy.lowered.iter().chain(&copy.enlarged).map(|(offset, _)| *offset);
    let mut offsets: Vec<u32> = origins.chain(sizes).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let address = |offset: u64| LinkAddr(copy.at.0.wrapping_add(offset));
    let len = copy.code.len() as u64;
    let piece = |offset: u32| {
        let at = address(offset.into());
        let size = match copy.size_at(at) {
            FrameSize::AsAtHome => Size::AsAtHome,
            FrameSize::LargerBy(bytes) => Size::LargerBy(bytes),
            FrameSize::ReturnAddress => Size::ReturnAddress,
        };
        Some(Piece { at, origin: copy.origin_of(at)?, lowered_bytes: copy.lowered_by(at), size })
    };
    let pieces = offsets.into_iter().filter(|offset| u64::from(*offset) < len).filter_map(piece).collect();
    MovedCode { pieces, end: address(len) }
}
