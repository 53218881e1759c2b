//! How files hold numbers, strings and lists: numbers as LEB128, the others behind their length.
//! What a file begins with, and its checksums, are the file's own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::leb128;

/// What was read makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The byte behind what was read last.
    pub offset: usize,
    /// What should have been there.
    pub what: &'static str,
}

/// Writes numbers, strings and lists.
#[derive(Default)]
pub struct Writer {
    /// What was written.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// As LEB128.
    pub fn number(&mut self, value: u64) {
        leb128::put(&mut self.bytes, value);
    }

    /// Their length, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// A string.
    pub fn string(&mut self, string: &str) {
        self.bytes(string.as_bytes());
    }

    /// A path, of any bytes.
    pub fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    /// A list of strings.
    pub fn strings(&mut self, strings: &[String]) {
        self.number(strings.len() as u64);
        strings.iter().for_each(|string| self.string(string));
    }

    /// A number that may be missing: 0, or 1 and the number.
    pub fn optional(&mut self, value: Option<u64>) {
        self.number(u64::from(value.is_some()));
        value.into_iter().for_each(|value| self.number(value));
    }

    /// What another one wrote, without its length.
    pub fn raw(&mut self, other: Writer) {
        self.bytes.extend(other.bytes);
    }
}

/// Reads what a [`Writer`] wrote, from any bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From offset `at` up to the end of `bytes`.
    pub fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at: at.min(bytes.len()) }
    }

    /// The offset of what is read next.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether all was read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// That what was read last makes no sense as `what`.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { offset: self.at, what }
    }

    /// A number.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        leb128::take(self.bytes, &mut self.at).ok_or_else(|| self.malformed("number"))
    }

    /// A byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.malformed("byte"))?;
        self.at += 1;
        Ok(byte)
    }

    /// A number below 2^32.
    #[inline]
    pub fn small(&mut self, what: &'static str) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| self.malformed(what))
    }

    /// A number of things of at least `least_bytes` each: never more than the file can hold.
    pub fn count(&mut self, least_bytes: usize) -> Result<usize, Malformed> {
        let count = self.number()?;
        let room = (self.bytes.len() - self.at) / least_bytes.max(1);
        usize::try_from(count).ok().filter(|c| *c <= room).ok_or_else(|| self.malformed("count"))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count(1)?;
        let bytes = self.bytes.get(self.at..self.at + len).ok_or_else(|| self.malformed("length"))?;
        self.at += len;
        Ok(bytes)
    }

    /// A string.
    pub fn string(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// A path.
    pub fn path(&mut self) -> Result<PathBuf, Malformed> {
        Ok(PathBuf::from(OsString::from_vec(self.bytes()?.to_vec())))
    }

    /// A list of strings.
    pub fn strings(&mut self) -> Result<Vec<String>, Malformed> {
        (0..self.count(1)?).map(|_| self.string()).collect()
    }

    /// See [`Writer::optional`].
    pub fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        match self.number()? {
            0 => Ok(None),
            1 => self.number().map(Some),
            _ => Err(self.malformed("optional number")),
        }
    }

    /// Nothing may follow.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.is_at_end() { Ok(()) } else { Err(self.malformed("bytes after the end")) }
    }
}
