//! Which entry of `.eh_frame` speaks of which code, without what it says: so that a part of a
//! large module's code can be read by itself.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use gimli::{EhFrame, LittleEndian};

use super::pool::RecipePool;
use super::{CallFrames, CfiInput, CfiSection, CfiTrouble, Entry, Output, SectionReader, Slice, code_of};
use crate::elf::Image;

/// The code that one FDE of `.eh_frame` speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameEntry {
    /// Never empty.
    pub code: Range<LinkAddr>,
    /// The FDE's offset, bytes.
    offset: usize,
}

/// The FDEs of `.eh_frame`.
#[derive(Clone, Debug)]
pub struct FrameEntries {
    /// By where their code begins; of those that begin together, in the order of the section.
    entries: Vec<FrameEntry>,
    longest_bytes: u64,
}

impl FrameEntries {
    /// All of them; `None` if there is no `.eh_frame`, or anything in it is odd.
    pub fn of_image(image: &Image) -> Option<FrameEntries> {
        let input = CfiInput::of_eh_frame(image, &[]);
        let (_, bytes) = input.eh_frame.filter(|_| !input.eh_frame_is_unbounded)?;
        let bases = input.bases();
        let mut reader = SectionReader::new(EhFrame::new(bytes, LittleEndian), bytes, CfiSection::EhFrame, &bases);
        let mut pool = RecipePool::new();
        let (mut entries, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            at = match reader.entry_at(at)? {
                Entry::Terminator => at + 4,
                Entry::Cie { end } => end,
                Entry::Fde { end } => {
                    if let Some(code) = reader.code_at(at, &mut pool).ok()? {
                        entries.push(FrameEntry { code, offset: at });
                    }
                    end
                }
            };
        }
        entries.sort_by_key(|entry| entry.code.start);
        let longest_bytes = entries.iter().map(|entry| entry.code.end.0 - entry.code.start.0).max().unwrap_or(0);
        Some(FrameEntries { entries, longest_bytes })
    }

    /// By where their code begins.
    pub fn all(&self) -> &[FrameEntry] {
        &self.entries
    }

    /// Those that speak of any of `code`.
    pub fn of(&self, code: &Range<LinkAddr>) -> impl Iterator<Item = &FrameEntry> {
        let earliest = code.start.0.saturating_sub(self.longest_bytes);
        let first = self.entries.partition_point(|entry| entry.code.start.0 < earliest);
        let end = code.end;
        let from = code.start;
        let begun = self.entries.get(first..).unwrap_or(&[]).iter().take_while(move |entry| entry.code.start < end);
        begun.filter(move |entry| entry.code.end > from)
    }
}

impl CallFrames {
    /// What `.eh_frame` of the image that `entries` are of says of `code`: the same as all of it does.
    pub fn of_entries(image: &Image, entries: &FrameEntries, code: &Range<LinkAddr>) -> CallFrames {
        let code = std::slice::from_ref(code);
        let input = CfiInput::of_eh_frame(image, code);
        let Some((_, bytes)) = input.eh_frame else { return CallFrames::default() };
        let bases = input.bases();
        let mut reader = SectionReader::new(EhFrame::new(bytes, LittleEndian), bytes, CfiSection::EhFrame, &bases);
        let (mut pool, mut out) = (RecipePool::new(), Output::new(code));
        let mut offsets: Vec<usize> = entries.of(&code[0]).map(|entry| entry.offset).collect();
        offsets.sort_unstable();
        for at in offsets {
            if let Err(trouble) = reader.fde(at, &mut pool, &mut out) {
                out.report(CfiSection::EhFrame, at, trouble);
            }
        }
        out.finish(pool)
    }
}

impl<'a> SectionReader<'a, '_, EhFrame<Slice<'a>>> {
    /// The code that the FDE at an offset speaks of.
    fn code_at(&mut self, at: usize, pool: &mut RecipePool) -> Result<Option<Range<LinkAddr>>, CfiTrouble> {
        let section = self.section;
        let partial = gimli::UnwindSection::partial_fde_from_offset(&section, self.bases, at.into());
        let partial = partial.map_err(CfiTrouble::Entry)?;
        let cie = self.cie(partial.cie_offset().0, pool)?;
        let fde = partial.parse(|_, _, _| Ok(cie.entry.clone())).map_err(CfiTrouble::Entry)?;
        code_of(&fde)
    }
}
