//! Call frame information that a program writes of its generated code, into a jitdump. It is untrusted bytes, and is used for
//! code of which the bytes themselves show no frame; of nothing but the code it was written of.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::recipe::{Expression, Recipe};
use callpath_image::cfi::{CallFrames, CfiInput};

/// How much is kept for all procedures, bytes. If there is more, all but the newest is forgotten.
const MOST_BYTES: usize = 128 << 20;
/// What a description becomes when it is read takes at most so many times its bytes: a row and a recipe for three of them.
const READ_OVER_WRITTEN: usize = 100;
/// The longest description, bytes.
const MOST_OF_ONE_BYTES: usize = 256 << 10;
/// The longest code that is described, bytes: each walk that meets it compares it.
pub(crate) const MOST_CODE_BYTES: u64 = 1 << 20;

/// What a process has described of its generated code.
#[derive(Default)]
pub(crate) struct JitFrames {
    /// By start; they do not overlap.
    procedures: BTreeMap<u64, Described>,
    /// How much they take, bytes.
    len_bytes: usize,
}

/// A record that precedes the code it describes (`JIT_CODE_UNWINDING_INFO`).
#[derive(Default, Debug)]
pub(crate) struct Description {
    /// `.eh_frame` and `.eh_frame_hdr`. perf and V8 put the latter behind the former, the specification before it.
    pub(crate) bytes: Vec<u8>,
    /// How much of that is `.eh_frame_hdr`, bytes.
    pub(crate) header_bytes: usize,
}

/// A procedure of generated code whose frames the program has described.
pub(crate) struct Described {
    code: Range<RunAddr>,
    /// Its bytes when it was described.
    bytes: Vec<u8>,
    description: Description,
    /// What the description says, once it has been asked for.
    frames: OnceCell<CallFrames>,
}

impl Description {
    /// What a record's body says. `None`: it is cut, or too long.
    pub(crate) fn new(body: &[u8]) -> Option<Description> {
        const NUMBERS_BYTES: usize = 24;
        let number = |at: usize| body.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (len, header_bytes) = (usize::try_from(number(0)?).ok()?, usize::try_from(number(8)?).ok()?);
        let bytes = body.get(NUMBERS_BYTES..)?.get(..len)?;
        (header_bytes < len && len <= MOST_OF_ONE_BYTES).then(|| Description { bytes: bytes.to_vec(), header_bytes })
    }

    /// The longest body of a record that is read, bytes.
    pub(crate) const MOST_BODY_BYTES: u64 = MOST_OF_ONE_BYTES as u64 + 32;

    /// What it says of code. It is linked to lie behind the code, at the next multiple of eight bytes.
    fn frames_of(&self, code: &Range<RunAddr>) -> CallFrames {
        let len_bytes = code.end.0.saturating_sub(code.start.0);
        let at = code.start.0.saturating_add(len_bytes.next_multiple_of(8));
        let header = self.header_bytes.min(self.bytes.len());
        let places = [(at, 0..self.bytes.len() - header), (at.saturating_add(header as u64), header..self.bytes.len())];
        let code = [code.start.to_link(0)..code.end.to_link(0)];
        for (at, place) in places {
            let eh_frame = self.bytes.get(place).map(|bytes| (LinkAddr(at), bytes));
            let frames = CallFrames::read(&CfiInput { eh_frame, code: &code, ..CfiInput::default() });
            let is_of_it = |range: &Range<LinkAddr>| range.start == code[0].start && range.end <= code[0].end;
            if !frames.ranges.is_empty() && frames.ranges.iter().all(|range| is_of_it(&range.code)) {
                return frames;
            }
        }
        CallFrames::default()
    }
}

impl JitFrames {
    /// New code at an address, of these bytes. What was known of the same addresses holds no more.
    pub(crate) fn load(&mut self, start: u64, bytes: Vec<u8>, description: Description) {
        let code = start..start.saturating_add(bytes.len() as u64);
        self.forget(&code);
        let described =
            Described { code: RunAddr(code.start)..RunAddr(code.end), bytes, description, frames: OnceCell::new() };
        if self.len_bytes + described.len_bytes() > MOST_BYTES {
            *self = JitFrames::default();
        }
        if !code.is_empty() {
            self.len_bytes += described.len_bytes();
            self.procedures.insert(start, described);
        }
    }

    /// Code that has been moved, or written over.
    pub(crate) fn forget(&mut self, code: &Range<u64>) {
        let below = self.procedures.range(..code.end).rev().take_while(|(_, known)| known.code.end.0 > code.start);
        let overlapped: Vec<u64> = below.map(|(start, _)| *start).collect();
        for known in overlapped.iter().filter_map(|start| self.procedures.remove(start)) {
            self.len_bytes -= known.len_bytes();
        }
    }

    /// For a fuzzer: asks for the recipe at each instruction.
    pub(crate) fn ask_all(&self) {
        for described in self.procedures.values() {
            for at in (described.code.start.0..described.code.end.0).take(1 << 10) {
                described.recipe(CodePoint::Exact(RunAddr(at)));
            }
        }
    }

    /// The procedure at a point.
    pub(crate) fn at(&self, point: CodePoint) -> Option<&Described> {
        let addr = point.lookup();
        let (_, found) = self.procedures.range(..=addr.0).next_back()?;
        found.code.contains(&addr).then_some(found)
    }
}

impl Described {
    /// Where it lies.
    pub(crate) fn code(&self) -> Range<RunAddr> {
        self.code.clone()
    }

    /// Its bytes when it was described.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn len_bytes(&self) -> usize {
        self.bytes.len() + READ_OVER_WRITTEN * self.description.bytes.len() + size_of::<Described>()
    }

    /// The recipe at a point in it.
    pub(crate) fn recipe(&self, point: CodePoint) -> Option<&Recipe> {
        let frames = self.frames.get_or_init(|| self.description.frames_of(&self.code));
        let at = point.lookup().to_link(0);
        let range = frames.ranges.iter().find(|range| range.code.contains(&at))?;
        let row = frames.rows_of(range).iter().rfind(|row| row.start <= at)?;
        frames.recipes.get(row.recipe as usize)
    }

    /// The bytes of an expression of its recipes.
    pub(crate) fn expression(&self, expression: Expression) -> Option<&[u8]> {
        let start = expression.start as usize;
        self.frames.get()?.expressions.get(start..start.checked_add(usize::from(expression.len))?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use callpath_format::recipe::Cfa;
    use callpath_format::register::Reg;

    /// An `.eh_frame` for code of `len` bytes that lies `back` bytes before it: CFA = rsp + 8, from the fifth byte on rsp + 48.
    fn eh_frame(len: u32, back: u32) -> Vec<u8> {
        let cie = [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
        let begin = 0_u32.wrapping_sub(back + 32);
        let fde = [&[20, 0, 0, 0, 28, 0, 0, 0][..], &begin.to_le_bytes(), &len.to_le_bytes(), &[0, 0x44, 0x0e, 48]];
        [&cie[..], &fde.concat(), &[0; 4]].concat()
    }

    /// The body of a record that describes code of `len` bytes.
    pub(crate) fn body(len: u32, header_first: bool) -> Vec<u8> {
        let header = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0];
        let behind = len.next_multiple_of(8);
        let frame = eh_frame(len, if header_first { behind + header.len() as u32 } else { behind });
        let data = if header_first { [&header[..], &frame].concat() } else { [&frame[..], &header].concat() };
        let numbers = [data.len() as u64, header.len() as u64, 0].map(u64::to_le_bytes).concat();
        [numbers, data].concat()
    }

    fn cfa_at(frames: &JitFrames, addr: u64) -> Option<Cfa> {
        let point = CodePoint::Exact(RunAddr(addr));
        Some(frames.at(point)?.recipe(point)?.cfa)
    }

    fn rsp(disp: i32) -> Option<Cfa> {
        Some(Cfa::Register { reg: Reg::RSP, disp })
    }

    #[test]
    fn recipes_of_both_orders() {
        for header_first in [false, true] {
            let mut frames = JitFrames::default();
            let description = Description::new(&body(21, header_first)).unwrap();
            frames.load(0x7000_0010, vec![0x90; 21], description);
            let at = |offset: u64| cfa_at(&frames, 0x7000_0010 + offset);
            assert_eq!((at(0), at(3), at(4), at(20)), (rsp(8), rsp(8), rsp(48), rsp(48)), "{header_first}");
            assert_eq!((at(21), cfa_at(&frames, 0x7000_000f)), (None, None));
        }
    }

    #[test]
    fn code_that_is_written_over_is_described_no_more() {
        let mut frames = JitFrames::default();
        let load = |frames: &mut JitFrames, start: u64| {
            frames.load(start, vec![0x90; 24], Description::new(&body(24, false)).unwrap());
        };
        load(&mut frames, 0x1000);
        load(&mut frames, 0x1018);
        load(&mut frames, 0x1040);
        frames.forget(&(0x1017..0x1019));
        let known = [0x1000, 0x1018, 0x1040].map(|start| cfa_at(&frames, start + 4).is_some());
        assert_eq!((known, frames.procedures.len()), ([false, false, true], 1));
        frames.forget(&(0..u64::MAX));
        assert_eq!(frames.len_bytes, 0);
    }

    #[test]
    fn what_does_not_describe_the_code_says_nothing() {
        // Of longer code than there is, and of other code.
        for len in [40, 16] {
            let mut frames = JitFrames::default();
            frames.load(0x1000, vec![0x90; 32], Description::new(&body(len, false)).unwrap());
            assert_eq!(cfa_at(&frames, 0x1004), None, "{len}");
        }
        // Cut, all header, too long.
        let whole = body(24, false);
        assert!(Description::new(&whole[..whole.len() - 1]).is_none());
        let mut header_alone = whole.clone();
        header_alone.copy_within(..8, 8);
        assert!(Description::new(&header_alone).is_none());
        let len = MOST_OF_ONE_BYTES as u64 + 1;
        let numbers = [len, 8, 0].map(u64::to_le_bytes).concat();
        assert!(Description::new(&[numbers, vec![0; len as usize]].concat()).is_none());
    }
}
