//! Modules of small procedures.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use callpath_x86::input::CodeInput;

/// Where the first of them begins.
pub(crate) const BASE: u64 = 0x1000;

/// Where data lies, if there are any.
pub(crate) const DATA: u64 = 0x10_0000;

/// Procedures, each at the next multiple of 32, padded with int3.
pub(crate) fn with_procedures<T>(
    procedures: &[&[u8]],
    then: impl FnOnce(&ModuleFlow<'_>, &[ProcedureGraph]) -> T,
) -> T {
    with_words(procedures, &[], &[], then)
}

/// The same in a module that is not relocated but for words that hold an address, with words of data.
pub(crate) fn with_words<T>(
    procedures: &[&[u8]],
    words: &[u64],
    relocated: &[u64],
    then: impl FnOnce(&ModuleFlow<'_>, &[ProcedureGraph]) -> T,
) -> T {
    let mut code: Vec<u8> = Vec::new();
    let mut fragments = Vec::new();
    for procedure in procedures {
        let start = LinkAddr(BASE + code.len() as u64);
        code.extend(*procedure);
        fragments.push(Fragment { code: start..LinkAddr(BASE + code.len() as u64), kind: FragmentKind::Entry });
        code.resize(code.len().next_multiple_of(32), 0xcc);
    }
    let slices = [(LinkAddr(BASE), code.as_slice())];
    let starts: Vec<LinkAddr> = fragments.iter().map(|fragment| fragment.code.start).collect();
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let data = [slices[0], (LinkAddr(DATA), words.as_slice())];
    let pointers: Vec<(LinkAddr, LinkAddr)> =
        (0..).zip(relocated).map(|(number, to)| (LinkAddr(DATA + 0x1000 + 8 * number), LinkAddr(*to))).collect();
    let is_absolute = !words.is_empty();
    let code = CodeInput {
        code: &slices,
        data: &data,
        starts: &starts,
        pointers: &pointers,
        is_absolute,
        ..CodeInput::default()
    };
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    then(&flow, &graphs)
}
