//! The DWARF sections of an image, decompressed once, in gimli's terms.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

use crate::elf::Image;
use crate::error::ImageError;
use crate::headers::SectionHeader;

/// How gimli sees bytes.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The sections that lines and scopes need. Of what is not named here, expression and macro sections for example,
/// nothing is decompressed.
const NEEDED: [SectionId; 11] = [
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
    SectionId::DebugTypes,
];

/// What split information (`.dwo`, `.dwp`) consists of, under names of its own. A package is refused as a whole where a
/// section that its index names is missing.
const NEEDED_OF_SPLIT: [SectionId; 13] = [
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
    SectionId::DebugTypes,
];

/// The file that an entry stands in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Home {
    Main,
    /// What dwz moved out, in `.gnu_debugaltlink`'s file.
    Supplement,
    /// The `.dwo` of the unit that is being read.
    Split,
}

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
        let mut loaded = DwarfSections::load_named(image, NEEDED.map(|id| (id, id.name())));
        loaded.supplement = supplement.map(|supplement| Box::new(DwarfSections::load(supplement, None)));
        loaded
    }

    /// The same for a `.dwo` or `.dwp` file.
    pub(crate) fn load_split(image: Arc<Image>) -> DwarfSections {
        let names = NEEDED_OF_SPLIT.iter().filter_map(|id| Some((*id, id.dwo_name()?)));
        DwarfSections::load_named(image, names)
    }

    fn load_named(image: Arc<Image>, names: impl IntoIterator<Item = (SectionId, &'static str)>) -> DwarfSections {
        let mut sections = Vec::new();
        let mut unreadable = Vec::new();
        for (id, name) in names {
            let is_it = |header: &&SectionHeader| header.has_bytes() && is_named(&header.name, name);
            let Some(header) = image.section_headers().iter().find(is_it) else { continue };
            match image.section_data(header) {
                Some(Cow::Borrowed(data)) => {
                    let start = header.offset as usize;
                    sections.push((id, Location::InImage(start..start + data.len())));
                }
                Some(Cow::Owned(data)) => sections.push((id, Location::Decompressed(data))),
                None => unreadable.push(id),
            }
        }
        DwarfSections { image, sections, unreadable, supplement: None }
    }

    /// Sections that are there and cannot be read.
    pub(crate) fn diagnostics(&self, path: &Path) -> Vec<ImageError> {
        let unreadable = self.unreadable.iter().map(|id| {
            let headers = self.image.section_headers().iter();
            let offset = headers.filter(|header| is_named(&header.name, id.name())).map(|header| header.offset).next();
            let why = "it lies outside the file or cannot be decompressed".to_string();
            ImageError::Malformed { path: path.to_path_buf(), what: id.name(), offset: offset.unwrap_or(0), why }
        });
        unreadable.collect()
    }

    /// All bytes together, a measure of how much a sound file can say.
    pub(crate) fn total_len(&self) -> usize {
        self.sections.iter().map(|(_, location)| self.bytes(location).len()).sum()
    }

    /// What the bytes were read from.
    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The sections of `.gnu_debugaltlink`'s file.
    pub(crate) fn supplement(&self) -> Option<&DwarfSections> {
        self.supplement.as_deref()
    }

    /// A section's bytes, empty where there is none.
    pub(crate) fn section(&self, id: SectionId) -> Reader<'_> {
        let location = self.sections.iter().find(|(found, _)| *found == id).map(|(_, location)| location);
        EndianSlice::new(location.map_or(&[][..], |location| self.bytes(location)), LittleEndian)
    }

    /// A view; making one costs nothing.
    pub(crate) fn dwarf(&self) -> Dwarf<Reader<'_>> {
        let mut dwarf = self.dwarf_of_this_file();
        if let Some(supplement) = &self.supplement {
            dwarf.set_sup(supplement.dwarf_of_this_file());
        }
        dwarf
    }

    pub(crate) fn dwarf_of_this_file(&self) -> Dwarf<Reader<'_>> {
        let Ok(dwarf) = Dwarf::load(|id| Ok::<_, Infallible>(self.section(id)));
        dwarf
    }

    fn bytes<'a>(&'a self, location: &'a Location) -> &'a [u8] {
        match location {
            Location::InImage(range) => self.image.bytes().get(range.clone()).unwrap_or(&[]),
            Location::Decompressed(bytes) => bytes,
        }
    }
}

/// `.debug_info`, or `.zdebug_info` as it was compressed before ELF had a flag for it.
pub(crate) fn is_named(found: &str, name: &str) -> bool {
    let old = || Some(found.strip_prefix(".z")? == name.strip_prefix('.')?);
    found == name || old().unwrap_or(false)
}
