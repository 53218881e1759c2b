//! The functions by which a program asks for the context that it is in: `unsigned long callpath_context(void)`, which it
//! defines itself. Hidden probes of them give the result. Others see where probed functions are left by `longjmp` and
//! exceptions.

use std::sync::Arc;

use callpath_image::code_symbols::CodeSymbols;
use callpath_image::elf::Image;
use callpath_tables::probes::{HiddenProbe, Purpose};

/// The function's name.
const NAME: &str = "callpath_context";

/// What to do where there is none.
pub(super) const MISSING: &str = "nothing asks for a context: no module has a function `callpath_context`; add \
    `__attribute__((weak)) unsigned long callpath_context(void) { return 0; }` to the program, and log what it returns";

/// Of a module what hidden probes are put into, by ascending entry: those functions, and what leaves others without an
/// exit.
pub(super) fn asking_functions(image: &Arc<Image>) -> Vec<HiddenProbe> {
    let symbols = CodeSymbols::of(image, None);
    let named = symbols.all().iter().filter(|symbol| !symbol.chooses).filter_map(|symbol| {
        let purpose = match &*symbol.name {
            NAME => Purpose::Asks,
            "longjmp" | "_longjmp" | "siglongjmp" | "__longjmp_chk" => Purpose::Jumps,
            "__cxa_begin_catch" => Purpose::Catches,
            _ => return None,
        };
        Some(HiddenProbe { entry: symbol.start, purpose })
    });
    let mut found: Vec<HiddenProbe> = named.collect();
    found.sort_unstable();
    found.dedup();
    found
}
