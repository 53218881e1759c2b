//! Interpreters that make no code while they run.

use super::row::{PLAIN, Row};
use crate::suite::inputs;

pub const ROWS: &[Row] = &[
    Row {
        name: "python3",
        does: "CPython, Debian's: the suite's benchmark",
        packages: &["python3"],
        files: &[("bench.py", inputs::PYTHON)],
        run: &["python3", "-S", "bench.py", "1"],
        ..PLAIN
    },
    Row {
        name: "python3-g",
        does: "CPython 3.11 as pyenv builds it, with -g and computed goto: the same",
        files: &[("bench.py", inputs::PYTHON)],
        build: "for root in \"$PYENV_ROOT\" \"$HOME/.pyenv\"; do
                    for python in \"$root\"/versions/3.11.*/bin/python3.11; do
                        if [ -x \"$python\" ]; then ln -s \"$python\" python; exit; fi
                    done
                done
                echo no Python 3.11 of pyenv: pyenv install 3.11; exit 1",
        run: &["./python", "-S", "bench.py", "1"],
        ..PLAIN
    },
    Row {
        name: "gevent",
        does: "gevent (PyPI): greenlets in a row",
        packages: &["python3-venv"],
        files: &[("tasks.py", include_str!("../inputs/gevent_tasks.py"))],
        build: "python3 -m venv venv; venv/bin/pip install -q gevent",
        run: &["./venv/bin/python3", "tasks.py", "25000"],
        ..PLAIN
    },
    Row {
        name: "asyncio",
        does: "asyncio: tasks in a row",
        packages: &["python3"],
        files: &[("tasks.py", include_str!("../inputs/asyncio_tasks.py"))],
        run: &["python3", "tasks.py", "25000"],
        ..PLAIN
    },
    Row {
        name: "numpy-wheel",
        does: "numpy of PyPI with the OpenBLAS in it, two threads",
        packages: &["python3-venv"],
        files: &[("blas.py", inputs::NUMPY)],
        build: "python3 -m venv venv; venv/bin/pip install -q numpy",
        run: &["./venv/bin/python3", "blas.py", "1"],
        environment: &[("OPENBLAS_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "lua",
        does: "Lua 5.4: calls, tables, strings",
        packages: &["lua5.4"],
        files: &[("work.lua", include_str!("../inputs/work.lua"))],
        run: &["lua5.4", "work.lua", "9"],
        ..PLAIN
    },
    Row {
        name: "ruby",
        does: "Ruby: calls, blocks, hashes",
        packages: &["ruby"],
        files: &[("work.rb", include_str!("../inputs/work.rb"))],
        run: &["ruby", "work.rb", "10"],
        ..PLAIN
    },
    Row {
        name: "php",
        does: "PHP: calls, objects, arrays",
        packages: &["php-cli"],
        files: &[("work.php", include_str!("../inputs/work.php"))],
        run: &["php", "-n", "work.php", "14"],
        ..PLAIN
    },
    Row {
        name: "swipl",
        does: "SWI-Prolog: queens by backtracking",
        packages: &["swi-prolog-nox"],
        files: &[("queens.pl", include_str!("../inputs/queens.pl"))],
        run: &["swipl", "queens.pl", "10"],
        ..PLAIN
    },
    Row {
        name: "octave",
        does: "Octave: matrices and an interpreted loop",
        packages: &["octave"],
        files: &[("work.m", include_str!("../inputs/work.m"))],
        run: &["octave-cli", "-q", "--norc", "work.m"],
        environment: &[("OPENBLAS_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "r",
        does: "R: vectors, closures, a linear model",
        packages: &["r-base-core"],
        files: &[("work.R", include_str!("../inputs/work.R"))],
        run: &["Rscript", "--vanilla", "work.R"],
        environment: &[("OPENBLAS_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "gawk",
        does: "gawk: words counted",
        packages: &["gawk"],
        files: &[("words.awk", include_str!("../inputs/words.awk"))],
        generated_inputs: &[("text", || inputs::text(4_000_000))],
        run: &["gawk", "-f", "words.awk", "text"],
        ..PLAIN
    },
    Row {
        name: "mawk",
        does: "mawk: the same",
        packages: &["mawk"],
        files: &[("words.awk", include_str!("../inputs/words.awk"))],
        generated_inputs: &[("text", || inputs::text(8_000_000))],
        run: &["mawk", "-f", "words.awk", "text"],
        ..PLAIN
    },
    Row {
        name: "bc",
        does: "bc: digits of pi",
        packages: &["bc"],
        files: &[("pi.bc", "scale=1400\n4*a(1)\nquit\n")],
        run: &["bc", "-lq", "pi.bc"],
        ..PLAIN
    },
    Row {
        name: "dc",
        does: "dc: a factorial",
        packages: &["dc"],
        files: &[("factorial.dc", "1 sp 1 [d lp * sp 1+ d 9001>L] dsLx lp p\n")],
        run: &["dc", "factorial.dc"],
        ..PLAIN
    },
    Row {
        name: "tcl",
        does: "Tcl: procedures, dictionaries",
        packages: &["tcl8.6"],
        files: &[("work.tcl", include_str!("../inputs/work.tcl"))],
        run: &["tclsh8.6", "work.tcl", "8"],
        ..PLAIN
    },
    Row {
        name: "emacs",
        does: "emacs --batch: Lisp, a buffer searched",
        packages: &["emacs-nox"],
        files: &[("work.el", include_str!("../inputs/work.el"))],
        run: &["emacs", "--batch", "-Q", "-l", "work.el"],
        ..PLAIN
    },
    Row {
        name: "vim",
        does: "vim -es: functions, sorts and substitutions",
        packages: &["vim"],
        files: &[("work.vim", include_str!("../inputs/work.vim"))],
        run: &["sh", "-c", "vim -es -u NONE -i NONE -N -n -S work.vim; echo $?; cksum <out.txt"],
        ..PLAIN
    },
    Row {
        name: "sh-loop",
        does: "a shell that starts /bin/true 300 times",
        run: &["sh", "-c", "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done"],
        ..PLAIN
    },
];
