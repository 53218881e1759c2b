//! The programs of call frame information (DWARF 5, section 6.4.2): instructions in, the recipe of each row out.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;
use gimli::{CallFrameInstruction, UnwindExpression};

use super::expression::{Value, evaluate, is_walkable};
use super::pool::RecipePool;

/// States remembered at one time. Compilers nest two deep; each costs its maker one byte and us 300.
const MAX_REMEMBERED: usize = 256;

/// What may be wrong with a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// An instruction of no meaning here, or cut.
    Instruction,
    /// An address that does not lie after the one before.
    Address,
    /// `DW_CFA_restore_state` without a state, or too many remembered.
    States,
}

/// What the rows' recipes cannot say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// The CFA's rule.
    Cfa,
    /// The return address's rule.
    ReturnAddress,
    /// A register's rule; the row says that the register is lost.
    Register(u16),
}

/// A CFA's rule, as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CfaRule {
    /// None yet.
    Unset,
    /// `reg + disp`
    Register { reg: u16, disp: i64 },
    /// An expression, evaluated when a row needs it: it may depend on the address.
    Expression(UnwindExpression<usize>),
}

/// A return address's rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReturnAddress {
    /// None was given.
    Unset,
    /// `DW_CFA_undefined`: there is no caller.
    Outermost,
    /// Given, and not expressible.
    Unknown,
    /// A rule.
    Rule(Rule),
}

/// The row that a program is at.
#[derive(Clone)]
pub(super) struct State {
    cfa: CfaRule,
    return_address: ReturnAddress,
    registers: [Rule; Reg::COUNT],
}

/// The factors of a CIE.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) code: u64,
    pub(super) data: i64,
    pub(super) return_address_column: u16,
}

/// What an instruction did.
pub(super) enum Effect {
    /// Changed the row.
    Row,
    /// The row ends; the next begins this much later, bytes.
    Advance(u64),
    /// The row ends; the next begins there.
    SetLocation(u64),
}

impl State {
    /// The row before any instruction: callee-saved registers keep their values, rsp is the CFA.
    pub(super) fn initial() -> State {
        let recipe = Recipe::with_cfa(Cfa::Unknown);
        State { cfa: CfaRule::Unset, return_address: ReturnAddress::Unset, registers: recipe.registers }
    }

    pub(super) fn cfa(&self) -> CfaRule {
        self.cfa
    }

    pub(super) fn is_outermost(&self) -> bool {
        self.return_address == ReturnAddress::Outermost
    }

    /// The row's recipe with a CFA that has been worked out. `Err`: of this code nothing is known.
    pub(super) fn recipe(&self, cfa: Cfa, signal_frame: bool) -> Result<Recipe, Loss> {
        let return_address = match self.return_address {
            ReturnAddress::Outermost => return Ok(Recipe::OUTERMOST),
            ReturnAddress::Unset | ReturnAddress::Unknown => return Err(Loss::ReturnAddress),
            ReturnAddress::Rule(rule) => rule,
        };
        let mut registers = self.registers;
        if !signal_frame {
            // A call may have changed the others: no row of an ordinary frame speaks of them.
            registers = [Rule::Same; Reg::COUNT];
            for reg in Reg::CALLEE_SAVED.into_iter().chain([Reg::RSP]) {
                registers[reg.index()] = self.registers[reg.index()];
            }
        }
        Ok(Recipe { cfa, return_address, registers, signal_frame, switches_stack: false, begins_stack: false })
    }

    fn set(&mut self, column: u16, factors: &Factors, rule: Rule) {
        if let Some(reg) = Reg::from_dwarf(column) {
            self.registers[reg.index()] = rule;
        }
        if column == factors.return_address_column {
            self.return_address = match rule {
                // "The same" of a return address would be the frame's own pc.
                Rule::Same => ReturnAddress::Unknown,
                Rule::Lost => ReturnAddress::Outermost,
                _ => ReturnAddress::Rule(rule),
            };
        }
    }

    /// A rule that has no place in a recipe.
    fn set_lost(&mut self, column: u16, factors: &Factors) -> Option<Loss> {
        if let Some(reg) = Reg::from_dwarf(column) {
            self.registers[reg.index()] = Rule::Lost;
        }
        if column == factors.return_address_column {
            self.return_address = ReturnAddress::Unknown;
            return Some(Loss::ReturnAddress);
        }
        is_tracked(column).then_some(Loss::Register(column))
    }

    fn restore(&mut self, column: u16, factors: &Factors, initial: &State) {
        if let Some(reg) = Reg::from_dwarf(column) {
            self.registers[reg.index()] = initial.registers[reg.index()];
        }
        if column == factors.return_address_column {
            self.return_address = initial.return_address;
        }
    }
}

/// Whether a walk ever asks for the column in an ordinary frame.
fn is_tracked(column: u16) -> bool {
    Reg::from_dwarf(column).is_some_and(|reg| reg == Reg::RSP || Reg::CALLEE_SAVED.contains(&reg))
}

/// The machine that runs a program: its row, the rows it remembers, and where new expressions go.
pub(super) struct Machine<'a> {
    /// The section that expressions are cut from.
    pub(super) section: &'a [u8],
    pub(super) pool: &'a mut RecipePool,
    pub(super) remembered: &'a mut Vec<State>,
    pub(super) factors: Factors,
    /// The row after the CIE's instructions, which `DW_CFA_restore` goes back to; `None` while those run.
    pub(super) initial: Option<&'a State>,
    pub(super) state: State,
    /// Where the frame has held registers at some row so far, bytes above the CFA.
    pub(super) held: [Option<i32>; Reg::COUNT],
    /// The first thing that recipes could not say.
    pub(super) loss: Option<Loss>,
}

impl<'a> Machine<'a> {
    /// The row's recipe with a CFA that has been worked out ([`State::recipe`]). A register that the frame has held above
    /// rsp, and whose place is below it now, is restored: compilers go on to name the place behind `pop` and `leave`. A
    /// register that was saved below rsp (in the red zone) is not. Code that raises rsp above what it reads back then is
    /// not told from that; no compiler writes it.
    pub(super) fn recipe(&mut self, cfa: Cfa, signal_frame: bool) -> Result<Recipe, Loss> {
        let mut recipe = self.state.recipe(cfa, signal_frame)?;
        let is_below =
            |at: i32| matches!(cfa, Cfa::Register { reg: Reg::RSP, disp } if i64::from(disp) + i64::from(at) < 0);
        for (rule, held) in recipe.registers.iter_mut().zip(&mut self.held) {
            match *rule {
                Rule::AtCfa(at) if !is_below(at) => *held = Some(at),
                Rule::AtCfa(at) if *held == Some(at) && !signal_frame => *rule = Rule::Same,
                _ => {}
            }
        }
        Ok(recipe)
    }

    /// Executes one instruction.
    pub(super) fn execute(&mut self, instruction: CallFrameInstruction<usize>) -> Result<Effect, Fault> {
        use CallFrameInstruction as I;
        let data = self.factors.data;
        match instruction {
            I::AdvanceLoc { delta } => return Ok(Effect::Advance(u64::from(delta).saturating_mul(self.factors.code))),
            I::SetLoc { address } => return Ok(Effect::SetLocation(address)),
            I::DefCfa { register, offset } => {
                self.state.cfa = CfaRule::Register { reg: register.0, disp: offset as i64 }
            }
            I::DefCfaSf { register, factored_offset } => {
                self.state.cfa = CfaRule::Register { reg: register.0, disp: factored_offset.wrapping_mul(data) };
            }
            I::DefCfaRegister { register } => match &mut self.state.cfa {
                CfaRule::Register { reg, .. } => *reg = register.0,
                _ => return Err(Fault::Instruction),
            },
            I::DefCfaOffset { offset } => self.set_cfa_disp(offset as i64)?,
            I::DefCfaOffsetSf { factored_offset } => self.set_cfa_disp(factored_offset.wrapping_mul(data))?,
            I::DefCfaExpression { expression } => self.state.cfa = CfaRule::Expression(expression),
            I::Undefined { register } => self.state.set(register.0, &self.factors, Rule::Lost),
            I::SameValue { register } => self.state.set(register.0, &self.factors, Rule::Same),
            I::Offset { register, factored_offset } => {
                self.set_disp(register.0, (factored_offset as i64).wrapping_mul(data), Rule::AtCfa);
            }
            I::OffsetExtendedSf { register, factored_offset } => {
                self.set_disp(register.0, factored_offset.wrapping_mul(data), Rule::AtCfa);
            }
            I::ValOffset { register, factored_offset } => {
                self.set_disp(register.0, (factored_offset as i64).wrapping_mul(data), Rule::CfaPlus);
            }
            I::ValOffsetSf { register, factored_offset } => {
                self.set_disp(register.0, factored_offset.wrapping_mul(data), Rule::CfaPlus);
            }
            I::Register { dest_register, src_register } => match Reg::from_dwarf(src_register.0) {
                Some(source) => self.state.set(dest_register.0, &self.factors, Rule::RegisterPlus(source, 0)),
                None => self.lose(dest_register.0),
            },
            I::Expression { register, expression } => self.set_expression(register.0, expression, true),
            I::ValExpression { register, expression } => self.set_expression(register.0, expression, false),
            I::Restore { register } => {
                let initial = self.initial.ok_or(Fault::Instruction)?;
                self.state.restore(register.0, &self.factors, initial);
            }
            I::RememberState => {
                if self.remembered.len() == MAX_REMEMBERED {
                    return Err(Fault::States);
                }
                self.remembered.push(self.state.clone());
            }
            I::RestoreState => self.state = self.remembered.pop().ok_or(Fault::States)?,
            I::ArgsSize { .. } | I::Nop => {}
            _ => return Err(Fault::Instruction),
        }
        Ok(Effect::Row)
    }

    /// The bytes of an expression of the program.
    pub(super) fn code_of(&self, expression: UnwindExpression<usize>) -> &'a [u8] {
        let end = expression.offset.saturating_add(expression.length);
        self.section.get(expression.offset..end).unwrap_or(&[])
    }

    fn set_cfa_disp(&mut self, to: i64) -> Result<(), Fault> {
        match &mut self.state.cfa {
            CfaRule::Register { disp, .. } => {
                *disp = to;
                Ok(())
            }
            _ => Err(Fault::Instruction),
        }
    }

    fn lose(&mut self, column: u16) {
        let loss = self.state.set_lost(column, &self.factors);
        self.loss = self.loss.or(loss);
    }

    fn set_disp(&mut self, column: u16, disp: i64, rule: impl FnOnce(i32) -> Rule) {
        // It is saved anew.
        if let Some(reg) = Reg::from_dwarf(column) {
            self.held[reg.index()] = None;
        }
        match i32::try_from(disp) {
            Ok(disp) => self.state.set(column, &self.factors, rule(disp)),
            Err(_) => self.lose(column),
        }
    }

    /// `at`: the expression says where the register was saved, not what it was.
    fn set_expression(&mut self, column: u16, expression: UnwindExpression<usize>, at: bool) {
        if !is_tracked(column) && column != self.factors.return_address_column && column >= Reg::COUNT as u16 {
            return;
        }
        let code = self.code_of(expression);
        let value = evaluate(code, Some(Value::Cfa(0)), 0).filter(|partial| partial.pc_period_bytes == 1);
        let plain = match (value.map(|partial| partial.value), at) {
            (Some(Value::Cfa(disp)), true) => i32::try_from(disp).ok().map(Rule::AtCfa),
            (Some(Value::Cfa(disp)), false) => i32::try_from(disp).ok().map(Rule::CfaPlus),
            (Some(Value::AtCfa(disp, 0)), false) => i32::try_from(disp).ok().map(Rule::AtCfa),
            (Some(Value::Register(reg, disp)), true) => i32::try_from(disp).ok().map(|d| Rule::AtRegister(reg, d)),
            (Some(Value::Register(reg, disp)), false) => i32::try_from(disp).ok().map(|d| Rule::RegisterPlus(reg, d)),
            (Some(Value::AtRegister(reg, disp, 0)), false) => {
                i32::try_from(disp).ok().map(|d| Rule::AtRegister(reg, d))
            }
            _ => None,
        };
        let rule = plain.or_else(|| {
            let expression = if is_walkable(code) { self.pool.expression(code) } else { None };
            expression.map(|e| if at { Rule::AtExpression(e) } else { Rule::ExpressionValue(e) })
        });
        match rule {
            Some(rule) => self.state.set(column, &self.factors, rule),
            None => self.lose(column),
        }
    }
}
