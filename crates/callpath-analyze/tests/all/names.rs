//! Names of modules as they are met in the field: whole, stripped, replaced, gone, no file at all.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_analyze::names::{ModuleNames, missing_names_hints, packages};
use callpath_analyze::structure::structure;
use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;

const SOURCE: &str = "int add(int a, int b) { return a + b; }\nint main(void) {\n  return add(1, 2);\n}\n";

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program} (gcc and binutils are needed): {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = dir.join("add.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = dir.join(name);
    run("gcc", &[&[source.to_str().unwrap(), "-o", program.to_str().unwrap()], flags].concat());
    program
}

/// Where nm says that `name` is.
fn addr_of(program: &Path, name: &str) -> LinkAddr {
    let listing = run("nm", &[program.to_str().unwrap()]);
    let line = listing.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    LinkAddr(u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap())
}

fn identity_of(program: &Path) -> ModuleIdentity {
    callpath_image::elf::Image::read(program).unwrap().identity()
}

#[test]
fn a_program_with_debug_information() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "add", &["-g"]);
    let names = ModuleNames::open(&program, Some(&identity_of(&program)), &[]);
    let main = addr_of(&program, "main");
    let inside = names.procedure(LinkAddr(main.0 + 5));
    assert_eq!((inside.name.as_str(), inside.start, inside.named), ("main", main, true));
    let lines = names.lines(&[addr_of(&program, "add"), LinkAddr(0), main]);
    let numbers: Vec<Option<u32>> = lines.iter().map(|line| line.as_ref().map(|line| line.line)).collect();
    assert_eq!(numbers, [Some(1), None, Some(2)]);
    assert!(lines[0].as_ref().unwrap().file.ends_with("/add.c"));
    assert_eq!(missing_names_hints(&[&names]), [] as [&str; 0]);
    assert_eq!(names.diagnostics().count(), 0);
}

/// Two units have a procedure `hidden` each: without debug information only their order tells them apart.
#[test]
fn procedures_of_one_name_have_ordinals() {
    let dir = tempfile::tempdir().unwrap();
    let unit = |number: u32| {
        let text = format!(
            "__attribute__((noinline)) static int hidden(int a) {{ return a * {number} + 7; }}\n\
             int call_{number}(int a) {{ return hidden(a) + 1; }}\n"
        );
        let path = dir.path().join(format!("unit_{number}.c"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let program = compile(dir.path(), "add", &["-O1", &unit(3), &unit(5)]);
    let listing = run("nm", &[program.to_str().unwrap()]);
    let hidden = listing.lines().filter(|line| line.ends_with(" t hidden"));
    let mut starts: Vec<u64> = hidden.map(|line| u64::from_str_radix(&line[..16], 16).unwrap()).collect();
    starts.sort_unstable();
    let names = ModuleNames::open(&program, None, &[]);
    let ordinals: Vec<_> = starts.iter().map(|&start| names.procedure(LinkAddr(start))).collect();
    assert_eq!(
        ordinals.iter().map(|named| (&*named.name, named.ordinal)).collect::<Vec<_>>(),
        [("hidden", 0), ("hidden", 1)]
    );
    assert_eq!(names.procedure(addr_of(&program, "main")).ordinal, 0);
}

#[test]
fn another_build_gives_no_names() {
    let dir = tempfile::tempdir().unwrap();
    for flag in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let program = compile(dir.path(), "add", &["-g", flag]);
        let ran = identity_of(&program);
        assert!(ModuleNames::open(&program, Some(&ran), &[]).is_usable());
        compile(dir.path(), "add", &["-g", "-O2", flag]);
        let main = addr_of(&program, "main");
        let names = ModuleNames::open(&program, Some(&ran), &[]);
        let procedure = names.procedure(main);
        assert_eq!((procedure.name, procedure.named), (format!("add+{:#x}", main.0), false));
        assert_eq!(names.lines(&[main]), [None]);
        let said: Vec<String> = names.diagnostics().collect();
        assert!(said[0].contains(program.to_str().unwrap()) && said[0].contains(&ran.to_string()), "{said:?}");
        let (path, now) = (program.display(), identity_of(&program));
        let sentence = format!(
            "{path} was replaced since it ran (what ran has {ran}, what is there now has {now}): record again to see its names"
        );
        assert_eq!(missing_names_hints(&[&names])[0], sentence);
    }
}

#[test]
fn a_file_that_is_gone_or_broken() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("libgone.so");
    let names = ModuleNames::open(&gone, None, &[]);
    assert_eq!(names.procedure(LinkAddr(0x1234)).name, "libgone.so+0x1234");
    assert!(names.diagnostics().next().unwrap().starts_with("failed to read "));
    assert!(missing_names_hints(&[&names])[0].contains("libgone.so can no longer be read"));
    std::fs::write(&gone, "#!/bin/sh\n").unwrap();
    assert!(!ModuleNames::open(&gone, None, &[]).is_usable());
}

#[test]
fn a_stripped_program_says_what_would_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "add", &["-s", "-Wl,--build-id"]);
    let names = ModuleNames::open(&program, None, &[]);
    let entry = LinkAddr(callpath_image::elf::Image::read(&program).unwrap().entry().0);
    let procedure = names.procedure(LinkAddr(entry.0 + 1));
    assert_eq!((procedure.name, procedure.start), (format!("add+{:#x}", entry.0), entry));
    let hint = &missing_names_hints(&[&names])[0];
    assert!(hint.contains("is stripped") && hint.contains("debuginfod-find debuginfo "), "{hint}");
}

#[test]
fn packages_are_those_that_dpkg_names() {
    if Command::new("dpkg").arg("--version").output().is_err() {
        eprintln!("SKIPPED: this is no Debian");
        return;
    }
    let paths: Vec<&Path> =
        ["/usr/bin/xz", "/bin/dash", "/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"]
            .map(Path::new)
            .into_iter()
            .filter(|path| path.exists())
            .collect();
    let owners = packages::owners(&paths, Path::new(packages::DPKG_LISTS));
    for (path, owner) in paths.iter().zip(owners) {
        // dpkg knows a file by one of its two names.
        let merged = format!("/usr{}", path.display());
        let asked = [path.display().to_string(), path.display().to_string().replace("/usr/", "/"), merged];
        let expected = asked.iter().find_map(|path| {
            let output = Command::new("dpkg").args(["-S", path]).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            output.status.success().then(|| said.split(':').next().unwrap().to_string())
        });
        assert_eq!(owner, expected, "{}", path.display());
    }
    assert_eq!(packages::owners(&[Path::new("/nowhere/at/all")], Path::new(packages::DPKG_LISTS)), [None]);
    assert_eq!(packages::owners(&[Path::new("/usr/bin/xz")], Path::new("/nowhere")), [None]);

    let xz = ModuleNames::open(Path::new("/usr/bin/xz"), None, &[]);
    let dash = ModuleNames::open(Path::new("/bin/dash"), None, &[]);
    let hints = missing_names_hints(&[&xz, &dash]);
    assert!(hints[0].starts_with("install xz-utils-dbgsym "), "{hints:?}");
    assert!(hints[1].starts_with("install dash-dbgsym "), "{hints:?}");
    // Two files of one package.
    let [md5sum, sort] = ["/usr/bin/md5sum", "/usr/bin/sort"].map(|path| ModuleNames::open(Path::new(path), None, &[]));
    let hints = missing_names_hints(&[&md5sum, &dash, &sort]);
    assert!(hints[0].ends_with(" to name the procedures of /usr/bin/md5sum and /usr/bin/sort"), "{hints:?}");
    assert!(hints.len() == 2 && hints[1].ends_with(" of /bin/dash"), "{hints:?}");
    // A file that is mapped as two modules is named once.
    let again = ModuleNames::open(Path::new("/usr/bin/md5sum"), None, &[]);
    assert_eq!(missing_names_hints(&[&md5sum, &dash, &again, &sort]), hints);
}

#[test]
fn the_vdso_is_named_from_its_bytes() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        eprintln!("SKIPPED: there is no vdso here");
        return;
    };
    let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    let mut bytes = vec![0; (end - start) as usize];
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(start)).unwrap();
    memory.read_exact(&mut bytes).unwrap();

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let listing = run("nm", &["-D", file.path().to_str().unwrap()]);
    let line = listing.lines().find(|line| line.contains("__vdso_clock_gettime")).unwrap();
    let addr = u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();

    let names = ModuleNames::from_bytes(bytes, Path::new("[vdso]"), None, &[]);
    assert_eq!(names.procedure(LinkAddr(addr)).name, "clock_gettime");
    assert!(names.procedure(LinkAddr(1 << 40)).name.starts_with("[vdso]+0x"));
    assert_eq!(missing_names_hints(&[&names]), [] as [&str; 0]);
}

/// A frame description entry covers little of what the C runtime adds, so that procedures share a gap.
#[test]
fn procedures_without_names_are_called_by_their_own_entries() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "add", &["-O2", "-s"]);
    let names = ModuleNames::open(&program, None, &[]);
    let found = structure(&names.structure_source().unwrap(), None, &|_, _| ());
    let mut gaps_with_several = 0;
    for pair in found.procedures.windows(2) {
        let of_gap = names.procedure(pair[1].entry);
        gaps_with_several += usize::from(!of_gap.named && of_gap.start == names.procedure(pair[0].entry).start);
    }
    assert!(gaps_with_several > 0, "nothing is tested: {:?}", found.procedures);
    for procedure in &found.procedures {
        let named = names.of_structure(procedure);
        let by_entry = format!("add+{:#x}", procedure.entry);
        assert!(named.named || (named.name == by_entry && named.start == procedure.entry), "{named:?} is {by_entry}");
    }
}
