//! The names that a module asks the loader for (`dlsym`), if its code tells them all: constants.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::elf::ImageKind;
use callpath_image::plt;
use callpath_x86::references::second_arguments;
use rustc_hash::FxHashSet;

use crate::module::Module;

/// What asks by name: the second argument.
const ASKING: [&str; 2] = ["dlsym", "dlvsym"];

/// The names that a module with code at `procedures` asks for. `None`: one of them is not known.
pub(crate) fn asked_names(module: &Module, procedures: &[Range<LinkAddr>]) -> Option<Vec<String>> {
    let (image, loading) = (module.image(), module.file().loading());
    if loading.taken.iter().any(|name| is_asking(name)) {
        return None;
    }
    let named = loading.symbols.iter().filter(|(_, name)| is_asking(name));
    let mut asking: FxHashSet<LinkAddr> = named.map(|(slot, _)| *slot).collect();
    if asking.is_empty() {
        return Some(Vec::new());
    }
    let stubs = plt::stubs(image, |_| None).into_iter().filter(|stub| is_asking(&stub.name));
    asking.extend(stubs.map(|stub| stub.start));
    let is_stub =
        |at: LinkAddr| asking.contains(&at) || plt::sections(image).iter().any(|stubs| stubs.code.contains(&at));
    let has_addresses = image.kind() == ImageKind::Executable;
    let mut names = Vec::new();
    for code in procedures.iter().filter(|code| !is_stub(code.start)) {
        let Some(bytes) = image.bytes_from(code.start) else { continue };
        let len = usize::try_from(code.end.0.checked_sub(code.start.0)?).ok()?;
        let bytes = bytes.get(..len.min(bytes.len()))?;
        for constant in second_arguments(bytes, code.start, &asking, has_addresses)? {
            let name = image.bytes_from(LinkAddr(constant))?.split(|byte| *byte == 0).next()?;
            names.push(std::str::from_utf8(name).ok()?.to_owned());
        }
    }
    Some(names)
}

fn is_asking(name: &str) -> bool {
    let plain = name.trim_end_matches("@plt").split('@').next().unwrap_or_default();
    ASKING.contains(&plain)
}
