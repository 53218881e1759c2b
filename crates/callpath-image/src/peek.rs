//! What a file that is about to be executed is, from its first bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::abi;

use crate::bytes::Bytes;

use crate::error::ImageError;
use crate::headers::Header;

/// How much is read at first. A script's first line and a linker's program headers fit.
const HEAD_LEN: u64 = 4096;

/// What `execve` would make of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ElfPeek {
    /// Neither ELF nor a script that names its interpreter.
    NotElf,
    /// Begins with `#!`.
    Script {
        /// The program that would be executed.
        interpreter: PathBuf,
        /// The rest of the line, one argument, without blanks around it.
        argument: Option<String>,
    },
    /// A 32-bit ELF file.
    Elf32,
    /// A 64-bit ELF file for another machine.
    OtherMachine {
        /// ELF's `e_machine`.
        machine: u16,
    },
    /// For x86-64, without a dynamic loader: statically linked, or a shared object that is no program.
    Static,
    /// For x86-64, started by a dynamic loader.
    Dynamic {
        /// The loader, `/lib64/ld-linux-x86-64.so.2` for example.
        interpreter: PathBuf,
    },
}

impl ElfPeek {
    /// Reads a few KiB of the file at `path`. A broken ELF file for x86-64 is an error.
    pub fn read(path: &Path) -> Result<ElfPeek, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_path_buf(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(ImageError::NotRegular { path: path.to_path_buf() });
        }
        let file = File::open(path).map_err(failed)?;
        let read = |offset, len| read_at(&file, offset, len).map_err(failed);
        let head = read(0, HEAD_LEN)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            return Ok(script(line));
        }
        let header = match Header::parse(&head, path) {
            Ok(header) => header,
            Err(ImageError::NotElf { .. }) => return Ok(ElfPeek::NotElf),
            Err(ImageError::Class32 { .. }) => return Ok(ElfPeek::Elf32),
            Err(ImageError::OtherMachine { machine, .. }) => return Ok(ElfPeek::OtherMachine { machine }),
            Err(error) => return Err(error),
        };
        let cut = |what, offset, len| ImageError::Cut {
            path: path.to_path_buf(),
            what,
            offset,
            len,
            file_len: metadata.len(),
        };
        let entry_len = u64::from(header.phentsize);
        let table_len = u64::from(header.phnum) * entry_len;
        let table = read(header.phoff, table_len)?;
        if table.len() as u64 != table_len || (header.phnum != 0 && entry_len != 56) {
            return Err(cut("the program headers", header.phoff, table_len));
        }
        for entry in table.chunks_exact(56) {
            if entry.u32_at(0) != Some(abi::PT_INTERP) {
                continue;
            }
            let (Some(offset), Some(len)) = (entry.u64_at(8), entry.u64_at(32)) else { break };
            // PATH_MAX is what the kernel takes.
            let name = read(offset, len.min(4096))?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
            if name.is_empty() {
                return Err(cut("the dynamic loader's name", offset, len));
            }
            return Ok(ElfPeek::Dynamic { interpreter: PathBuf::from(OsStr::from_bytes(name)) });
        }
        Ok(ElfPeek::Static)
    }
}

/// Up to `len` bytes at `offset`: fewer where the file ends.
pub(crate) fn read_at(file: &File, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let Some(at) = offset.checked_add(filled as u64) else { break };
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // An offset beyond what the kernel can count is beyond the end.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// As the kernel reads it: blanks, the interpreter, blanks, one argument up to the end of the line.
fn script(line: &[u8]) -> ElfPeek {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or(&[]).trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    if interpreter.is_empty() {
        return ElfPeek::NotElf;
    }
    let argument = argument.trim_ascii();
    ElfPeek::Script {
        interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
        argument: (!argument.is_empty()).then(|| String::from_utf8_lossy(argument).into_owned()),
    }
}
