//! Builds the objects that run inside of programs, with rustc itself, and leaves them where `src/preload.rs` embeds them:
//! the one that is preloaded, and the one that is injected.
//!
//! They cannot be ordinary workspace members: a `no_std` cdylib with a panic handler of its own breaks `cargo test` and
//! would make `panic = "abort"` the whole workspace's. A nested cargo would work, but waits for the outer one's lock.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that make them up, in the order in which they are built, each with those it uses.
const CRATES: [(&str, &[&str]); 5] = [
    ("callpath-format", &[]),
    ("callpath-unwind", &["callpath-format"]),
    ("callpath-collect", &["callpath-format", "callpath-unwind"]),
    (PRELOAD, &["callpath-format", "callpath-unwind", "callpath-collect"]),
    (INJECT, &["callpath-format", "callpath-unwind", "callpath-collect"]),
];

/// The objects.
const PRELOAD: &str = "callpath-preload";
const INJECT: &str = "callpath-inject";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("preload");
    std::fs::create_dir_all(&out).expect("OUT_DIR can be written");
    let crates = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("..");
    for (name, uses) in CRATES {
        let source = crates.join(name);
        println!("cargo::rerun-if-changed={}", source.join("src").display());
        println!("cargo::rerun-if-changed={}", source.join("Cargo.toml").display());
        compile(name, uses, &source.join("src/lib.rs"), &out);
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=CALLPATH_PRELOAD_OBJECT={}", out.join("libcallpath_preload.so").display());
    println!("cargo::rustc-env=CALLPATH_INJECT_OBJECT={}", out.join("libcallpath_inject.so").display());
}

fn compile(name: &str, uses: &[&str], source: &Path, out: &Path) {
    let is_object = [PRELOAD, INJECT].contains(&name);
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc
        .arg(source)
        .args(["--edition=2024", "--crate-name", &name.replace('-', "_")])
        .args(["--crate-type", if is_object { "cdylib" } else { "rlib" }])
        .args(["--target", &env::var("TARGET").expect("cargo sets TARGET")])
        .args(["-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cforce-unwind-tables=yes"])
        .args(["-Coverflow-checks=off", "-Cdebug-assertions=off", "--cap-lints=warn"])
        .arg("--out-dir")
        .arg(out)
        .arg("-L")
        .arg(out);
    for used in uses {
        let crate_name = used.replace('-', "_");
        rustc.arg("--extern").arg(format!("{crate_name}={}", out.join(format!("lib{crate_name}.rlib")).display()));
    }
    if name == INJECT {
        // The recorder maps it, and applies relocations that need no symbol, no others.
        rustc.args(["-Clto=fat", "-Cstrip=debuginfo", "-Cdefault-linker-libraries=no"]).args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-Wl,-z,defs",
            "-Clink-arg=-Wl,-z,norelro",
            "-Clink-arg=-Wl,-Bsymbolic",
            "-Clink-arg=-Wl,-soname,libcallpath_inject.so",
            "-Clink-arg=-Wl,--build-id=sha1",
        ]);
    }
    if name == PRELOAD {
        // No library is needed; all that is undefined is bound when the object is loaded, before any constructor of the
        // program's libraries has run.
        rustc.args(["-Clto=fat", "-Cstrip=debuginfo", "-Cdefault-linker-libraries=no"]).args([
            "-Clink-arg=-nostartfiles",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-Wl,-z,now",
            "-Clink-arg=-Wl,-z,relro",
            "-Clink-arg=-Wl,-z,initfirst",
            "-Clink-arg=-Wl,-z,start-stop-visibility=hidden",
            "-Clink-arg=-Wl,-soname,libcallpath_preload.so",
            "-Clink-arg=-Wl,--build-id=sha1",
        ]);
    }
    let status = rustc.status().expect("rustc can be run");
    assert!(status.success(), "failed to compile {name} for the objects that run inside of programs");
}
