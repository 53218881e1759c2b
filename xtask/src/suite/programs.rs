//! The programs: close kin, in Debian, of those that the papers report on, each with an input made here.
//! A `size` of 5 is some 2 to 6 s of CPU, 1 is for a quick look.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::inputs;
use super::prepared::{Dialogue, Prepared, Stdin, installed as run, write};
use crate::build;

/// One program of the suite.
#[derive(Debug)]
pub struct Program {
    /// What `--programs` calls it.
    pub name: &'static str,
    /// What it is and does, in a few words.
    pub does: &'static str,
    /// Debian packages that it needs.
    pub packages: &'static [&'static str],
    /// Makes its inputs in a directory, for a size.
    pub prepare: fn(&Path, u32) -> anyhow::Result<Prepared>,
}

/// Compiles a program of tests/.
fn compiled(directory: &Path, source: &str, arguments: &[&str]) -> anyhow::Result<Prepared> {
    let program = directory.join("program");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(build::root().join("tests/nasty").join(source));
    ensure!(gcc.status().context("failed to run gcc")?.success(), "gcc cannot compile {source}");
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Ok(Prepared { program, arguments, environment: vec![], stdin: Stdin::Nothing })
}

/// All of them, in the order of the table.
pub const ALL: &[Program] = &[
    Program {
        name: "python3",
        does: "a pure Python benchmark",
        packages: &["python3"],
        prepare: |directory, size| {
            write(directory, "bench.py", inputs::PYTHON)?;
            run("python3", &["-S", "bench.py", &size.to_string()])
        },
    },
    Program {
        name: "perl",
        does: "words counted, sorted and matched",
        packages: &["perl"],
        prepare: |directory, size| {
            write(directory, "bench.pl", inputs::PERL)?;
            run("perl", &["bench.pl", &size.to_string()])
        },
    },
    Program {
        name: "xz",
        does: "xz -9 of generated text",
        packages: &["xz-utils"],
        prepare: |directory, size| {
            write(directory, "text", inputs::text(1_300_000 * size as usize))?;
            run("xz", &["-9", "-T1", "-k", "-c", "text"])
        },
    },
    Program {
        name: "bzip2",
        does: "bzip2 -9 of generated text",
        packages: &["bzip2"],
        prepare: |directory, size| {
            write(directory, "text", inputs::text(7_000_000 * size as usize))?;
            run("bzip2", &["-9", "-k", "-c", "text"])
        },
    },
    Program {
        name: "zstd",
        does: "zstd -19 of generated text",
        packages: &["zstd"],
        prepare: |directory, size| {
            write(directory, "text", inputs::text(1_500_000 * size as usize))?;
            run("zstd", &["-19", "-q", "-k", "-c", "text"])
        },
    },
    Program {
        name: "sqlite3",
        does: "a table filled, indexed, joined",
        packages: &["sqlite3"],
        prepare: |directory, size| {
            write(directory, "bench.sql", inputs::sql(250_000 * size))?;
            run("sqlite3", &[":memory:", ".read bench.sql"])
        },
    },
    Program {
        name: "gnugo",
        does: "a game of Go against itself (gobmk)",
        packages: &["gnugo"],
        prepare: |directory, size| {
            let moves = "genmove b\ngenmove w\n".repeat(6 * size as usize);
            let script = write(directory, "moves", format!("boardsize 13\n{moves}quit\n"))?;
            let mut prepared = run("gnugo", &["--mode", "gtp", "--level", "9", "--seed", "1"])?;
            prepared.stdin = Stdin::File(script);
            Ok(prepared)
        },
    },
    Program {
        name: "hmmer",
        does: "a profile searched in generated proteins",
        packages: &["hmmer"],
        prepare: |directory, size| {
            write(directory, "family.sto", inputs::alignment())?;
            write(directory, "proteins.fa", inputs::proteins(900 * size as usize))?;
            let built = run("hmmbuild", &["--amino", "family.hmm", "family.sto"])?;
            let mut command = Command::new(built.program);
            command.args(built.arguments).current_dir(directory).stdout(Stdio::null());
            ensure!(command.status()?.success(), "hmmbuild failed");
            run("hmmsearch", &["--cpu", "0", "--max", "--seed", "1", "family.hmm", "proteins.fa"])
        },
    },
    Program {
        name: "sjeng",
        does: "one move of chess to a fixed depth",
        packages: &["sjeng"],
        prepare: |_, size| {
            let mut prepared = run("sjeng", &[])?;
            let depth = if size > 1 { 10 } else { 9 };
            prepared.stdin = Stdin::Dialogue(Dialogue {
                begin: format!("xboard\nnew\nlevel 40 90 0\nsd {depth}\nsetboard {}\ngo\n", inputs::CHESS),
                answer: "move ",
                end: "quit\n",
            });
            Ok(prepared)
        },
    },
    Program {
        name: "stockfish",
        does: "its own benchmark, one thread",
        packages: &["stockfish"],
        prepare: |_, size| run("stockfish", &["bench", "16", "1", if size > 1 { "13" } else { "10" }]),
    },
    Program {
        name: "povray",
        does: "spheres over a mirror, two threads",
        packages: &["povray"],
        prepare: |directory, size| {
            write(directory, "scene.pov", inputs::SCENE)?;
            let (width, height) = (format!("+W{}", 180 * size), format!("+H{}", 135 * size));
            run("povray", &["+Iscene.pov", "+O/dev/null", &width, &height, "+A0.1", "+WT2", "-D"])
        },
    },
    Program {
        name: "xalan",
        does: "XSLT of a generated document (xalancbmk)",
        packages: &["xalan"],
        prepare: |directory, size| {
            write(directory, "orders.xml", inputs::xml(9_000 * size))?;
            write(directory, "report.xsl", inputs::XSL)?;
            run("xalan", &["-in", "orders.xml", "-xsl", "report.xsl", "-out", "/dev/null"])
        },
    },
    Program {
        name: "xalan-deep",
        does: "XSLT 2,000 frames deep: variables that need each other",
        packages: &["xalan"],
        prepare: |directory, size| {
            write(directory, "orders.xml", inputs::xml(250 + 250 * size))?;
            write(directory, "deep.xsl", inputs::deep_xsl(250))?;
            run("xalan", &["-in", "orders.xml", "-xsl", "deep.xsl", "-out", "/dev/null"])
        },
    },
    Program {
        name: "openssl",
        does: "PBKDF2 with SHA-256 in hand-written assembly",
        packages: &["openssl"],
        prepare: |directory, size| {
            write(directory, "text", inputs::text(1000))?;
            let iterations = (1_500_000 * size).to_string();
            let fixed = ["enc", "-aes-256-ctr", "-pbkdf2", "-pass", "pass:x", "-S", "0011223344556677"];
            run("openssl", &[&fixed[..], &["-in", "text", "-out", "/dev/null", "-iter", &iterations]].concat())
        },
    },
    Program {
        name: "ffmpeg",
        does: "x264 of a test picture, two threads (h264ref)",
        packages: &["ffmpeg"],
        prepare: |_, size| {
            let source = format!("testsrc2=size=640x360:rate=25:duration={}", 2 * size);
            let coder = ["-c:v", "libx264", "-threads", "2", "-f", "null", "-"];
            run("ffmpeg", &[&["-loglevel", "error", "-f", "lavfi", "-i", &source][..], &coder].concat())
        },
    },
    Program {
        name: "cc1plus",
        does: "the C++ compiler proper, -O2 (gcc)",
        packages: &["g++"],
        prepare: |directory, size| {
            write(directory, "big.cpp", inputs::cpp(size))?;
            let mut preprocess = Command::new("g++");
            preprocess.args(["-E", "-O2", "big.cpp", "-o", "big.ii"]).current_dir(directory);
            ensure!(preprocess.status()?.success(), "g++ -E failed");
            let name = Command::new("g++").arg("-print-prog-name=cc1plus").output()?;
            Ok(Prepared {
                program: String::from_utf8(name.stdout)?.trim().into(),
                arguments: ["-fpreprocessed", "-O2", "-quiet", "big.ii", "-o", "/dev/null"].map(str::to_owned).into(),
                environment: vec![],
                stdin: Stdin::Nothing,
            })
        },
    },
    Program {
        name: "numpy",
        does: "matrices with OpenBLAS, two threads",
        packages: &["python3-numpy", "libopenblas0-pthread"],
        prepare: |directory, size| {
            write(directory, "blas.py", inputs::NUMPY)?;
            let mut prepared = run("python3", &["blas.py", &size.to_string()])?;
            prepared.environment.push(("OPENBLAS_NUM_THREADS", "2".into()));
            Ok(prepared)
        },
    },
    Program {
        name: "deep-two",
        does: "two threads 1,500 frames deep each",
        packages: &["gcc"],
        prepare: |directory, size| compiled(directory, "deep.c", &["2", "1500", &(400 * size).to_string()]),
    },
    Program {
        name: "deep-one",
        does: "one thread 100,000 frames deep",
        packages: &["gcc"],
        prepare: |directory, size| compiled(directory, "deep.c", &["1", "100000", &(600 * size).to_string()]),
    },
];
