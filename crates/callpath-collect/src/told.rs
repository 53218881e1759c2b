//! Whether a map tells the rest of a path that is being walked (Mytkowicz, Coughlin and Diwan 2009, section 6.4): then
//! the walk may end.
//!
//! It is told at a frame where the map has one path alone to the frame's procedure at its height, and the caller on the
//! stack is the one that this path has. So the walk looks at one frame more than it keeps.

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::register::Reg;
use callpath_format::shared::load_map::{CurrentMap, Mapping};
use callpath_format::shared::told::{ToldPath, ToldPaths};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use crate::frame::Frame;
use crate::process::Process;
use crate::sample::Sample;
use crate::stack::Stack;

/// What a map tells of the frames of one walk.
pub(crate) struct Told<'p, 'm> {
    process: &'p Process<'m>,
    map: CurrentMap,
    /// The fixed place of the thread's stack, and the number of the procedure that the thread began in. `None`: nothing is told.
    stack: Option<(u64, u32)>,
    /// The procedure of the frame before, and what is told of its module.
    callee: Option<(u32, ToldPaths<'m>)>,
    /// How high the stack is at the last frame but one, of which the path is told.
    pub(crate) height: Option<i64>,
}

impl<'p, 'm> Told<'p, 'm> {
    pub(crate) fn new(sample: &Sample<'p, 'm>, stack: &Stack) -> Told<'p, 'm> {
        let Sample { process, thread, .. } = *sample;
        let map = CurrentMap(process.slot.load_map.load(Acquire));
        let mut told = Told { process, map, stack: None, callee: None, height: None };
        let base = thread.record.stack_base.load(Relaxed);
        let root = match thread.record.start_routine.load(Relaxed) {
            0 => Some(ToldPath::MAIN),
            start => told.place(CodePoint::Exact(RunAddr(start))).map(|(procedure, _)| procedure),
        };
        told.stack = stack.bounds().and(root).filter(|_| base != 0).map(|root| (base, root));
        told
    }

    /// Looks at the next frame outwards. Breaks where the path of the frame before is told.
    pub(crate) fn see(&mut self, frame: Frame<'_>) -> ControlFlow<()> {
        let Some((base, root)) = self.stack else { return ControlFlow::Continue(()) };
        let point = frame.cursor.point;
        let here = self.place(point);
        let callee = core::mem::replace(&mut self.callee, here);
        // Where a signal came, the stack says nothing of who was called.
        let is_caller = matches!(point, CodePoint::Return(_));
        if let (true, Some((procedure, paths)), Some((caller, _))) = (is_caller, callee, here)
            && let Some(cfa) = frame.cursor.registers.get(Reg::RSP)
        {
            let height = base.wrapping_sub(cfa) as i64;
            if paths.tells(ToldPath { procedure, caller, root, height }) {
                self.height = Some(height);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// The map's number of the procedure at a point, and what is told of its module.
    fn place(&self, point: CodePoint) -> Option<(u32, ToldPaths<'m>)> {
        const ELSEWHERE: u16 = Mapping::PENDING | Mapping::GENERATED | Mapping::MOVED;
        let addr = point.lookup();
        let mapping = self.process.published.load_map(self.map.offset())?.find(addr)?;
        fence(Acquire);
        let is_current = CurrentMap(self.process.slot.load_map.load(Relaxed)) == self.map;
        if !is_current || mapping.flags & ELSEWHERE != 0 {
            return None;
        }
        let paths = self.process.published.told(mapping.told)?;
        Some((paths.procedure_at(addr.to_link(mapping.bias))?, paths))
    }
}
