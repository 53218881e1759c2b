//! What distinguishes one build of a module from another.
//! Two files of the same identity are the same module, whatever their paths.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::error::ImageError;

/// Bytes of a file that are read at once.
const BLOCK_BYTES: usize = 256 << 10;

/// A module's identity: by it profiles of different processes, hosts and runs are put together.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ModuleIdentity {
    /// What the linker gave it, usually 20 bytes.
    BuildId(Vec<u8>),
    /// Where it gave none: XXH3-128 of the whole file.
    Content(u128),
}

impl ModuleIdentity {
    /// The identity as bytes: the build-id itself, or the 16 bytes of the hash, big-endian as XXH3's canonical form.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            ModuleIdentity::BuildId(build_id) => build_id.clone(),
            ModuleIdentity::Content(hash) => hash.to_be_bytes().to_vec(),
        }
    }
}

impl fmt::Display for ModuleIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleIdentity::BuildId(build_id) => write!(f, "build-id {}", hex(build_id)),
            ModuleIdentity::Content(hash) => write!(f, "content hash {hash:032x}"),
        }
    }
}

impl ModuleIdentity {
    /// By the content of the file at `path`, which is read piece by piece.
    pub fn of_content(path: &Path) -> Result<ModuleIdentity, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_path_buf(), source };
        let mut file = File::open(path).map_err(failed)?;
        let (mut hash, mut block) = (Xxh3::new(), vec![0; BLOCK_BYTES]);
        loop {
            match file.read(&mut block) {
                Ok(0) => return Ok(ModuleIdentity::Content(hash.digest128())),
                Ok(len) => hash.update(&block[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Lower-case hexadecimal digits, as file names and tools show a build-id.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Image;

    #[test]
    fn content_is_the_same_read_at_once_and_piece_by_piece() {
        let path = std::env::current_exe().unwrap();
        let image = Image::read(&path).unwrap();
        assert!(image.file_len() > 2 * BLOCK_BYTES as u64);
        assert_eq!(ModuleIdentity::of_content(&path).unwrap(), ModuleIdentity::Content(image.content_identity()));
        assert!(ModuleIdentity::of_content(Path::new("/nothing")).is_err());
    }
}
