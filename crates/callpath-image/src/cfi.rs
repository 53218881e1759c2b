//! Call frame information: from `.eh_frame` and `.debug_frame` to recipes, interval by interval.
//! It decodes no machine instructions, builds no tables, and does not ask who else may know a procedure's frame.
//!
//! Everything that the sections say about x86-64 becomes a [`Recipe`]; DWARF goes no further than this room, but for
//! the few expressions that are no plain equation. Expressions that depend on the pc's place in its page (the one that
//! linkers write for the PLT) become a row for each place.
//!
//! Work and memory are bounded by the sections' lengths: no CIE's program runs twice, all programs
//! together are no longer than four times the sections, and expressions that depend on the pc make a
//! row for every four bytes of code at most.

mod diagnostic;
mod emit;
mod entries;
mod expression;
mod index;
mod pool;
mod program;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_format::register::Reg;
use gimli::{
    BaseAddresses, CallFrameInstructionIter, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, LittleEndian,
    Pointer, UnwindSection,
};
use rustc_hash::FxHashMap;

use crate::elf::Image;
use crate::go_table::GoTable;
use crate::parse_counts::ImagePart;
pub use diagnostic::{CfiDiagnostic, CfiSection, CfiTrouble};
use emit::{EndedRow, emit};
pub use entries::{FrameEntries, FrameEntry};
pub use index::IndexRow;
use pool::RecipePool;
use program::{Effect, Factors, Fault, Loss, Machine, State};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Diagnostics that are kept; the others are counted.
const MAX_DIAGNOSTICS: usize = 64;

/// Zeros in a row from which on they are not a terminator with padding behind it.
const ZEROS: usize = 16;

/// Expressions that depend on the pc may make a row for so many bytes of code; the PLT's makes two for 16.
const PC_ROW_BYTES: u64 = 4;

/// The interval of code that one FDE speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRange {
    /// Where the FDE is.
    pub section: CfiSection,
    /// Its offset there, bytes.
    pub offset: u64,
    /// The code. Ranges may overlap, and may reach out of the executable segments.
    pub code: Range<LinkAddr>,
    /// Its rows, in [`CallFrames::rows`].
    pub rows: Range<usize>,
    /// Where a table says of its calls where their exceptions land.
    pub landing_table: Option<LinkAddr>,
    /// A routine says where they land, and asks no table.
    pub lands_unseen: bool,
}

/// From an address on, up to the next row of the same FDE or the FDE's end, one recipe holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRow {
    /// The first address.
    pub start: LinkAddr,
    /// Index in [`CallFrames::recipes`].
    pub recipe: u32,
}

/// What a module's call frame information says; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct CallFrames {
    /// Every FDE that speaks of executable code, in the order of the sections, `.eh_frame` first.
    pub ranges: Vec<FrameRange>,
    /// Rows, FDE by FDE. The first row of an FDE begins where the FDE begins; neighbours differ.
    pub rows: Vec<FrameRow>,
    /// Distinct recipes; 0 is [`Recipe::UNKNOWN`]. Their expressions are in `expressions`.
    pub recipes: Vec<Recipe>,
    /// Bytes of DWARF expressions.
    pub expressions: Vec<u8>,
    /// What was odd, in the order of the sections; no more than 64.
    pub diagnostics: Vec<CfiDiagnostic>,
    /// Diagnostics beyond those.
    pub diagnostics_left_out: u64,
    /// FDEs of code that is not there: procedures that the linker dropped.
    pub outside_code: u64,
    /// Where code begins that the linker's table has a row for, and no entry could be read of: ascending.
    pub without_entry: Vec<LinkAddr>,
}

/// The bytes to read, and where they are.
#[derive(Clone, Debug, Default)]
pub struct CfiInput<'a> {
    /// `.eh_frame`: where it begins, and its bytes.
    pub eh_frame: Option<(LinkAddr, &'a [u8])>,
    /// The bytes continue after `.eh_frame`'s end, which its terminator marks (images without section headers).
    pub eh_frame_is_unbounded: bool,
    /// The bytes of `.debug_frame`.
    pub debug_frame: Option<&'a [u8]>,
    /// What text-relative pointers count from.
    pub text: Option<LinkAddr>,
    /// What data-relative pointers count from.
    pub got: Option<LinkAddr>,
    /// Executable code: sorted, disjoint.
    pub code: &'a [Range<LinkAddr>],
    /// The linker's table of `.eh_frame`'s entries, if it is sound. Behind an
    /// entry that is broken it leads to the next.
    pub index: &'a [IndexRow],
}

impl<'a> CfiInput<'a> {
    /// `.eh_frame` of an image, without its index.
    pub(crate) fn of_eh_frame(image: &'a Image, code: &'a [Range<LinkAddr>]) -> CfiInput<'a> {
        let address_of = |name| image.section(name).map(|section| section.addr);
        CfiInput {
            eh_frame: image.eh_frame().map(|eh_frame| (eh_frame.addr, eh_frame.data)),
            eh_frame_is_unbounded: image.section(".eh_frame").is_none(),
            debug_frame: None,
            text: address_of(".text"),
            got: address_of(".got.plt").or_else(|| address_of(".got")),
            code,
            index: &[],
        }
    }

    pub(crate) fn bases(&self) -> BaseAddresses {
        let mut bases = BaseAddresses::default();
        if let Some(text) = self.text {
            bases = bases.set_text(text.0);
        }
        if let Some(got) = self.got {
            bases = bases.set_got(got.0);
        }
        if let Some((addr, _)) = self.eh_frame {
            bases = bases.set_eh_frame(addr.0);
        }
        bases
    }
}

impl CallFrames {
    /// The rows of an FDE.
    pub fn rows_of(&self, range: &FrameRange) -> &[FrameRow] {
        self.rows.get(range.rows.clone()).unwrap_or(&[])
    }

    /// All that an image's call frame information says of `code`: executable ranges, sorted and disjoint.
    pub(crate) fn of_image(image: &Image, code: &[Range<LinkAddr>]) -> CallFrames {
        image.count_parse(ImagePart::CallFrames);
        let debug_frame = image.section(".debug_frame").map(|section| section.data);
        let debug_frame = debug_frame.or_else(|| Some(GoTable::of(image)?.call_frames().into()));
        let (index, trouble) = index::rows(image);
        let mut frames = CallFrames::read(&CfiInput {
            debug_frame: debug_frame.as_deref(),
            index: &index,
            ..CfiInput::of_eh_frame(image, code)
        });
        frames.diagnostics.extend(trouble);
        frames
    }

    /// All that the sections say. Never fails: what cannot be read is a diagnostic.
    pub fn read(input: &CfiInput<'_>) -> CallFrames {
        let bases = input.bases();
        let mut pool = RecipePool::new();
        let mut out = Output::new(input.code);
        if let Some((_, bytes)) = input.eh_frame {
            let section = EhFrame::new(bytes, LittleEndian);
            let past_terminators = !input.eh_frame_is_unbounded;
            let mut entries: Vec<usize> =
                input.index.iter().filter_map(|row| usize::try_from(row.entry).ok()).collect();
            entries.sort_unstable();
            let mut reader = SectionReader::new(section, bytes, CfiSection::EhFrame, &bases);
            reader.read(&Course { past_terminators, known: &entries }, &mut pool, &mut out);
        }
        if let Some(bytes) = input.debug_frame {
            let section = DebugFrame::new(bytes, LittleEndian);
            let course = Course { past_terminators: true, known: &[] };
            SectionReader::new(section, bytes, CfiSection::DebugFrame, &bases).read(&course, &mut pool, &mut out);
        }
        let is_code = |at: LinkAddr| input.code.iter().any(|code| code.contains(&at));
        let mut frames = out.finish(pool);
        index::check(&mut frames, input.index, is_code);
        frames
    }
}

fn code_bytes(code: &[Range<LinkAddr>]) -> u64 {
    code.iter().fold(0, |sum: u64, range| sum.saturating_add(range.end.0.saturating_sub(range.start.0)))
}

struct Output<'a> {
    code: &'a [Range<LinkAddr>],
    ranges: Vec<FrameRange>,
    rows: Vec<FrameRow>,
    diagnostics: Vec<CfiDiagnostic>,
    diagnostics_left_out: u64,
    outside_code: u64,
    /// Rows that expressions that depend on the pc may still make.
    pc_row_budget: u64,
}

impl<'a> Output<'a> {
    fn new(code: &'a [Range<LinkAddr>]) -> Output<'a> {
        Output {
            code,
            ranges: Vec::new(),
            rows: Vec::new(),
            diagnostics: Vec::new(),
            diagnostics_left_out: 0,
            outside_code: 0,
            pc_row_budget: code_bytes(code) / PC_ROW_BYTES,
        }
    }

    fn finish(self, pool: RecipePool) -> CallFrames {
        CallFrames {
            ranges: self.ranges,
            rows: self.rows,
            recipes: pool.recipes,
            expressions: pool.expressions,
            diagnostics: self.diagnostics,
            diagnostics_left_out: self.diagnostics_left_out,
            outside_code: self.outside_code,
            without_entry: Vec::new(),
        }
    }

    fn report(&mut self, section: CfiSection, offset: usize, trouble: CfiTrouble) {
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(CfiDiagnostic { section, offset: offset as u64, trouble });
        } else {
            self.diagnostics_left_out += 1;
        }
    }

    /// Whether any of the range is executable.
    fn has_code(&self, range: &Range<LinkAddr>) -> bool {
        let next = self.code.partition_point(|code| code.end <= range.start);
        self.code.get(next).is_some_and(|code| code.start < range.end)
    }

    /// Ends the row before `start`; a row that says the same as its neighbour in the FDE is not kept twice.
    fn push_row(&mut self, fde_rows: usize, start: u64, recipe: u32) {
        if self.rows.len() == fde_rows || self.rows.last().is_none_or(|last| last.recipe != recipe) {
            self.rows.push(FrameRow { start: LinkAddr(start), recipe });
        }
    }
}

/// The code that an FDE speaks of; `None`: none.
fn code_of(fde: &gimli::FrameDescriptionEntry<Slice<'_>>) -> Result<Option<Range<LinkAddr>>, CfiTrouble> {
    let start = fde.initial_address();
    let end = start.checked_add(fde.len()).ok_or(CfiTrouble::Entry(gimli::Error::AddressOverflow))?;
    Ok((start < end).then_some(LinkAddr(start)..LinkAddr(end)))
}

/// A CIE that has been read, with the row that its program leaves.
struct Cie<'a> {
    entry: CommonInformationEntry<Slice<'a>>,
    factors: Factors,
    initial: State,
    fault: Option<Fault>,
    loss: Option<Loss>,
}

struct SectionReader<'a, 'b, S> {
    section: S,
    bytes: &'a [u8],
    which: CfiSection,
    bases: &'b BaseAddresses,
    cies: FxHashMap<usize, Result<Rc<Cie<'a>>, CfiTrouble>>,
    last_cie: Option<(usize, Rc<Cie<'a>>)>,
    remembered: Vec<State>,
    /// Bytes of programs that may still be run.
    work_budget: usize,
}

/// How a section is gone through.
struct Course<'k> {
    /// Behind a terminator, too.
    past_terminators: bool,
    /// Where entries begin, ascending.
    known: &'k [usize],
}

/// An FDE whose rows are to be found.
struct Described<'c, 'a> {
    cie: &'c Cie<'a>,
    program: CallFrameInstructionIter<'c, Slice<'a>>,
    code: Range<u64>,
    /// Where it is in the section.
    at: usize,
}

/// What an entry at some offset is.
enum Entry {
    Terminator,
    Cie { end: usize },
    Fde { end: usize },
}

impl<'a, S: UnwindSection<Slice<'a>>> SectionReader<'a, '_, S>
where
    S::Offset: gimli::UnwindOffset<usize>,
{
    fn new<'b>(section: S, bytes: &'a [u8], which: CfiSection, bases: &'b BaseAddresses) -> SectionReader<'a, 'b, S> {
        SectionReader {
            section,
            bytes,
            which,
            bases,
            cies: FxHashMap::default(),
            last_cie: None,
            remembered: Vec::new(),
            work_budget: bytes.len().saturating_mul(4).saturating_add(4096),
        }
    }

    /// Reads entry by entry; what is wrong in one does not keep the next from being read.
    fn read(&mut self, course: &Course<'_>, pool: &mut RecipePool, out: &mut Output<'_>) {
        let Course { past_terminators, known } = *course;
        let mut at = 0;
        while at < self.bytes.len() {
            let end = match self.entry_at(at) {
                None => {
                    out.report(self.which, at, CfiTrouble::Cut);
                    match known.get(known.partition_point(|&entry| entry <= at)) {
                        Some(&next) => next,
                        None => return,
                    }
                }
                Some(Entry::Terminator) if past_terminators => {
                    let zeros = self.bytes[at..].iter().take_while(|&&byte| byte == 0).count();
                    if zeros >= ZEROS {
                        out.report(self.which, at, CfiTrouble::Zeros);
                    }
                    at + (zeros & !3)
                }
                Some(Entry::Terminator) => return,
                Some(Entry::Cie { end }) => end,
                Some(Entry::Fde { end }) => {
                    match self.work_budget.checked_sub(end - at) {
                        Some(left) => self.work_budget = left,
                        None => return out.report(self.which, at, CfiTrouble::Work),
                    }
                    if let Err(trouble) = self.fde(at, pool, out) {
                        out.report(self.which, at, trouble);
                        if trouble == CfiTrouble::Work {
                            return;
                        }
                    }
                    end
                }
            };
            at = end;
        }
    }

    /// Where the section lies.
    fn own_bytes(&self) -> Range<LinkAddr> {
        let start = self.bases.eh_frame.section.filter(|_| self.which == CfiSection::EhFrame).unwrap_or(0);
        LinkAddr(start)..LinkAddr(start.saturating_add(self.bytes.len() as u64))
    }

    /// `None`: the entry does not fit into the section.
    fn entry_at(&self, at: usize) -> Option<Entry> {
        let word = |at: usize| Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?));
        let (start, len, is_long) = match word(at)? {
            0 => return Some(Entry::Terminator),
            u32::MAX => (at + 12, usize::try_from(long(at + 4)?).ok()?, true),
            len => (at + 4, len as usize, false),
        };
        let end = start.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        let is_cie = match (self.which, is_long) {
            (CfiSection::EhFrame | CfiSection::EhFrameHdr, _) => word(start)? == 0,
            (CfiSection::DebugFrame, false) => word(start)? == u32::MAX,
            (CfiSection::DebugFrame, true) => long(start)? == u64::MAX,
        };
        Some(if is_cie { Entry::Cie { end } } else { Entry::Fde { end } })
    }

    fn fde(&mut self, at: usize, pool: &mut RecipePool, out: &mut Output<'_>) -> Result<(), CfiTrouble> {
        let section = self.section.clone();
        let partial = section.partial_fde_from_offset(self.bases, S::Offset::from(at)).map_err(CfiTrouble::Entry)?;
        let cie_at: usize = gimli::UnwindOffset::into(partial.cie_offset());
        let cie = self.cie(cie_at, pool)?;
        let fde = partial.parse(|_, _, _| Ok(cie.entry.clone())).map_err(CfiTrouble::Entry)?;
        let Some(code) = code_of(&fde)? else { return Ok(()) };
        let (LinkAddr(start), LinkAddr(end)) = (code.start, code.end);
        if !out.has_code(&code) {
            out.outside_code += 1;
            return Ok(());
        }
        let first_row = out.rows.len();
        let program = fde.instructions(&section, self.bases);
        let trouble = self.rows(Described { cie: &cie, program, code: start..end, at }, pool, out).err();
        let landing_table = match fde.lsda() {
            // A linker that has dropped the table leaves a 0, which counts from here.
            Some(Pointer::Direct(table)) => Some(LinkAddr(table)).filter(|table| !self.own_bytes().contains(table)),
            Some(Pointer::Indirect(_)) | None => None,
        };
        let lands_unseen = fde.personality().is_some() && !fde.cie().has_lsda();
        let rows = first_row..out.rows.len();
        out.ranges.push(FrameRange { section: self.which, offset: at as u64, code, rows, landing_table, lands_unseen });
        trouble.map_or(Ok(()), Err)
    }

    /// The CIE at an offset, read and run once.
    fn cie(&mut self, at: usize, pool: &mut RecipePool) -> Result<Rc<Cie<'a>>, CfiTrouble> {
        if let Some((last_at, cie)) = &self.last_cie
            && *last_at == at
        {
            return Ok(Rc::clone(cie));
        }
        let cie = match self.cies.get(&at) {
            Some(known) => known.clone(),
            None => {
                let read = self.read_cie(at, pool).map(Rc::new);
                self.cies.insert(at, read.clone());
                read
            }
        }?;
        self.last_cie = Some((at, Rc::clone(&cie)));
        Ok(cie)
    }

    fn read_cie(&mut self, at: usize, pool: &mut RecipePool) -> Result<Cie<'a>, CfiTrouble> {
        let entry = self.section.cie_from_offset(self.bases, S::Offset::from(at)).map_err(CfiTrouble::Entry)?;
        if entry.address_size() != 8 {
            return Err(CfiTrouble::Entry(gimli::Error::UnsupportedAddressSize(entry.address_size())));
        }
        let factors = Factors {
            code: entry.code_alignment_factor(),
            data: entry.data_alignment_factor(),
            return_address_column: entry.return_address_register().0,
        };
        // CIEs may overlap, so that what was read once is not all that is run.
        self.work_budget = self.work_budget.checked_sub(entry.entry_len()).ok_or(CfiTrouble::Work)?;
        self.remembered.clear();
        let mut machine = Machine {
            section: self.bytes,
            pool,
            remembered: &mut self.remembered,
            factors,
            initial: None,
            state: State::initial(),
            held: [None; Reg::COUNT],
            loss: None,
        };
        let mut program = entry.instructions(&self.section, self.bases);
        let fault = loop {
            match program.next() {
                Ok(None) => break None,
                Err(_) => break Some(Fault::Instruction),
                Ok(Some(instruction)) => match machine.execute(instruction) {
                    // A CIE has no addresses of its own.
                    Ok(Effect::Row | Effect::Advance(_) | Effect::SetLocation(_)) => {}
                    Err(fault) => break Some(fault),
                },
            }
        };
        let (initial, loss) = (machine.state, machine.loss);
        Ok(Cie { entry, factors, initial, fault, loss })
    }

    /// Runs an FDE's program. After a fault the rest of the range is unknown.
    fn rows(
        &mut self,
        described: Described<'_, 'a>,
        pool: &mut RecipePool,
        out: &mut Output<'_>,
    ) -> Result<(), CfiTrouble> {
        let Described { cie, mut program, code: range, at: fde_at } = described;
        let fde_rows = out.rows.len();
        let is_signal_frame = cie.entry.is_signal_trampoline();
        let trouble_at = |fault, at| match fault {
            Fault::Instruction => CfiTrouble::Instruction(LinkAddr(at)),
            Fault::Address => CfiTrouble::Address(LinkAddr(at)),
            Fault::States => CfiTrouble::States(LinkAddr(at)),
        };
        if let Some(fault) = cie.fault {
            out.push_row(fde_rows, range.start, RecipePool::UNKNOWN);
            return Err(trouble_at(fault, range.start));
        }
        self.remembered.clear();
        let mut machine = Machine {
            section: self.bytes,
            pool,
            remembered: &mut self.remembered,
            factors: cie.factors,
            initial: Some(&cie.initial),
            state: cie.initial.clone(),
            held: [None; Reg::COUNT],
            loss: cie.loss,
        };
        let mut start = range.start;
        let mut row_loss = None;
        let fault = loop {
            let effect = match program.next() {
                Ok(None) => Ok(None),
                Ok(Some(instruction)) => machine.execute(instruction).map(Some),
                Err(_) => Err(Fault::Instruction),
            };
            let next = match effect {
                Ok(Some(Effect::Row)) => continue,
                Ok(Some(Effect::Advance(0))) => continue,
                Ok(Some(Effect::Advance(by))) => start.checked_add(by).ok_or(Fault::Address),
                Ok(Some(Effect::SetLocation(to))) if to >= start => Ok(to),
                Ok(Some(Effect::SetLocation(_))) => Err(Fault::Address),
                Ok(None) => Ok(range.end),
                Err(fault) => Err(fault),
            };
            match next {
                Ok(next) => {
                    let end = next.min(range.end);
                    if start < end
                        && let Err(loss) =
                            emit(&mut machine, EndedRow { range: start..end, is_signal_frame, fde_rows }, out)
                    {
                        out.push_row(fde_rows, start, RecipePool::UNKNOWN);
                        row_loss = row_loss.or(Some((loss, start)));
                    }
                    if next >= range.end {
                        break None;
                    }
                    start = next;
                }
                Err(fault) => {
                    out.push_row(fde_rows, start, RecipePool::UNKNOWN);
                    break Some(fault);
                }
            }
        };
        let machine_loss = machine.loss;
        if let Some((loss, at)) = row_loss.or(machine_loss.map(|loss| (loss, range.start))) {
            let trouble = match loss {
                Loss::Cfa => CfiTrouble::Cfa(LinkAddr(at)),
                Loss::ReturnAddress => CfiTrouble::ReturnAddress(LinkAddr(at)),
                Loss::Register(column) => CfiTrouble::Register(column),
            };
            out.report(self.which, fde_at, trouble);
        }
        fault.map_or(Ok(()), |fault| Err(trouble_at(fault, start)))
    }
}

/// For fuzzing: `.eh_frame` and `.debug_frame` of any bytes give rows that hold together, without a panic, no more of
/// them than the bytes can account for.
#[doc(hidden)]
pub fn fuzz_call_frames(bytes: &[u8]) {
    let code = [LinkAddr(0x1000)..LinkAddr(0x9000), LinkAddr(0x40_0000)..LinkAddr(0x41_0000)];
    let frames = CallFrames::read(&CfiInput {
        eh_frame: Some((LinkAddr(0x2000), bytes)),
        eh_frame_is_unbounded: bytes.first().is_some_and(|byte| byte & 1 != 0),
        debug_frame: Some(bytes),
        text: Some(LinkAddr(0x1000)),
        got: Some(LinkAddr(0x40_0000)),
        code: &code,
        index: &[IndexRow { start: LinkAddr(0x1000), entry: bytes.len() as u64 / 2, offset: 12 }],
    });
    frames.assert_sound();
    assert!(frames.rows.len() as u64 <= 2 * bytes.len() as u64 + code_bytes(&code) / PC_ROW_BYTES);
}

impl CallFrames {
    /// Panics unless rows and recipes are as their descriptions say.
    fn assert_sound(&self) {
        let mut next = 0;
        for range in &self.ranges {
            assert!(range.code.start < range.code.end);
            assert_eq!(range.rows.start, next);
            next = range.rows.end;
            let rows = self.rows_of(range);
            assert_eq!(rows.first().map(|row| row.start), Some(range.code.start));
            assert!(rows.is_sorted_by(|a, b| a.start < b.start && a.recipe != b.recipe));
            assert!(rows.iter().all(|row| range.code.contains(&row.start)));
            assert!(rows.iter().all(|row| (row.recipe as usize) < self.recipes.len()));
        }
        assert_eq!(next, self.rows.len());
        assert_eq!(self.recipes.first(), Some(&Recipe::UNKNOWN));
    }
}
