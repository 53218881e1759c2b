//! What a report needs of the code that a measurement met, as a file of the measurement: facts, no copies of modules.
//!
//! docs/formats.md has the fields. Text stands once, in a table, and is named by its place there.

use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{MeasurementError, PackFile, Reader, Writer};
use callpath_x86::system_call::Origin;
use rustc_hash::FxHashMap;

use super::code::{Code, CodeLocation, Inner, ModuleKey};
use crate::links::{Frame, Rating, Ratings};
use crate::names::SourceLine;
use crate::system_calls::Arguments;

type Result<T> = std::result::Result<T, MeasurementError>;

/// What is packed.
pub(super) struct Facts<'a> {
    pub(super) code: &'a Code,
    pub(super) ratings: &'a Ratings,
    pub(super) arguments: &'a Arguments,
    /// Notes on the code.
    pub(super) notes: &'a [String],
}

/// What was packed, its modules by their numbers in the pack.
pub(super) struct Pack {
    modules: Vec<PackedModule>,
    ratings: Vec<((Frame, Frame), Rating)>,
    arguments: Vec<((usize, LinkAddr, u8), Option<u32>)>,
    notes: Vec<String>,
}

struct PackedModule {
    key: ModuleKey,
    scopes: Vec<Inner>,
    locations: FxHashMap<LinkAddr, CodeLocation>,
}

/// What was packed besides the code, by the numbers of the code's modules.
pub(super) struct Unpacked {
    pub(super) ratings: Ratings,
    pub(super) arguments: Arguments,
    pub(super) notes: Vec<String>,
}

impl Facts<'_> {
    pub(super) fn write(&self, writer: &mut Writer) {
        let mut out = Out { strings: Vec::new(), numbers: FxHashMap::default(), w: Writer::default() };
        out.w.number(self.code.modules.len() as u64);
        for module in &self.code.modules {
            out.key(&module.key);
            out.w.number(module.scopes.len() as u64);
            module.scopes.iter().for_each(|scope| out.scope(scope));
            let mut locations: Vec<_> = module.locations.iter().collect();
            locations.sort_unstable_by_key(|(address, _)| **address);
            out.w.number(locations.len() as u64);
            let mut before = 0;
            for (address, location) in locations {
                out.w.number(address.0.wrapping_sub(before));
                before = address.0;
                out.location(location);
            }
        }
        let mut ratings: Vec<_> = self.ratings.iter().collect();
        ratings.sort_unstable_by_key(|(link, _)| **link);
        out.w.number(ratings.len() as u64);
        for ((caller, callee), rating) in ratings {
            out.frame(*caller);
            out.frame(*callee);
            out.w.number(match rating {
                Rating::Valid => 0,
                Rating::Likely => 1,
                Rating::Invalid => 2,
            });
        }
        let mut arguments: Vec<_> = self.arguments.iter().collect();
        arguments.sort_unstable();
        out.w.number(arguments.len() as u64);
        for ((module, call, register), number) in arguments {
            out.frame(Frame { module: *module, address: *call });
            out.w.number(u64::from(*register));
            out.w.number(number.map_or(0, |number| u64::from(number) + 1));
        }
        writer.strings(&out.strings);
        writer.strings(self.notes);
        writer.raw(out.w);
    }
}

/// Writes all but the text that it names.
struct Out {
    strings: Vec<String>,
    numbers: FxHashMap<String, u64>,
    w: Writer,
}

impl Out {
    fn text(&mut self, text: &str) {
        let known = self.numbers.get(text).copied();
        let number = known.unwrap_or_else(|| {
            self.strings.push(text.to_owned());
            self.numbers.insert(text.to_owned(), self.strings.len() as u64 - 1);
            self.strings.len() as u64 - 1
        });
        self.w.number(number);
    }

    fn key(&mut self, (path, identity, named_by): &ModuleKey) {
        self.w.path(path);
        match identity {
            None => self.w.number(0),
            Some(ModuleIdentity::BuildId(id)) => {
                self.w.number(1);
                self.w.bytes(id);
            }
            Some(ModuleIdentity::Content(hash)) => {
                self.w.number(2);
                self.w.bytes(&hash.to_be_bytes());
            }
        }
        self.w.number(named_by.map_or(0, |sequence| u64::from(sequence) + 1));
    }

    fn line(&mut self, line: Option<&SourceLine>) {
        self.w.number(line.map_or(0, |line| u64::from(line.line) + 1));
        if let Some(line) = line {
            self.text(&line.file);
        }
    }

    fn scope(&mut self, scope: &Inner) {
        let Inner { is_loop, name, identity, location, column, call_site, address } = scope;
        self.w.number(u64::from(*is_loop));
        self.text(name);
        self.line(location.as_ref());
        self.line(call_site.as_ref());
        self.w.number(address.0);
        self.w.number(*identity);
        self.w.number(column.map_or(0, |column| u64::from(column.get())));
    }

    fn location(&mut self, location: &CodeLocation) {
        let CodeLocation { procedure, identity, start, named, declared, scopes, line, jumps_anywhere, system_call } =
            location;
        self.text(procedure);
        self.w.number(*identity);
        self.w.number(start.0);
        self.w.number(u64::from(*named) | u64::from(*jumps_anywhere) << 1);
        self.line(declared.as_ref());
        self.line(line.as_ref());
        self.w.number(scopes.len() as u64);
        scopes.iter().for_each(|scope| self.w.number(u64::from(*scope)));
        match *system_call {
            None => self.w.number(0),
            Some(Origin::Unknown) => self.w.number(1),
            Some(Origin::Caller(register)) => {
                self.w.number(2);
                self.w.number(u64::from(register));
            }
            Some(Origin::Constant(number)) => {
                self.w.number(3);
                self.w.number(u64::from(number));
            }
        }
    }

    /// A frame of no module has number 0.
    fn frame(&mut self, frame: Frame) {
        self.w.number((frame.module as u64).wrapping_add(1));
        self.w.number(frame.address.0);
    }
}

/// Reads all of a pack.
struct In<'a> {
    r: Reader<'a>,
    strings: Vec<Arc<str>>,
}

impl Pack {
    pub(super) fn read(mut r: Reader<'_>) -> Result<Pack> {
        let strings = r.strings()?.into_iter().map(Arc::from).collect();
        let notes = r.strings()?;
        let mut from = In { r, strings };
        let modules = from.list(5, In::module)?;
        let count = modules.len();
        let ratings = from.list(5, |from| {
            let link = (from.frame(count)?, from.frame(count)?);
            let rating = match from.r.number()? {
                0 => Rating::Valid,
                1 => Rating::Likely,
                2 => Rating::Invalid,
                _ => return Err(from.r.error("rating of a link")),
            };
            Ok((link, rating))
        })?;
        let arguments = from.list(4, |from| {
            let frame = from.frame(count)?;
            let register = from.small("register")?;
            let number = from.counted("number of a system call")?;
            Ok(((frame.module, frame.address, register), number))
        })?;
        from.r.finish()?;
        Ok(Pack { modules, ratings, arguments, notes })
    }

    /// Puts into each module of `code` what is known of it. What the pack has of other modules is left out.
    pub(super) fn unpack(self, code: &mut Code) -> Unpacked {
        let numbers: Vec<Option<usize>> =
            self.modules.iter().map(|module| code.index.get(&module.key).copied()).collect();
        for (module, number) in self.modules.into_iter().zip(&numbers) {
            if let Some(found) = number.and_then(|number| code.modules.get_mut(number)) {
                (found.scopes, found.locations) = (module.scopes, module.locations);
            }
        }
        let number = |module: usize| match module {
            usize::MAX => Some(usize::MAX),
            module => numbers.get(module).copied().flatten(),
        };
        let frame = |frame: Frame| Some(Frame { module: number(frame.module)?, ..frame });
        let rated = |((caller, callee), rating)| Some(((frame(caller)?, frame(callee)?), rating));
        let given = |((module, call, register), given)| Some(((number(module)?, call, register), given));
        Unpacked {
            ratings: self.ratings.into_iter().filter_map(rated).collect(),
            arguments: self.arguments.into_iter().filter_map(given).collect(),
            notes: self.notes,
        }
    }
}

impl In<'_> {
    fn list<T>(&mut self, least_bytes: usize, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        (0..self.r.count(least_bytes)?).map(|_| read(self)).collect()
    }

    fn small<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T> {
        T::try_from(self.r.number()?).map_err(|_| self.r.error(what))
    }

    /// 0 is none, and all others are one more than they stand for.
    fn counted(&mut self, what: &'static str) -> Result<Option<u32>> {
        let number = self.r.number()?;
        number.checked_sub(1).map(|less| u32::try_from(less).map_err(|_| self.r.error(what))).transpose()
    }

    fn text(&mut self) -> Result<Arc<str>> {
        let number: usize = self.small("number of a text")?;
        self.strings.get(number).cloned().ok_or_else(|| self.r.error("number of a text"))
    }

    fn line(&mut self) -> Result<Option<SourceLine>> {
        self.counted("line")?.map(|line| Ok(SourceLine { file: self.text()?, line })).transpose()
    }

    fn module(&mut self) -> Result<PackedModule> {
        let path = self.r.path()?;
        let identity = match self.r.number()? {
            0 => None,
            1 => Some(ModuleIdentity::BuildId(self.r.bytes()?.to_vec())),
            2 => {
                let bytes = self.r.bytes()?;
                let hash = <[u8; 16]>::try_from(bytes).map_err(|_| self.r.error("hash of a module"))?;
                Some(ModuleIdentity::Content(u128::from_be_bytes(hash)))
            }
            _ => return Err(self.r.error("kind of identity")),
        };
        let named_by = self.counted("number of a process")?;
        let scopes = self.list(7, In::scope)?;
        let mut address = 0u64;
        let locations = self.list(9, |from| {
            address = address.wrapping_add(from.r.number()?);
            Ok((LinkAddr(address), from.location()?))
        })?;
        Ok(PackedModule { key: (path, identity, named_by), scopes, locations: locations.into_iter().collect() })
    }

    fn scope(&mut self) -> Result<Inner> {
        Ok(Inner {
            is_loop: self.r.number()? != 0,
            name: self.text()?.to_string(),
            location: self.line()?,
            call_site: self.line()?,
            address: LinkAddr(self.r.number()?),
            identity: self.r.number()?,
            column: NonZeroU16::new(self.small("column")?),
        })
    }

    fn location(&mut self) -> Result<CodeLocation> {
        let (procedure, identity) = (self.text()?.to_string(), self.r.number()?);
        let (start, flags) = (LinkAddr(self.r.number()?), self.r.number()?);
        Ok(CodeLocation {
            procedure,
            identity,
            start,
            named: flags & 1 != 0,
            jumps_anywhere: flags & 2 != 0,
            declared: self.line()?,
            line: self.line()?,
            scopes: self.list(1, |from| from.small("number of a scope"))?,
            system_call: match self.r.number()? {
                0 => None,
                1 => Some(Origin::Unknown),
                2 => Some(Origin::Caller(self.small("register")?)),
                3 => Some(Origin::Constant(self.small("number of a system call")?)),
                _ => return Err(self.r.error("origin of a system call")),
            },
        })
    }

    fn frame(&mut self, modules: usize) -> Result<Frame> {
        let module = match self.r.number()? {
            0 => usize::MAX,
            number => usize::try_from(number - 1)
                .ok()
                .filter(|module| *module < modules)
                .ok_or_else(|| self.r.error("number of a module"))?,
        };
        Ok(Frame { module, address: LinkAddr(self.r.number()?) })
    }
}

/// For a fuzzer: any bytes as what a pack holds.
#[doc(hidden)]
pub fn fuzz_pack(bytes: &[u8]) {
    let file = PackFile::new(Path::new("fuzz"), |writer| writer.raw(Writer { bytes: bytes.to_vec() }));
    let Ok(pack) = file.reader().and_then(Pack::read) else { return };
    let mut code = Code::default();
    pack.unpack(&mut code);
}
