//! Programs as copies, one instruction at a time: at each, also of inserted code, of springboards and of what copies
//! call, the stack is walked by the tables that are published for it. The truth is the bare program's, one instruction
//! at a time beside it: its calls push return addresses, and what rsp has risen over is gone.

use std::ops::ControlFlow;
use std::path::Path;

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::shared::moved::MovedCode;
use callpath_format::table::{RecipeId, Table};
use callpath_oracle::modules::{Images, VDSO};
use callpath_oracle::relocation::{Options, Relocation, Stands};
use callpath_tables::copies::{CloneCaller, Made};
use callpath_tables::module::Module;
use callpath_tables::recipes::RecipeOptions;
use callpath_tables::table_cache::TableCache;
use callpath_target::{Edits, Maps, Stepped, Stepper};
use callpath_unwind::{CodeMap, Cursor, End, Located, Memory, walk};

/// Code of a process, by run-time address.
struct Code {
    start: u64,
    end: u64,
    bias: u64,
    module: ModuleIndex,
    /// A recipe table; of moved code, a block about that.
    bytes: Vec<u8>,
    is_moved: bool,
}

/// The tables of a process.
struct Tables {
    /// What comes first counts.
    code: Vec<Code>,
}

impl Tables {
    /// Of a program that runs as copies.
    fn of(program: &Relocation) -> Tables {
        let cache = TableCache::open(None);
        let mut images = Images::with_vdso(callpath_target::own_vdso());
        let loaded = images.modules(&Maps::read(program.pid()).unwrap(), Path::new(VDSO)).modules;
        let (mut code, mut moved) = (Vec::new(), Vec::new());
        for (module, index) in loaded.iter().zip(0u16..) {
            let image = images.get(&module.path).unwrap();
            let bytes = cache.table_for(&Module::new(image), &RecipeOptions::default()).bytes;
            let (bias, index) = (module.bias, ModuleIndex(index));
            if let Some(relocated) = program.modules.iter().find(|relocated| relocated.loaded == *module) {
                let block = relocated.moved.block(&[Table::new(&bytes).unwrap()]).unwrap();
                let mut add = |code: std::ops::Range<LinkAddr>| {
                    let (start, end) = (code.start.0.wrapping_add(bias), code.end.0.wrapping_add(bias));
                    moved.push(Code { start, end, bias, module: index, bytes: block.clone(), is_moved: true });
                };
                add(relocated.moved.code());
                relocated.moved.detours.iter().for_each(|detour| add(detour.code.clone()));
            }
            let (start, end) = (module.start(), module.end());
            code.push(Code { start, end, bias, module: index, bytes, is_moved: false });
        }
        moved.extend(code);
        Tables { code: moved }
    }

    fn table(&self, number: usize) -> Option<Table<'_>> {
        let code = self.code.get(number)?;
        if code.is_moved { Some(MovedCode::with_table(&code.bytes)?.1) } else { Table::new(&code.bytes).ok() }
    }

    fn key_at(&self, number: usize, at: LinkAddr) -> Option<FrameKey> {
        let code = self.code.get(number)?;
        match code.is_moved {
            true => MovedCode::with_table(&code.bytes)?.0.key_of(code.module, at),
            false => Some(FrameKey::in_module(code.module, at)),
        }
    }

    /// The frame at an address of the program's own code.
    fn frame_at(&self, at: RunAddr) -> FrameKey {
        self.locate_in(at, |code| !code.is_moved).key
    }

    fn locate_in(&self, at: RunAddr, is_meant: impl Fn(&Code) -> bool) -> Located {
        let unknown = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };
        let nowhere = Located { key: FrameKey::outside(at), recipe: unknown, table: 0 };
        let found = self.code.iter().position(|code| is_meant(code) && (code.start..code.end).contains(&at.0));
        let Some(number) = found else { return nowhere };
        let link = at.to_link(self.code[number].bias);
        let Some(key) = self.key_at(number, link) else { return nowhere };
        let table = self.table(number).unwrap();
        let Some(id) = table.find(link) else { return Located { key, ..nowhere } };
        Located { key, recipe: table.packed(id).unwrap(), table: (number as u64) << 16 | u64::from(id.0) }
    }
}

impl CodeMap for &Tables {
    fn locate(&mut self, at: RunAddr) -> Located {
        self.locate_in(at, |_| true)
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        self.table((located.table >> 16) as usize)?.recipe(RecipeId(located.table as u16))
    }

    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]> {
        self.table((located.table >> 16) as usize)?.expression(expression)
    }
}

/// A copy of the innermost part of a stack.
struct Stack {
    start: u64,
    bytes: Vec<u8>,
}

impl Memory for Stack {
    fn read_u64(&mut self, at: u64) -> Option<u64> {
        let at = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

/// What a walk found: the innermost frame that is not ours, the return addresses outwards of it, how many frames of our
/// own are inwards of it, and how it ended.
#[derive(PartialEq, Debug)]
struct Walked {
    innermost: FrameKey,
    returns: Vec<u64>,
    ours: usize,
    end: End,
}

fn walked(tables: &Tables, program: &Relocation, registers: &libc::user_regs_struct) -> Walked {
    const STACK_BYTES: usize = 1 << 15;
    let r = registers;
    let start = r.rsp - 128;
    let mut bytes = vec![0; STACK_BYTES];
    let len = program.read(start, &mut bytes);
    bytes.truncate(len);
    let values =
        [r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
    let mut found = Walked { innermost: FrameKey::PROBE, returns: Vec::new(), ours: 0, end: End::Outermost };
    let mut tables = tables;
    let mut memory = Stack { start, bytes };
    found.end = walk(Cursor::interrupted(RunAddr(r.rip), values), &mut tables, &mut memory, |cursor, located, _| {
        if located.key == FrameKey::PROBE {
            found.ours += 1;
        } else if found.innermost == FrameKey::PROBE {
            found.innermost = located.key;
        } else if let CodePoint::Return(at) = cursor.point {
            // What is behind a call in a copy stands for what is behind the original.
            found.returns.push(behind_call(program, at).unwrap_or(at.0));
        }
        ControlFlow::Continue(())
    });
    found
}

/// Where a call that a copy makes comes back at home, by where it comes back.
fn behind_call(program: &Relocation, at: RunAddr) -> Option<u64> {
    program.modules.iter().find_map(|module| {
        let link = at.to_link(module.loaded.bias);
        let copy = module.copies.copy_at(LinkAddr(link.0.wrapping_sub(1)))?;
        let offset = u32::try_from(link.0.checked_sub(copy.at.0)?).ok()?;
        let back = copy.returns.binary_search_by_key(&offset, |back| back.0).ok()?;
        Some(copy.returns[back].1.0.wrapping_add(module.loaded.bias))
    })
}

/// The return addresses of a program that runs bare, with their places: the outermost first.
struct Truth {
    stepper: Stepper,
    calls: Vec<(u64, u64)>,
    registers: libc::user_regs_struct,
}

impl Truth {
    /// Runs one instruction. `false`: the program has ended.
    fn step(&mut self) -> bool {
        const LONGEST: u64 = 15;
        let (pid, before) = (self.stepper.pid(), self.registers);
        self.stepper.step(pid, 0).unwrap();
        if let Stepped::Ended(_) = self.stepper.wait(Some(pid)).unwrap().1 {
            return false;
        }
        self.registers = self.stepper.registers(pid).unwrap();
        let now = self.registers;
        self.calls.retain(|(slot, _)| *slot >= now.rsp);
        let mut word = [0; 8];
        if now.rsp == before.rsp - 8 && self.stepper.read(now.rsp, &mut word) == word.len() {
            let pushed = u64::from_le_bytes(word);
            if before.rip < pushed && pushed <= before.rip + LONGEST && now.rip != pushed {
                self.calls.push((now.rsp, pushed));
            }
        }
        true
    }

    /// From the innermost one.
    fn path(&self) -> Vec<u64> {
        self.calls.iter().rev().map(|(_, back)| *back).collect()
    }
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

fn is_endbr64(stepper: &Stepper, at: RunAddr) -> bool {
    let mut bytes = [0; 4];
    stepper.read(at.0, &mut bytes) == bytes.len() && bytes == ENDBR64
}

/// How many instructions were looked at: in copies, of springboards, of what is called from copies, of all else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    pub(crate) copies: u64,
    pub(crate) springboards: u64,
    pub(crate) ours: u64,
    pub(crate) home: u64,
    /// Of those in copies, in clones.
    pub(crate) clones: u64,
}

/// Whether a program is in a clone: then the return address of what has called it is behind a call of the clone's caller.
fn is_in_clone(program: &Relocation, at: RunAddr, path: &[u64]) -> bool {
    let found = program.modules.iter().find_map(|module| {
        let after = module.copies.made.partition_point(|made| made.copy.at <= at.to_link(module.loaded.bias));
        let made = module.copies.made.get(after.checked_sub(1)?)?;
        made.copy.origin_of(at.to_link(module.loaded.bias))?;
        module.clones.iter().find(|wanted| wanted.number == made.clone).map(|wanted| (module, wanted))
    });
    let Some((module, wanted)) = found else { return false };
    let callers: Vec<LinkAddr> = wanted
        .callers
        .iter()
        .filter_map(|caller| match caller {
            CloneCaller::Procedure(caller) => Some(*caller),
            CloneCaller::Clone(_) => None,
        })
        .collect();
    let back = RunAddr(path[0]).to_link(module.loaded.bias);
    const LONGEST: u64 = 15;
    let is_before = |(_, origin): &(u32, LinkAddr)| (origin.0 + 1..=origin.0 + LONGEST).contains(&back.0);
    let calls = |made: &Made| callers.contains(&made.copy.entry) && made.copy.origins.iter().any(is_before);
    assert!(module.copies.made.iter().any(calls), "{at:?}, in {wanted:?}, was called before {back:?}");
    true
}

/// Runs a program bare and as copies, and compares the walks in the latter with the paths of the former, before each
/// instruction. `start`: starts the program, before its loader's first instruction.
pub(crate) fn check(start: impl Fn() -> Stepper, options: &Options, most: u64) -> Looked {
    let (mut stepper, copies) = (start(), start());
    let pid = stepper.pid();
    stepper.run_to_entry().unwrap();
    let mut truth = Truth { registers: stepper.registers(pid).unwrap(), calls: Vec::new(), stepper };
    let mut copies = Relocation::of(copies, options).unwrap();
    truth.stepper.apply(pid, &Edits { memory: copies.memory().collect(), writes: Vec::new() }).unwrap();
    let tables = Tables::of(&copies);
    let mut looked = Looked::default();
    let mut step = 0;
    let mut is_over = false;
    while step < most && !is_over {
        let at = RunAddr(truth.registers.rip);
        let (frame, path) = (tables.frame_at(at), truth.path());
        // From when it comes to this instruction to when it leaves it.
        let mut has_come = false;
        let mut skipped = 0;
        loop {
            let registers = copies.registers().unwrap();
            let rip = RunAddr(registers.rip);
            let stands = copies.stands(rip);
            let found = walked(&tables, &copies, &registers);
            // An `endbr64` stays first at home, and runs once more in the copy: then the program is behind it.
            let before = RunAddr(at.0.wrapping_sub(ENDBR64.len() as u64));
            let runs_again = found.innermost == tables.frame_at(before) && is_endbr64(&truth.stepper, before);
            let is_here = match stands {
                Stands::Copy(origin) => origin == at,
                Stands::Springboard => false,
                Stands::Home => rip == at || (found.ours > 0 && !runs_again),
            };
            if has_come && !is_here {
                break;
            }
            has_come |= is_here;
            if is_here {
                skipped = crate::skipped_behind(&truth.stepper, (&copies, stands), at);
            }
            assert!(step < most + 1000, "the copies are lost at {rip:?}, where the program is at {at:?}");
            match stands {
                _ if found.ours > 0 => looked.ours += 1,
                Stands::Copy(_) => {
                    looked.copies += 1;
                    looked.clones += u64::from(is_in_clone(&copies, rip, &path));
                }
                Stands::Springboard => looked.springboards += 1,
                Stands::Home => looked.home += 1,
            }
            let innermost = if runs_again { found.innermost } else { frame };
            let expected = Walked { innermost, returns: path.clone(), ours: found.ours, end: End::Outermost };
            assert_eq!(found, expected, "step {step}, {stands:?} at {rip:?}, of {at:?}");
            step += 1;
            if copies.step().unwrap().is_none() {
                is_over = true;
                break;
            }
        }
        // An instruction that repeats itself, or a loop of one, has run to its end there.
        while truth.step() && truth.registers.rip == at.0 {}
        for _ in 0..skipped {
            truth.step();
        }
    }
    looked
}
