//! The programs of the exam: small ones in many builds, Debian's own, libcrypto on several processors.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::compile::Compiled;

/// What is needed besides the tests' packages.
pub const PACKAGES: &[&str] = &[
    "gcc",
    "g++",
    "clang",
    "lld",
    "musl-tools",
    "libssl-dev",
    "openssl",
    "zstd",
    "binutils",
    "perl",
    "python3",
    "sqlite3",
    "xz-utils",
    "gzip",
    "bzip2",
    "gawk",
    "bc",
    "m4",
    "file",
    "gdb",
    "lua5.4",
    "libjpeg-turbo-progs",
    "x264",
    "gnutls-bin",
];

/// A program, and how it is run.
#[derive(Debug)]
pub struct Examinee {
    /// The name in the table and of its files.
    pub name: String,
    /// What is run.
    pub program: Program,
    /// Its arguments, run in the exam's directory.
    pub arguments: Vec<String>,
    /// Beyond the exam's usual variables.
    pub environment: Vec<(&'static str, &'static str)>,
    /// A file in the exam's directory.
    pub stdin: Option<&'static str>,
    /// Snapshots only in modules whose path contains this.
    pub module: Option<&'static str>,
}

/// Where a program comes from.
#[derive(Debug)]
pub enum Program {
    /// The machine.
    Installed(&'static str),
    /// A compiler.
    Compiled(Compiled),
}

/// Each of these with each of [`LEVELS`], for C and C++.
const COMPILERS: [(&str, &str, &str); 2] = [("gcc", "gcc", "g++"), ("clang", "clang", "clang++")];
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

/// Further builds of the calculator: name, compiler, options.
const WAYS: &[(&str, &str, &[&str])] = &[
    ("clang-Oz", "clang", &["-Oz"]),
    ("gcc-frame", "gcc", &["-O2", "-fno-omit-frame-pointer"]),
    ("clang-frame", "clang", &["-O2", "-fno-omit-frame-pointer"]),
    ("gcc-O0-bare", "gcc", &["-O0", "-fomit-frame-pointer"]),
    ("gcc-no-plt", "gcc", &["-O2", "-fno-plt"]),
    ("gcc-lazy", "gcc", &["-O2", "-Wl,-z,lazy"]),
    ("gcc-no-pie", "gcc", &["-O2", "-no-pie", "-fno-pie"]),
    ("gcc-static", "gcc", &["-O2", "-static"]),
    ("clang-static", "clang", &["-O2", "-static"]),
    ("gcc-static-pie", "gcc", &["-O2", "-static-pie"]),
    ("gcc-lto", "gcc", &["-O2", "-flto"]),
    ("clang-lto", "clang", &["-O2", "-flto", "-fuse-ld=lld"]),
    ("gcc-cet", "gcc", &["-O2", "-fcf-protection=full"]),
    ("gcc-no-cet", "gcc", &["-O2", "-fcf-protection=none", "-fno-jump-tables"]),
    ("gcc-hard", "gcc", &["-O2", "-fstack-protector-all", "-fstack-clash-protection", "-D_FORTIFY_SOURCE=2"]),
    ("gcc-realigned", "gcc", &["-O2", "-mincoming-stack-boundary=3", "-frename-registers"]),
    ("gcc-native", "gcc", &["-O3", "-march=haswell", "-funroll-loops"]),
    ("clang-native", "clang", &["-O3", "-march=haswell"]),
    ("gcc-retpoline", "gcc", &["-O2", "-mindirect-branch=thunk", "-fcf-protection=none"]),
    ("gcc-no-red-zone", "gcc", &["-O2", "-mno-red-zone", "-fno-shrink-wrap"]),
    ("gcc-no-tables", "gcc", &["-O2", "-fno-asynchronous-unwind-tables"]),
    ("clang-no-tables", "clang", &["-O2", "-fno-asynchronous-unwind-tables"]),
    ("gcc-O0-no-tables", "gcc", &["-O0", "-fno-asynchronous-unwind-tables"]),
    ("musl", "musl-gcc", &["-O2"]),
    ("musl-static", "musl-gcc", &["-O2", "-static"]),
    ("musl-Os-static", "musl-gcc", &["-Os", "-static"]),
];

/// Builds of the C++ program beyond the levels.
const CPP_WAYS: &[(&str, &str, &[&str])] = &[
    ("clang-Oz", "clang++", &["-Oz"]),
    ("gcc-static", "g++", &["-O2", "-static"]),
    ("gcc-static-libs", "g++", &["-O2", "-static-libgcc", "-static-libstdc++"]),
    ("gcc-lto", "g++", &["-O2", "-flto"]),
];

/// Builds of the Rust program.
const RUST_WAYS: &[(&str, &[&str])] = &[
    ("debug", &["-g"]),
    ("O", &["-O"]),
    ("O3", &["-Copt-level=3", "-Ccodegen-units=1"]),
    ("Oz", &["-Copt-level=z"]),
    ("lto", &["-O", "-Clto=fat", "-Ccodegen-units=1"]),
    ("static", &["-O", "-Ctarget-feature=+crt-static"]),
    ("frame", &["-O", "-Cforce-frame-pointers=yes"]),
];

/// Builds of the assembly.
const STYLE_WAYS: &[(&str, &str, &[&str])] = &[
    ("cfi", "gcc", &["-O1"]),
    ("cfi-static", "gcc", &["-O1", "-static"]),
    ("bare", "gcc", &["-O1", "-DBARE"]),
    ("bare-static", "gcc", &["-O1", "-DBARE", "-static"]),
    ("bare-clang", "clang", &["-O2", "-DBARE"]),
    ("bare-no-pie", "gcc", &["-O2", "-DBARE", "-no-pie", "-fno-pie"]),
];

/// Signals, longjmp, contexts, children and odd frames; exceptions through them.
const ODD_WAYS: &[(&str, &str, &[&str], &[&str])] = &[
    ("zoo-gcc-O0", "gcc", &["-O0"], &["programs/zoo.c"]),
    ("zoo-gcc-O2", "gcc", &["-O2"], &["programs/zoo.c"]),
    ("zoo-clang-O2", "clang", &["-O2"], &["programs/zoo.c"]),
    ("throws-gcc-O0", "g++", &["-O0"], &["programs/throws.cpp"]),
    ("throws-gcc-O2", "g++", &["-O2"], &["programs/throws.cpp"]),
    ("throws-clang-Os", "clang++", &["-Os"], &["programs/throws.cpp"]),
];

/// What libcrypto may believe of the processor (openssl's OPENSSL_ia32cap).
const PROCESSORS: &[(&str, Option<&str>)] = &[
    ("native", None),
    ("sse2", Some("0x00000007ffffffff:0")),
    ("ssse3", Some("~0x3000021000000000:~0xffffffff")),
    ("avx", Some(":~0xffffffff")),
    ("avx2", Some(":~0xe0230000")),
    ("avx2-no-adx", Some(":~0xe02b0000")),
    ("ssse3-sha", Some("~0x1000000000000000:~0xc0230020")),
];

const KEYS: &[(&str, &[&str])] = &[
    ("rsa2048.pem", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
    ("rsa1024.pem", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]),
    ("ed25519.pem", &["-algorithm", "ED25519"]),
    ("p256.pem", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]),
    ("p521.pem", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
];

/// Debian's programs: name, program, arguments, standard input.
const DEBIAN: &[(&str, &str, &[&str], Option<&str>)] = &[
    ("cat", "cat", &["text.txt"], None),
    ("ls", "ls", &["-l", "--color=always", "/usr/bin"], None),
    ("sort", "sort", &["text.txt"], None),
    ("date", "date", &["-u"], None),
    ("grep", "grep", &["-nE", "(wa|pa)[a-z]*(lk|th)+.*[0-9]", "text.txt"], None),
    ("sed", "sed", &["-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g;/path/d", "text.txt"], None),
    ("perl", "perl", &["work.pl"], None),
    ("python3", "/usr/bin/python3", &["-S", "-E", "work.py"], None),
    ("sqlite3", "sqlite3", &[":memory:"], Some("work.sql")),
    ("xz", "xz", &["-9", "-c", "text.txt"], None),
    ("gzip", "gzip", &["-9", "-c", "text.txt"], None),
    ("bzip2", "bzip2", &["-c", "text.txt"], None),
    ("zstd", "zstd", &["-19", "-c", "text.txt", "--single-thread"], None),
    ("bash", "bash", &["--norc", "work.sh"], None),
    ("dash", "dash", &["work.sh"], None),
    (
        "gawk",
        "gawk",
        &[
            "{ for (i = 1; i <= NF; i++) count[$i]++ } END { for (w in count) printf \"%s %d\\n\", w, count[w] }",
            "text.txt",
        ],
        None,
    ),
    ("bc", "bc", &["-lq"], Some("work.bc")),
    ("m4", "m4", &["work.m4"], None),
    ("lua", "lua5.4", &["work.lua"], None),
    ("file", "file", &["/usr/bin/file", "text.txt"], None),
    ("cc1", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", &["-quiet", "-O2", "work.c", "-o", "/dev/null"], None),
    ("as", "as", &["work.s", "-o", "/dev/null"], None),
    ("ld", "ld.bfd", &["-r", "work.o", "-o", "/dev/null"], None),
    ("objdump", "objdump", &["-d", "work.o"], None),
    ("clang", "/usr/lib/llvm-14/bin/clang", &["-cc1", "-O2", "-S", "work.c", "-o", "/dev/null"], None),
];

/// Debian's libraries with much hand-written assembly: name, program, arguments, and the module that is looked at.
const ASSEMBLY: &[(&str, &str, &[&str], &str)] = &[
    ("cjpeg", "cjpeg", &["-quality", "80", "-optimize", "picture.ppm"], "jpeg"),
    ("x264", "x264", &["--threads", "1", "--input-res", "64x48", "--fps", "25", "-o", "/dev/null", "video.yuv"], "264"),
    ("gmp", "certtool", &["--generate-privkey", "--key-type", "rsa", "--bits", "1024"], "gmp"),
    ("gnutls", "certtool", &["--generate-privkey", "--key-type", "ecdsa"], "gnutls"),
];

/// Every program.
pub fn all() -> Vec<Examinee> {
    let mut all = Vec::new();
    let mut compiled = |name: String, compiler, options: Vec<&'static str>, sources, libraries| {
        all.push(Examinee {
            program: Program::Compiled(Compiled { name: name.clone(), compiler, options, sources, libraries }),
            name,
            arguments: Vec::new(),
            environment: Vec::new(),
            stdin: None,
            module: None,
        });
    };
    for (of, c, cpp) in COMPILERS {
        for level in LEVELS {
            compiled(format!("calc-{of}{level}"), c, vec![level], &["exam/calc.c"], &["-lm"]);
            compiled(format!("shapes-{of}{level}"), cpp, vec![level, "-std=c++17"], &["exam/shapes.cpp"], &[]);
        }
    }
    for &(way, compiler, options) in WAYS {
        compiled(format!("calc-{way}"), compiler, options.to_vec(), &["exam/calc.c"], &["-lm"]);
    }
    for &(way, compiler, options) in CPP_WAYS {
        let options = [options, &["-std=c++17"]].concat();
        compiled(format!("shapes-{way}"), compiler, options, &["exam/shapes.cpp"], &[]);
    }
    for &(way, options) in RUST_WAYS {
        compiled(
            format!("words-rustc-{way}"),
            "rustc",
            [options, &["--edition", "2021"]].concat(),
            &["exam/words.rs"],
            &[],
        );
    }
    for &(way, compiler, options) in STYLE_WAYS {
        compiled(format!("styles-{way}"), compiler, options.to_vec(), &["exam/styles.c", "exam/styles.S"], &[]);
    }
    for &(name, compiler, options, sources) in ODD_WAYS {
        compiled(name.to_owned(), compiler, options.to_vec(), sources, &[]);
    }
    for &(processor, value) in PROCESSORS {
        let program = Compiled {
            name: "crypto".into(),
            compiler: "gcc",
            options: vec!["-O2"],
            sources: &["exam/crypto.c"],
            libraries: &["-lcrypto"],
        };
        all.push(Examinee {
            name: format!("libcrypto-{processor}"),
            program: Program::Compiled(program),
            arguments: KEYS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            environment: value.map(|value| ("OPENSSL_ia32cap", value)).into_iter().collect(),
            stdin: None,
            module: Some("libcrypto"),
        });
    }
    let whole = DEBIAN.iter().map(|&(name, program, arguments, stdin)| (name, program, arguments, stdin, None));
    let parts =
        ASSEMBLY.iter().map(|&(name, program, arguments, module)| (name, program, arguments, None, Some(module)));
    for (name, program, arguments, stdin, module) in whole.chain(parts) {
        all.push(Examinee {
            name: format!("debian-{name}"),
            program: Program::Installed(program),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: Vec::new(),
            stdin,
            module,
        });
    }
    all
}

/// Makes what the programs read, unless it is there.
pub fn inputs(dir: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    for i in 0..600u32 {
        let word = |n: u32| ["walk", "path", "call", "frame", "stack", "tree"][(i.wrapping_mul(n) >> 3) as usize % 6];
        writeln!(text, "{} {} {} {}", word(7), word(2_654_435_761), i * i % 977, word(40_503))?;
    }
    let written: [(&str, &str); 8] = [
        ("text.txt", &text),
        ("work.pl", include_str!("inputs/work.pl")),
        ("work.py", include_str!("inputs/work.py")),
        ("work.sql", include_str!("inputs/work.sql")),
        ("work.sh", include_str!("inputs/work.sh")),
        (
            "work.bc",
            "scale=30; define f(n) { if (n < 2) return (1); return (n * f(n - 1)); }\nf(20)/7; sqrt(2); e(1); s(1)\n",
        ),
        (
            "work.m4",
            "define(`rec', `ifelse($1, 0, `end', `$1 rec(decr($1))')')rec(20)\nformat(`%05d', eval(3**7 % 100))\n",
        ),
        ("work.lua", include_str!("inputs/work.lua")),
    ];
    for (name, content) in written {
        let path = dir.join(name);
        if !path.exists() {
            std::fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    let mut noise = 1u32;
    let mut bytes = |len: usize| -> Vec<u8> {
        let mut byte = |i: usize| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (((i * 7) >> 3) as u8).wrapping_add((noise >> 28) as u8)
        };
        (0..len).map(&mut byte).collect()
    };
    let picture = [b"P6 96 64 255\n", &*bytes(96 * 64 * 3)].concat();
    for (name, content) in [("picture.ppm", picture), ("video.yuv", bytes(64 * 48 * 3 / 2 * 6))] {
        let path = dir.join(name);
        if !path.exists() {
            std::fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    let source = crate::build::root().join("crates/callpath-oracle/tests/exam/calc.c");
    for (name, arguments) in [("work.c", ["-E", "-P"]), ("work.s", ["-S", "-O1"]), ("work.o", ["-c", "-O2"])] {
        make(dir, name, Command::new("gcc").args(arguments).arg(&source).args(["-o", name]))?;
    }
    for (name, arguments) in KEYS {
        make(dir, name, Command::new("openssl").arg("genpkey").args(*arguments).args(["-out", name]))?;
    }
    Ok(())
}

fn make(dir: &Path, name: &str, command: &mut Command) -> anyhow::Result<()> {
    if dir.join(name).exists() {
        return Ok(());
    }
    let status = command.current_dir(dir).stdin(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(status.with_context(|| format!("failed to run {command:?}"))?.success(), "{command:?} failed");
    Ok(())
}
