//! Paths that were counted in each calling context: a part of what was counted in a process ([`crate::PathCounts`]).

use callpath_format::frame::FrameKey;

use crate::bytes::{Reader, Writer};
use crate::error::MeasurementError;

/// A calling context, and how often each path through its procedure was executed in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedContext {
    /// The number of the context that it is below, less than its own. `None`: there is none.
    pub parent: Option<u32>,
    /// If it is below none: what is above is not known.
    pub is_partial: bool,
    /// The frame: a procedure by its first instruction, where paths were counted; or a call.
    pub frame: FrameKey,
    /// Paths that were begun and not ended.
    pub cut_short: u64,
    /// Those that were executed: numbers, ascending, and how often. What they stand for, the procedure says.
    pub paths: Vec<(u64, u64)>,
}

pub(crate) fn write(w: &mut Writer, contexts: &[CountedContext]) {
    w.number(contexts.len() as u64);
    for (number, CountedContext { parent, is_partial, frame, cut_short, paths }) in (0u64..).zip(contexts) {
        // How far before; 0 and its own number and 1 more are none.
        w.number(
            parent.map_or(if *is_partial { number + 1 } else { 0 }, |parent| number.saturating_sub(parent.into())),
        );
        w.number(frame.0);
        w.number(*cut_short);
        w.number(paths.len() as u64);
        let mut next = 0u64;
        for (path, executions) in paths {
            w.number(path.wrapping_sub(next));
            w.number(*executions);
            next = path.wrapping_add(1);
        }
    }
}

pub(crate) fn read(r: &mut Reader<'_>) -> Result<Vec<CountedContext>, MeasurementError> {
    let mut contexts: Vec<CountedContext> = Vec::new();
    for _ in 0..r.count(4)? {
        let number = contexts.len() as u64;
        let back = r.number()?;
        let parent = match back {
            0 => None,
            back if back == number + 1 => None,
            back => Some(number.checked_sub(back).ok_or_else(|| r.error("context above another"))?),
        };
        let parent = parent.map(u32::try_from).transpose().map_err(|_| r.error("number of contexts"))?;
        let frame = FrameKey(r.number()?);
        let cut_short = r.number()?;
        let (mut paths, mut next) = (Vec::new(), 0u64);
        for _ in 0..r.count(2)? {
            let path = next.checked_add(r.number()?).ok_or_else(|| r.error("number of a path"))?;
            next = path.checked_add(1).ok_or_else(|| r.error("number of a path"))?;
            paths.push((path, r.number()?));
        }
        contexts.push(CountedContext { parent, is_partial: back != 0 && parent.is_none(), frame, cut_short, paths });
    }
    Ok(contexts)
}
