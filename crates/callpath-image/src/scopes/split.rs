//! Where the entries of a split unit are: in a `.dwo` file, or in the `.dwp` beside the program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Dwarf, DwarfFileType, DwarfPackage, DwoId, EndianSlice, LittleEndian, UnitType};

use super::module_dwarf::{ModuleDwarf, UnitExtent};
use super::root::{UnitRoot, read_root};
use crate::dwarf::{DwarfSections, Home, Reader};
use crate::elf::Image;
use crate::error::ImageError;

/// How many units are asked whether they are skeletons, where only their first entry shows it.
const ASKED: usize = 64;

/// All split units of a program in one file.
pub(super) struct Package {
    sections: DwarfSections,
}

/// Whether some units are split: DWARF 5 says so in their headers, DWARF 4 with GNU's extension in their first entry.
pub(super) fn any_skeletons(main: &DwarfSections, headers: &[UnitExtent]) -> bool {
    let dwarf = main.dwarf_of_this_file();
    let is_skeleton = |extent: &UnitExtent| {
        let header = dwarf.debug_info.header_from_offset(gimli::DebugInfoOffset(extent.start)).ok()?;
        if matches!(header.type_(), UnitType::Skeleton(_)) {
            return Some(true);
        }
        let abbreviations = dwarf.debug_abbrev.abbreviations(header.debug_abbrev_offset()).ok()?;
        Some(read_root(&dwarf, Home::Main, header, Arc::new(abbreviations)).ok()?.dwo_name.is_some())
    };
    headers.iter().filter(|extent| extent.compiles).take(ASKED).any(|extent| is_skeleton(extent).unwrap_or(false))
}

impl Package {
    /// Looks for `program.dwp`.
    pub(super) fn find<'p>(
        programs: impl Iterator<Item = &'p Path>,
        diagnostics: &mut Vec<ImageError>,
    ) -> Option<Package> {
        for program in programs {
            let mut name = program.as_os_str().to_owned();
            name.push(".dwp");
            let path = PathBuf::from(name);
            if !path.is_file() {
                continue;
            }
            match Image::read_unloaded(&path) {
                Ok(image) => return Some(Package { sections: DwarfSections::load_split(Arc::new(image)) }),
                Err(error) => diagnostics.push(error),
            }
        }
        None
    }
}

/// The sections of a split unit.
pub(super) struct SplitSections<'s> {
    own: Option<DwarfSections>,
    package: Option<&'s Package>,
    id: DwoId,
}

impl<'s> SplitSections<'s> {
    /// Finds where the entries of `skeleton` are. `None` if it is a whole unit;
    /// why they are not there, if they are not.
    pub(super) fn find(module: &'s ModuleDwarf, skeleton: &UnitRoot<'_>) -> Option<Result<SplitSections<'s>, String>> {
        let name = skeleton.dwo_name?;
        let Some(id) = skeleton.unit.dwo_id else {
            return Some(Err("it is split, and has no number to find its other half by".to_string()));
        };
        if let Some(package) = &module.package
            && package.holds(id)
        {
            return Some(Ok(SplitSections { own: None, package: Some(package), id }));
        }
        let name = Path::new(OsStr::from_bytes(name.slice()));
        let comp_dir = skeleton.unit.comp_dir.map(|dir| Path::new(OsStr::from_bytes(dir.slice())).to_path_buf());
        let beside = module.main.image().origin().parent().map(Path::to_path_buf).unwrap_or_default();
        let mut candidates = vec![comp_dir.unwrap_or_default().join(name), beside.join(name)];
        candidates.extend(name.file_name().map(|name| beside.join(name)));
        let Some(path) = candidates.iter().find(|path| path.is_file()) else {
            let [path, ..] = &candidates[..] else { return None };
            return Some(Err(format!("it is split, and {} is not there", path.display())));
        };
        Some(match Image::read_unloaded(path) {
            Ok(image) => {
                let own = Some(DwarfSections::load_split(Arc::new(image)));
                Ok(SplitSections { own, package: None, id })
            }
            Err(error) => Err(format!("it is split: failed to {error}")),
        })
    }

    /// The view of them.
    pub(super) fn dwarf<'a>(&'a self, main: &Dwarf<Reader<'a>>) -> Result<Option<Dwarf<Reader<'a>>>, gimli::Error> {
        if let Some(own) = &self.own {
            let mut dwarf = own.dwarf_of_this_file();
            dwarf.make_dwo(main);
            return Ok(Some(dwarf));
        }
        let Some(package) = self.package else { return Ok(None) };
        package.view()?.find_cu(self.id, main)
    }

    /// The unit with the number of the skeleton.
    pub(super) fn root<'a>(
        &self,
        module: &ModuleDwarf,
        dwarf: &Dwarf<Reader<'a>>,
        skeleton: &UnitRoot<'a>,
    ) -> Result<Rc<UnitRoot<'a>>, String> {
        debug_assert!(dwarf.file_type == DwarfFileType::Dwo);
        let mut headers = dwarf.units();
        let broken = |error: gimli::Error| format!("it is split, and its other half cannot be read: {error}");
        while let Some(header) = headers.next().map_err(broken)? {
            if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
                continue;
            }
            let offset = header.debug_abbrev_offset();
            let abbreviations = module.abbreviations(Home::Split, dwarf, offset).map_err(broken)?;
            let mut root = read_root(dwarf, Home::Split, header, abbreviations).map_err(broken)?;
            if root.unit.dwo_id == Some(self.id) {
                root.unit.copy_relocated_attributes(&skeleton.unit);
                root.unit.comp_dir = root.unit.comp_dir.or(skeleton.unit.comp_dir);
                return Ok(Rc::new(root));
            }
        }
        Err(format!("it is split, and its other half is of another build: no unit has the number {:#018x}", self.id.0))
    }
}

impl Package {
    fn view(&self) -> Result<DwarfPackage<Reader<'_>>, gimli::Error> {
        DwarfPackage::load(|id| Ok::<_, gimli::Error>(self.sections.section(id)), EndianSlice::new(&[], LittleEndian))
    }

    fn holds(&self, id: DwoId) -> bool {
        self.view().is_ok_and(|view| view.cu_index.find(id.0).is_some())
    }
}
