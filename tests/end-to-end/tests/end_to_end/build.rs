//! `make -j2` of a C project of many files: every process is found under its own name, and the work is done.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use callpath_end_to_end::{Profile, Program, run_report};

const FILES: usize = 24;

/// A library of many files, a program that uses it, a generated header, and a check that runs the program.
fn project(place: &Path) -> PathBuf {
    let put = |name: &str, text: &str| std::fs::write(place.join(name), text).expect("the project can be written");
    let (mut objects, mut calls) = (String::new(), String::new());
    for number in 0..FILES {
        let mut text =
            String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"sizes.h\"\n");
        for part in 0..8 {
            writeln!(
                text,
                "int part_{number}_{part}(const char *s, int n)\n{{\n    int sum = SIZE;\n    for (int i = 0; i < n; i++)\n        \
                 switch ((s[i] ^ i) % {}) {{ case 0: sum += n; break; case 1: sum ^= s[i]; break; default: sum *= 3; }}\n    \
                 return sum;\n}}",
                part + 3
            )
            .expect("a string takes all");
        }
        put(&format!("part{number}.c"), &text);
        write!(objects, " part{number}.o").expect("a string takes all");
        writeln!(calls, "    sum ^= part_{number}_{}(words, 11);", number % 8).expect("a string takes all");
    }
    let declared: String = (0..FILES).map(|n| format!("int part_{n}_{}(const char *, int);\n", n % 8)).collect();
    put(
        "main.c",
        &format!(
            "#include <stdio.h>\n{declared}int main(void)\n{{\n    const char *words = \"hello world\";\n    int sum = 0;\n{calls}    printf(\"%d\\n\", sum);\n    return 0;\n}}\n"
        ),
    );
    put(
        "Makefile",
        &format!(
            "OBJECTS ={objects}\nall: check\nsizes.h:\n\techo '#define SIZE 17' | sed s/17/19/ > $@\n$(OBJECTS): sizes.h\n\
             %.o: %.c\n\t@gcc -O2 -c -o $@ $<\nlibparts.a: $(OBJECTS)\n\tar rcs $@ $^\n\
             program: main.o libparts.a\n\tgcc -o $@ $^\ncheck: program\n\t./program\n\t./program missing | cat > /dev/null\n"
        ),
    );
    place.to_owned()
}

fn build(place: &Path) -> Program {
    Program::at("/usr/bin/make").arguments(["-j2", "--no-print-directory", "-C"]).arguments([place])
}

#[test]
fn of_a_c_project() {
    let (one, other) =
        (tempfile::TempDir::new().expect("a temp directory"), tempfile::TempDir::new().expect("one more"));
    let (bare, recorded) = (build(&project(one.path())).bare(), build(&project(other.path())).recorded());
    let lines = |text: &str| {
        // With two jobs the order is not the same each time.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        (lines(&bare.stdout), bare.status),
        (lines(&recorded.ended.stdout), recorded.ended.status),
        "{recorded:?}"
    );
    assert_eq!(bare.status, 0, "{bare:?}");
    let own: Vec<String> =
        lines(&recorded.ended.stderr).into_iter().filter(|line| !line.starts_with("callpath: ")).collect();
    assert_eq!(lines(&bare.stderr), own);
    let same = |name: &str| {
        let read = |place: &Path| std::fs::read(place.join(name)).expect("it was built");
        assert_eq!(read(one.path()), read(other.path()), "{name}");
    };
    same("part0.o");
    same("program");

    let profile = recorded.profile();
    let processes = profile.processes();
    let count = |wanted: &str| processes.iter().filter(|(name, _)| is_called(name, wanted)).count();
    let compiled = FILES + 1;
    for (name, expected) in [
        ("make", 1),
        ("cc1", compiled),
        ("as", compiled),
        ("gcc", compiled + 1),
        ("ld", 1),
        ("sed", 1),
        ("collect2", 1),
        ("ar", 1),
        ("program", 2),
    ] {
        assert_eq!(count(name), expected, "{name}: {processes:?}");
    }
    // One of each name, with their sum.
    let said = run_report(&recorded.directory, &["--json", "--merge-processes", "--process", "cc1"]);
    let merged = Profile::of_json(&said.stdout);
    merged.assert_sound();
    let compilers: u64 = processes.iter().filter(|(name, _)| is_called(name, "cc1")).map(|(_, cost)| cost).sum();
    assert_eq!(merged.processes().iter().map(|(_, cost)| *cost).collect::<Vec<_>>(), [compilers]);
    assert!(compilers * 3 > profile.total("cpu-time"), "most of the work is the compiler's: {processes:?}");
}

/// Debian's tools stand under names that begin with the machine's and may end with a version.
fn is_called(name: &str, wanted: &str) -> bool {
    let name = name.split_whitespace().next().unwrap_or("");
    let name = name.strip_prefix("x86_64-linux-gnu-").unwrap_or(name);
    name == wanted || name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('-') || rest.starts_with('.'))
}
