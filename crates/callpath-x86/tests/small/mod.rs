//! Modules of small procedures.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use callpath_x86::input::CodeInput;

/// Where the first of them begins.
pub(crate) const BASE: u64 = 0x1000;

/// Procedures, each at the next multiple of 32, padded with int3.
pub(crate) fn with_procedures<T>(
    procedures: &[&[u8]],
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
    let code = CodeInput { code: &slices, data: &slices, starts: &starts, ..CodeInput::default() };
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    then(&flow, &graphs)
}
