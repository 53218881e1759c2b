//! Writes a program of one procedure with many of something: assembler source, with DWARF of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use callpath_image::elf::Image;

use crate::structure::ModuleSource;
use callpath_tables::module::Module;

/// An assembler source whose unit has a line map, and entries of its own making.
#[derive(Default)]
pub(super) struct Program {
    pub(super) code: String,
    /// Entries below that of `run`.
    pub(super) inside: String,
    /// Entries of the unit besides.
    pub(super) beside: String,
    ranges: String,
    pub(super) tables: String,
    labels: usize,
}

impl Program {
    /// An instruction of one block and line.
    pub(super) fn line(&mut self, line: usize, instruction: &str) {
        writeln!(self.code, ".loc 1 {line} 1 is_stmt 1\n{instruction}").unwrap();
    }

    pub(super) fn label(&mut self, label: &str) {
        writeln!(self.code, "{label}:").unwrap();
    }

    /// A label here.
    pub(super) fn here(&mut self) -> String {
        self.labels += 1;
        let label = format!("L{}", self.labels);
        self.label(&label);
        label
    }

    /// Begins the entry of a call that was inlined, whose code is `ranges`: [`Program::end`] ends it.
    pub(super) fn inlined(&mut self, line: usize, ranges: &[(String, String)]) {
        match ranges {
            [(start, end)] => {
                writeln!(self.inside, ".uleb128 4\n.long callee-info\n.quad {start}\n.quad {end}-{start}").unwrap();
            }
            _ => {
                self.labels += 1;
                let label = format!("R{}", self.labels);
                writeln!(self.inside, ".uleb128 5\n.long callee-info\n.long {label}").unwrap();
                writeln!(self.ranges, "{label}:").unwrap();
                ranges
                    .iter()
                    .for_each(|(start, end)| writeln!(self.ranges, ".quad {start}-start,{end}-start").unwrap());
                writeln!(self.ranges, ".quad 0,0").unwrap();
            }
        }
        writeln!(self.inside, ".byte 1\n.long {line}").unwrap();
    }

    pub(super) fn end(&mut self) {
        self.inside += ".uleb128 0\n";
    }

    /// A procedure in `run` or beside it, without code.
    pub(super) fn declared(line: usize) -> String {
        format!(".uleb128 6\n.string \"p{line}\"\n.byte 1\n.long {line}\n")
    }

    /// A procedure beside `run`, with code.
    pub(super) fn procedure(&mut self, line: usize) {
        let (code, entries) = (&mut self.code, &mut self.beside);
        writeln!(code, ".type p{line},@function\np{line}:\n.loc 1 {line} 1\nnop\n.loc 1 {} 1\nret", line + 1).unwrap();
        writeln!(code, "p{line}e: .size p{line},p{line}e-p{line}").unwrap();
        writeln!(
            entries,
            ".uleb128 2\n.string \"p{line}\"\n.byte 1\n.long {line}\n.quad p{line}\n.quad p{line}e-p{line}\n.uleb128 0"
        )
        .unwrap();
    }

    pub(super) fn text(&self) -> String {
        let Program { code, inside, beside, ranges, tables, .. } = self;
        format!(
            r#".file 1 "source.c"
.text
start:
.globl run
.type run,@function
run:
.loc 1 1 1
{code}
end: .size run,end-run
.section .rodata
.align 8
{tables}
.section .debug_info,"",@progbits
info: .long info_end-info_begin
info_begin: .short 4
.long abbreviations
.byte 8
.uleb128 1
.string "GNU C17 12.2.0 -g -O2"
.byte 12
.string "source.c"
.string "/"
.quad start
.quad end-start
.long lines
.uleb128 2
.string "run"
.byte 1
.long 1
.quad run
.quad run_end-run
{inside}
.uleb128 0
callee: .uleb128 3
.string "callee"
.byte 1
.long 1000000
.byte 3
{beside}
.uleb128 0
info_end:
.section .debug_abbrev,"",@progbits
abbreviations:
.uleb128 1,0x11
.byte 1
.uleb128 0x25,8,0x13,0xb,3,8,0x1b,8,0x11,1,0x12,7,0x10,0x17,0,0
.uleb128 2,0x2e
.byte 1
.uleb128 3,8,0x3a,0xb,0x3b,6,0x11,1,0x12,7,0,0
.uleb128 3,0x2e
.byte 0
.uleb128 3,8,0x3a,0xb,0x3b,6,0x20,0xb,0,0
.uleb128 4,0x1d
.byte 1
.uleb128 0x31,0x13,0x11,1,0x12,7,0x58,0xb,0x59,6,0,0
.uleb128 5,0x1d
.byte 1
.uleb128 0x31,0x13,0x55,0x17,0x58,0xb,0x59,6,0,0
.uleb128 6,0x2e
.byte 0
.uleb128 3,8,0x3a,0xb,0x3b,6,0,0
.byte 0
.section .debug_ranges,"",@progbits
{ranges}
.section .debug_line,"",@progbits
lines:
"#
        )
    }

    pub(super) fn build(&self) -> ModuleSource {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("source.s"), directory.path().join("program"));
        std::fs::write(&source, self.text()).unwrap();
        build(&source, &program);
        let image = Arc::new(Image::read(&program).unwrap());
        ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None }
    }

    /// The end of `run`.
    pub(super) fn finish(mut self) -> Program {
        self.code += "run_end:\n";
        self
    }

    pub(super) fn with_procedures(mut self, count: usize) -> Program {
        for number in 0..count {
            self.procedure(100 + 2 * number);
        }
        self
    }

    pub(super) fn here_line(&mut self, line: usize) -> String {
        let head = self.here();
        self.line(line, "add $1,%rax");
        head
    }
}

fn build(source: &Path, program: &Path) {
    let options = ["-nostdlib", "-static", "-no-pie", "-Wl,-e,run", "-o"];
    let status = Command::new("gcc").args(options).arg(program).arg(source).status().unwrap();
    assert!(status.success());
}
