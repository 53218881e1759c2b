//! Finds where stacks begin: code without a caller, by which C libraries, coroutine libraries and runtimes start
//! threads and coroutines. A walk that reaches it is full; all others are partial.
//!
//! Known are: a module's entry point; code that has no caller by its call frame information; and the entries of
//! [`LIBRARIES`], for hand-written code that is not described. Another library is another entry.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_image::cfi::{CallFrames, FrameRange};
use callpath_image::elf::Image;
use callpath_x86::encoding::{behind_endbr64, may_end_padding};
use callpath_x86::stack_switches::on_another_stack;
use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

/// How a library's start is found in a module.
enum Evidence {
    /// The bytes of its code, wherever it is.
    Code(Pattern),
    /// The first bytes of a procedure that call frame information covers, after an optional `endbr64`.
    Begins(&'static [u8]),
    /// Symbols of procedures that have no caller, or none on the same stack. A symbol of a part (`.cold`) counts, and
    /// one with a suffix for an ABI.
    Named(&'static [&'static str]),
    /// Symbols of procedures that call others on another stack: their code from where they load rsp. If their code shows
    /// where the callers are, they are found ([`super::switches`]).
    Switches(&'static [(&'static str, Switch)]),
    /// Symbols of procedures that call one of those with their caller's registers saved.
    SavesRegisters(&'static [&'static str]),
}

struct Pattern {
    /// Bytes in hexadecimal, `??` for any; those of the code without a caller in brackets.
    code: &'static str,
    /// If other code may have the same bytes: the code is in a module with Go's own table, aligned to this many bytes,
    /// and occurs once.
    only_go: Option<u64>,
}

struct Library {
    #[expect(dead_code, reason = "says whose the code is")]
    name: &'static str,
    evidence: Evidence,
}

/// The libraries that start stacks, and how they are recognised.
const LIBRARIES: &[Library] = &[
    // makecontext stores the address of __start_context as a routine's return address: its first instruction. It leaves
    // its stack with `mov rsp, rbx`, where rbx points to the context that follows. By glibc's call frame information
    // (up to 2.36 at least) it has a caller.
    Library { name: "glibc: makecontext", evidence: Evidence::Begins(&[0x48, 0x89, 0xdc]) },
    // make_fcontext directs the first jump to a trampoline, which pushes the address of `finish` as the routine's
    // return address: push rbp; jmp rbx; finish: xor rdi, rdi; call _exit; hlt. PHP's fibers, folly's and Rust's
    // `context` have copies.
    Library {
        name: "boost.context: make_fcontext",
        evidence: Evidence::Code(Pattern { code: "[55 ff e3 48 31 ff e8 ?? ?? ?? ?? f4]", only_go: None }),
    },
    Library {
        name: "boost.context: make_fcontext, for CET",
        evidence: Evidence::Code(Pattern { code: "[55 ff e3 f3 0f 1e fa 48 31 ff e8 ?? ?? ?? ?? f4]", only_go: None }),
    },
    // A greenlet begins in the middle of its creator's stack, which changes as soon as that continues. This runs the
    // greenlet's function, and switches to its parent instead of returning.
    Library {
        name: "greenlet",
        evidence: Evidence::Named(&["_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object"]),
    },
    // A goroutine returns to the second instruction of goexit: nop; call goexit1; nop. It is also found without a
    // symbol.
    Library {
        name: "Go: a goroutine, the first thread",
        evidence: Evidence::Named(&["runtime.goexit", "runtime.rt0_go"]),
    },
    Library {
        name: "Go: a goroutine, without symbols",
        evidence: Evidence::Code(Pattern { code: "cc [90 e8 ?? ?? ?? ?? 90] cc", only_go: Some(16) }),
    },
    // Code that a goroutine runs on its thread's own stack, and Go code that C calls on the goroutine's stack. Where the
    // caller on the other stack cannot be found, the path begins here: the word that cgocallback leaves as its return address is not one (it is the
    // first instruction of systemstack_switch).
    Library {
        name: "Go: a thread's own stack, and back",
        evidence: Evidence::Switches(&[
            ("runtime.systemstack", Switch::ByThread),
            ("runtime.asmcgocall", Switch::Kept),
            ("runtime.cgocallback", Switch::ByArguments),
            ("runtime.mcall", Switch::Unknown),
            ("runtime.morestack", Switch::Unknown),
            ("runtime.clone", Switch::Unknown),
        ]),
    },
    // The runtime calls the vdso on its thread's own stack.
    Library {
        name: "Go: time, by the vdso",
        evidence: Evidence::Switches(&[
            ("runtime.nanotime1", Switch::OfLeaf),
            ("runtime.walltime", Switch::OfLeaf),
            ("runtime.walltime1", Switch::OfLeaf),
            ("time.now", Switch::OfLeaf),
        ]),
    },
    Library { name: "Go: C code calls Go code", evidence: Evidence::SavesRegisters(&[C_CALLS_GO]) },
];

/// What C code calls for a procedure of Go: it calls runtime.cgocallback.
pub(super) const C_CALLS_GO: &str = "crosscall2";

/// A longer entry point is a whole program.
const LONGEST_ENTRY_BYTES: u64 = 256;

/// Finds the code without a caller. If it is returned to at its first instruction, the range includes the byte before
/// it, by which such a frame is looked up, unless that byte belongs to another procedure or ends an instruction
/// (glibc's clone3 returns right before its thread's start). `named`: the procedures without a caller by the symbols in
/// use.
pub(crate) fn find(image: &Image, frames: &CallFrames, named: &Named) -> Vec<Range<LinkAddr>> {
    let code: Vec<_> =
        image.instruction_ranges().iter().filter_map(|range| Some((range.start, bytes(image, range)?))).collect();
    find_in(&Searched { image, code: &code, frames, named }, |at| image.bytes_from(at))
}

/// The code in which starts are searched.
pub(super) struct Searched<'s> {
    /// It may lack the bytes of the code.
    pub(super) image: &'s Image,
    /// The code, or a part of it.
    pub(super) code: &'s [(LinkAddr, &'s [u8])],
    /// The call frame information of the code.
    pub(super) frames: &'s CallFrames,
    pub(super) named: &'s Named,
}

/// As `find`, in a part of the code. `bytes_from`: the bytes from an address on.
pub(super) fn find_in<'a>(
    searched: &Searched<'_>,
    bytes_from: impl Fn(LinkAddr) -> Option<&'a [u8]>,
) -> Vec<Range<LinkAddr>> {
    let Searched { image, code, frames, named } = *searched;
    let mut starts: Vec<Range<LinkAddr>> =
        frames.ranges.iter().filter_map(|range| described(image, &bytes_from, frames, range)).collect();
    for library in LIBRARIES {
        if let Evidence::Code(pattern) = &library.evidence
            && (pattern.only_go.is_none() || image.go_table().is_some())
        {
            starts.extend(pattern.find(code));
        }
    }
    for (named, part) in named.0.iter().cloned() {
        match part {
            Part::All => starts.push(named),
            Part::Saves | Part::Switched(Switch::OfLeaf) => {}
            Part::Switched(_) => {
                starts.extend(bytes(image, &named).iter().flat_map(|code| on_another_stack(code, named.start)));
            }
        }
    }
    for start in &mut starts {
        let before = LinkAddr(start.start.0.wrapping_sub(1));
        let is_padding = bytes_from(before).and_then(|bytes| bytes.first()).is_some_and(|byte| may_end_padding(*byte));
        if is_padding && !frames.ranges.iter().any(|range| range.code.contains(&before)) {
            start.start = before;
        }
    }
    starts.retain(|start| start.start < start.end);
    starts
}

/// Adds to `hash` what [`find`] reads besides code and call frame information.
pub(crate) fn identify(image: &Image, named: &Named, hash: &mut Xxh3) {
    for (code, part) in named.0.iter().cloned() {
        for number in [code.start.0, code.end.0, part.number()] {
            hash.update(&number.to_le_bytes());
        }
    }
    hash.update(&[u8::from(image.go_table().is_some())]);
}

/// The start in a range of call frame information, by its recipes or by its code.
fn described<'a>(
    image: &Image,
    bytes_from: impl Fn(LinkAddr) -> Option<&'a [u8]>,
    frames: &CallFrames,
    range: &FrameRange,
) -> Option<Range<LinkAddr>> {
    let Range { start, end } = range.code;
    let first = frames.rows_of(range).first().and_then(|row| frames.recipes.get(row.recipe as usize));
    if first == Some(&Recipe::OUTERMOST) {
        // Its rows show the rest.
        return Some(start..start);
    }
    let is_entry = start == image.entry() && start.0 != 0 && end.0 - start.0 <= LONGEST_ENTRY_BYTES;
    (is_entry || bytes_from(start).is_some_and(begins)).then_some(start..end)
}

fn begins(code: &[u8]) -> bool {
    let code = behind_endbr64(code);
    LIBRARIES.iter().any(|library| match &library.evidence {
        Evidence::Begins(bytes) => code.starts_with(bytes),
        _ => false,
    })
}

/// The part of a procedure that has no caller on its stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    /// All of it.
    All,
    /// The code that runs on another stack than the one it was called on.
    Switched(Switch),
    /// None: it has a caller, whose registers it saves.
    Saves,
}

/// How the caller of a procedure that switches stacks is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Switch {
    /// It is not.
    Unknown,
    /// [`callpath_x86::switched::Finding::Kept`].
    Kept,
    /// The same, by a procedure that calls no others but the kernel's: it is no beginning of a stack.
    OfLeaf,
    /// [`callpath_x86::switched::Finding::ByThread`].
    ByThread,
    /// [`callpath_x86::switched::Finding::ByArguments`].
    ByArguments,
}

impl Part {
    fn number(self) -> u64 {
        match self {
            Part::All => 0,
            Part::Saves => 1,
            Part::Switched(switch) => 2 + switch as u64,
        }
    }
}

/// Procedures without a caller, by their symbols; without duplicates.
#[derive(Clone)]
pub(crate) struct Named(Vec<(Range<LinkAddr>, Part)>);

impl Named {
    /// In any order, with duplicates.
    pub(crate) fn new(mut found: Vec<(Range<LinkAddr>, Part)>) -> Named {
        found.sort_unstable_by_key(|(code, part)| (code.start, code.end, *part));
        found.dedup();
        Named(found)
    }

    /// Each with its part.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Range<LinkAddr>, Part)> {
        self.0.iter().map(|(code, part)| (code, *part))
    }
}

/// The part without a caller of a procedure with this name.
pub(crate) fn part_of(name: &str) -> Option<Part> {
    let is_one = |known: &str| {
        name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest == ".abi0" || rest == ".cold")
    };
    let is = |names: &[&str]| names.iter().any(|known| is_one(known));
    LIBRARIES.iter().find_map(|library| match &library.evidence {
        Evidence::Named(names) => is(names).then_some(Part::All),
        Evidence::Switches(names) => {
            names.iter().find(|(known, _)| is_one(known)).map(|(_, switch)| Part::Switched(*switch))
        }
        Evidence::SavesRegisters(names) => is(names).then_some(Part::Saves),
        Evidence::Code(_) | Evidence::Begins(_) => None,
    })
}

pub(super) fn bytes<'a>(image: &'a Image, range: &Range<LinkAddr>) -> Option<&'a [u8]> {
    let bytes = image.bytes_from(range.start)?;
    let len = usize::try_from(range.end.0.checked_sub(range.start.0)?).ok()?;
    bytes.get(..len.min(bytes.len()))
}

impl Pattern {
    /// The matches in `code`, slices with their addresses.
    fn find(&self, code: &[(LinkAddr, &[u8])]) -> Vec<Range<LinkAddr>> {
        let words: Vec<&str> = self.code.split(' ').collect();
        let byte = |word: &&str| u8::from_str_radix(word.trim_matches(['[', ']']), 16).ok();
        let pattern: Vec<Option<u8>> = words.iter().map(byte).collect();
        let first = words.iter().position(|word| word.starts_with('[')).unwrap_or(0);
        let after = words.iter().position(|word| word.ends_with(']')).map_or(words.len(), |last| last + 1);
        let literal: Vec<u8> = pattern.iter().map_while(|byte| *byte).collect();
        let alignment = self.only_go.unwrap_or(1);
        let mut found = Vec::new();
        for (start, bytes) in code {
            for at in memmem::find_iter(bytes, &literal) {
                let Some(there) = bytes.get(at..at + pattern.len()) else { continue };
                let from = start.0 + (at + first) as u64;
                if !from.is_multiple_of(alignment)
                    || pattern.iter().zip(there).any(|(wanted, byte)| wanted.is_some_and(|wanted| wanted != *byte))
                {
                    continue;
                }
                found.push(LinkAddr(from)..LinkAddr(start.0 + (at + after) as u64));
            }
        }
        if self.only_go.is_some() && found.len() > 1 {
            found.clear();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_by_their_first_bytes() {
        // As objdump shows glibc 2.36's __start_context: mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
        assert!(begins(&[0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff]));
        // The same in a library built for CET.
        assert!(begins(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xdc, 0x64]));
        // mov %rdx,%rsp (longjmp's); push %rbp; nothing
        for other in [&[0x48, 0x89, 0xd4][..], &[0x55, 0x48, 0x89, 0xe5], &[0x48, 0x89], &[]] {
            assert!(!begins(other), "{other:x?}");
        }
    }

    #[test]
    fn procedures_by_their_names() {
        assert_eq!(part_of("runtime.goexit"), Some(Part::All));
        assert_eq!(part_of("runtime.goexit.abi0"), Some(Part::All));
        assert_eq!(part_of("runtime.mcall"), Some(Part::Switched(Switch::Unknown)));
        assert_eq!(part_of("runtime.cgocallback.abi0"), Some(Part::Switched(Switch::ByArguments)));
        assert_eq!(part_of("crosscall2"), Some(Part::Saves));
        assert_eq!(part_of("runtime.cgocallbackg"), None);
        let greenlet = "_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object.cold";
        assert_eq!(part_of(greenlet), Some(Part::All));
        for other in ["runtime.goexit1", "runtime.systemstack_switch.abi0", "goexit", ""] {
            assert_eq!(part_of(other), None, "{other}");
        }
    }

    fn found(row: usize, code: &[u8]) -> Vec<Range<LinkAddr>> {
        let patterns = LIBRARIES.iter().filter_map(|library| match &library.evidence {
            Evidence::Code(pattern) => Some(pattern),
            _ => None,
        });
        patterns.collect::<Vec<_>>()[row].find(&[(LinkAddr(0x1000), code)])
    }

    /// As objdump shows them in Debian 12's libboost_context, after make_fcontext's `ret`, and in a program of Go 1.19.
    #[test]
    fn code_by_its_bytes() {
        let fcontext = [0xc3, 0x55, 0xff, 0xe3, 0x48, 0x31, 0xff, 0xe8, 0x49, 0xfe, 0xff, 0xff, 0xf4, 0x0f, 0x1f, 0x84];
        assert_eq!(found(0, &fcontext), [LinkAddr(0x1001)..LinkAddr(0x100d)]);
        let twice = [fcontext, fcontext].concat();
        assert_eq!(found(0, &twice), [LinkAddr(0x1001)..LinkAddr(0x100d), LinkAddr(0x1011)..LinkAddr(0x101d)]);
        assert_eq!(found(0, &fcontext[..12]), []);
        let mut other = fcontext;
        other[12] = 0xc3;
        assert_eq!(found(0, &other), []);
        let mut goexit = vec![0xcc; 16];
        goexit.extend([0x90, 0xe8, 0x5a, 0x25, 0, 0, 0x90, 0xcc]);
        assert_eq!(found(2, &goexit), [LinkAddr(0x1010)..LinkAddr(0x1017)]);
        // Not where procedures begin.
        assert_eq!(found(2, &goexit[1..]), []);
        goexit.resize(32, 0xcc);
        goexit.extend_from_within(16..24);
        assert_eq!(found(2, &goexit), [], "which of them is not known");
    }
}
