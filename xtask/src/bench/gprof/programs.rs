//! The programs of `bench-gprof`: Debian's sources, fetched once below target/, and how each is built and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::archive::{Archive, passes};
use crate::build;
use crate::suite;

const SUITE: &str = "bookworm";

/// One program.
pub struct Program {
    /// Debian's source package.
    pub package: &'static str,
    /// What it does here.
    pub does: &'static str,
    /// Builds it in the directory of its sources; the last words are the compiler's options.
    build: fn(&Path, &[&str]) -> anyhow::Result<()>,
    /// What it becomes there.
    product: &'static str,
    /// Makes the inputs in a directory; gives the arguments.
    prepare: fn(&Path) -> anyhow::Result<Vec<String>>,
    /// What it reads, if anything.
    stdin: Option<&'static str>,
}

/// A program that was built, and what it is run on.
pub struct Built {
    /// The executable.
    pub path: PathBuf,
    /// What it is called with.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub directory: PathBuf,
    stdin: Option<PathBuf>,
}

impl Built {
    /// The words that run it, after those that are there already, in a directory of its own choice.
    pub fn append_to(&self, command: &mut Command) -> anyhow::Result<()> {
        command.arg(&self.path).args(&self.arguments).current_dir(&self.directory);
        self.streams(command)
    }

    /// It alone.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.directory);
        self.streams(&mut command)?;
        Ok(command)
    }

    fn streams(&self, command: &mut Command) -> anyhow::Result<()> {
        match &self.stdin {
            Some(file) => command.stdin(std::fs::File::open(file)?),
            None => command.stdin(Stdio::null()),
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(())
    }
}

impl Program {
    /// Builds it with more options for the compiler, in a directory of that name.
    pub fn built(&self, name: &str, options: &[&str]) -> anyhow::Result<Built> {
        let place = build::root().join("target/gprof").join(self.package);
        let directory = place.join(name);
        let product = directory.join(self.product);
        if !product.exists() {
            let sources = self.sources(&place)?;
            suite::remove_output(&directory)?;
            // With the times of the files: make would remake what configure made.
            passes(Command::new("cp").arg("-a").arg(&sources).arg(&directory))?;
            (self.build)(&directory, options).with_context(|| format!("failed to build {}", self.package))?;
            ensure!(product.exists(), "the build of {} left no {}", self.package, self.product);
        }
        let inputs = place.join("inputs");
        std::fs::create_dir_all(&inputs)?;
        let arguments = (self.prepare)(&inputs)?;
        // A profile is written where a program runs.
        let own = inputs.join(name);
        std::fs::create_dir_all(&own)?;
        let stdin = self.stdin.map(|file| inputs.join(file));
        Ok(Built { path: product, arguments, directory: own, stdin })
    }

    fn sources(&self, place: &Path) -> anyhow::Result<PathBuf> {
        let sources = place.join("sources");
        if !sources.exists() {
            println!("fetching the sources of {}", self.package);
            let archive = Archive::at(place, SUITE, "deb-src")?;
            archive.apt_get(&["-q", "source", "--download-only", "--tar-only", self.package])?;
            let files = std::fs::read_dir(place)?.filter_map(Result::ok).map(|entry| entry.path());
            let original = files.into_iter().find(|path| {
                let name = path.to_string_lossy();
                name.contains(".orig.tar.") && !name.ends_with(".asc")
            });
            let original = original.context("apt-get left no sources")?;
            let fresh = place.join("unpacked");
            suite::remove_output(&fresh)?;
            std::fs::create_dir_all(&fresh)?;
            passes(Command::new("tar").arg("-xf").arg(original).args(["--strip-components=1", "-C"]).arg(&fresh))?;
            std::fs::rename(&fresh, &sources)?;
        }
        Ok(sources)
    }
}

fn input(directory: &Path, name: &str, contents: impl FnOnce() -> Vec<u8>) -> anyhow::Result<String> {
    let path = directory.join(name);
    if !path.exists() {
        std::fs::write(&path, contents()).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(path.display().to_string())
}

/// Compiles and links all of some files and libraries at once.
fn compile(directory: &Path, options: &[&str], inputs: &[&str], to: &str) -> anyhow::Result<()> {
    passes(Command::new("gcc").args(options).args(["-o", to]).args(inputs).current_dir(directory))
}

/// `./configure` and `make`.
fn configured(directory: &Path, options: &[&str], more: &str, target: &[&str]) -> anyhow::Result<()> {
    let flags = format!("{} {more}", options.join(" "));
    let mut configure = Command::new("./configure");
    configure.args(["--disable-dependency-tracking", &format!("CFLAGS={flags}"), &format!("LDFLAGS={flags}")]);
    passes(configure.current_dir(directory))?;
    passes(Command::new("make").arg("-j2").args(target).current_dir(directory))
}

/// All of them.
pub const ALL: &[Program] = &[
    Program {
        package: "bzip2",
        does: "bzip2 -9 of generated text",
        build: |directory, options| {
            let library = ["blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c", "decompress.c"];
            let files = [&library[..], &["bzlib.c", "bzip2.c"]].concat();
            compile(directory, &[options, &["-D_FILE_OFFSET_BITS=64"]].concat(), &files, "bzip2")
        },
        product: "bzip2",
        prepare: |inputs| Ok(vec!["-9kc".into(), input(inputs, "text", || suite::inputs::text(14_000_000))?]),
        stdin: None,
    },
    Program {
        package: "gzip",
        does: "gzip -9 of generated text",
        build: |directory, options| configured(directory, options, "", &[]),
        product: "gzip",
        prepare: |inputs| Ok(vec!["-9kc".into(), input(inputs, "text", || suite::inputs::text(28_000_000))?]),
        stdin: None,
    },
    Program {
        package: "lua5.4",
        does: "calls, tables and strings in Lua",
        build: |directory, options| {
            let files: Vec<String> = std::fs::read_dir(directory.join("src"))?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .filter(|name| name.ends_with(".c") && name != "luac.c")
                .map(|name| format!("src/{name}"))
                .collect();
            let inputs: Vec<&str> = files.iter().map(String::as_str).chain(["-lm"]).collect();
            compile(directory, &[options, &["-DLUA_USE_POSIX"]].concat(), &inputs, "lua")
        },
        product: "lua",
        prepare: |inputs| Ok(vec![input(inputs, "bench.lua", || include_bytes!("bench.lua").to_vec())?]),
        stdin: None,
    },
    Program {
        package: "zstd",
        does: "zstd -12 of generated text, one thread",
        build: |directory, options| {
            let flags = options.join(" ");
            let mut make = Command::new("make");
            make.args(["-j2", "-C", "programs", "zstd-nolegacy", "HAVE_ZLIB=0", "HAVE_LZMA=0", "HAVE_LZ4=0"]);
            passes(make.args([format!("CFLAGS={flags}"), format!("LDFLAGS={flags}")]).current_dir(directory))
        },
        product: "programs/zstd-nolegacy",
        prepare: |inputs| {
            let text = input(inputs, "text", || suite::inputs::text(14_000_000))?;
            Ok(["-12", "--single-thread", "-qkc", &text].map(str::to_owned).into())
        },
        stdin: None,
    },
    Program {
        package: "gnugo",
        does: "a game of Go against itself",
        build: |directory, options| configured(directory, options, "-std=gnu89 -fcommon", &[]),
        product: "interface/gnugo",
        prepare: |inputs| {
            let moves = "genmove b\ngenmove w\n".repeat(20);
            input(inputs, "moves", || format!("boardsize 13\n{moves}quit\n").into_bytes())?;
            Ok(["--mode", "gtp", "--level", "9", "--seed", "1"].map(str::to_owned).into())
        },
        stdin: Some("moves"),
    },
];
