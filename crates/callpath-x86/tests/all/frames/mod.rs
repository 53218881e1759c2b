//! Recipes in words, for tests.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;
use callpath_x86::CodeAnalysis;

/// `rsp+16 rbp@-16`: the CFA, and the locations of registers that are not in place.
pub(crate) fn describe(recipe: &Recipe, expressions: &[u8]) -> String {
    const NAMES: [&str; 16] =
        ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    let name = |reg: Reg| NAMES[reg.index()];
    let mut text = match recipe.cfa {
        Cfa::Unknown => return "?".into(),
        Cfa::Outermost => return "outermost".into(),
        Cfa::Register { reg, disp } => format!("{}{disp:+}", name(reg)),
        Cfa::Deref { reg, disp, add } => format!("[{}{disp:+}]{add:+}", name(reg)),
        Cfa::Expression(expression) => {
            let code = &expressions[expression.start as usize..][..usize::from(expression.len)];
            // DW_OP_breg, DW_OP_breg, DW_OP_lit, mul, plus, const8s, plus, deref, const8s, plus
            let [base, 0, index, 0, scale, 0x1e, 0x22, 0x0f, disp @ .., 0x22] = code else {
                return "expression".into();
            };
            let word = |bytes: &[u8]| i64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
            let (disp, add) = (word(disp), word(&disp[11..]));
            assert_eq!((disp_end(code), code.len()), ([0x22, 0x06, 0x0f], 28));
            let (base, index) = (NAMES[usize::from(base - 0x70)], NAMES[usize::from(index - 0x70)]);
            format!("*({base} + {} * {index} + {disp}){add:+}", scale - 0x30)
        }
    };
    let rule = |rule: Rule| match rule {
        Rule::Same => "=".into(),
        Rule::Lost => " lost".into(),
        Rule::AtCfa(disp) => format!("@{disp}"),
        Rule::AtRegister(reg, disp) => format!("@[{}{disp:+}]", name(reg)),
        Rule::RegisterPlus(reg, disp) => format!("={}{disp:+}", name(reg)),
        other => format!("{other:?}"),
    };
    if recipe.return_address != Rule::AtCfa(-8) {
        text += &format!(" ra{}", rule(recipe.return_address));
    }
    for reg in Reg::CALLEE_SAVED {
        if recipe.registers[reg.index()] != Rule::Same {
            text += &format!(" {}{}", name(reg), rule(recipe.registers[reg.index()]));
        }
    }
    text
}

/// The recipe at an address: of several rows the last that begins there or before.
pub(crate) fn at(analysis: &CodeAnalysis, address: u64) -> String {
    let row = analysis.rows.iter().rfind(|row| row.start.0 <= address).expect("a row");
    describe(&analysis.recipes[usize::from(row.recipe)], &analysis.expressions)
}

/// The operations between the two constants of such an expression.
fn disp_end(code: &[u8]) -> [u8; 3] {
    [code[16], code[17], code[18]]
}
