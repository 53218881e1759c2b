//! Runtimes that make code while they run, or whose stacks are their own.

use super::row::{PLAIN, Row};

const LUA: &[(&str, &str)] = &[("work.lua", include_str!("../inputs/work.lua"))];
const RUBY: &[(&str, &str)] = &[("work.rb", include_str!("../inputs/work.rb"))];
const PHP: &[(&str, &str)] = &[("work.php", include_str!("../inputs/work.php"))];
const JAVA: &[(&str, &str)] = &[("Work.java", include_str!("../inputs/Work.java"))];
const SCRIPT: &[(&str, &str)] = &[("work.js", include_str!("../inputs/work.js"))];
const ERLANG: &[(&str, &str)] = &[("field.erl", include_str!("../inputs/field.erl"))];

pub const ROWS: &[Row] = &[
    Row {
        name: "luajit",
        does: "LuaJIT: calls, tables, strings",
        packages: &["luajit"],
        files: LUA,
        run: &["luajit", "work.lua", "16"],
        ..PLAIN
    },
    Row {
        name: "pypy",
        does: "PyPy: the suite's Python benchmark",
        packages: &["pypy3"],
        files: &[("bench.py", crate::suite::inputs::PYTHON)],
        run: &["pypy3", "-S", "bench.py", "2"],
        ..PLAIN
    },
    Row {
        name: "guile",
        does: "Guile, compiled: calls, lists",
        packages: &["guile-3.0", "guile-3.0-dev"],
        files: &[("work.scm", include_str!("../inputs/work.scm"))],
        build: "HOME=$PWD guild compile -o work.go work.scm",
        run: &["guile-3.0", "--no-auto-compile", "-c", "(load-compiled \"work.go\") (work 16)"],
        ..PLAIN
    },
    Row {
        name: "chez",
        does: "Chez Scheme: the same",
        packages: &["chezscheme"],
        files: &[("work.scm", include_str!("../inputs/work.scm")), ("main.ss", "(load \"work.scm\")\n(work 30)\n")],
        run: &["chezscheme", "--script", "main.ss"],
        ..PLAIN
    },
    Row {
        name: "racket",
        does: "Racket: calls, hash tables",
        packages: &["racket"],
        files: &[("work.rkt", include_str!("../inputs/work.rkt"))],
        build: "raco make work.rkt",
        run: &["racket", "work.rkt", "6"],
        ..PLAIN
    },
    Row {
        name: "sbcl",
        does: "SBCL: calls, hash tables, generic functions",
        packages: &["sbcl"],
        files: &[("work.lisp", include_str!("../inputs/work.lisp"))],
        run: &["sbcl", "--script", "work.lisp", "8"],
        ..PLAIN
    },
    Row {
        name: "ruby-yjit",
        does: "Ruby --yjit: calls, blocks, hashes",
        packages: &["ruby"],
        files: RUBY,
        run: &["ruby", "--yjit", "work.rb", "12"],
        ..PLAIN
    },
    Row {
        name: "php-jit",
        does: "PHP with its JIT: calls, objects, arrays",
        packages: &["php-cli", "php8.2-opcache"],
        files: PHP,
        run: &[
            "php",
            "-n",
            "-d",
            "zend_extension=opcache",
            "-d",
            "opcache.enable_cli=1",
            "-d",
            "opcache.jit_buffer_size=32M",
            "-d",
            "opcache.jit=tracing",
            "work.php",
            "20",
        ],
        ..PLAIN
    },
    Row {
        name: "mono",
        does: "Mono: calls, delegates, generics",
        packages: &["mono-runtime", "mono-mcs"],
        files: &[("Work.cs", include_str!("../inputs/Work.cs"))],
        build: "mcs -optimize -out:Work.exe Work.cs",
        run: &["mono", "Work.exe", "12"],
        ..PLAIN
    },
    Row {
        name: "java",
        does: "OpenJDK: calls, maps, streams, threads",
        packages: &["default-jdk-headless"],
        files: JAVA,
        build: "javac Work.java",
        run: &["java", "-cp", ".", "Work", "12"],
        ..PLAIN
    },
    Row {
        name: "java-fp",
        does: "the same with -XX:+PreserveFramePointer",
        packages: &["default-jdk-headless"],
        files: JAVA,
        build: "javac Work.java",
        run: &["java", "-XX:+PreserveFramePointer", "-cp", ".", "Work", "12"],
        ..PLAIN
    },
    Row {
        name: "node",
        does: "Node: calls, maps, JSON, regular expressions",
        packages: &["nodejs"],
        files: SCRIPT,
        run: &["node", "work.js", "14"],
        ..PLAIN
    },
    Row {
        name: "bun",
        does: "Bun (npm): the same",
        packages: &["nodejs", "npm"],
        files: SCRIPT,
        build: "HOME=$PWD npm install --no-save --no-audit --no-fund --prefix . bun",
        run: &["./node_modules/.bin/bun", "work.js", "14"],
        ..PLAIN
    },
    Row {
        name: "deno",
        does: "Deno (npm): the same",
        packages: &["nodejs", "npm"],
        files: SCRIPT,
        build: "HOME=$PWD npm install --no-save --no-audit --no-fund --prefix . deno; ./node_modules/.bin/deno --version",
        run: &["./node_modules/.bin/deno", "run", "--quiet", "work.js", "14"],
        environment: &[("DENO_NO_UPDATE_CHECK", "1")],
        ..PLAIN
    },
    Row {
        name: "erlang",
        does: "Erlang: processes in a row, calls",
        packages: &["erlang-base"],
        files: ERLANG,
        build: "erlc field.erl",
        run: &["erl", "-noshell", "-pa", ".", "-run", "field", "shallow", "12"],
        ..PLAIN
    },
    Row {
        name: "erlang-deep",
        does: "Erlang: 300,000 frames deep",
        packages: &["erlang-base"],
        files: ERLANG,
        build: "erlc field.erl",
        run: &["erl", "-noshell", "-pa", ".", "-run", "field", "deep", "1500"],
        ..PLAIN
    },
    Row {
        name: "elixir",
        does: "Elixir, a script: streams, maps, tasks",
        packages: &["elixir"],
        files: &[("work.exs", include_str!("../inputs/work.exs"))],
        run: &["elixir", "work.exs", "4"],
        ..PLAIN
    },
];
