//! The functions by which a program asks for the context that it is in: `unsigned long callpath_context(void)`, which it
//! defines itself. Hidden probes of them give the result.

use std::sync::Arc;

use callpath_image::code_symbols::CodeSymbols;
use callpath_image::elf::Image;
use callpath_tables::probes::{HiddenProbe, Purpose};

/// The function's name.
const NAME: &str = "callpath_context";

/// What to do where there is none.
pub(super) const MISSING: &str = "nothing asks for a context: no module has a function `callpath_context`; add \
    `__attribute__((weak)) unsigned long callpath_context(void) { return 0; }` to the program, and log what it returns";

/// Those of a module, by ascending entry.
pub(super) fn asking_functions(image: &Arc<Image>) -> Vec<HiddenProbe> {
    let symbols = CodeSymbols::of(image, None);
    let named = symbols.all().iter().filter(|symbol| &*symbol.name == NAME && !symbol.chooses);
    let mut found: Vec<HiddenProbe> =
        named.map(|symbol| HiddenProbe { entry: symbol.start, purpose: Purpose::Asks }).collect();
    found.sort_unstable();
    found.dedup();
    found
}
