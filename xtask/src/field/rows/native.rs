//! Programs that compilers other than plain C's make, and runtimes of threads and coroutines.

use super::row::{PLAIN, Row};

pub const ROWS: &[Row] = &[
    Row {
        name: "ghc",
        does: "Haskell, -O1: fib",
        packages: &["ghc"],
        files: &[("fib.hs", include_str!("../inputs/fib.hs"))],
        build: "ghc -O1 -o fib fib.hs",
        run: &["./fib", "40"],
        ..PLAIN
    },
    Row {
        name: "ocaml",
        does: "OCaml, native: queens",
        packages: &["ocaml-nox", "gcc"],
        files: &[("queens.ml", include_str!("../inputs/queens.ml"))],
        build: "ocamlopt -o queens queens.ml",
        run: &["./queens", "12"],
        ..PLAIN
    },
    Row {
        name: "openmp-c",
        does: "C with OpenMP, two threads: a stencil and a reduction",
        packages: &["gcc"],
        files: &[("stencil.c", include_str!("../inputs/stencil.c"))],
        build: "gcc -O2 -fopenmp -o stencil stencil.c",
        run: &["./stencil", "300"],
        environment: &[("OMP_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "openmp-fortran",
        does: "Fortran with OpenMP, two threads: the same stencil",
        packages: &["gfortran"],
        files: &[("stencil.f90", include_str!("../inputs/stencil.f90"))],
        build: "gfortran -O2 -fopenmp -o stencil stencil.f90",
        run: &["./stencil"],
        environment: &[("OMP_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "mpi",
        does: "Open MPI, two ranks: a stencil with its border sent",
        packages: &["openmpi-bin", "libopenmpi-dev", "gcc"],
        files: &[("ring.c", include_str!("../inputs/ring.c"))],
        build: "mpicc -O2 -o ring ring.c",
        run: &["mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root", "./ring", "1200"],
        ..PLAIN
    },
    Row {
        name: "tokio",
        does: "Rust, tokio: tasks that send each other numbers, two workers",
        packages: &["gcc"],
        files: &[
            ("Cargo.toml", include_str!("../inputs/tokio.toml")),
            ("src/main.rs", include_str!("../inputs/tokio.rs")),
        ],
        build: "cargo build -q --release",
        run: &["./target/release/tasks", "200"],
        ..PLAIN
    },
    Row {
        name: "rayon",
        does: "Rust, rayon: words counted and sorted by two threads",
        packages: &["gcc"],
        files: &[
            ("Cargo.toml", include_str!("../inputs/rayon.toml")),
            ("src/main.rs", include_str!("../inputs/rayon.rs")),
        ],
        build: "cargo build -q --release",
        run: &["./target/release/words", "2000000"],
        environment: &[("RAYON_NUM_THREADS", "2")],
        ..PLAIN
    },
    Row {
        name: "exceptions",
        does: "C++: exceptions through twenty frames",
        packages: &["g++"],
        files: &[("throws.cpp", include_str!("../inputs/throws.cpp"))],
        build: "g++ -O2 -o throws throws.cpp",
        run: &["./throws", "60000"],
        ..PLAIN
    },
    Row {
        name: "boost-fiber",
        does: "C++, boost.fiber: fibers with channels",
        packages: &["libboost-fiber-dev", "libboost-context-dev", "g++"],
        files: &[("fiber.cpp", include_str!("../inputs/fiber.cpp"))],
        build: "g++ -O2 -o fiber fiber.cpp -lboost_fiber -lboost_context -pthread",
        run: &["./fiber", "300000"],
        ..PLAIN
    },
    Row {
        name: "boost-coroutine",
        does: "C++, boost.coroutine2: a tree walked by generators",
        packages: &["libboost-coroutine-dev", "libboost-context-dev", "g++"],
        files: &[("coroutine.cpp", include_str!("../inputs/coroutine.cpp"))],
        build: "g++ -O2 -o coroutine coroutine.cpp -lboost_context",
        run: &["./coroutine", "600"],
        ..PLAIN
    },
    Row {
        name: "go",
        does: "Go: goroutines over a channel, sort, regexp",
        packages: &["golang-go", "gcc"],
        files: &[("main.go", include_str!("../inputs/work.go")), ("go.mod", "module work\n\ngo 1.19\n")],
        // By itself Go links statically, which callpath refuses.
        build: "HOME=$PWD GOCACHE=$PWD/cache GOPROXY=off go build -ldflags=-linkmode=external -o work .",
        run: &["./work", "40"],
        environment: &[("GOMAXPROCS", "2")],
        ..PLAIN
    },
    Row {
        name: "go-cgo",
        does: "Go that calls C, which calls back",
        packages: &["golang-go", "gcc"],
        files: &[("main.go", include_str!("../inputs/cgo.go")), ("go.mod", "module work\n\ngo 1.19\n")],
        build: "CGO_ENABLED=1 HOME=$PWD GOCACHE=$PWD/cache GOPROXY=off go build -o work .",
        run: &["./work", "4000000"],
        environment: &[("GOMAXPROCS", "2")],
        ..PLAIN
    },
];
