//! Call frame information instruction by instruction, from hand-made sections to the rows that they mean.

use super::*;
use callpath_format::recipe::{Cfa, Expression, Rule};
use callpath_format::register::Reg;

/// Offsets in the assembled section are from its start; it lies here.
const EH_FRAME: LinkAddr = LinkAddr(0x8000);
const CODE: Range<LinkAddr> = LinkAddr(0x1000)..LinkAddr(0x5000);

const ADVANCE_LOC: u8 = 0x40;
const OFFSET: u8 = 0x80;
const RESTORE: u8 = 0xc0;
const SET_LOC: u8 = 0x01;
const ADVANCE_LOC2: u8 = 0x03;
const RESTORE_EXTENDED: u8 = 0x06;
const UNDEFINED: u8 = 0x07;
const SAME_VALUE: u8 = 0x08;
const REGISTER: u8 = 0x09;
const REMEMBER_STATE: u8 = 0x0a;
const RESTORE_STATE: u8 = 0x0b;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_REGISTER: u8 = 0x0d;
const DEF_CFA_OFFSET: u8 = 0x0e;
const DEF_CFA_EXPRESSION: u8 = 0x0f;
const EXPRESSION: u8 = 0x10;
const OFFSET_EXTENDED_SF: u8 = 0x11;
const VAL_OFFSET: u8 = 0x14;
const VAL_EXPRESSION: u8 = 0x16;
const GNU_ARGS_SIZE: u8 = 0x2e;

const RAX: u8 = 0;
const RBX: u8 = 3;
const RBP: u8 = 6;
const RSP: u8 = 7;
const R10: u8 = 10;
const R12: u8 = 12;
const RA: u8 = 16;

/// `CFA = rsp + 8, ra = *(CFA - 8)`: what every compiler's CIE says.
const USUAL: &[u8] = &[DEF_CFA, RSP, 8, OFFSET | RA, 1];

/// Writes `.eh_frame` sections.
#[derive(Default)]
struct Section(Vec<u8>);

impl Section {
    fn entry(&mut self, id: u32, body: &[u8]) -> usize {
        let at = self.0.len();
        self.0.extend((body.len() as u32 + 4).to_le_bytes());
        self.0.extend(id.to_le_bytes());
        self.0.extend(body);
        at
    }

    /// A CIE with augmentation `augmentation`, which begins with `z` and has `R` (absolute 8-byte pointers).
    fn cie(&mut self, augmentation: &str, program: &[u8]) -> usize {
        let mut body = vec![1];
        body.extend(augmentation.as_bytes());
        body.extend([0, 1, 0x78, RA, 1, 0x00]);
        body.extend(program);
        self.entry(0, &body)
    }

    fn fde(&mut self, cie: usize, code: Range<u64>, program: &[u8]) -> usize {
        let mut body = Vec::new();
        body.extend(code.start.to_le_bytes());
        body.extend((code.end - code.start).to_le_bytes());
        body.push(0);
        body.extend(program);
        let id = (self.0.len() + 4 - cie) as u32;
        self.entry(id, &body)
    }

    fn frames(&self) -> CallFrames {
        let frames =
            CallFrames::read(&CfiInput { eh_frame: Some((EH_FRAME, &self.0)), code: &[CODE], ..CfiInput::default() });
        frames.assert_sound();
        frames
    }
}

/// The frames of one FDE of 0x1000..0x1040.
fn frames_of(cie_program: &[u8], program: &[u8]) -> CallFrames {
    let mut section = Section::default();
    let cie = section.cie("zR", cie_program);
    section.fde(cie, 0x1000..0x1040, program);
    section.frames()
}

/// Rows as `(start, recipe)`; nothing may be odd.
fn rows(program: &[u8]) -> Vec<(u64, Recipe)> {
    let frames = frames_of(USUAL, program);
    assert_eq!(frames.diagnostics, []);
    listed(&frames)
}

fn listed(frames: &CallFrames) -> Vec<(u64, Recipe)> {
    frames.rows.iter().map(|row| (row.start.0, frames.recipes[row.recipe as usize])).collect()
}

fn recipe(reg: u8, disp: i32, rules: &[(u8, Rule)]) -> Recipe {
    with_rules(Cfa::Register { reg: Reg::from_low_bits(reg.into()), disp }, rules)
}

fn with_rules(cfa: Cfa, rules: &[(u8, Rule)]) -> Recipe {
    let mut recipe = Recipe::with_cfa(cfa);
    for (column, rule) in rules {
        match *column {
            RA => recipe.return_address = *rule,
            column => recipe.registers[usize::from(column)] = *rule,
        }
    }
    recipe
}

fn troubles(frames: &CallFrames) -> Vec<CfiTrouble> {
    frames.diagnostics.iter().map(|diagnostic| diagnostic.trouble).collect()
}

#[test]
fn a_procedure_of_gcc() {
    // push rbp; mov rbp, rsp; push rbx; ...; leave; ret
    let program = [
        ADVANCE_LOC | 1,
        DEF_CFA_OFFSET,
        16,
        OFFSET | RBP,
        2,
        ADVANCE_LOC | 3,
        DEF_CFA_REGISTER,
        RBP,
        ADVANCE_LOC | 1,
        OFFSET | RBX,
        3,
        ADVANCE_LOC2,
        0x2f,
        0,
        REMEMBER_STATE,
        DEF_CFA,
        RSP,
        8,
        ADVANCE_LOC | 1,
        RESTORE_STATE,
        GNU_ARGS_SIZE,
        16,
    ];
    let saved = [(RBP, Rule::AtCfa(-16)), (RBX, Rule::AtCfa(-24))];
    assert_eq!(
        rows(&program),
        [
            (0x1000, recipe(RSP, 8, &[])),
            (0x1001, recipe(RSP, 16, &saved[..1])),
            (0x1004, recipe(RBP, 16, &saved[..1])),
            (0x1005, recipe(RBP, 16, &saved)),
            // Both are restored, and their places are below rsp.
            (0x1034, recipe(RSP, 8, &[])),
            (0x1035, recipe(RBP, 16, &saved)),
        ]
    );
}

#[test]
fn what_is_popped_is_in_its_register_and_what_is_in_the_red_zone_is_not() {
    // push rbp; push rbx; ...; pop rbx; pop rbp; ret
    let pushed =
        [ADVANCE_LOC | 1, DEF_CFA_OFFSET, 16, OFFSET | RBP, 2, ADVANCE_LOC | 1, DEF_CFA_OFFSET, 24, OFFSET | RBX, 3];
    let popped = [ADVANCE_LOC | 8, DEF_CFA_OFFSET, 16, ADVANCE_LOC | 1, DEF_CFA_OFFSET, 8];
    let saved = [(RBP, Rule::AtCfa(-16)), (RBX, Rule::AtCfa(-24))];
    let rows_of_both = rows(&[&pushed[..], &popped].concat());
    assert_eq!(
        rows_of_both[2..],
        [(0x1002, recipe(RSP, 24, &saved)), (0x100a, recipe(RSP, 16, &saved[..1])), (0x100b, recipe(RSP, 8, &[])),]
    );
    // mov %rbx, -8(%rsp), in a leaf.
    assert_eq!(
        rows(&[ADVANCE_LOC | 5, OFFSET | RBX, 2]),
        [(0x1000, recipe(RSP, 8, &[])), (0x1005, recipe(RSP, 8, &[(RBX, Rule::AtCfa(-16))]))]
    );
    // A signal's frame has them all where it says.
    let mut section = Section::default();
    let cie = section.cie("zRS", USUAL);
    section.fde(cie, 0x1000..0x1040, &[DEF_CFA_OFFSET, 16, OFFSET | RBP, 2, ADVANCE_LOC | 1, DEF_CFA_OFFSET, 8]);
    let rules = section.frames();
    assert!(listed(&rules).iter().all(|(_, recipe)| recipe.registers[usize::from(RBP)] == Rule::AtCfa(-16)));
}

#[test]
fn register_rules() {
    let one = |program: &[u8], rules: &[(u8, Rule)]| assert_eq!(rows(program), [(0x1000, recipe(RSP, 8, rules))]);
    one(&[UNDEFINED, RBX], &[(RBX, Rule::Lost)]);
    one(&[OFFSET | RBX, 2, SAME_VALUE, RBX], &[]);
    one(&[REGISTER, RBX, R10], &[(RBX, Rule::RegisterPlus(Reg::R10, 0))]);
    one(&[REGISTER, RA, R10], &[(RA, Rule::RegisterPlus(Reg::R10, 0))]);
    one(&[VAL_OFFSET, RSP, 2], &[(RSP, Rule::CfaPlus(-16))]);
    one(&[OFFSET_EXTENDED_SF, R12, 0x7e], &[(R12, Rule::AtCfa(16))]); // -2 * -8
    one(&[EXPRESSION, R12, 2, 0x76, 0x58], &[(R12, Rule::AtRegister(Reg::RBP, -40))]); // breg6 -40
    one(&[VAL_EXPRESSION, R12, 2, 0x77, 24], &[(R12, Rule::RegisterPlus(Reg::RSP, 24))]); // breg7 24
    one(&[VAL_EXPRESSION, RSP, 2, 0x23, 1], &[(RSP, Rule::CfaPlus(1))]); // plus_uconst 1
    one(&[VAL_EXPRESSION, R12, 3, 0x77, 24, 0x06], &[(R12, Rule::AtRegister(Reg::RSP, 24))]); // breg7 24; deref
    one(&[OFFSET | RBX, 2, RESTORE | RBX], &[]);
    one(&[OFFSET | RBX, 2, RESTORE_EXTENDED, RBX], &[]);
    // What a call may change is of no interest in an ordinary frame, nor are vector registers.
    one(&[OFFSET | RAX, 2, REGISTER, R10, RAX, OFFSET | 17, 9, REGISTER, 17, 18], &[]);
}

#[test]
fn restore_goes_back_to_the_cie() {
    let cie = [USUAL, &[OFFSET | RBX, 5]].concat();
    let frames = frames_of(&cie, &[OFFSET | RBX, 2, ADVANCE_LOC | 4, RESTORE | RBX]);
    assert_eq!(
        listed(&frames),
        [(0x1000, recipe(RSP, 8, &[(RBX, Rule::AtCfa(-16))])), (0x1004, recipe(RSP, 8, &[(RBX, Rule::AtCfa(-40))]))]
    );
}

#[test]
fn cfa_expressions() {
    // Realigned frame (gcc): breg6 -8; deref
    let deref = Cfa::Deref { reg: Reg::RBP, disp: -8, add: 0 };
    assert_eq!(rows(&[DEF_CFA_EXPRESSION, 3, 0x76, 0x78, 0x06]), [(0x1000, with_rules(deref, &[]))]);
    // breg7 0; const1s -16; and: no equation, so it stays
    let frames = frames_of(USUAL, &[DEF_CFA_EXPRESSION, 5, 0x77, 0, 0x09, 0xf0, 0x1a]);
    let expected = Cfa::Expression(Expression { start: 0, len: 5 });
    assert_eq!(listed(&frames), [(0x1000, with_rules(expected, &[]))]);
    assert_eq!(frames.expressions, [0x77, 0, 0x09, 0xf0, 0x1a]);
    // call_frame_cfa: the walk cannot
    let frames = frames_of(USUAL, &[DEF_CFA_EXPRESSION, 1, 0x9c, ADVANCE_LOC | 4, DEF_CFA, RSP, 16]);
    assert_eq!(listed(&frames), [(0x1000, Recipe::UNKNOWN), (0x1004, recipe(RSP, 16, &[]))]);
    assert_eq!(troubles(&frames), [CfiTrouble::Cfa(LinkAddr(0x1000))]);
}

#[test]
fn plt_becomes_rows() {
    // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let program = [
        &[DEF_CFA_OFFSET, 16, ADVANCE_LOC | 6, DEF_CFA_OFFSET, 24, ADVANCE_LOC | 10, DEF_CFA_EXPRESSION, 11][..],
        &plt,
    ]
    .concat();
    assert_eq!(
        rows(&program),
        [
            (0x1000, recipe(RSP, 16, &[])),
            (0x1006, recipe(RSP, 24, &[])),
            (0x1010, recipe(RSP, 8, &[])),
            (0x101b, recipe(RSP, 16, &[])),
            (0x1020, recipe(RSP, 8, &[])),
            (0x102b, recipe(RSP, 16, &[])),
            (0x1030, recipe(RSP, 8, &[])),
            (0x103b, recipe(RSP, 16, &[])),
        ]
    );
}

#[test]
fn outermost_and_signal_frames() {
    assert_eq!(rows(&[UNDEFINED, RA]), [(0x1000, Recipe::OUTERMOST)]);
    let mut section = Section::default();
    let cie = section.cie("zRS", USUAL);
    // As glibc writes its restorer: all registers from the saved context.
    section.fde(
        cie,
        0x1000..0x1010,
        &[
            DEF_CFA_EXPRESSION,
            4,
            0x77,
            0xa0,
            1,
            0x06,
            EXPRESSION,
            RAX,
            3,
            0x77,
            0x90,
            1,
            EXPRESSION,
            RA,
            3,
            0x77,
            0xa8,
            1,
        ],
    );
    let mut expected = with_rules(
        Cfa::Deref { reg: Reg::RSP, disp: 160, add: 0 },
        &[(RAX, Rule::AtRegister(Reg::RSP, 144)), (RA, Rule::AtRegister(Reg::RSP, 168))],
    );
    expected.signal_frame = true;
    assert_eq!(listed(&section.frames()), [(0x1000, expected)]);
}

#[test]
fn equal_neighbours_are_one_row() {
    assert_eq!(rows(&[ADVANCE_LOC | 4, SAME_VALUE, RBX, ADVANCE_LOC | 4, DEF_CFA, RSP, 8]).len(), 1);
}

#[test]
fn what_is_wrong_is_said_and_unknown() {
    let check = |program: &[u8], row: u64, trouble| {
        let frames = frames_of(USUAL, program);
        assert_eq!(listed(&frames).last(), Some(&(row, Recipe::UNKNOWN)), "{program:x?}");
        assert_eq!(troubles(&frames), [trouble]);
        assert_eq!(frames.diagnostics[0].offset, frames.ranges[0].offset);
    };
    let at = LinkAddr(0x1004);
    check(&[ADVANCE_LOC | 4, 0x3f], 0x1004, CfiTrouble::Instruction(at));
    check(&[ADVANCE_LOC | 4, DEF_CFA, RSP], 0x1004, CfiTrouble::Instruction(at));
    check(&[ADVANCE_LOC | 4, RESTORE_STATE], 0x1004, CfiTrouble::States(at));
    check(&[&[ADVANCE_LOC | 4][..], &[REMEMBER_STATE; 300]].concat(), 0x1004, CfiTrouble::States(at));
    check(&[ADVANCE_LOC | 4, SET_LOC, 1, 0, 0, 0, 0, 0, 0, 0], 0x1004, CfiTrouble::Address(at));
    check(&[ADVANCE_LOC | 4, DEF_CFA_REGISTER, 33], 0x1004, CfiTrouble::Cfa(at));
    check(&[ADVANCE_LOC | 4, DEF_CFA, RSP, 0xff, 0xff, 0xff, 0xff, 0x0f], 0x1004, CfiTrouble::Cfa(at));
    check(&[SAME_VALUE, RA], 0x1000, CfiTrouble::ReturnAddress(LinkAddr(0x1000)));
    // A register that no recipe can restore is lost, no more.
    let frames = frames_of(USUAL, &[VAL_EXPRESSION, RBX, 1, 0x9c]);
    assert_eq!(listed(&frames), [(0x1000, recipe(RSP, 8, &[(RBX, Rule::Lost)]))]);
    assert_eq!(troubles(&frames), [CfiTrouble::Register(3)]);
    // No CIE gave the return address a rule.
    let frames = frames_of(&[DEF_CFA, RSP, 8], &[]);
    assert_eq!(listed(&frames), [(0x1000, Recipe::UNKNOWN)]);
    assert_eq!(troubles(&frames), [CfiTrouble::ReturnAddress(LinkAddr(0x1000))]);
}

#[test]
fn entries_are_read_after_bad_ones_and_terminators() {
    let mut section = Section::default();
    let cie = section.cie("zR", USUAL);
    let strange = section.cie("zX", USUAL);
    section.fde(strange, 0x1000..0x1010, &[]);
    section.fde(cie, 0x1010..0x1020, &[]);
    section.0.extend([0; 4]);
    section.fde(cie, 0x1020..0x1030, &[]);
    section.fde(cie, 0x9000..0x9010, &[]);
    section.fde(cie, 0x1040..0x1040, &[]);
    let frames = section.frames();
    let starts: Vec<u64> = frames.ranges.iter().map(|range| range.code.start.0).collect();
    assert_eq!(starts, [0x1010, 0x1020]);
    assert_eq!(frames.outside_code, 1);
    assert!(matches!(troubles(&frames)[..], [CfiTrouble::Entry(_)]));
    let input = CfiInput {
        eh_frame: Some((EH_FRAME, &section.0)),
        eh_frame_is_unbounded: true,
        code: &[CODE],
        ..CfiInput::default()
    };
    assert_eq!(CallFrames::read(&input).ranges.len(), 1);
}

/// CIEs may lie over each other, each as long as the rest of the section: reading all would take quadratic time.
#[test]
fn overlapping_cies_are_not_read_for_ever() {
    const COUNT: usize = 2000;
    const HEADER: [u8; 17] = [0, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, RA, 1, 0];
    let mut section = Section::default();
    // A program of expressions, each of which is the head of a CIE that takes what follows for its program.
    let mut program = USUAL.to_vec();
    for _ in 0..COUNT {
        program.extend([DEF_CFA_EXPRESSION, HEADER.len() as u8]);
        program.extend(HEADER);
    }
    let outer = section.cie("zR", &program);
    let end = section.0.len();
    let heads: Vec<usize> =
        (0..COUNT).map(|k| outer + HEADER.len() + USUAL.len() + (2 + HEADER.len()) * k + 2).collect();
    for head in &heads {
        section.0[*head..head + 4].copy_from_slice(&((end - head - 4) as u32).to_le_bytes());
    }
    for head in heads {
        section.fde(head, 0x1000..0x1010, &[]);
    }
    let frames = section.frames();
    assert!(troubles(&frames).contains(&CfiTrouble::Work), "{:?}", frames.diagnostics.first());
    assert!(!frames.ranges.is_empty());
}

/// As many pc-dependent rows as the code accounts for, not as the ranges claim.
#[test]
fn pc_dependent_rows_are_bounded() {
    let mut section = Section::default();
    let cie = section.cie("zR", USUAL);
    let plt = [DEF_CFA_EXPRESSION, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    section.fde(cie, 0x1000..0x7fff_ffff_ffff, &plt);
    for _ in 0..100 {
        section.fde(cie, 0x1000..0x5000, &plt);
    }
    let frames = section.frames();
    assert!(frames.rows.len() <= 0x4000 / 4 + 101);
    // What did not become rows is an expression still.
    assert!(frames.recipes.iter().any(|recipe| matches!(recipe.cfa, Cfa::Expression(_))));
}

#[test]
fn mutated_sections_give_sound_rows() {
    let mut section = Section::default();
    let cie = section.cie("zR", USUAL);
    let signal = section.cie("zRS", USUAL);
    section.fde(
        cie,
        0x1000..0x1040,
        &[
            ADVANCE_LOC | 1,
            DEF_CFA_OFFSET,
            16,
            OFFSET | RBP,
            2,
            ADVANCE_LOC | 3,
            DEF_CFA_REGISTER,
            RBP,
            REMEMBER_STATE,
            ADVANCE_LOC | 9,
            DEF_CFA,
            RSP,
            8,
            ADVANCE_LOC | 1,
            RESTORE_STATE,
        ],
    );
    section.fde(
        signal,
        0x1040..0x1050,
        &[DEF_CFA_EXPRESSION, 4, 0x77, 0xa0, 1, 0x06, EXPRESSION, RA, 3, 0x77, 0xa8, 1],
    );
    section.fde(
        cie,
        0x1050..0x3000,
        &[
            DEF_CFA_EXPRESSION,
            11,
            0x77,
            8,
            0x80,
            0,
            0x3f,
            0x1a,
            0x3b,
            0x2a,
            0x33,
            0x24,
            0x22,
            VAL_EXPRESSION,
            R12,
            4,
            0x77,
            24,
            0x06,
            0x1f,
        ],
    );
    let mut random = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let mut bytes = section.0.clone();
        for _ in 0..=random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(bytes.len() - if random.usize(..8) == 0 { random.usize(..bytes.len()) } else { 0 });
        fuzz_call_frames(&bytes);
    }
    for len in 0..section.0.len() {
        fuzz_call_frames(&section.0[..len]);
    }
}
