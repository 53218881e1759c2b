//! The program's code: what each instruction does, how often it was looked at, and which modules it belongs to.

use callpath_format::address::RunAddr;
use callpath_target::{FileId, Maps, Stepper};
use rustc_hash::FxHashMap;

use super::breakpoints::Breakpoints;
use super::options::Options;
use crate::OracleError;
use crate::instruction::{Instruction, MAX_LEN_BYTES, decode};
use crate::modules::{Images, Modules, executable};

/// An instruction that is to have several visits, at different depths, is passed so often for each of them.
const PASSES_PER_VISIT: u32 = 8;

/// A thread at its next instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) pc: RunAddr,
    /// Depth of calls.
    pub(super) depth: usize,
    /// It is too early for a snapshot.
    pub(super) is_skipped: bool,
}

/// What is to be done about an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) instruction: Instruction,
    /// A snapshot is to be taken.
    pub(super) is_wanted: bool,
    /// Nothing more is asked of it.
    pub(super) may_be_free: bool,
}

/// What is known of an instruction.
#[derive(Clone, Copy, Debug)]
struct Known {
    instruction: Instruction,
    visits: u32,
    depth: usize,
    wanted: bool,
    passes: u32,
    /// The program runs through it freely.
    is_free: bool,
    /// Its memory may be written: it is decoded each time.
    is_written: bool,
}

/// An executable mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    start: u64,
    end: u64,
    file: Option<FileId>,
    file_offset: u64,
}

/// The program's code as far as it is known, with the breakpoints in it.
pub(super) struct Code {
    /// Where the program stops.
    pub(super) breakpoints: Breakpoints,
    /// What the oracle may do in an instruction's place.
    decoded: FxHashMap<u64, iced_x86::Instruction>,
    known: FxHashMap<u64, Known>,
    ranges: Vec<Range>,
    /// Bottom and top of every mapping: where a stack ends.
    maps: Maps,
    images: Images,
    /// The modules now.
    pub(super) modules: Modules,
    /// They differ from those that were written last.
    pub(super) modules_are_new: bool,
    distinct: u64,
    options: Options,
}

impl Code {
    pub(super) fn read(stepper: &Stepper, images: Images, options: Options) -> Result<Code, OracleError> {
        let mut code = Code {
            breakpoints: Breakpoints::default(),
            decoded: FxHashMap::default(),
            known: FxHashMap::default(),
            ranges: Vec::new(),
            maps: Maps::default(),
            images,
            modules: Modules::default(),
            modules_are_new: true,
            distinct: 0,
            options,
        };
        code.changed(stepper)?;
        Ok(code)
    }

    /// Another program is there.
    pub(super) fn replaced(&mut self, stepper: &Stepper) -> Result<(), OracleError> {
        self.known.clear();
        self.decoded.clear();
        self.breakpoints = Breakpoints::default();
        self.changed(stepper)
    }

    /// Reads the memory map again.
    pub(super) fn changed(&mut self, stepper: &Stepper) -> Result<(), OracleError> {
        self.maps = Maps::read(stepper.pid())?;
        let ranges: Vec<Range> = executable(&self.maps)
            .map(|entry| Range {
                start: entry.start.0,
                end: entry.end.0,
                file: entry.file,
                file_offset: entry.file_offset,
            })
            .collect();
        let gone: Vec<Range> = self.ranges.iter().filter(|range| !ranges.contains(range)).copied().collect();
        if !gone.is_empty() {
            let gone: Vec<_> = gone.iter().map(|range| range.start..range.end).collect();
            self.known.retain(|pc, _| !gone.iter().any(|range| range.contains(pc)));
            self.decoded.retain(|pc, _| !gone.iter().any(|range| range.contains(pc)));
            self.breakpoints.forget(&gone);
        }
        if ranges != self.ranges || self.modules_are_new {
            self.ranges = ranges;
            let modules = self.images.modules(&self.maps, &self.options.vdso_path);
            self.modules_are_new |= modules != self.modules;
            self.modules = modules;
        }
        Ok(())
    }

    /// The instruction that a thread comes to, and what is to be done about it.
    #[inline]
    pub(super) fn visit(&mut self, at: Arrival, stepper: &Stepper) -> Visit {
        let Arrival { pc, depth, is_skipped } = at;
        let visits = self.options.visits;
        let known = match self.known.get_mut(&pc.0) {
            Some(known) if !known.is_written => known,
            _ => self.meet(pc, stepper),
        };
        let may = known.wanted && known.visits < visits;
        let is_wanted = may && known.depth != depth && !is_skipped;
        known.passes += u32::from(!is_skipped);
        if is_wanted {
            known.visits += 1;
            known.depth = depth;
        }
        let is_done =
            !known.wanted || known.visits >= visits || known.passes >= visits.saturating_mul(PASSES_PER_VISIT);
        Visit {
            instruction: known.instruction,
            is_wanted,
            may_be_free: is_done && !known.is_written && known.instruction.is_plain(),
        }
    }

    /// Lets the program run through the instruction at `pc` from now on: it stops at those that may follow, unless
    /// they are free, too.
    pub(super) fn free(&mut self, pc: RunAddr, stepper: &Stepper) -> Result<(), OracleError> {
        let Some(known) = self.known.get_mut(&pc.0).filter(|known| !known.is_free) else { return Ok(()) };
        known.is_free = true;
        let instruction = known.instruction;
        self.breakpoints.take(pc.0, stepper)?;
        let next = instruction.falls_through.then(|| pc.0.wrapping_add(instruction.len_bytes.into()));
        for follower in [next, instruction.target].into_iter().flatten() {
            if !self.known.get(&follower).is_some_and(|known| known.is_free) {
                self.breakpoints.lay(follower, stepper)?;
            }
        }
        Ok(())
    }

    /// The decoder's form of an instruction that is not plain.
    pub(super) fn decoded(&self, pc: RunAddr) -> Option<&iced_x86::Instruction> {
        self.decoded.get(&pc.0)
    }

    fn meet(&mut self, pc: RunAddr, stepper: &Stepper) -> &mut Known {
        let mut bytes = [0; MAX_LEN_BYTES];
        let got = stepper.read(pc.0, &mut bytes);
        self.breakpoints.restore(pc.0, &mut bytes);
        let (instruction, decoded) = decode(pc.0, &bytes[..got]);
        let is_written = !self.ranges.iter().any(|range| {
            // The vdso's device and inode are 0, but no process writes to what the kernel shares.
            (range.start..range.end).contains(&pc.0) && (range.file.is_some() || self.modules.code_at(pc).is_some())
        });
        let wanted = self.options.module.as_ref().is_none_or(|part| {
            let module = self.modules.code_at(pc).and_then(|(index, _)| self.modules.modules.get(index));
            module.is_some_and(|module| module.path.to_string_lossy().contains(part))
        });
        if !instruction.is_plain() && !is_written {
            self.decoded.insert(pc.0, decoded);
        }
        let distinct = &mut self.distinct;
        let known = self.known.entry(pc.0).or_insert_with(|| {
            *distinct += 1;
            Known { instruction, visits: 0, depth: usize::MAX, wanted, passes: 0, is_free: false, is_written }
        });
        known.instruction = instruction;
        known
    }

    /// Whether `addr` may be executed.
    pub(super) fn is_code(&self, addr: RunAddr) -> bool {
        self.ranges.iter().any(|range| (range.start..range.end).contains(&addr.0))
    }

    /// The mapping around `addr`, as it was when the map was read last.
    pub(super) fn mapping(&self, addr: u64) -> Option<(u64, u64)> {
        let around = self.maps.entries.iter().find(|entry| (entry.start.0..entry.end.0).contains(&addr))?;
        Some((around.start.0, around.end.0))
    }

    /// Distinct instructions that were met.
    pub(super) fn distinct(&self) -> u64 {
        self.distinct
    }
}
