//! Separate debug files: those of the same build are found, those of another one are refused and named.

use crate::tools;

use std::path::{Path, PathBuf};

use callpath_image::debug_file::DebugFiles;
use callpath_image::elf::Image;
use callpath_image::identity::hex;
use tools::{compile, objcopy, run};

/// A program whose debug information was moved to `debug`, and is linked from it.
fn split(dir: &Path, flags: &[&str], debug: &str) -> (PathBuf, PathBuf) {
    let whole = compile(dir, "small.c", "whole", flags);
    let (debug, program) = (dir.join(debug), dir.join("program"));
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    objcopy(&["--only-keep-debug", whole.to_str().unwrap(), debug.to_str().unwrap()]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link, whole.to_str().unwrap(), program.to_str().unwrap()]);
    (program, debug)
}

fn found(program: &Path, roots: &[PathBuf]) -> (Option<PathBuf>, Vec<String>) {
    let found = DebugFiles::find(&Image::read(program).unwrap(), roots);
    let diagnostics = found.diagnostics.iter().map(ToString::to_string).collect();
    (found.debug_file.map(|image| image.origin().to_path_buf()), diagnostics)
}

#[test]
fn by_link_beside_the_program_in_dot_debug_and_below_a_root() {
    for place in ["program.debug", ".debug/program.debug"] {
        let dir = tempfile::tempdir().unwrap();
        let (program, debug) = split(dir.path(), &["-g", "-Wl,--build-id=none"], place);
        assert_eq!(found(&program, &[]), (Some(debug.canonicalize().unwrap()), vec![]));
    }
    let (dir, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (program, debug) = split(dir.path(), &["-g", "-Wl,--build-id=none"], "program.debug");
    let below = root.path().join(dir.path().canonicalize().unwrap().strip_prefix("/").unwrap());
    std::fs::create_dir_all(&below).unwrap();
    std::fs::rename(&debug, below.join("program.debug")).unwrap();
    assert_eq!(found(&program, &[]), (None, vec![]));
    assert_eq!(found(&program, &[root.path().to_path_buf()]), (Some(below.join("program.debug")), vec![]));
}

#[test]
fn by_build_id_below_a_root() {
    let (dir, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (program, debug) = split(dir.path(), &["-g", "-Wl,--build-id"], "elsewhere/x.debug");
    let build_id = hex(Image::read(&program).unwrap().build_id().unwrap());
    let place = root.path().join(format!(".build-id/{}/{}.debug", &build_id[..2], &build_id[2..]));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::rename(debug, &place).unwrap();
    let roots = ["/nonexistent".into(), root.path().to_path_buf()];
    assert_eq!(found(&program, &roots), (Some(place.clone()), vec![]));

    // Another build under this name.
    let first = dir.path().join("first");
    std::fs::rename(&program, &first).unwrap();
    let (_, other) = split(dir.path(), &["-g", "-O3", "-Wl,--build-id"], "elsewhere/x.debug");
    std::fs::rename(&other, &place).unwrap();
    let (none, diagnostics) = found(&first, &roots);
    assert_eq!(none, None);
    let [diagnostic] = &diagnostics[..] else { panic!("{diagnostics:?}") };
    assert!(diagnostic.contains(place.to_str().unwrap()) && diagnostic.contains("its build-id is "), "{diagnostic}");
    assert!(diagnostic.contains(&build_id), "{diagnostic}");
}

#[test]
fn a_linked_file_of_another_build_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (program, debug) = split(dir.path(), &["-g", "-Wl,--build-id=none"], "program.debug");
    let mut bytes = std::fs::read(&debug).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&debug, bytes).unwrap();
    let (none, diagnostics) = found(&program, &[]);
    assert_eq!(none, None);
    assert!(diagnostics[0].contains("program.debug") && diagnostics[0].contains("checksum"), "{diagnostics:?}");

    std::fs::write(&debug, b"not ELF").unwrap();
    let (none, diagnostics) = found(&program, &[]);
    assert_eq!(none, None);
    assert!(diagnostics[0].contains("program.debug"), "{diagnostics:?}");
}

#[test]
fn shared_debug_information_is_found_by_build_id() {
    let dir = tempfile::tempdir().unwrap();
    if std::process::Command::new("dwz").arg("--version").output().is_err() {
        eprintln!("SKIPPED: dwz is not installed");
        return;
    }
    let names: Vec<String> = ["one", "two"]
        .map(|name| {
            let program = compile(dir.path(), "shapes.cc", name, &["-g", "-Wl,--build-id", &format!("-DNAME_{name}")]);
            program.to_str().unwrap().to_string()
        })
        .to_vec();
    let common = dir.path().join("common");
    run("dwz", &["-m", common.to_str().unwrap(), &names[0], &names[1]]);
    let image = Image::read(Path::new(&names[0])).unwrap();
    let supplement = DebugFiles::find(&image, &[]).supplement.expect("the path in .gnu_debugaltlink leads there");
    assert_eq!(supplement.origin(), common);
    std::fs::remove_file(&common).unwrap();
    let without = DebugFiles::find(&image, &[]);
    assert!(without.supplement.is_none());
    assert!(without.diagnostics[0].to_string().contains(common.to_str().unwrap()));
}
