//! Separate debug files: found by build-id or by link, taken only if they belong to the same build.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bytes::Bytes;
use crate::crc32::crc32;
use crate::elf::Image;
use crate::error::ImageError;
use crate::identity::hex;

/// Where distributions put debug files.
pub const DEFAULT_ROOT: &str = "/usr/lib/debug";

/// What was found for an image.
#[derive(Debug, Default)]
pub struct DebugFiles {
    /// The debug file of the same build.
    pub debug_file: Option<Image>,
    /// What that, or the image itself, shares with others (`.gnu_debugaltlink`, made by dwz).
    pub supplement: Option<Image>,
    /// Files that were found and not taken, and why; what else is missing.
    pub diagnostics: Vec<ImageError>,
}

impl DebugFiles {
    /// Looks below each of `roots` by build-id (`.build-id/ab/cdef.debug`), then for the image's debug link: beside the
    /// image, in `.debug/` there, and below each root.
    pub fn find(image: &Image, roots: &[PathBuf]) -> DebugFiles {
        let mut found = DebugFiles::default();
        found.debug_file = found.by_build_id(image, roots).or_else(|| found.by_link(image, roots));
        let with_dwarf = found.debug_file.as_ref().unwrap_or(image);
        let (supplement, mut diagnostics) = supplement(with_dwarf, roots);
        found.supplement = supplement;
        found.diagnostics.append(&mut diagnostics);
        if found.debug_file.is_none() && image.section(".gnu_debugdata").is_some() {
            found.diagnostics.push(ImageError::MiniDebugSymbols { path: image.origin().to_path_buf() });
        }
        found
    }

    fn by_build_id(&mut self, image: &Image, roots: &[PathBuf]) -> Option<Image> {
        let build_id = image.build_id()?;
        roots.iter().find_map(|root| self.take(image, &root.join(build_id_path(build_id)?), None))
    }

    fn by_link(&mut self, image: &Image, roots: &[PathBuf]) -> Option<Image> {
        let link = image.section(".gnu_debuglink")?;
        let name_len = link.data.iter().position(|&byte| byte == 0)?;
        // A name with a directory in it would lead anywhere.
        let name = link.data.get(..name_len).filter(|name| !name.is_empty() && !name.contains(&b'/'))?;
        let crc = link.data.u32_at((name_len as u64 + 1).next_multiple_of(4))?;
        let origin = image.origin().canonicalize().unwrap_or_else(|_| image.origin().to_path_buf());
        let dir = origin.parent()?;
        let name = Path::new(OsStr::from_bytes(name));
        let below_roots = roots.iter().map(|root| root.join(dir.strip_prefix("/").unwrap_or(dir)).join(name));
        let candidates = [dir.join(name), dir.join(".debug").join(name)].into_iter().chain(below_roots);
        candidates.filter(|path| *path != origin).find_map(|path| self.take(image, &path, Some(crc)))
    }

    /// Reads a candidate and takes it if it is there and of the image's build.
    fn take(&mut self, image: &Image, path: &Path, crc: Option<u32>) -> Option<Image> {
        if !path.is_file() {
            return None;
        }
        let candidate = match Image::read(path) {
            Ok(candidate) => candidate,
            Err(error) => {
                self.diagnostics.push(error);
                return None;
            }
        };
        let differs =
            |what| ImageError::OtherBuild { path: path.to_path_buf(), of: image.origin().to_path_buf(), why: what };
        if let (Some(wanted), Some(found)) = (image.build_id(), candidate.build_id())
            && wanted != found
        {
            self.diagnostics.push(differs(format!("its build-id is {} instead of {}", hex(found), hex(wanted))));
            return None;
        }
        match crc {
            None if candidate.build_id().is_none() => {
                self.diagnostics.push(differs("it has no build-id".to_string()));
                None
            }
            Some(wanted) if crc32(candidate.bytes()) != wanted => {
                self.diagnostics.push(differs(format!("its checksum is not {wanted:08x}")));
                None
            }
            _ => Some(candidate),
        }
    }
}

/// The file that `.gnu_debugaltlink` names: by build-id below the roots, else by its path.
fn supplement(image: &Image, roots: &[PathBuf]) -> (Option<Image>, Vec<ImageError>) {
    let mut diagnostics = Vec::new();
    let Some(link) = image.section(".gnu_debugaltlink") else { return (None, diagnostics) };
    let Some(name_len) = link.data.iter().position(|&byte| byte == 0) else { return (None, diagnostics) };
    let (name, build_id) = link.data.split_at(name_len);
    let build_id = build_id.get(1..).unwrap_or(&[]);
    let dir = image.origin().parent().unwrap_or(Path::new("/"));
    let by_build_id = roots.iter().filter_map(|root| Some(root.join(build_id_path(build_id)?)));
    let by_name = dir.join(OsStr::from_bytes(name));
    for path in by_build_id.chain([by_name.clone()]).filter(|path| path.is_file()) {
        match Image::read_unloaded(&path) {
            Ok(found) if found.build_id() == Some(build_id) => return (Some(found), diagnostics),
            Ok(_) => diagnostics.push(ImageError::OtherBuild {
                path,
                of: image.origin().to_path_buf(),
                why: format!("its build-id is not {}", hex(build_id)),
            }),
            Err(error) => diagnostics.push(error),
        }
    }
    diagnostics.push(ImageError::NoSupplement { path: image.origin().to_path_buf(), supplement: by_name });
    (None, diagnostics)
}

/// `.build-id/ab/cdef.debug`.
fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    if rest.is_empty() || build_id.len() > 64 {
        return None;
    }
    Some(PathBuf::from(format!(".build-id/{first:02x}/{}.debug", hex(rest))))
}
