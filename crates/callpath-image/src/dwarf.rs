//! The DWARF sections of an image, decompressed once, in gimli's terms.
//! Knows nothing of what is asked of them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

use crate::elf::Image;
use crate::error::ImageError;

/// How gimli sees bytes.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The sections that lines need. Of what is not named here, expression and macro sections for example, nothing is
/// decompressed.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// An image's DWARF.
pub(crate) struct DwarfSections {
    image: Arc<Image>,
    sections: Vec<(SectionId, Location)>,
    unreadable: Vec<SectionId>,
    supplement: Option<Box<DwarfSections>>,
}

/// Where a section's bytes are.
enum Location {
    /// In the image itself: a range of the file.
    InImage(Range<usize>),
    Decompressed(Vec<u8>),
}

impl DwarfSections {
    /// Decompresses what is compressed.
    pub(crate) fn load(image: Arc<Image>, supplement: Option<Arc<Image>>) -> DwarfSections {
        let mut sections = Vec::new();
        let mut unreadable = Vec::new();
        for id in NEEDED {
            let header = image.section_headers().iter().find(|header| header.name == id.name() && header.has_bytes());
            let Some(header) = header else { continue };
            match image.section_data(header) {
                Some(Cow::Borrowed(data)) => {
                    let start = header.offset as usize;
                    sections.push((id, Location::InImage(start..start + data.len())));
                }
                Some(Cow::Owned(data)) => sections.push((id, Location::Decompressed(data))),
                None => unreadable.push(id),
            }
        }
        let supplement = supplement.map(|supplement| Box::new(DwarfSections::load(supplement, None)));
        DwarfSections { image, sections, unreadable, supplement }
    }

    /// Sections that are there and cannot be read.
    pub(crate) fn diagnostics(&self, path: &Path) -> Vec<ImageError> {
        let unreadable = self.unreadable.iter().map(|id| {
            let headers = self.image.section_headers().iter();
            let offset = headers.filter(|header| header.name == id.name()).map(|header| header.offset).next();
            let why = "it lies outside the file or cannot be decompressed".to_string();
            ImageError::Malformed { path: path.to_path_buf(), what: id.name(), offset: offset.unwrap_or(0), why }
        });
        unreadable.collect()
    }

    /// All bytes together, a measure of how much a sound file can say.
    pub(crate) fn total_len(&self) -> usize {
        self.sections.iter().map(|(_, location)| self.bytes(location).len()).sum()
    }

    /// A view; making one costs nothing.
    pub(crate) fn dwarf(&self) -> Dwarf<Reader<'_>> {
        let mut dwarf = self.dwarf_of_this_file();
        if let Some(supplement) = &self.supplement {
            dwarf.set_sup(supplement.dwarf_of_this_file());
        }
        dwarf
    }

    fn dwarf_of_this_file(&self) -> Dwarf<Reader<'_>> {
        let section = |id| {
            let location = self.sections.iter().find(|(found, _)| *found == id).map(|(_, location)| location);
            let bytes = location.map_or(&[][..], |location| self.bytes(location));
            Ok::<_, Infallible>(EndianSlice::new(bytes, LittleEndian))
        };
        let Ok(dwarf) = Dwarf::load(section);
        dwarf
    }

    fn bytes<'a>(&'a self, location: &'a Location) -> &'a [u8] {
        match location {
            Location::InImage(range) => self.image.bytes().get(range.clone()).unwrap_or(&[]),
            Location::Decompressed(bytes) => bytes,
        }
    }
}
