//! What others claim of frames, judged by what the code does.
//! Knows nothing of who claims it.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, State};
use crate::value::{Base, RETURN_ADDRESS, StackAddress, Value};

/// How a claim stands against the code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// Control was not seen to come here.
    Unseen,
    /// The code shows the same.
    Agrees,
    /// The code does not show where the frame is.
    FrameUnknown,
    /// The code does not show where a callee-saved register is.
    RegisterUnknown,
    /// The code shows another CFA.
    FrameDiffers,
    /// The code shows another place, or another value, of a callee-saved register or the return address.
    RegisterDiffers,
}

/// Where one claim holds, and what it says: from `start` up to the next.
pub(crate) struct Claims<'a> {
    /// `(position, recipe)`, by position; `None` where nothing is claimed.
    pub(crate) rows: Vec<(u32, Option<&'a Recipe>)>,
    /// For each position.
    pub(crate) verdicts: Vec<Verdict>,
    last: usize,
}

impl<'a> Claims<'a> {
    pub(crate) fn new(rows: Vec<(u32, Option<&'a Recipe>)>, len: u32) -> Claims<'a> {
        Claims { rows, verdicts: vec![Verdict::Unseen; len as usize], last: 0 }
    }

    /// What is claimed at a position.
    pub(crate) fn at(&mut self, at: u32) -> Option<&'a Recipe> {
        let holds = |index: usize, rows: &[(u32, Option<&Recipe>)]| {
            rows.get(index).is_some_and(|row| row.0 <= at) && rows.get(index + 1).is_none_or(|next| at < next.0)
        };
        if !holds(self.last, &self.rows) {
            self.last = self.rows.partition_point(|row| row.0 <= at).checked_sub(1)?;
        }
        self.rows.get(self.last).and_then(|row| row.1)
    }

    pub(crate) fn judge(&mut self, at: u32, state: &State) {
        let Some(claim) = self.at(at) else { return };
        if let Some(verdict) = self.verdicts.get_mut(at as usize) {
            *verdict = judge(claim, state);
        }
    }
}

fn judge(claim: &Recipe, state: &State) -> Verdict {
    if claim.signal_frame || claim.cfa == Cfa::Unknown {
        return Verdict::Unseen;
    }
    if state.is_outermost || claim.cfa == Cfa::Outermost {
        let agree = state.is_outermost == (claim.cfa == Cfa::Outermost);
        return if agree { Verdict::Agrees } else { Verdict::FrameDiffers };
    }
    let value_of = |reg: Reg| state.get(register_of(reg));
    let cfa = match claim.cfa {
        Cfa::Register { reg, disp } => value_of(reg).plus(disp.into()),
        Cfa::Deref { reg, disp, add } => match value_of(reg).plus(disp.into()) {
            Value::Stack { base, offset } => state.load(StackAddress::new(base, offset)).plus(add.into()),
            _ => Value::Unknown,
        },
        _ => return Verdict::Unseen,
    };
    match cfa {
        Value::Stack { base: Base::CFA, offset: 0 } => {}
        Value::Stack { base: Base::CFA, .. } => return Verdict::FrameDiffers,
        _ => return Verdict::FrameUnknown,
    }
    let mut verdict = Verdict::Agrees;
    let mut rules: Vec<(u8, Rule)> =
        CALLEE_SAVED.iter().map(|&register| (register as u8, claim.registers[dwarf(register).index()])).collect();
    rules.push((RETURN_ADDRESS, claim.return_address));
    for (what, rule) in rules {
        let value = match rule {
            Rule::Same => state.get(usize::from(what)),
            Rule::AtCfa(offset) => state.load(StackAddress::cfa(offset)),
            Rule::RegisterPlus(reg, by) => value_of(reg).plus(by.into()),
            Rule::AtRegister(reg, disp) => match value_of(reg).plus(disp.into()) {
                Value::Stack { base, offset } => state.load(StackAddress::new(base, offset)),
                _ => Value::Unknown,
            },
            _ => continue,
        };
        verdict = verdict.max(match value {
            Value::Caller(whose) if whose == what => Verdict::Agrees,
            Value::Unknown => Verdict::RegisterUnknown,
            _ => Verdict::RegisterDiffers,
        });
    }
    verdict
}

fn register_of(reg: Reg) -> usize {
    (0..16).find(|&register| dwarf(register) == reg).unwrap_or(0)
}
