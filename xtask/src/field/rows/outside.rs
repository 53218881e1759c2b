//! Programs that no object is preloaded into, which are sampled from outside.

use super::row::{PLAIN, Row};
use crate::suite::inputs;

pub const ROWS: &[Row] = &[
    Row {
        name: "go-static",
        does: "Go, linked statically as by default: goroutines over a channel, sort, regexp",
        packages: &["golang-go"],
        files: &[("main.go", include_str!("../inputs/work.go")), ("go.mod", "module work\n\ngo 1.19\n")],
        build: "HOME=$PWD GOCACHE=$PWD/cache GOPROXY=off CGO_ENABLED=0 go build -o work .",
        run: &["./work", "40"],
        environment: &[("GOMAXPROCS", "2")],
        ..PLAIN
    },
    Row {
        name: "go-tool",
        does: "Debian's go itself, and its compiler: the standard library's regexp and what it needs, built anew",
        packages: &["golang-go"],
        files: &[("main.go", include_str!("../inputs/work.go")), ("go.mod", "module work\n\ngo 1.19\n")],
        run: &["sh", "-c", "HOME=$PWD GOCACHE=$PWD/cache GOPROXY=off CGO_ENABLED=0 go build -a -p 2 -o work ."],
        environment: &[("GOMAXPROCS", "2")],
        ..PLAIN
    },
    Row {
        name: "hugo",
        does: "Debian's hugo: a site of 2,000 pages",
        packages: &["hugo"],
        build: "mkdir -p site/content site/layouts/_default && echo 'title = \"site\"' > site/config.toml && \
                echo '{{ range .Site.Pages }}{{ .Title }} {{ .WordCount }}{{ end }}' > site/layouts/index.html && \
                echo '{{ .Title }}{{ .Content }}{{ .Summary }}' > site/layouts/_default/single.html && \
                for page in $(seq 2000); do printf -- '---\\ntitle: page %s\\n---\\n# Head\\n\\n*Some* text, `code` and\\n\\n1. a list\\n2. [a link](/)\\n' \
                $page > site/content/page-$page.md; done",
        run: &["hugo", "--quiet", "-s", "site"],
        environment: &[("GOMAXPROCS", "2")],
        ..PLAIN
    },
    Row {
        name: "busybox-static",
        does: "Debian's static busybox: words counted by its awk",
        packages: &["busybox-static"],
        files: &[("words.awk", include_str!("../inputs/words.awk"))],
        generated_inputs: &[("text", || inputs::text(8_000_000))],
        run: &["busybox", "awk", "-f", "words.awk", "text"],
        ..PLAIN
    },
    Row {
        name: "musl",
        does: "C with musl, dynamic, stripped: expressions parsed and printed",
        packages: &["musl-tools"],
        files: &[("parse.c", include_str!("../inputs/parse.c"))],
        build: "musl-gcc -O2 -s -o parse parse.c",
        run: &["./parse", "1000000"],
        ..PLAIN
    },
    Row {
        name: "musl-static",
        does: "the same, static",
        packages: &["musl-tools"],
        files: &[("parse.c", include_str!("../inputs/parse.c"))],
        build: "musl-gcc -O2 -s -static -o parse parse.c",
        run: &["./parse", "1000000"],
        ..PLAIN
    },
];
