//! A process's names of its generated code, as far as samples lie in it: a file beside the process's.

use std::ops::Range;
use std::path::Path;

use crate::bytes::{KIND_NAMES, Reader, finished, started};
use crate::error::MeasurementError;

/// The path of the kernel's code, which is a module of processes whose samples have frames in it. Their names are the process's.
pub const KERNEL: &str = "[kernel]";

/// One process's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamesFile {
    /// The process, as its own file counts it.
    pub sequence: u32,
    /// How many of the process's lines could not be parsed.
    pub bad_lines: u64,
    /// By module and start.
    pub procedures: Vec<NamedCode>,
}

/// A procedure of generated code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamedCode {
    /// Index of the process's module.
    pub module: u16,
    /// Its first address in that module.
    pub start: u64,
    /// Its length, bytes.
    pub len_bytes: u64,
    /// The process's name for it, or [`nameless`].
    pub name: String,
}

/// The name of a procedure in generated code that has none and begins at `start`: the memory's name and the address.
pub fn nameless(memory: &Path, start: u64) -> String {
    format!("{}+{start:#x}", memory.file_name().unwrap_or(memory.as_os_str()).to_string_lossy())
}

/// The name of a mapping's code in which no procedures are known: the memory's
/// name and the bounds, unlike any procedure's name.
pub fn nameless_mapping(memory: &Path, range: Range<u64>) -> String {
    let memory = memory.file_name().unwrap_or(memory.as_os_str()).to_string_lossy();
    format!("{memory} {:#x}-{:#x}", range.start, range.end)
}

impl NamedCode {
    /// Whether the process has a name for it: otherwise only its bounds are known.
    pub fn is_named(&self, memory: &Path) -> bool {
        self.name != nameless(memory, self.start)
            && self.name != nameless_mapping(memory, self.start..self.start.saturating_add(self.len_bytes))
    }
}

/// The bytes of a names file.
pub fn encode_names(file: &NamesFile) -> Vec<u8> {
    let mut w = started(KIND_NAMES);
    w.number(u64::from(file.sequence));
    w.number(file.bad_lines);
    w.number(file.procedures.len() as u64);
    for procedure in &file.procedures {
        w.number(u64::from(procedure.module));
        w.number(procedure.start);
        w.number(procedure.len_bytes);
        w.string(&procedure.name);
    }
    finished(w)
}

/// A names file from its bytes; `path` is for errors only.
pub(crate) fn decode_names(bytes: &[u8], path: &Path) -> Result<NamesFile, MeasurementError> {
    let mut r = Reader::open(bytes, path, KIND_NAMES)?;
    let mut file = NamesFile { sequence: r.number()? as u32, bad_lines: r.number()?, procedures: Vec::new() };
    for _ in 0..r.count(4)? {
        let module = u16::try_from(r.number()?).map_err(|_| r.error("module"))?;
        let (start, len_bytes) = (r.number()?, r.number()?);
        if start.checked_add(len_bytes).is_none_or(|end| end >> 48 != 0) {
            return Err(r.error("procedure"));
        }
        file.procedures.push(NamedCode { module, start, len_bytes, name: r.string()? });
    }
    r.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> NamesFile {
        let procedure = |start, name: &str| NamedCode { module: 3, start, len_bytes: 0x100, name: name.into() };
        NamesFile {
            sequence: 7,
            bad_lines: 2,
            procedures: vec![procedure(0x1000, "JS:*leaf"), procedure(0x7fff_0000_1000, "ä")],
        }
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let path = Path::new("f");
        let whole = encode_names(&file());
        assert_eq!(decode_names(&whole, path).unwrap(), file());
        for len in 0..whole.len() {
            assert!(decode_names(&whole[..len], path).is_err(), "cut at {len}");
        }
        assert!(super::super::decode_process(&whole, path).is_err(), "it is another kind of file");
        let mut beyond = file();
        beyond.procedures[0].len_bytes = 1 << 48;
        assert!(decode_names(&encode_names(&beyond), path).unwrap_err().to_string().contains("procedure"));
    }
}
