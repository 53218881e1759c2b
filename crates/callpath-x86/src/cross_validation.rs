//! Cross-validation of call frame information: its recipes compared with the frames that the code shows. It must not
//! know the origin of these recipes.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use crate::recipe::dwarf;
use crate::state::{CALLEE_SAVED, State};
use crate::value::{Base, RETURN_ADDRESS, StackAddress, Value};

/// The result of comparing a recipe with the code, from no evidence to contradiction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Evidence {
    /// No control flow was seen to reach the code.
    Unseen,
    /// The code shows the same frame.
    Agrees,
    /// The code does not show where the frame is.
    FrameUnknown,
    /// The code does not show where a callee-saved register is.
    RegisterUnknown,
    /// The code shows another CFA.
    FrameDiffers,
    /// The code shows another location, or another value, of a callee-saved register or the return address.
    RegisterDiffers,
}

/// The recipes to check, and the evidence for each.
pub(crate) struct CrossValidation<'a> {
    /// `(position, recipe)`, by position; `None` where there is none.
    pub(crate) rows: Vec<(u32, Option<&'a Recipe>)>,
    /// By position.
    pub(crate) results: Vec<Evidence>,
    last: usize,
}

impl<'a> CrossValidation<'a> {
    pub(crate) fn new(rows: Vec<(u32, Option<&'a Recipe>)>, len: u32) -> CrossValidation<'a> {
        CrossValidation { rows, results: vec![Evidence::Unseen; len as usize], last: 0 }
    }

    /// The recipe at a position.
    pub(crate) fn at(&mut self, at: u32) -> Option<&'a Recipe> {
        let holds = |index: usize, rows: &[(u32, Option<&Recipe>)]| {
            rows.get(index).is_some_and(|row| row.0 <= at) && rows.get(index + 1).is_none_or(|next| at < next.0)
        };
        if !holds(self.last, &self.rows) {
            self.last = self.rows.partition_point(|row| row.0 <= at).checked_sub(1)?;
        }
        self.rows.get(self.last).and_then(|row| row.1)
    }

    pub(crate) fn cross_validate(&mut self, at: u32, state: &State) {
        let Some(cfi_recipe) = self.at(at) else { return };
        if let Some(evidence) = self.results.get_mut(at as usize) {
            *evidence = cross_validate(cfi_recipe, state);
        }
    }
}

fn cross_validate(cfi_recipe: &Recipe, state: &State) -> Evidence {
    if cfi_recipe.signal_frame || cfi_recipe.cfa == Cfa::Unknown {
        return Evidence::Unseen;
    }
    if state.is_outermost || cfi_recipe.cfa == Cfa::Outermost {
        let agree = state.is_outermost == (cfi_recipe.cfa == Cfa::Outermost);
        return if agree { Evidence::Agrees } else { Evidence::FrameDiffers };
    }
    let value_of = |reg: Reg| state.get(register_of(reg));
    let cfa = match cfi_recipe.cfa {
        Cfa::Register { reg, disp } => value_of(reg).plus(disp.into()),
        Cfa::Deref { reg, disp, add } => match value_of(reg).plus(disp.into()) {
            Value::Stack { base, offset } => state.load(StackAddress::new(base, offset)).plus(add.into()),
            _ => Value::Unknown,
        },
        _ => return Evidence::Unseen,
    };
    match cfa {
        Value::Stack { base: Base::CFA, offset: 0 } => {}
        Value::Stack { base: Base::CFA, .. } => return Evidence::FrameDiffers,
        _ => return Evidence::FrameUnknown,
    }
    let mut evidence = Evidence::Agrees;
    let mut rules: Vec<(u8, Rule)> =
        CALLEE_SAVED.iter().map(|&register| (register as u8, cfi_recipe.registers[dwarf(register).index()])).collect();
    rules.push((RETURN_ADDRESS, cfi_recipe.return_address));
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
        evidence = evidence.max(match value {
            Value::Caller(whose) if whose == what => Evidence::Agrees,
            Value::Unknown => Evidence::RegisterUnknown,
            _ => Evidence::RegisterDiffers,
        });
    }
    evidence
}

fn register_of(reg: Reg) -> usize {
    (0..16).find(|&register| dwarf(register) == reg).unwrap_or(0)
}
