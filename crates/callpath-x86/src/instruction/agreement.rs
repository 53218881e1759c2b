//! Compares instructions with iced-x86: a shape is built from one instruction, and must hold for all of its encoding.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as Iced, InstructionInfoFactory, OpAccess, OpKind,
    Register as IcedRegister,
};

use super::{Control, Instruction, LONGEST_BYTES, Operation, Register};

const AT: u64 = 0x40_0000;

/// Pseudo-random numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11 ^ self.0 >> 41
    }
}

struct Checker {
    numbers: Numbers,
    info: InstructionInfoFactory,
    seen: u64,
}

fn bits(registers: impl Iterator<Item = IcedRegister>) -> u16 {
    registers
        .filter(|register| register.is_gpr())
        .fold(0, |bits, register| bits | 1 << register.full_register().number())
}

impl Checker {
    fn new() -> Checker {
        Checker { numbers: Numbers(1), info: InstructionInfoFactory::new(), seen: 0 }
    }

    /// Checks bytes that begin with `head`.
    fn check_filled(&mut self, head: &[u8]) {
        let mut bytes = [0; 24];
        bytes.fill_with(|| self.numbers.next() as u8);
        // Small numbers are frequent.
        let mask = [0xff, 0x07, 0x00][self.numbers.next() as usize % 3];
        for byte in bytes.iter_mut().skip(head.len() + 1) {
            *byte &= mask;
        }
        bytes[..head.len()].copy_from_slice(head);
        self.check(&bytes);
    }

    fn check(&mut self, bytes: &[u8]) {
        let mut iced = Iced::default();
        Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE).decode_out(&mut iced);
        let ours = Instruction::decode(bytes);
        let say = || format!("{bytes:02x?} {iced} {ours:?}");
        let Some(ours) = ours else { return assert!(iced.is_invalid(), "{}", say()) };
        assert!(!iced.is_invalid(), "{}", say());
        self.seen += 1;
        let next = AT + u64::from(ours.len());
        assert_eq!(ours.len() as usize, iced.len(), "{}", say());
        assert_eq!(ours.is_privileged(), iced.is_privileged(), "{}", say());
        Self::check_operands((&ours, &iced), next, &say);
        let info = self.info.info(&iced);
        let used = |is: fn(OpAccess) -> bool| {
            bits(info.used_registers().iter().filter(move |used| is(used.access())).map(|used| used.register()))
        };
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        let reads = used(|access| matches!(access, Read | CondRead | ReadWrite | ReadCondWrite));
        let writes = used(|access| matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite));
        let surely = used(|access| matches!(access, Write | ReadWrite));
        assert_eq!(ours.reads().general_bits(), reads, "reads {reads:x}: {}", say());
        assert_eq!(ours.writes().general_bits(), writes, "writes {writes:x}: {}", say());
        assert_eq!(ours.replaces().general_bits() & !surely, 0, "replaces: {}", say());
        if iced.op0_kind() == OpKind::Memory {
            let is_written = matches!(info.op0_access(), Write | CondWrite | ReadWrite | ReadCondWrite);
            assert_eq!(ours.writes_memory_operand(), is_written, "{}", say());
        }
        if !info.used_memory().is_empty() {
            assert!(ours.may_fault(), "{}", say());
        }
        assert_eq!(ours.stack_change(), i64::from(iced.stack_pointer_increment()), "{}", say());
        // A shift by 0 reads and changes no flags; the shape says that it may.
        assert_eq!(iced.rflags_read() & !u32::from(ours.flags_read().0), 0, "flags read: {}", say());
        assert_eq!(iced.rflags_modified() & !u32::from(ours.flags_written().0), 0, "flags written: {}", say());
        assert_eq!(
            u32::from(ours.flags_replaced().0)
                & !(iced.rflags_written() | iced.rflags_cleared() | iced.rflags_set() | iced.rflags_undefined()),
            0,
            "flags replaced: {}",
            say()
        );
        Self::check_control((&ours, &iced), next, &say);
    }

    fn check_operands((ours, iced): (&Instruction, &Iced), next: u64, say: &dyn Fn() -> String) {
        let mut immediate = None;
        for operand in 0..iced.op_count().min(4) {
            let register = ours.register(operand as usize);
            match iced.op_kind(operand) {
                OpKind::Register if operand >= 3 => {}
                OpKind::Register => {
                    let expect = iced.op_register(operand);
                    let number = expect.is_gpr().then(|| expect.full_register().number());
                    assert_eq!(register.general(), number, "{}", say());
                    let bytes = if expect.is_gpr() { expect.size() } else { 0 };
                    assert_eq!(usize::from(register.general_bytes()), bytes, "{}", say());
                    assert_eq!(register == Register::AL, expect == IcedRegister::AL, "{}", say());
                }
                _ => assert_eq!(register, Register::NONE, "{}", say()),
            }
            if let Ok(value) = iced.try_immediate(operand) {
                immediate = immediate.or(Some(value));
            }
        }
        if ours.operation() != Operation::Enter {
            assert_eq!(ours.immediate(), immediate, "{}", say());
        }
        let is_memory = (0..iced.op_count()).any(|operand| iced.op_kind(operand) == OpKind::Memory);
        assert_eq!(ours.has_memory(), is_memory, "{}", say());
        let Some(memory) = ours.memory() else { return };
        let general = |register: IcedRegister| {
            (register.is_gpr() && register.size() == 8).then(|| register.full_register().number())
        };
        assert_eq!(memory.base.general64(), general(iced.memory_base()), "{}", say());
        assert_eq!(memory.base == Register::NONE, iced.memory_base() == IcedRegister::None, "{}", say());
        assert_eq!(memory.index.general64(), general(iced.memory_index()), "{}", say());
        assert_eq!(memory.index == Register::NONE, iced.memory_index() == IcedRegister::None, "{}", say());
        assert_eq!(u32::from(memory.scale), iced.memory_index_scale(), "{}", say());
        let segment = iced.memory_segment();
        assert_eq!(memory.has_segment, matches!(segment, IcedRegister::FS | IcedRegister::GS), "{}", say());
        if !iced.is_broadcast() {
            assert_eq!(usize::from(memory.bytes), iced.memory_size().size(), "{}", say());
        }
        assert_eq!(memory.is_beside_code(), iced.is_ip_rel_memory_operand(), "{}", say());
        let is_short = iced.memory_base().size() == 4 || iced.memory_index().size() == 4;
        let low = |value: u64| if is_short { u64::from(value as u32) } else { value };
        if memory.is_beside_code() {
            let address = ours.beside_code(next).expect("it is");
            assert_eq!(low(address), low(iced.ip_rel_memory_address()), "{}", say());
        } else {
            assert_eq!(low(memory.displacement as u64), low(iced.memory_displacement64()), "{}", say());
        }
    }

    fn check_control((ours, iced): (&Instruction, &Iced), next: u64, say: &dyn Fn() -> String) {
        let control = ours.control();
        let is_near = iced.op0_kind() == OpKind::NearBranch64;
        let expect = match iced.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend if is_near => Control::Branch,
            FlowControl::UnconditionalBranch => Control::Jump,
            FlowControl::IndirectBranch => Control::JumpIndirect,
            FlowControl::Call if is_near && iced.near_branch_target() != iced.next_ip() => Control::Call,
            FlowControl::IndirectCall => Control::CallIndirect,
            FlowControl::Return => Control::Return,
            FlowControl::Exception => Control::Stop,
            FlowControl::Interrupt if !matches!(iced.mnemonic(), iced_x86::Mnemonic::Int) => Control::Stop,
            _ if iced.mnemonic() == iced_x86::Mnemonic::Hlt => Control::Stop,
            _ => Control::Next,
        };
        assert_eq!(control, expect, "{}", say());
        if matches!(control, Control::Branch | Control::Jump | Control::Call) && is_near {
            assert_eq!(ours.target(next), iced.near_branch_target(), "{}", say());
        }
    }
}

/// Every opcode of every map, with every prefix and `modrm`, followed by random bytes.
#[test]
fn every_opcode() {
    let mut checker = Checker::new();
    const PREFIXES: [&[u8]; 30] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x64],
        &[0x66, 0x66],
        &[0x66, 0x2e],
        &[0xf0],
        &[0x67],
        &[0x2e],
        &[0x40],
        &[0x41],
        &[0x48],
        &[0x49],
        &[0x4c],
        &[0x4f],
        &[0x44],
        &[0x42],
        &[0x66, 0x48],
        &[0x66, 0x41],
        &[0x66, 0x44],
        &[0xf3, 0x48],
        &[0xf3, 0x41],
        &[0xf2, 0x48],
        &[0xf2, 0x45],
        &[0x64, 0x48],
        &[0x65, 0x4c],
        &[0x64, 0x66],
        &[0x48, 0x66],
        &[0xf3, 0x66],
    ];
    const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    for prefix in PREFIXES {
        for map in MAPS {
            for opcode in 0..=255u8 {
                let mut head = [prefix, map, &[opcode]].concat();
                let modrms = if prefix.is_empty() { 256 } else { 24 };
                for step in 0..modrms {
                    let modrm = if modrms == 256 { step as u8 } else { checker.numbers.next() as u8 };
                    head.push(modrm);
                    checker.check_filled(&head);
                    head.pop();
                }
            }
        }
    }
    assert!(checker.seen > 300_000, "{}", checker.seen);
}

/// The same for VEX and EVEX.
#[test]
fn every_opcode_of_vectors() {
    let mut checker = Checker::new();
    for opcode in 0..=255u8 {
        for second in 0..=255u8 {
            checker.check_filled(&[0xc5, second, opcode]);
        }
        for _ in 0..400 {
            let mut next = || checker.numbers.next() as u8;
            let (map, third) = ((1 + next() % 3) | (next() & 0xe0), next());
            let (first, second, last) = ((next() % 8) | (next() & 0xf0), next() | 4, next());
            // Often with the encoding for no register.
            let third = if third & 3 == 0 { third } else { third | 0x78 };
            checker.check_filled(&[0xc4, map, third, opcode]);
            checker.check_filled(&[0x62, first, second, last, opcode]);
        }
    }
    assert!(checker.seen > 10_000, "{}", checker.seen);
}

/// By the processor's manual: instructions that access memory (including the stack), divide, or raise an exception; and
/// instructions that do not.
#[test]
fn what_may_raise_a_signal() {
    let may_fault = |bytes: &[u8]| Instruction::decode(bytes).unwrap_or_else(|| panic!("{bytes:x?}")).may_fault();
    let faulting: [&[u8]; 30] = [
        &[0x48, 0x8b, 0x07],                         // mov rax, [rdi]
        &[0x48, 0x89, 0x07],                         // mov [rdi], rax
        &[0x48, 0x8b, 0x05, 0, 0, 0, 0],             // mov rax, [rip]
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], // mov rax, fs:[0]
        &[0x48, 0x01, 0x07],                         // add [rdi], rax
        &[0x0f, 0x28, 0x07],                         // movaps xmm0, [rdi]
        &[0xc5, 0xfc, 0x11, 0x07],                   // vmovups [rdi], ymm0
        &[0xf3, 0xa4],                               // rep movsb
        &[0xaa],                                     // stosb
        &[0x0f, 0xae, 0x07],                         // fxsave [rdi]
        &[0x53],                                     // push rbx
        &[0x6a, 1],                                  // push 1
        &[0x5b],                                     // pop rbx
        &[0x9c],                                     // pushfq
        &[0x9d],                                     // popfq
        &[0xe8, 1, 0, 0, 0],                         // call
        &[0xff, 0xd0],                               // call rax
        &[0xff, 0x25, 0, 0, 0, 0],                   // jmp [rip]
        &[0xc3],                                     // ret
        &[0xc2, 8, 0],                               // ret 8
        &[0xc9],                                     // leave
        &[0x48, 0xf7, 0xf1],                         // div rcx
        &[0xf6, 0xf9],                               // idiv cl
        &[0xf4],                                     // hlt
        &[0x0f, 0x0b],                               // ud2
        &[0xcc],                                     // int3
        &[0xcd, 0x80],                               // int 0x80
        &[0x0f, 0x30],                               // wrmsr
        &[0x0f, 0x20, 0xc0],                         // mov rax, cr0
        &[0xec],                                     // in al, dx
    ];
    for bytes in faulting {
        assert!(may_fault(bytes), "{bytes:x?}");
    }
    let others: [&[u8]; 12] = [
        &[0x48, 0x89, 0xd8],          // mov rax, rbx
        &[0xb8, 1, 0, 0, 0],          // mov eax, 1
        &[0x48, 0x01, 0xd8],          // add rax, rbx
        &[0x48, 0xf7, 0xe1],          // mul rcx
        &[0x48, 0x8d, 0x44, 0x24, 8], // lea rax, [rsp + 8]
        &[0x48, 0x83, 0xec, 8],       // sub rsp, 8
        &[0x0f, 0x1f, 0x44, 0, 0],    // nop [rax + rax]
        &[0xf3, 0x0f, 0x1e, 0xfa],    // endbr64
        &[0x74, 2],                   // je
        &[0xe9, 0, 0, 0, 0],          // jmp
        &[0xff, 0xe0],                // jmp rax
        &[0x66, 0x0f, 0xef, 0xc0],    // pxor xmm0, xmm0
    ];
    for bytes in others {
        assert!(!may_fault(bytes), "{bytes:x?}");
    }
}

/// This program, as far as its code decodes.
#[test]
fn a_program() {
    const LEN_BYTES: usize = 2 << 20;
    let program = std::fs::read(std::env::current_exe().expect("a program")).expect("readable");
    let mut checker = Checker::new();
    let mut at = 0;
    let program = &program[..program.len().min(LEN_BYTES)];
    while at + LONGEST_BYTES < program.len() {
        let zeros = program[at..].iter().take_while(|&&byte| byte == 0).count();
        if zeros > 8 {
            at += zeros;
            continue;
        }
        let window = &program[at..(at + 24).min(program.len())];
        checker.check(window);
        at += Instruction::decode(window).map_or(1, |instruction| instruction.len() as usize);
    }
    assert!(checker.seen > 100_000, "{}", checker.seen);
}
