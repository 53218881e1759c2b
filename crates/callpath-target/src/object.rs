//! Freestanding shared objects: ELF files that need nothing of others, read by hand from bytes that may be anything.

use std::ops::Range;

/// An object, laid out in memory from address 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FreestandingObject {
    image: Vec<u8>,
    /// In order of address; no two on the same page.
    pub(crate) segments: Vec<Segment>,
    /// Where in the image an address is, and to which address of the image it is to lead.
    relocations: Vec<(usize, u64)>,
    /// Names and addresses of defined symbols.
    pub(crate) symbols: Vec<(String, u64)>,
}

/// A part that is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    memory: Range<u64>,
    /// `PROT_*`
    pub(crate) protection: i32,
}

impl Segment {
    /// Its pages.
    pub(crate) fn pages(&self, page_bytes: u64) -> Range<u64> {
        self.memory.start / page_bytes * page_bytes..self.memory.end.next_multiple_of(page_bytes)
    }
}

const PAGE_BYTES: u64 = 4096;
/// A longer one is no small collector.
const MOST_BYTES: u64 = 16 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;

/// Entries of the dynamic section.
#[derive(Default)]
struct Dynamic {
    rela: Option<u64>,
    rela_len: u64,
    symbols: Option<u64>,
    strings: Option<u64>,
    strings_len: u64,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
}

impl FreestandingObject {
    /// Reads it. The error says what is wrong, or what it needs that it may not.
    pub(crate) fn parse(file: &[u8]) -> Result<FreestandingObject, String> {
        let (mut object, dynamic) = layout(file)?;
        let dynamic = object.dynamic(dynamic)?;
        object.relocations = object.read_relocations(&dynamic)?;
        object.symbols = object.read_symbols(&dynamic)?;
        Ok(object)
    }

    /// Length in memory, whole pages.
    pub(crate) fn len_bytes(&self) -> u64 {
        (self.image.len() as u64).next_multiple_of(PAGE_BYTES)
    }

    /// The bytes of an object that begins at `base`.
    pub(crate) fn image_at(&self, base: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        for (at, to) in &self.relocations {
            if let Some(word) = image.get_mut(*at..).and_then(|rest| rest.first_chunk_mut()) {
                *word = base.wrapping_add(*to).to_le_bytes();
            }
        }
        image
    }

    fn dynamic(&self, range: Range<u64>) -> Result<Dynamic, String> {
        let mut found = Dynamic::default();
        let mut text = None;
        let mut at = range.start;
        while at < range.end {
            let (tag, value) = (word(&self.image, at)?, word(&self.image, at.saturating_add(8))?);
            at = at.saturating_add(16);
            match (tag, value) {
                (0, _) => break,
                (1, _) => text = Some("it needs other objects"),
                (4, _) => found.hash = Some(value),
                (5, _) => found.strings = Some(value),
                (6, _) => found.symbols = Some(value),
                (7, _) => found.rela = Some(value),
                (8, _) => found.rela_len = value,
                (10, _) => found.strings_len = value,
                (0x6fff_fef5, _) => found.gnu_hash = Some(value),
                (9, 24) | (11, 24) | (2 | 18 | 27 | 28 | 33 | 35, 0) => {}
                (9 | 11, _) => text = Some("its tables are of another version"),
                (12 | 25 | 32, _) => text = Some("it has constructors, which would not run"),
                (17 | 18, _) => text = Some("its relocations are of a kind that x86-64 does not have"),
                (22, _) => text = Some("its code needs relocations"),
                (2 | 23, _) => text = Some("it calls symbols of other objects"),
                (35 | 36, _) => text = Some("its relocations are packed (-z pack-relative-relocs)"),
                _ => {}
            }
        }
        text.map_or(Ok(found), |text| Err(text.to_owned()))
    }

    fn read_relocations(&self, dynamic: &Dynamic) -> Result<Vec<(usize, u64)>, String> {
        const ENTRY_BYTES: u64 = 24;
        const R_X86_64_RELATIVE: u64 = 8;
        let Some(table) = dynamic.rela else { return Ok(Vec::new()) };
        if dynamic.rela_len > self.image.len() as u64 {
            return Err("its relocations are longer than itself".to_owned());
        }
        let mut relocations = Vec::new();
        for offset in (0..dynamic.rela_len / ENTRY_BYTES).map(|index| index * ENTRY_BYTES) {
            let at = table.saturating_add(offset);
            let place = word(&self.image, at)?;
            let (kind, addend) = (word(&self.image, at.saturating_add(8))?, word(&self.image, at.saturating_add(16))?);
            if kind != R_X86_64_RELATIVE {
                let kind = kind & u64::from(u32::MAX);
                return Err(format!("its word at {place:#x} depends on a symbol (relocation type {kind})"));
            }
            // Fails outside of the image.
            word(&self.image, place)?;
            relocations.push((place as usize, addend));
        }
        Ok(relocations)
    }

    fn read_symbols(&self, dynamic: &Dynamic) -> Result<Vec<(String, u64)>, String> {
        const ENTRY_BYTES: u64 = 24;
        const WEAK: u8 = 2;
        let (Some(table), Some(strings)) = (dynamic.symbols, dynamic.strings) else { return Ok(Vec::new()) };
        let count = self.symbol_count(dynamic)?;
        if count.saturating_mul(ENTRY_BYTES) > self.image.len() as u64 {
            return Err("its symbols are longer than itself".to_owned());
        }
        let mut symbols = Vec::new();
        for index in 1..count {
            let at = table.saturating_add(index * ENTRY_BYTES);
            let first = word(&self.image, at)?;
            let value = word(&self.image, at.saturating_add(8))?;
            let (name, info, section) = (first & 0xffff_ffff, (first >> 32) as u8, (first >> 48) as u16);
            if name >= dynamic.strings_len {
                return Err("a symbol's name is outside of its strings".to_owned());
            }
            let name = self.string(strings.saturating_add(name))?;
            match section {
                0 if info >> 4 == WEAK || name.is_empty() => {}
                0 => return Err(format!("its symbol {name} is not defined in it")),
                _ if info & 0xf == 6 => return Err(format!("its symbol {name} is thread-local")),
                _ => symbols.push((name, value)),
            }
        }
        Ok(symbols)
    }

    /// From a hash table: nothing else says it in memory.
    fn symbol_count(&self, dynamic: &Dynamic) -> Result<u64, String> {
        if let Some(hash) = dynamic.hash {
            return Ok(half(&self.image, hash.saturating_add(4))?.into());
        }
        let Some(hash) = dynamic.gnu_hash else { return Ok(0) };
        let at = |offset: u64| half(&self.image, hash.saturating_add(offset)).map(u64::from);
        let (buckets, first, filter_words) = (at(0)?, at(4)?, at(8)?);
        if buckets.max(filter_words) > self.image.len() as u64 {
            return Err("its hash table is longer than itself".to_owned());
        }
        let bucket_table = 16 + filter_words * 8;
        let mut last = 0;
        for bucket in 0..buckets {
            last = last.max(at(bucket_table + bucket * 4)?);
        }
        if last < first {
            return Ok(first);
        }
        // The last chain's end has bit 0 set.
        let chains = bucket_table + buckets * 4;
        while at(chains + (last - first) * 4)? & 1 == 0 {
            last += 1;
        }
        Ok(last + 1)
    }

    fn string(&self, at: u64) -> Result<String, String> {
        let rest = usize::try_from(at).ok().and_then(|at| self.image.get(at..)).unwrap_or(&[]);
        let end = rest.iter().position(|byte| *byte == 0).ok_or("a symbol's name has no end")?;
        Ok(String::from_utf8_lossy(rest.get(..end).unwrap_or(&[])).into_owned())
    }
}

/// Segments and the bytes in memory, and where the dynamic section is.
fn layout(file: &[u8]) -> Result<(FreestandingObject, Range<u64>), String> {
    const PROGRAM_HEADER_BYTES: u64 = 56;
    // 64 bits, little-endian, version 1; a shared object; x86-64.
    let head = (file.get(..7), half(file, 16));
    if head != (Some(b"\x7fELF\x02\x01\x01"), Ok(0x3e_0003)) {
        return Err("it is no shared object for x86-64".to_owned());
    }
    let table = word(file, 32)?;
    let sizes = half(file, 54)?;
    let (entry_bytes, count) = (sizes & 0xffff, u64::from(sizes >> 16));
    if u64::from(entry_bytes) != PROGRAM_HEADER_BYTES {
        return Err("its program headers are of another version".to_owned());
    }
    let (mut segments, mut dynamic, mut image) = (Vec::<Segment>::new(), 0..0, Vec::new());
    for at in (0..count).map(|index| table.saturating_add(index * PROGRAM_HEADER_BYTES)) {
        let field = |offset| word(file, at.saturating_add(offset));
        let (kind, flags) = (half(file, at)?, half(file, at.saturating_add(4))?);
        let (offset, start, in_file, in_memory) = (field(8)?, field(16)?, field(32)?, field(40)?);
        let end = start.checked_add(in_memory).filter(|end| *end <= MOST_BYTES).ok_or("it is too large")?;
        match kind {
            PT_TLS => return Err("it has thread-local memory".to_owned()),
            PT_INTERP => return Err("it is a program with an interpreter".to_owned()),
            PT_DYNAMIC => dynamic = start..end,
            PT_LOAD if in_memory > 0 => {
                let segment = Segment { memory: start..end, protection: protection(flags)? };
                let before = segments.last().map_or(0, |last| last.pages(PAGE_BYTES).end);
                if segment.pages(PAGE_BYTES).start < before {
                    return Err("two of its segments are on one page, or in wrong order".to_owned());
                }
                let source = offset..offset.saturating_add(in_file);
                let bytes = slice(file, source).filter(|_| in_file <= in_memory).ok_or("it is cut off")?;
                image.resize(start as usize, 0);
                image.extend_from_slice(bytes);
                image.resize(end as usize, 0);
                segments.push(segment);
            }
            _ => {}
        }
    }
    if segments.is_empty() || dynamic.is_empty() {
        return Err("it has nothing to be loaded, or no dynamic section".to_owned());
    }
    Ok((FreestandingObject { image, segments, relocations: Vec::new(), symbols: Vec::new() }, dynamic))
}

fn protection(flags: u32) -> Result<i32, String> {
    const EXECUTABLE: u32 = 1;
    const WRITABLE: u32 = 2;
    const READABLE: u32 = 4;
    if flags & (EXECUTABLE | WRITABLE) == EXECUTABLE | WRITABLE {
        return Err("one of its segments is both writable and executable".to_owned());
    }
    let part = |flag, protection| if flags & flag != 0 { protection } else { 0 };
    Ok(part(READABLE, libc::PROT_READ) | part(WRITABLE, libc::PROT_WRITE) | part(EXECUTABLE, libc::PROT_EXEC))
}

fn slice(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

fn chunk<const N: usize>(bytes: &[u8], at: u64) -> Result<[u8; N], String> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
    rest.and_then(|rest| rest.first_chunk())
        .copied()
        .ok_or_else(|| format!("it is cut off, or wrong: nothing is at {at:#x}"))
}

fn word(bytes: &[u8], at: u64) -> Result<u64, String> {
    chunk(bytes, at).map(u64::from_le_bytes)
}

fn half(bytes: &[u8], at: u64) -> Result<u32, String> {
    chunk(bytes, at).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object by the C compiler.
    fn compiled(source: &str, options: &[&str]) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let (code, object) = (place.path().join("object.c"), place.path().join("object.so"));
        std::fs::write(&code, source).unwrap();
        let mut compiler = std::process::Command::new("gcc");
        compiler.args(["-O1", "-nostdlib", "-shared", "-fPIC"]).args(options).arg(&code).arg("-o").arg(&object);
        assert!(compiler.status().unwrap().success());
        std::fs::read(object).unwrap()
    }

    const PLAIN: &str = "static int there = 5; int *const table[] = {&there}; int add(int a) { return a + *table[0]; }";

    #[test]
    fn symbols_and_relocations() {
        for hash in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
            let object = FreestandingObject::parse(&compiled(PLAIN, &[hash, "-fvisibility=protected"])).unwrap();
            let names: Vec<&str> = object.symbols.iter().map(|(name, _)| name.as_str()).collect();
            assert!(names.contains(&"add") && names.contains(&"table") && !names.contains(&"there"), "{names:?}");
            assert_eq!(object.relocations.len(), 1);
            let table = object.symbols.iter().find(|(name, _)| name == "table").unwrap().1;
            let image = object.image_at(0x7000_0000);
            let there = word(&image, table).unwrap() - 0x7000_0000;
            assert_eq!(half(&image, there), Ok(5));
            let executable = |segment: &&Segment| segment.protection & libc::PROT_EXEC != 0;
            assert_eq!(object.segments.iter().filter(executable).count(), 1);
        }
    }

    #[test]
    fn what_it_may_not_need_is_named() {
        let refused =
            |source, options: &[&str]| FreestandingObject::parse(&compiled(source, options)).map(drop).unwrap_err();
        assert!(refused("int f(void); int g(void) { return f(); }", &[]).contains("symbols of other objects"));
        assert!(refused("extern int there; int g(void) { return there; }", &[]).contains("depends on a symbol"));
        assert!(
            refused("static _Thread_local int there; int *g(void) { return &there; }", &[]).contains("thread-local")
        );
        assert!(refused("__attribute__((constructor)) void f(void) {}", &[]).contains("constructors"));
        assert!(refused(PLAIN, &["-Wl,--no-as-needed", "-lc"]).contains("needs other objects"));
        assert!(refused(PLAIN, &["-Wl,-N"]).contains("segment"));
        assert!(FreestandingObject::parse(b"").is_err());
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(FreestandingObject::parse(&own).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let original = compiled(PLAIN, &[]);
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        // The first page holds the headers, the symbols and the relocations.
        let (mut read, mut refused) = (0, 0);
        for round in 0..20_000 {
            let mut object = original.clone();
            for _ in 0..1 + round % 4 {
                let near = if random(4) == 0 { object.len() } else { 4096.min(object.len()) };
                let at = random(near);
                object[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            if random(8) == 0 {
                object.truncate(random(original.len()));
            }
            match FreestandingObject::parse(&object) {
                Ok(object) => {
                    read += 1;
                    assert_eq!(object.image_at(4096).len(), object.image.len());
                    assert!(object.len_bytes() <= MOST_BYTES);
                }
                Err(why) => {
                    refused += 1;
                    assert!(why.len() < 8192);
                }
            }
        }
        assert!(read > 100 && refused > 100, "{read} {refused}");
    }
}
