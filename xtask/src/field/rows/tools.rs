//! Compilers, builds, and what else is called from a shell.

use super::row::{PLAIN, Row};
use crate::suite::inputs;

const PROJECT: &[(&str, &str)] = &[
    ("Makefile", include_str!("../inputs/project.mk")),
    ("CMakeLists.txt", include_str!("../inputs/project.cmake")),
    ("stencil.c", include_str!("../inputs/stencil.c")),
    ("parse.c", include_str!("../inputs/parse.c")),
    ("throws.cpp", include_str!("../inputs/throws.cpp")),
    ("alloc.cpp", include_str!("../inputs/alloc.cpp")),
];

fn big() -> Vec<u8> {
    inputs::cpp(1).into_bytes()
}

pub const ROWS: &[Row] = &[
    Row {
        name: "g++",
        does: "g++ -O2 -c: the driver, the compiler, the assembler",
        packages: &["g++"],
        generated_inputs: &[("big.cpp", big)],
        run: &["sh", "-c", "g++ -O2 -c big.cpp -o big.o && cksum <big.o"],
        ..PLAIN
    },
    Row {
        name: "clang",
        does: "clang++ -O2 -c: the same",
        packages: &["clang", "g++"],
        generated_inputs: &[("big.cpp", big)],
        run: &["sh", "-c", "clang++ -O2 -c big.cpp -o big.o && cksum <big.o"],
        ..PLAIN
    },
    Row {
        name: "rustc",
        does: "rustc -O of one file",
        packages: &["gcc"],
        files: &[("parse.rs", include_str!("../inputs/parse.rs"))],
        run: &["sh", "-c", "rustc -O -C codegen-units=1 --crate-type=rlib --emit=asm parse.rs -o parse.s && cksum <parse.s"],
        ..PLAIN
    },
    Row {
        name: "make",
        does: "make -j2: four C and C++ files in two ways each",
        packages: &["make", "g++"],
        files: PROJECT,
        run: &["make", "-s", "-j2", "-B"],
        ..PLAIN
    },
    Row {
        name: "cmake",
        does: "cmake: a small project configured",
        packages: &["cmake", "ninja-build", "g++"],
        files: PROJECT,
        run: &["sh", "-c", "rm -rf out; cmake -S . -B out -G Ninja >said 2>&1; echo $?; grep -c . out/build.ninja"],
        ..PLAIN
    },
    Row {
        name: "ninja",
        does: "ninja -j2: what cmake has configured",
        packages: &["cmake", "ninja-build", "g++"],
        files: PROJECT,
        build: "cmake -S . -B out -G Ninja",
        run: &["sh", "-c", "ninja -C out -t clean >said; ninja -j2 -C out >said; echo $?; ls out/*.o out/CMakeFiles/*/*.o | wc -l"],
        ..PLAIN
    },
    Row {
        name: "cargo-cold",
        does: "cargo build of rayon and a program; each recording with an empty cache",
        packages: &["gcc"],
        files: &[
            ("Cargo.toml", include_str!("../inputs/rayon.toml")),
            ("src/main.rs", include_str!("../inputs/rayon.rs")),
        ],
        build: "cargo fetch -q",
        run: &["sh", "-c", "rm -rf target; cargo build -q --offline -j2; echo $?; ./target/debug/words 1000"],
        cold: true,
        ..PLAIN
    },
    Row {
        name: "git",
        does: "git log -p --stat -M over 1,500 commits",
        packages: &["git", "mawk"],
        files: &[("history.awk", include_str!("../inputs/history.awk"))],
        build: "git init -q repository; mawk -f history.awk | git -C repository fast-import --quiet",
        run: &["git", "-C", "repository", "log", "-p", "--stat", "-M", "--format=%s", "work"],
        environment: &[("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")],
        ..PLAIN
    },
    Row {
        name: "tar-gzip",
        does: "tar of a tree through gzip and back",
        packages: &["gzip", "tar"],
        generated_inputs: &[("text", || inputs::text(12_000_000))],
        build: "mkdir tree; split -b 20000 text tree/part-",
        run: &["sh", "-c", "tar -cf - tree | gzip -6 | gzip -d | tar -xOf - | cksum"],
        ..PLAIN
    },
    Row {
        name: "zstd-threads",
        does: "zstd -12 -T2 of generated text",
        packages: &["zstd"],
        generated_inputs: &[("text", || inputs::text(12_000_000))],
        run: &["zstd", "-12", "-T2", "-q", "-k", "-c", "text"],
        ..PLAIN
    },
    Row {
        name: "openssl-hash",
        does: "openssl: SHA-3 of generated text",
        packages: &["openssl"],
        generated_inputs: &[("text", || inputs::text(60_000_000))],
        run: &["openssl", "dgst", "-sha3-512", "text", "text", "text", "text"],
        ..PLAIN
    },
    Row {
        name: "openssl-speed",
        does: "openssl speed: RSA for a second, signing and verifying",
        packages: &["openssl"],
        run: &["openssl", "speed", "-seconds", "1", "rsa2048"],
        ..PLAIN
    },
    Row {
        name: "ffmpeg-mpeg",
        does: "ffmpeg: MPEG-4 and AAC of generated picture and sound",
        packages: &["ffmpeg"],
        run: &[
            "ffmpeg",
            "-nostdin",
            "-loglevel",
            "error",
            "-f",
            "lavfi",
            "-i",
            "testsrc2=size=640x360:rate=25:duration=16",
            "-f",
            "lavfi",
            "-i",
            "sine=frequency=440:duration=16",
            "-flags",
            "+bitexact",
            "-c:v",
            "mpeg4",
            "-threads",
            "2",
            "-c:a",
            "aac",
            "-f",
            "md5",
            "-",
        ],
        ..PLAIN
    },
    Row {
        name: "imagemagick",
        does: "convert: waves, a blur, a rotation",
        packages: &["imagemagick"],
        run: &[
            "convert",
            "-size",
            "900x700",
            "gradient:red-blue",
            "-wave",
            "20x100",
            "-blur",
            "0x5",
            "-rotate",
            "17",
            "-resize",
            "50%",
            "ppm:-",
        ],
        environment: &[("OMP_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "ghostscript",
        does: "gs: curves and text to pixels",
        packages: &["ghostscript"],
        files: &[("figure.ps", include_str!("../inputs/figure.ps"))],
        run: &["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", "-r300", "-sOutputFile=-", "figure.ps"],
        ..PLAIN
    },
    Row {
        name: "gnuplot",
        does: "gnuplot: curves and a surface to SVG",
        packages: &["gnuplot-nox"],
        files: &[("plot.gp", include_str!("../inputs/plot.gp"))],
        run: &["gnuplot", "plot.gp"],
        ..PLAIN
    },
    Row {
        name: "dot",
        does: "graphviz: a graph of 380 nodes laid out",
        packages: &["graphviz", "mawk"],
        build: "mawk 'BEGIN { print \"digraph g {\"; for (i = 1; i < 380; i++) {
                    printf \"n%d -> n%d\\n\", int(i * 7919 % i), i; printf \"n%d -> n%d\\n\", int(i / 2), i }; print \"}\" }' >graph.dot",
        run: &["dot", "-Tsvg", "graph.dot"],
        ..PLAIN
    },
    Row {
        name: "gdb",
        does: "gdb --batch: breakpoints with a condition, backtraces",
        packages: &["gdb", "g++"],
        files: &[
            ("throws.cpp", include_str!("../inputs/throws.cpp")),
            ("script.gdb", include_str!("../inputs/script.gdb")),
        ],
        build: "g++ -O1 -g -o throws throws.cpp",
        // gdb says the number of the process that ended.
        run: &[
            "sh",
            "-c",
            "gdb --batch -nx -iex 'set debuginfod enabled off' -x script.gdb ./throws >said; echo $?; grep -v Inferior said",
        ],
        ..PLAIN
    },
];
