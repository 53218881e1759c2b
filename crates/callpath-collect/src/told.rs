//! Whether a map tells the rest of a path that is being walked (Mytkowicz, Coughlin and Diwan 2009, section 6.4): then
//! the walk may end.
//!
//! It is told at a frame where the map has one path alone to the frame's procedure at its height, and the return addresses
//! beyond are those of this path: none is taken for granted. They are found without recipes. A call says how far the CFA of its procedure
//! is above that of what it calls, so that one return address leads to the next:
//!
//! ```text
//! return address of a frame    at its CFA - 8
//! its caller's CFA             its CFA + the height of the call in front of that return address
//! ```

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::register::Reg;
use callpath_format::shared::load_map::{CurrentMap, Mapping};
use callpath_format::shared::told::{Callers, ToldPath, ToldPaths};
use callpath_unwind::Memory as _;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use crate::frame::Frame;
use crate::process::Process;
use crate::sample::Sample;
use crate::stack::Stack;

/// So often in a walk, the return addresses may turn out to be others; then it goes on to the end.
const ATTEMPTS: u32 = 4;

/// What a map tells of the frames of one walk.
pub(crate) struct Told<'p, 'm> {
    process: &'p Process<'m>,
    map: CurrentMap,
    /// The fixed place of the thread's stack, and the number of the procedure that the thread began in. `None`: nothing is told.
    stack: Option<(u64, u32)>,
    /// The mapping that the last address was in, and what is told of its module.
    last: Option<(Mapping, ToldPaths<'m>)>,
    /// The procedure of the frame before, and what is told of its module.
    callee: Option<(u32, ToldPaths<'m>)>,
    attempts: u32,
    /// How high the stack is at the last frame but one, of which the path is told.
    pub(crate) height: Option<i64>,
}

impl<'p, 'm> Told<'p, 'm> {
    pub(crate) fn new(sample: &Sample<'p, 'm>, stack: &Stack) -> Told<'p, 'm> {
        let Sample { process, thread, .. } = *sample;
        let map = CurrentMap(process.slot.load_map.load(Acquire));
        let mut told = Told { process, map, stack: None, last: None, callee: None, attempts: 0, height: None };
        let base = thread.record.stack_base.load(Relaxed);
        let root = match thread.record.start_routine.load(Relaxed) {
            0 => Some(ToldPath::MAIN),
            start => told.procedure(CodePoint::Exact(RunAddr(start))).map(|(procedure, _)| procedure),
        };
        told.stack = stack.bounds().and(root).filter(|_| base != 0).map(|root| (base, root));
        told
    }

    /// Looks at the next frame outwards. Breaks where the path of the frame before is told.
    pub(crate) fn see(&mut self, frame: Frame<'_>, stack: &mut Stack) -> ControlFlow<()> {
        let Some((base, root)) = self.stack.filter(|_| self.attempts < ATTEMPTS) else {
            return ControlFlow::Continue(());
        };
        let point = frame.cursor.point;
        let here = self.procedure(point);
        let callee = core::mem::replace(&mut self.callee, here);
        // Where a signal came, the stack says nothing of who was called.
        let is_caller = matches!(point, CodePoint::Return(_));
        if let (true, Some((procedure, paths))) = (is_caller, callee)
            && let Some(cfa) = frame.cursor.registers.get(Reg::RSP)
        {
            let height = base.wrapping_sub(cfa) as i64;
            if let Some(callers) = paths.callers(procedure, root, height) {
                if self.has(callers, cfa, stack) {
                    self.height = Some(height);
                    return ControlFlow::Break(());
                }
                self.attempts += 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the return addresses from a frame's CFA on are those of these callers.
    fn has(&mut self, callers: Callers, mut cfa: u64, stack: &mut Stack) -> bool {
        let mut found = Callers::default();
        while found.count < callers.count {
            let Some(return_address) = stack.read_u64(cfa.wrapping_sub(8)) else { return false };
            let at = CodePoint::Return(RunAddr(return_address));
            let Some((link, paths)) = self.place(at) else { return false };
            let Some((procedure, height)) = paths.call_at(link) else { return false };
            found = found.and(procedure);
            cfa = cfa.wrapping_add(height.into());
        }
        found == callers
    }

    /// The map's number of the procedure at a point, and what is told of its module.
    fn procedure(&mut self, point: CodePoint) -> Option<(u32, ToldPaths<'m>)> {
        let (link, paths) = self.place(point)?;
        Some((paths.procedure_at(link)?, paths))
    }

    /// Where a point is in its module, and what is told of that.
    fn place(&mut self, point: CodePoint) -> Option<(LinkAddr, ToldPaths<'m>)> {
        const ELSEWHERE: u16 = Mapping::PENDING | Mapping::GENERATED | Mapping::MOVED;
        let addr = point.lookup();
        let (mapping, paths) = match self.last.filter(|(last, _)| last.start <= addr && addr < last.end) {
            Some(last) => last,
            None => {
                let mapping = self.process.published.load_map(self.map.offset())?.find(addr)?;
                fence(Acquire);
                let is_current = CurrentMap(self.process.slot.load_map.load(Relaxed)) == self.map;
                if !is_current || mapping.flags & ELSEWHERE != 0 {
                    return None;
                }
                let last = (mapping, self.process.published.told(mapping.told)?);
                self.last = Some(last);
                last
            }
        };
        Some((addr.to_link(mapping.bias), paths))
    }
}
