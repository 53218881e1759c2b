//! `callpath doctor PROGRAM`: what it says of programs that were made with known facts.
//! What it says is compared with binutils.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callpath_end_to_end::{C, Ended, callpath, compiled, is_root, skip, tool_path};
use serde_json::Value;

fn doctor(arguments: &[&str]) -> Ended {
    let mut command = Command::new(callpath());
    command.arg("doctor").args(arguments).env("CALLPATH_CACHE_DIR", tool_path("cache")).stdin(Stdio::null());
    Ended::of(&command.output().expect("callpath can be run"))
}

/// What it says of a program, and its exit status.
fn of(program: &Path) -> (Value, i32) {
    let said = doctor(&["--json", program.to_str().expect("a plain name")]);
    assert_eq!(said.stderr, "", "it has nothing to say beside");
    let json: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!((json["schema"].as_u64(), json["kind"].as_str()), (Some(1), Some("doctor")));
    assert_eq!(json["can_record"].as_bool(), Some(said.status == 0), "{said:?}");
    (json["program"].clone(), said.status)
}

fn built(output: &'static str, options: &'static [&'static str]) -> PathBuf {
    compiled(C { source: "burn.c", output, options }).unwrap_or_else(|error| panic!("{output}: {error}"))
}

/// The finding of a topic.
fn finding<'a>(program: &'a Value, topic: &str) -> &'a Value {
    let findings = program["findings"].as_array().expect("findings");
    findings.iter().find(|finding| finding["topic"] == topic).unwrap_or_else(|| panic!("no {topic} in {program:#}"))
}

fn own_module(program: &Value) -> &Value {
    &program["modules"][0]
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn debug_information() {
    for (output, options, names, dwarf) in [
        ("doctor_full", &["-g"][..], "symtab", "full"),
        ("doctor_lines", &["-g1"], "symtab", "lines"),
        ("doctor_no_dwarf", &["-g0"], "symtab", "none"),
        ("doctor_stripped", &["-g0", "-s"], "dynsym", "none"),
    ] {
        let (program, status) = of(&built(output, options));
        let module = own_module(&program);
        assert_eq!((text(module, "names"), text(module, "dwarf")), (names, dwarf), "{output}: {module}");
        assert_eq!(status, 0);
        let lines = finding(&program, "lines");
        assert_eq!(text(lines, "remedy").contains("-g1"), dwarf == "none", "{output}: {lines}");
        let advice = finding(&program, "names");
        assert_eq!(
            text(advice, "remedy").contains(&format!("link {output} without -s")),
            names == "dynsym",
            "{advice}"
        );
    }
}

#[test]
fn a_separate_debug_file() {
    let whole = built("doctor_whole", &["-g"]);
    let place = tempfile::TempDir::new().expect("a temp directory");
    let (stripped, debug) = (place.path().join("separate"), place.path().join("separate.debug"));
    for arguments in [
        vec!["--only-keep-debug".into(), whole.clone().into_os_string(), debug.clone().into()],
        vec!["--strip-all".into(), whole.into_os_string(), stripped.clone().into()],
        vec![format!("--add-gnu-debuglink={}", debug.display()).into(), stripped.clone().into()],
    ] {
        assert!(Command::new("objcopy").args(arguments).status().expect("objcopy can be run").success());
    }
    let (program, _) = of(&stripped);
    let module = own_module(&program);
    assert_eq!((text(module, "names"), text(module, "dwarf")), ("debug-file", "full"));
    assert_eq!(Path::new(text(module, "debug_file")).canonicalize().unwrap(), debug.canonicalize().unwrap());
}

#[test]
fn programs_that_cannot_be_recorded() {
    const MUSL_LOADER: &str = "/lib/ld-musl-x86_64.so.1";
    let forged = tool_path("doctor_forged_32");
    let mut bytes = std::fs::read(built("doctor_full", &["-g"])).unwrap();
    bytes[4] = 1; // EI_CLASS: ELFCLASS32
    std::fs::write(&forged, bytes).unwrap();
    let musl = built("doctor_musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    for (path, topic, (word, state)) in [
        (built("doctor_static", &["-static"]), "program", ("statically linked", "limited")),
        (forged, "program", ("32-bit", "bad")),
        (musl.clone(), "C library", ("musl", "limited")),
    ] {
        let (program, status) = of(&path);
        let bad = finding(&program, topic);
        assert_eq!(text(bad, "state"), state, "{program:#}");
        // Where musl is not installed, that is said of its program, too.
        let starts = path != musl || Path::new(MUSL_LOADER).exists();
        if path == musl {
            let findings = program["findings"].as_array().expect("findings");
            let are_missing = |finding: &Value| finding["topic"] == "libraries" && finding["state"] == "bad";
            assert_eq!(findings.iter().any(are_missing), !starts, "{program:#}");
        }
        assert_eq!(status, i32::from(state == "bad" || !starts), "{program:#}");
        assert!(text(bad, "found").contains(word), "{bad}");
    }
    let unlinked = built("doctor_needs", &["-Wl,--no-as-needed", "-l:libm.so.6"]);
    let bytes = std::fs::read(&unlinked).unwrap();
    let at = bytes.windows(9).position(|window| window == b"libm.so.6").expect("a needed library's name");
    let mut broken = bytes;
    broken[at + 3] = b'q';
    std::fs::write(tool_path("doctor_lacks"), broken).unwrap();
    let (program, status) = of(&tool_path("doctor_lacks"));
    let libraries = finding(&program, "libraries");
    assert_eq!((status, text(libraries, "state")), (1, "bad"));
    assert!(text(libraries, "found").contains("libq.so.6"), "{libraries}");
}

#[test]
fn a_setuid_program() {
    if !is_root() {
        return skip("doctor::a_setuid_program", "only root can make a program that is setuid root");
    }
    let place = crate::ordinary_user::UserDirectory::new();
    let program = place.copy(&built("doctor_full", &["-g"]));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let said = place.run(&["doctor", "--json", program.to_str().unwrap()]);
    assert_eq!(said.status, 1, "{said:?}");
    let json: Value = serde_json::from_str(&said.stdout).expect("the doctor speaks JSON");
    let found = finding(&json["program"], "program");
    assert!(text(found, "found").contains("setuid") && text(found, "state") == "bad", "{found}");
}

#[test]
fn a_sanitizer_costs_and_hinders_nothing() {
    let (program, status) = of(&built("doctor_asan", &["-fsanitize=address"]));
    let found = finding(&program, "sanitizer");
    assert_eq!((status, text(found, "state")), (0, "limited"), "{found}");
    assert!(text(found, "found").contains("libasan"), "{found}");
}

#[test]
fn scripts_and_what_is_not_there() {
    let script = tool_path("doctor_script");
    std::fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (program, status) = of(&script);
    assert_eq!(status, 0);
    assert!(text(finding(&program, "program"), "found").contains("/bin/sh"), "{program:#}");
    for wrong in ["/no/such/program", "no-such-program-in-the-path", "/usr"] {
        let said = doctor(&[wrong]);
        assert_eq!((said.status, said.stdout.as_str()), (1, ""), "{said:?}");
        assert!(said.stderr.contains(wrong) && said.stderr.lines().count() == 1, "{said:?}");
    }
    assert_eq!(doctor(&["--no-such-option"]).status, 2);
}

#[test]
fn text_for_a_person() {
    let program = built("doctor_full", &["-g"]);
    let said = doctor(&[program.to_str().unwrap()]);
    assert_eq!((said.status, said.stderr.as_str()), (0, ""));
    assert!(!said.stdout.contains('\x1b'), "no colour where no terminal is");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[0], "This machine");
    assert!(lines.contains(&format!("This program: {}", program.display()).as_str()), "{}", said.stdout);
}

/// The bytes of code that a module's FDEs speak of, as readelf reads them, none twice.
fn by_readelf(module: &str) -> u64 {
    let said = Command::new("readelf").args(["--wide", "--debug-dump=frames", module]).output().expect("readelf");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let hex = |digits: &str| u64::from_str_radix(digits, 16).expect("hexadecimal digits");
    let ranges = said.lines().filter_map(|line| line.split_once(" FDE ")?.1.split_once("pc=")?.1.split_once(".."));
    let mut ranges: Vec<(u64, u64)> = ranges.map(|(start, end)| (hex(start), hex(end.trim()))).collect();
    ranges.sort_unstable();
    let mut end_before = 0;
    ranges.iter().fold(0, |sum, &(start, end)| {
        let new = end.saturating_sub(start.max(end_before));
        end_before = end_before.max(end);
        sum + new
    })
}

/// The length of a module's sections with instructions, as readelf reads them.
fn instruction_bytes(module: &str) -> u64 {
    let said = Command::new("readelf").args(["--wide", "--sections", module]).output().expect("readelf");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let words = said.lines().filter_map(|line| Some(line.split_once(']')?.1.split_whitespace().collect::<Vec<_>>()));
    let with_code = words.filter(|words| words.get(6).is_some_and(|flags| flags.contains('X')));
    with_code.map(|words| u64::from_str_radix(words[4], 16).expect("hexadecimal digits")).sum()
}

#[test]
fn shares_of_code() {
    let (program, _) = of(Path::new("/usr/bin/xz"));
    let modules = program["modules"].as_array().expect("modules");
    assert!(modules.len() >= 3, "{program:#}");
    for module in modules {
        let bytes = |key: &str| module[key].as_u64().expect("a number of bytes");
        let (path, code) = (text(module, "path"), bytes("code_bytes"));
        assert_eq!(code, bytes("frames_bytes") + bytes("analysis_bytes") + bytes("unknown_bytes"), "{module}");
        let (expected, found) = (by_readelf(path), bytes("frames_bytes"));
        assert!(expected.abs_diff(found) * 200 <= expected, "{path}: {found} bytes, {expected} by readelf");
        let sections = instruction_bytes(path);
        assert!(code <= sections && code * 10 >= sections * 8, "{path}: {code} of {sections} bytes in sections");
    }
}

#[test]
fn code_without_call_frame_information() {
    let options = &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-g0"];
    let (program, _) = of(&built("doctor_no_frames", options));
    let module = own_module(&program);
    let bytes = |key: &str| module[key].as_u64().expect("a number of bytes");
    // main, outer and inner; what the C library's own start files bring has frames.
    let silent = instruction_bytes(text(module, "path")).saturating_sub(by_readelf(text(module, "path")));
    assert!(bytes("analysis_bytes") * 10 >= silent * 7, "{module}: {silent} bytes without frames");
    assert!(bytes("unknown_bytes") * 10 <= silent, "{module}");
}
