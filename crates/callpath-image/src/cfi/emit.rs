//! From the row that a program is at to the rows that are kept: the CFA worked out, pc by pc if it must be.

use std::ops::Range;

use callpath_format::recipe::Cfa;
use callpath_format::register::Reg;

use super::Output;
use super::expression::{PAGE_LEN_BYTES, Value, evaluate, is_walkable};
use super::program::{CfaRule, Loss, Machine};

/// A row that ends: it holds for `range`.
pub(super) struct EndedRow {
    pub(super) range: Range<u64>,
    pub(super) is_signal_frame: bool,
    /// Where the rows of its FDE begin in the output.
    pub(super) fde_rows: usize,
}

/// Ends the machine's row. `Err`: nothing can be known there.
pub(super) fn emit(machine: &mut Machine<'_>, row: EndedRow, out: &mut Output<'_>) -> Result<(), Loss> {
    let EndedRow { ref range, is_signal_frame, fde_rows } = row;
    let cfa = match machine.state.cfa() {
        // An outermost frame has no caller, and its CFA is never asked for.
        _ if machine.state.is_outermost() => Cfa::Outermost,
        CfaRule::Unset => return Err(Loss::Cfa),
        CfaRule::Register { reg, disp } => {
            let reg = Reg::from_dwarf(reg).ok_or(Loss::Cfa)?;
            Cfa::Register { reg, disp: i32::try_from(disp).map_err(|_| Loss::Cfa)? }
        }
        CfaRule::Expression(expression) => {
            let code = machine.code_of(expression);
            match evaluate(code, None, range.start) {
                Some(partial) if partial.pc_period_bytes > 1 => {
                    if let Some(cfas) = periodic_cfa(code, partial.pc_period_bytes, range.start)
                        && emit_periodic(machine, &cfas, &row, out)?
                    {
                        return Ok(());
                    }
                    expression_cfa(machine, code).ok_or(Loss::Cfa)?
                }
                partial => match partial.and_then(|partial| plain_cfa(partial.value)) {
                    Some(cfa) => cfa,
                    None => expression_cfa(machine, code).ok_or(Loss::Cfa)?,
                },
            }
        }
    };
    let recipe = machine.recipe(cfa, is_signal_frame)?;
    let id = machine.pool.recipe(&recipe);
    out.push_row(fde_rows, range.start, id);
    Ok(())
}

fn plain_cfa(value: Value) -> Option<Cfa> {
    match value {
        Value::Register(reg, disp) => Some(Cfa::Register { reg, disp: i32::try_from(disp).ok()? }),
        Value::AtRegister(reg, disp, add) => {
            Some(Cfa::Deref { reg, disp: i32::try_from(disp).ok()?, add: i32::try_from(add).ok()? })
        }
        _ => None,
    }
}

fn expression_cfa(machine: &mut Machine<'_>, code: &[u8]) -> Option<Cfa> {
    if is_walkable(code) { machine.pool.expression(code).map(Cfa::Expression) } else { None }
}

/// The CFA at each place of a period from `start` on; `None` if one of them is no plain equation.
fn periodic_cfa(code: &[u8], period_bytes: u64, start: u64) -> Option<Vec<Cfa>> {
    if period_bytes > PAGE_LEN_BYTES {
        return None;
    }
    (0..period_bytes)
        .map(|place| {
            let partial = evaluate(code, None, start.wrapping_add(place))?;
            if partial.pc_period_bytes > period_bytes { None } else { plain_cfa(partial.value) }
        })
        .collect()
}

/// A row for each run of equal CFAs. `Ok(false)`: those would be too many.
fn emit_periodic(machine: &mut Machine<'_>, cfas: &[Cfa], row: &EndedRow, out: &mut Output<'_>) -> Result<bool, Loss> {
    let EndedRow { ref range, is_signal_frame, fde_rows } = *row;
    let mut runs = Vec::new();
    for (place, cfa) in cfas.iter().enumerate() {
        if place == 0 || cfas.get(place - 1) != Some(cfa) {
            let recipe = machine.recipe(*cfa, is_signal_frame)?;
            runs.push((place as u64, machine.pool.recipe(&recipe)));
        }
    }
    let periods = (range.end - range.start).div_ceil(cfas.len() as u64);
    let Some(left) = out.pc_row_budget.checked_sub(periods.saturating_mul(runs.len() as u64)) else {
        return Ok(false);
    };
    out.pc_row_budget = left;
    for period in 0..periods {
        for (place, recipe) in &runs {
            let start = range.start + period * cfas.len() as u64 + place;
            if start < range.end {
                out.push_row(fde_rows, start, *recipe);
            }
        }
    }
    Ok(true)
}
