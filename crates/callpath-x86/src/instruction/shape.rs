//! The shape of an encoding: what is true of all its instructions, whatever their operands are. It is asked from
//! iced-x86 once, and stored.
//!
//! Iced-x86 takes some 100 ns to report what an instruction reads and writes. The report is the same for two
//! instructions with the same opcode, except for the registers that the operands name.

use std::sync::OnceLock;

use iced_x86::{
    Code, ConditionCode, EncodingKind, FlowControl, Instruction as Iced, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as IcedRegister,
};

use super::register::{Register, RegisterSet};
use super::{Access, Flags};

/// Defines an enum, and a table of its variants by number. The table has an entry for every number of that many bits;
/// the rest of it is the last variant.
macro_rules! numbered {
    ($(#[$of:meta])* $name:ident, $all:ident: $($(#[$of_variant:meta])* $variant:ident,)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            const VARIANTS: &[$name] = &[$($name::$variant,)*];
        }

        /// By number.
        pub(super) const $all: [$name; $name::VARIANTS.len().next_power_of_two()] = {
            let mut all = [$name::VARIANTS[$name::VARIANTS.len() - 1]; _];
            let mut number = 0;
            while number < $name::VARIANTS.len() {
                all[number] = $name::VARIANTS[number];
                number += 1;
            }
            all
        };
    };
}

numbered! {
    /// The operation of an instruction, where an analysis has a rule for it. The operands are in Intel's order.
    Operation, OPERATIONS:
    /// `mov`
    Move,
    /// `movzx`
    ZeroExtend,
    /// `movsx`, `movsxd`
    SignExtend,
    /// `cdqe`: rax = eax, sign-extended.
    SignExtendRax,
    /// `lea`
    LoadAddress,
    Push,
    Pop,
    PushFlags,
    PopFlags,
    Add,
    Subtract,
    Increment,
    Decrement,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    /// `cmp`
    Compare,
    /// `test`
    Test,
    Exchange,
    /// `call`, near
    Call,
    /// `ret`, near
    Return,
    Leave,
    Enter,
    SystemCall,
    /// `int3`
    Breakpoint,
    Nop,
    /// `endbr64`
    EndBranch,
    /// Only the kernel may execute it.
    Privileged,
    /// Any other: its reads and writes are enough.
    Other,
}

numbered! {
    /// Where control goes.
    Control, CONTROLS:
    Next,
    Branch,
    Jump,
    JumpIndirect,
    Call,
    CallIndirect,
    Return,
    Stop,
}

pub(super) const CONTROL_BITS: u32 = CONTROLS.len().ilog2();

/// The condition of a conditional jump, move or set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Equal,
    NotEqual,
    /// Unsigned.
    Above,
    AboveOrEqual,
    Below,
    BelowOrEqual,
    /// Signed.
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Other,
}

/// An operand's position, and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct OperandShape {
    pub(super) is_read: bool,
    pub(super) is_written: bool,
    /// It is always written.
    pub(super) is_always_written: bool,
}

/// What is true of all instructions of one [`Code`].
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) operation: Operation,
    pub(super) control: Control,
    pub(super) condition: Option<Condition>,
    pub(super) operands: [OperandShape; 4],
    /// If both operands are the same register, the result does not depend on it.
    pub(super) clears: bool,
    /// Which operands are registers.
    pub(super) registers: [bool; 4],
    /// All bits set for those of the first two operands that are not registers.
    pub(super) blanks: [u8; 2],
    /// The kinds of the other operands.
    pub(super) layout: Layout,
    /// Operation and control, as an instruction stores them.
    pub(super) meaning: u8,
    /// Which operand is a constant.
    pub(super) immediate: Option<u8>,
    /// The memory operand's size, bytes.
    pub(super) memory_bytes: u16,
    pub(super) memory: Access,
    /// The memory operand's address is used: not by a `nop`.
    pub(super) uses_address: bool,
    /// Registers read besides the operands.
    pub(super) reads: RegisterSet,
    pub(super) writes: RegisterSet,
    pub(super) replaces: RegisterSet,
    pub(super) flags_read: Flags,
    pub(super) flags_written: Flags,
    pub(super) flags_replaced: Flags,
    /// What is added to rsp, without what an operand adds.
    pub(super) stack_change: i16,
    pub(super) may_fault: bool,
}

/// The operands beside two registers, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout(u8);

impl Layout {
    /// Memory, accessed or not, addressed by registers and a displacement.
    pub(super) const MEMORY: Layout = Layout(1);
    /// A constant.
    pub(super) const CONSTANT: Layout = Layout(2);
    /// The distance of a jump or call.
    pub(super) const DISTANCE: Layout = Layout(4);
    /// The third or the fourth operand is a register.
    pub(super) const MORE_REGISTERS: Layout = Layout(8);

    #[inline]
    pub(super) fn has(self, what: Layout) -> bool {
        self.0 & what.0 != 0
    }

    fn with(self, what: Layout, is_there: bool) -> Layout {
        if is_there { Layout(self.0 | what.0) } else { self }
    }
}

impl Shape {
    const NONE: Shape = Shape {
        operation: Operation::Other,
        control: Control::Stop,
        condition: None,
        operands: [OperandShape { is_read: false, is_written: false, is_always_written: false }; 4],
        clears: false,
        registers: [false; 4],
        blanks: [Register::NONE.encoded(); 2],
        layout: Layout(0),
        meaning: (Operation::Other as u8) << CONTROL_BITS | Control::Stop as u8,
        immediate: None,
        memory_bytes: 0,
        memory: Access::None,
        uses_address: false,
        reads: RegisterSet::EMPTY,
        writes: RegisterSet::EMPTY,
        replaces: RegisterSet::EMPTY,
        flags_read: Flags(0),
        flags_written: Flags(0),
        flags_replaced: Flags(0),
        stack_change: 0,
        may_fault: true,
    };
}

/// Two for each [`Code`]: without and with a memory operand, or a prefix that repeats it.
const COUNT: usize = 2 * 4936;
static SHAPES: [OnceLock<Shape>; COUNT] = [const { OnceLock::new() }; COUNT];

/// The shape of an instruction, and the number by which [`known`] finds it from then on.
#[inline]
pub(super) fn shape_of(iced: &Iced) -> (u16, &'static Shape) {
    let has_memory = [iced.op0_kind(), iced.op1_kind(), iced.op2_kind(), iced.op3_kind()].contains(&OpKind::Memory);
    let number = 2 * iced.code() as usize + usize::from(has_memory || is_repeated(iced));
    let shape = SHAPES.get(number).map(|shape| shape.get_or_init(|| new_shape(iced)));
    (number as u16, shape.unwrap_or(&Shape::NONE))
}

/// Whether a prefix repeats it. With other operations the same prefixes mean something else, and do not matter here.
#[inline]
fn is_repeated(iced: &Iced) -> bool {
    (iced.has_rep_prefix() || iced.has_repne_prefix()) && (iced.op_count() == 0 || iced.is_string_instruction())
}

/// The shape with this number.
#[inline]
pub(super) fn known(number: u16) -> &'static Shape {
    SHAPES.get(usize::from(number)).and_then(OnceLock::get).unwrap_or(&Shape::NONE)
}

/// Registers that no instruction uses unless an operand names them, and the sizes in which they are named.
const STAND_INS: [[IcedRegister; 5]; 4] = {
    use IcedRegister::*;
    [
        [R12L, R12W, R12D, R12, R12],
        [R13L, R13W, R13D, R13, R13],
        [R14L, R14W, R14D, R14, R14],
        [R10L, R10W, R10D, R10, R10],
    ]
};
const STAND_IN_BASE: IcedRegister = IcedRegister::R15;

#[cold]
fn new_shape(iced: &Iced) -> Shape {
    // Operands must not name registers that are also used implicitly.
    let mut iced = *iced;
    let mut stand_ins = RegisterSet::EMPTY;
    let mut has_memory = false;
    for (index, stand_ins_here) in (0..iced.op_count().min(4)).zip(STAND_INS) {
        match iced.op_kind(index) {
            OpKind::Register if iced.op_register(index).is_gpr() => {
                let stand_in = stand_ins_here[iced.op_register(index).size().ilog2() as usize];
                iced.set_op_register(index, stand_in);
                stand_ins = stand_ins.with(Register::of(stand_in).set());
            }
            OpKind::Memory => has_memory = true,
            _ => {}
        }
    }
    if iced.encoding() == EncodingKind::EVEX {
        // With a mask it may preserve parts of its result, and the same code is used for both.
        iced.set_op_mask(IcedRegister::K1);
        iced.set_zeroing_masking(false);
        iced.set_is_broadcast(false);
    }
    if has_memory {
        iced.set_memory_base(STAND_IN_BASE);
        if iced.memory_index().is_gpr() {
            iced.set_memory_index(IcedRegister::None);
        }
        stand_ins = stand_ins.with(Register::of(STAND_IN_BASE).set());
    }
    let is_shift = matches!(
        iced.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Sal
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    );
    let last = iced.op_count().saturating_sub(1);
    if is_shift && iced.op_kind(last) == OpKind::Immediate8 {
        iced.set_immediate8(1);
    }
    let repeats = iced.has_rep_prefix() || iced.has_repne_prefix();
    let mut infos = InstructionInfoFactory::new();
    let info = infos.info(&iced);
    let mut shape = Shape {
        operation: operation_of(&iced),
        control: control_of(&iced),
        condition: condition_of(iced.condition_code()),
        clears: matches!(iced.mnemonic(), Mnemonic::Xor | Mnemonic::Sub),
        registers: [0, 1, 2, 3].map(|operand| iced.op_count() > operand && iced.op_kind(operand) == OpKind::Register),
        memory_bytes: iced.memory_size().size() as u16,
        flags_read: Flags(iced.rflags_read() as u16),
        flags_written: Flags(iced.rflags_modified() as u16),
        // An undefined flag may have any value, but some processors preserve it.
        flags_replaced: Flags((iced.rflags_written() | iced.rflags_cleared() | iced.rflags_set()) as u16),
        may_fault: false,
        ..Shape::NONE
    };
    // A shift by 0 and a repetition of 0 times preserve the flags.
    if is_shift || repeats {
        shape.flags_replaced = Flags(0);
    }
    for index in 0..iced.op_count().min(4) {
        let access = info.op_access(index);
        let operand = OperandShape {
            is_read: reads(access),
            is_written: writes(access),
            is_always_written: always_writes(access),
        };
        match iced.op_kind(index) {
            OpKind::Memory => {
                shape.memory = Access::of(operand.is_read, operand.is_written);
                shape.uses_address = access != OpAccess::None;
            }
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
                if shape.immediate.is_none() =>
            {
                shape.immediate = Some(index as u8);
            }
            _ => {}
        }
        if let Some(place) = shape.operands.get_mut(index as usize) {
            *place = operand;
        }
    }
    for used in info.used_registers() {
        let register = Register::of(used.register());
        let set = register.set().without(stand_ins);
        if reads(used.access()) {
            shape.reads = shape.reads.with(set);
        }
        if writes(used.access()) {
            shape.writes = shape.writes.with(set);
        }
        if always_writes(used.access()) && register.is_replaced() {
            shape.replaces = shape.replaces.with(set);
        }
    }
    // What a constant adds is stored in each instruction.
    let own_bytes = match iced.flow_control() {
        FlowControl::Return if shape.immediate.is_some() => i32::from(iced.immediate16()),
        _ if shape.operation == Operation::Enter => iced.stack_pointer_increment(),
        _ => 0,
    };
    shape.stack_change = (iced.stack_pointer_increment() - own_bytes) as i16;
    shape.blanks = [0, 1].map(|operand| if shape.registers[operand] { 0 } else { Register::NONE.encoded() });
    let is_distance = matches!(iced.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16);
    shape.layout = Layout(0)
        .with(Layout::MEMORY, has_memory)
        .with(Layout::CONSTANT, shape.immediate.is_some())
        .with(Layout::DISTANCE, is_distance)
        .with(Layout::MORE_REGISTERS, shape.registers[2] || shape.registers[3]);
    shape.meaning = (shape.operation as u8) << CONTROL_BITS | shape.control as u8;
    let touches_memory = info.used_memory().iter().any(|used| reads(used.access()) || writes(used.access()));
    shape.may_fault = touches_memory
        || iced.is_privileged()
        || matches!(shape.control, Control::Stop)
        || matches!(iced.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
        || iced.flow_control() == FlowControl::Interrupt;
    shape
}

fn reads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn always_writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite)
}

fn operation_of(iced: &Iced) -> Operation {
    match iced.mnemonic() {
        _ if iced.is_privileged() => Operation::Privileged,
        Mnemonic::Mov => Operation::Move,
        Mnemonic::Movzx => Operation::ZeroExtend,
        Mnemonic::Movsx | Mnemonic::Movsxd => Operation::SignExtend,
        Mnemonic::Cdqe => Operation::SignExtendRax,
        Mnemonic::Lea => Operation::LoadAddress,
        Mnemonic::Push => Operation::Push,
        Mnemonic::Pop => Operation::Pop,
        Mnemonic::Pushfq => Operation::PushFlags,
        Mnemonic::Popfq => Operation::PopFlags,
        Mnemonic::Add => Operation::Add,
        Mnemonic::Sub => Operation::Subtract,
        Mnemonic::Inc => Operation::Increment,
        Mnemonic::Dec => Operation::Decrement,
        Mnemonic::And => Operation::And,
        Mnemonic::Or => Operation::Or,
        Mnemonic::Xor => Operation::Xor,
        Mnemonic::Shl => Operation::ShiftLeft,
        Mnemonic::Shr => Operation::ShiftRight,
        Mnemonic::Cmp => Operation::Compare,
        Mnemonic::Test => Operation::Test,
        Mnemonic::Xchg => Operation::Exchange,
        Mnemonic::Call if iced.is_call_near() || iced.is_call_near_indirect() => Operation::Call,
        Mnemonic::Ret => Operation::Return,
        Mnemonic::Leave => Operation::Leave,
        Mnemonic::Enter => Operation::Enter,
        Mnemonic::Syscall => Operation::SystemCall,
        Mnemonic::Int3 => Operation::Breakpoint,
        Mnemonic::Nop => Operation::Nop,
        Mnemonic::Endbr64 => Operation::EndBranch,
        _ => Operation::Other,
    }
}

fn control_of(iced: &Iced) -> Control {
    let is_near = iced.op0_kind() == OpKind::NearBranch64;
    match iced.flow_control() {
        FlowControl::Next if iced.code() == Code::Hlt => Control::Stop,
        FlowControl::Next => Control::Next,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend if is_near => Control::Branch,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => Control::Next,
        FlowControl::UnconditionalBranch => Control::Jump,
        FlowControl::IndirectBranch => Control::JumpIndirect,
        FlowControl::Call if is_near => Control::Call,
        // syscall and similar
        FlowControl::Call => Control::Next,
        FlowControl::IndirectCall => Control::CallIndirect,
        FlowControl::Return => Control::Return,
        FlowControl::Interrupt if iced.code() == Code::Int_imm8 => Control::Next,
        FlowControl::Interrupt | FlowControl::Exception => Control::Stop,
    }
}

fn condition_of(code: ConditionCode) -> Option<Condition> {
    Some(match code {
        ConditionCode::None => return None,
        ConditionCode::e => Condition::Equal,
        ConditionCode::ne => Condition::NotEqual,
        ConditionCode::a => Condition::Above,
        ConditionCode::ae => Condition::AboveOrEqual,
        ConditionCode::b => Condition::Below,
        ConditionCode::be => Condition::BelowOrEqual,
        ConditionCode::g => Condition::Greater,
        ConditionCode::ge => Condition::GreaterOrEqual,
        ConditionCode::l => Condition::Less,
        ConditionCode::le => Condition::LessOrEqual,
        _ => Condition::Other,
    })
}
