//! Compares recipes of real modules with two other readers of the same call frame information, at every address.
//!
//! The first is gimli's own evaluation of unwind rows: at each address of each FDE, one step by the table's recipe must
//! give the same caller as gimli's row, over invented registers and memory. Outside FDEs the table must have no recipe.
//! The second is the output of `readelf --debug-dump=frames-interp`.
//!
//! `CALLPATH_TEST_MODULES` names more modules to check, separated by colons.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::recipe::{Cfa, Packed, Recipe, Rule};
use callpath_format::register::{Reg, Registers};
use callpath_format::table::{RecipeId, Table};
use callpath_image::cfi::{CallFrames, CfiInput};
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, RecipeTableBuilder, build_table};
use callpath_unwind::{Cursor, Memory, Step, Stop, step_open, step_packed};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, EvaluationResult, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

const MODULES: [&[&str]; 6] = [
    &["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"],
    &["/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"],
    &["/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6"],
    &["/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3", "/usr/lib/libcrypto.so.3"],
    &["/usr/bin/python3.11"],
    &["/usr/bin/perl"],
];

/// The modules of this machine; missing ones are printed.
fn modules() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for names in MODULES {
        match names.iter().find(|name| Path::new(name).exists()) {
            Some(name) => found.push(PathBuf::from(name)),
            None => eprintln!("SKIPPED: recipes against CFI for {}: it is not here", names[0]),
        }
    }
    let more = std::env::var("CALLPATH_TEST_MODULES").unwrap_or_default();
    found.extend(more.split(':').filter(|name| !name.is_empty()).map(PathBuf::from));
    assert!(!found.is_empty(), "none of the modules to look at is here");
    found
}

/// Memory with a distinct number at every address, all above the frames that registers point to.
struct Invented;

const RSP: u64 = 0x7ffd_0000_1000;

impl Invented {
    fn at(addr: u64) -> u64 {
        RSP + 0x1000_0000 + (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) * 8
    }
}

impl Memory for Invented {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        Some(Invented::at(addr))
    }
}

fn invented_registers() -> [u64; 16] {
    let mut values = [0; 16];
    for (number, value) in (0u64..).zip(&mut values) {
        *value = RSP + 0x10_0000 * (number + 1);
    }
    values[Reg::RSP.index()] = RSP;
    values
}

/// A caller: its pc, its rsp, and the registers that a walk restores.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    pc: u64,
    rsp: u64,
    restored: Vec<Option<u64>>,
}

fn restored_by(is_signal_frame: bool) -> Vec<Reg> {
    if is_signal_frame {
        (0..16).filter(|number| *number != 7).filter_map(Reg::from_dwarf).collect()
    } else {
        Reg::CALLEE_SAVED.to_vec()
    }
}

/// The input of gimli's expressions, and the frame's identity.
struct RowOf<'s, 'a> {
    section: &'s EhFrame<Slice<'a>>,
    encoding: gimli::Encoding,
    is_signal_frame: bool,
    /// By column: the register was popped ([`Held`]).
    popped: &'s [bool],
}

/// The caller by gimli's row. `None`: there is no caller.
fn by_row(of: &RowOf<'_, '_>, row: &UnwindTableRow<usize>, pc: u64) -> Option<Caller> {
    let RowOf { section, encoding, is_signal_frame, popped } = *of;
    let registers = invented_registers();
    let evaluated = |expression: &UnwindExpression<usize>, initial: Option<u64>| {
        let mut evaluation = expression.get(section).unwrap().evaluation(encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().unwrap();
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = if register.0 == 16 { pc } else { registers[usize::from(register.0)] };
                    evaluation.resume_with_register(Value::Generic(value)).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(Invented::at(address))).unwrap()
                }
                other => panic!("an expression at {pc:#x} wants {other:?}"),
            };
        }
        match evaluation.value_result() {
            Some(value) => value.to_u64(u64::MAX).unwrap(),
            None => panic!("an expression at {pc:#x} has no value"),
        }
    };
    if row.register(Register(16)) == Some(RegisterRule::Undefined) {
        return None;
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers[usize::from(register.0)].wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => evaluated(expression, None),
    };
    let value = |column: u16, default: Option<u64>| match row.register(Register(column)) {
        None => default,
        Some(RegisterRule::Undefined) => None,
        Some(RegisterRule::SameValue) => Some(registers[usize::from(column)]),
        Some(RegisterRule::Offset(_)) if popped[usize::from(column)] && !is_signal_frame => {
            Some(registers[usize::from(column)])
        }
        Some(RegisterRule::Offset(offset)) => Some(Invented::at(cfa.wrapping_add_signed(offset))),
        Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
        Some(RegisterRule::Register(register)) => Some(registers[usize::from(register.0)]),
        Some(RegisterRule::Expression(expression)) => Some(Invented::at(evaluated(&expression, Some(cfa)))),
        Some(RegisterRule::ValExpression(expression)) => Some(evaluated(&expression, Some(cfa))),
        Some(rule) => panic!("a rule at {pc:#x}: {rule:?}"),
    };
    Some(Caller {
        pc: value(16, None).unwrap(),
        rsp: value(7, Some(cfa)).unwrap(),
        restored: restored_by(is_signal_frame)
            .iter()
            .map(|reg| value(reg.index() as u16, Some(registers[reg.index()])))
            .collect(),
    })
}

/// Where the rows of a procedure have held registers above rsp so far, from the CFA, bytes, by column.
#[derive(Default)]
struct Held(HashMap<usize, i64>);

impl Held {
    /// Whether a row goes on to name a place from which the register was popped. `above_rsp`: the CFA is so far above rsp; `None`: by
    /// something else than rsp.
    fn is_popped(&mut self, column: usize, offset: i64, above_rsp: Option<i64>) -> bool {
        let is_below = above_rsp.is_some_and(|above| above + offset < 0);
        if !is_below {
            self.0.insert(column, offset);
        }
        is_below && self.0.get(&column) == Some(&offset)
    }
}

/// The caller by the table's recipe.
fn by_recipe(table: &Table<'_>, id: RecipeId, is_signal_frame: bool, pc: u64) -> Result<Option<Caller>, Stop> {
    let mut cursor = Cursor { point: CodePoint::Exact(RunAddr(pc)), registers: Registers::all(invented_registers()) };
    let packed = table.packed(id).unwrap();
    let step = if packed.kind() == Packed::WIDE {
        let recipe = table.recipe(id).unwrap();
        assert_eq!(recipe.signal_frame, is_signal_frame);
        step_open(&mut cursor, &recipe, |expression| table.expression(expression), &mut Invented)?
    } else {
        assert!(!is_signal_frame);
        step_packed(&mut cursor, &packed, &mut Invented)?
    };
    Ok((step == Step::Caller).then(|| Caller {
        pc: cursor.point.pc().0,
        rsp: cursor.registers.get(Reg::RSP).unwrap(),
        restored: restored_by(is_signal_frame).iter().map(|reg| cursor.registers.get(*reg)).collect(),
    }))
}

#[test]
fn gimli_says_the_same_at_every_address() {
    for path in modules() {
        let image = Arc::new(Image::read(&path).unwrap());
        let cfi_alone = RecipeOptions { debug_frame: false, machine_code: false, ..RecipeOptions::default() };
        let build = build_table(&Module::new(Arc::clone(&image)), &cfi_alone);
        assert_eq!(build.diagnostics, [], "{}", path.display());
        let table = Table::new(&build.bytes).unwrap();
        table.check().unwrap();
        let code = image.executable_ranges();
        let eh_frame = image.eh_frame().unwrap();
        let section = EhFrame::new(eh_frame.data, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(eh_frame.addr.0);
        let mut covered: HashMap<u64, Vec<bool>> =
            code.iter().map(|range| (range.start.0, vec![false; (range.end.0 - range.start.0) as usize])).collect();
        let mut context = UnwindContext::new();
        let mut entries = section.entries(&bases);
        let mut addresses = 0u64;
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            let is_signal_frame = fde.is_signal_trampoline();
            let encoding = fde.cie().encoding();
            let Some(range) = code.iter().find(|range| range.contains(&LinkAddr(fde.initial_address()))) else {
                panic!("{}: the FDE of {:#x} speaks of no code", path.display(), fde.initial_address());
            };
            let covered = covered.get_mut(&range.start.0).unwrap();
            let mut held = Held::default();
            let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                let depends_on_pc = matches!(row.cfa(), CfaRule::Expression(_));
                let above_rsp = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } if usize::from(register.0) == Reg::RSP.index() => {
                        Some(*offset)
                    }
                    _ => None,
                };
                let popped: Vec<bool> = (0..17)
                    .map(|column| match row.register(Register(column)) {
                        Some(RegisterRule::Offset(offset)) => held.is_popped(column.into(), offset, above_rsp),
                        _ => false,
                    })
                    .collect();
                let mut last = None;
                for pc in row.start_address()..row.end_address() {
                    let seen = std::mem::replace(&mut covered[(pc - range.start.0) as usize], true);
                    assert!(!seen, "{}: two FDEs at {pc:#x}", path.display());
                    addresses += 1;
                    let id = table.find(LinkAddr(pc)).unwrap();
                    if last != Some(id) || depends_on_pc {
                        let expected =
                            by_row(&RowOf { section: &section, encoding, is_signal_frame, popped: &popped }, row, pc);
                        let got = by_recipe(&table, id, is_signal_frame, pc);
                        let is_below = expected.as_ref().is_some_and(|caller| caller.rsp <= RSP);
                        // A walk rejects a caller whose frame is not above: vfork's, its return address popped.
                        if !(is_below && got == Err(Stop::NoProgress)) {
                            assert_eq!(got, Ok(expected), "{} at {pc:#x}", path.display());
                        }
                    }
                    last = Some(id);
                }
            }
        }
        let mut silent = 0u64;
        // Between two sections there are no instructions.
        let mut between = 0u64;
        let instructions = image.instruction_ranges();
        for (start, covered) in &covered {
            for (pc, _) in (*start..).zip(covered).filter(|(_, covered)| !**covered) {
                let recipe = table.recipe(table.find(LinkAddr(pc)).unwrap());
                // The loader's own start has no CFI and no caller.
                if (image.entry().0..image.entry().0 + 256).contains(&pc) && recipe == Some(Recipe::OUTERMOST) {
                    addresses += 1;
                } else {
                    silent += 1;
                    between += u64::from(!instructions.iter().any(|range| range.contains(&LinkAddr(pc))));
                    assert_eq!(recipe, Some(Recipe::UNKNOWN), "{} at {pc:#x}", path.display());
                }
            }
        }
        assert_eq!(addresses, build.stats.covered_bytes);
        assert_eq!(addresses + silent - between, build.stats.code_bytes);
        println!("{}: {addresses} addresses the same, {silent} without an FDE", path.display());
    }
}

/// `gimli_says_the_same_at_every_address` is only valid if it detects a difference.
#[test]
fn a_wrong_recipe_would_be_seen() {
    let right = Packed::pack(&Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 16 })).unwrap();
    let cursor = Cursor::interrupted(RunAddr(0x1000), invented_registers());
    let caller = |packed: &Packed| {
        let mut caller = cursor;
        assert_eq!(step_packed(&mut caller, packed, &mut Invented), Ok(Step::Caller));
        caller
    };
    for wrong in [
        Packed { disp: 24, ..right },
        Packed { head: right.head ^ 1 << 3, ..right },
        Packed { slots: [0, 2, 0, 0, 0, 0], ..right },
        Packed { slots: [1, 0, 0, 0, 0, 0], ..right },
    ] {
        assert_ne!(caller(&wrong), caller(&right), "{wrong:?}");
    }
}

/// A rule as readelf writes it; `None` for what it writes as "exp" only.
fn readelf_rule(rule: Rule) -> Option<String> {
    Some(match rule {
        Rule::Same => "s".into(),
        Rule::Lost => "u".into(),
        Rule::AtCfa(disp) => format!("c{disp:+}"),
        Rule::CfaPlus(disp) => format!("v{disp:+}"),
        Rule::RegisterPlus(reg, 0) => NAMES[reg.index()].into(),
        _ => return None,
    })
}

const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "ra",
];

#[test]
fn readelf_says_the_same_at_every_row() {
    let path = modules().remove(0);
    let output = match Command::new("readelf").arg("--debug-dump=frames-interp").arg(&path).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: recipes against readelf, which cannot be run: {error}");
            return;
        }
    };
    let image = Arc::new(Image::read(&path).unwrap());
    let build = build_table(&Module::new(Arc::clone(&image)), &RecipeOptions::default());
    let table = Table::new(&build.bytes).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut columns, mut is_fde, mut rows, mut expressions) = (Vec::new(), false, 0u32, 0u32);
    let (mut held, mut popped) = (Held::default(), 0);
    for line in text.lines() {
        // readelf writes a register that is in another one as "r1 (rdx)".
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_ascii_whitespace() {
            match (word.strip_prefix('('), words.last_mut()) {
                (Some(name), Some(last)) => *last = name.trim_end_matches(')'),
                _ => words.push(word),
            }
        }
        match words[..] {
            [_, _, _, "FDE", ..] => (is_fde, held) = (true, Held::default()),
            [_, _, _, "CIE", ..] => is_fde = false,
            ["LOC", "CFA", ..] => columns = words[2..].to_vec(),
            [loc, cfa, ..] if is_fde && loc.len() == 16 => {
                let pc = u64::from_str_radix(loc, 16).unwrap();
                let recipe = table.recipe(table.find(LinkAddr(pc)).unwrap()).unwrap();
                rows += 1;
                // The entry point has no caller, whatever the compiler writes.
                if recipe == Recipe::OUTERMOST && (image.entry().0..image.entry().0 + 256).contains(&pc) {
                    continue;
                }
                if words[2..].last() == Some(&"u") && columns.last() == Some(&"ra") {
                    assert_eq!(recipe, Recipe::OUTERMOST, "{loc}");
                    continue;
                }
                match recipe.cfa {
                    Cfa::Register { reg, disp } if cfa != "exp" => {
                        assert_eq!(format!("{}{disp:+}", NAMES[reg.index()]), cfa, "{loc}");
                    }
                    _ => {
                        assert_eq!(cfa, "exp", "{loc}: {recipe:?}");
                        expressions += 1;
                    }
                }
                for (number, name) in NAMES.iter().enumerate() {
                    let is_return_address = number == 16;
                    let rule = if is_return_address { recipe.return_address } else { recipe.registers[number] };
                    let written = columns.iter().position(|column| column == name).map(|at| words[2 + at]);
                    let above_rsp = cfa.strip_prefix("rsp").and_then(|disp| disp.parse().ok());
                    let offset =
                        written.and_then(|written| written.strip_prefix('c')).and_then(|disp| disp.parse().ok());
                    let is_popped = offset.is_some_and(|offset| held.is_popped(number, offset, above_rsp));
                    let written = if is_popped && !recipe.signal_frame { Some("s") } else { written };
                    popped += u32::from(is_popped);
                    let restored = recipe.signal_frame
                        || is_return_address
                        || Reg::CALLEE_SAVED.iter().any(|reg| reg.index() == number);
                    match (readelf_rule(rule), written) {
                        _ if !restored => {}
                        (rule, None) => {
                            let usual = if *name == "rsp" { "v+0" } else { "s" };
                            assert_eq!(rule.as_deref(), Some(usual), "{loc} {name}");
                        }
                        (None, Some(written)) => assert!(["exp", "vexp"].contains(&written), "{loc} {name} {written}"),
                        (Some(_), Some("exp" | "vexp")) => {}
                        // readelf writes "u" in rows before the first that names a register.
                        (Some(rule), Some("u")) if rule == "s" || (rule == "v+0" && *name == "rsp") => {}
                        (Some(rule), Some(written)) => assert_eq!(rule, written, "{loc} {name}"),
                    }
                }
            }
            _ => {}
        }
    }
    assert!(rows > 10_000, "readelf's text was not understood: {rows} rows");
    assert!(popped > 100, "{popped} registers that are popped");
    println!("{}: {rows} rows the same, {expressions} with an expression for the CFA, {popped} popped", path.display());
}

/// Thousands of damaged copies of a real module's `.eh_frame`.
#[test]
fn mutated_call_frame_information_gives_sound_tables() {
    let path = modules().into_iter().min_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let image = Arc::new(Image::read(&path).unwrap());
    let eh_frame = image.eh_frame().unwrap();
    let code = image.executable_ranges();
    let mut random = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let mut below = |end: usize| random.usize(..end);
    let (mut odd, mut rows) = (0, 0);
    for round in 0..3000 {
        let mut bytes = eh_frame.data.to_vec();
        for _ in 0..=below(20) {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        if round % 10 == 0 {
            bytes.truncate(below(bytes.len()));
        }
        let frames = CallFrames::read(&CfiInput {
            eh_frame: Some((eh_frame.addr, &bytes)),
            debug_frame: (round % 4 == 0).then_some(&bytes[..]),
            code: &code,
            ..CfiInput::default()
        });
        odd += u32::from(!frames.diagnostics.is_empty());
        rows += frames.rows.len();
        assert!(frames.rows.len() < 2 * bytes.len());
        let mut builder = RecipeTableBuilder::new(code.clone());
        builder.add_call_frames(&frames);
        assert_eq!(Table::new(&builder.finish().bytes).unwrap().check(), Ok(()), "round {round}");
    }
    println!("{}: of 3000 damaged copies {odd} were seen to be odd; {rows} rows", path.display());
    assert!(odd > 1000);
}
