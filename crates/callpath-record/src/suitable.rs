//! Whether a program can be recorded, and if not, the sentence with the reason.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use callpath_image::go::Go;
use callpath_image::peek::ElfPeek;
use callpath_image::sanitizer::Sanitizer;
use callpath_target::TargetError;

use crate::error::RecordError;

/// Why a Go program without cgo is not measured.
pub(crate) const GO_WITHOUT_C: &str = "it is built by Go without cgo, whose runtime takes every signal for its own, and a sample would \
                                       end it; build it with CGO_ENABLED=1 and a package that uses cgo (`import \"C\"`)";

/// The longest chain of interpreters, as in the kernel.
const SCRIPTS: u32 = 5;

/// From where a program is measured.
#[derive(Clone, Debug)]
pub enum WayIn {
    /// From a preloaded object inside it.
    Inside(Suitable),
    /// From outside, by samples of its CPU time. Completes "it is ...": why it loads no preloaded object.
    Outside(String),
}

/// A program that can be measured from inside.
#[derive(Clone, Copy, Debug)]
pub struct Suitable {
    /// With what it is built.
    sanitizer: Option<Sanitizer>,
    /// Its loader is musl's.
    is_musl: bool,
}

impl Suitable {
    /// Whether its C library is musl, with which the preloaded object does nothing.
    pub(crate) fn is_musl(&self) -> bool {
        self.is_musl
    }

    /// A note on it for the user.
    pub(crate) fn note(&self) -> Option<String> {
        if self.is_musl {
            return Some(
                "the program is not measured: its C library is musl, and callpath measures programs with glibc"
                    .to_owned(),
            );
        }
        let name = self.sanitizer?.name;
        Some(format!("the program is built with {name}: what its checks cost is in the call paths"))
    }

    /// The environment's option for AddressSanitizer that allows other libraries to be loaded before it;
    /// needed if the program sets another one itself.
    pub(crate) fn environment(&self) -> Option<(OsString, OsString)> {
        const NAME: &str = "ASAN_OPTIONS";
        self.sanitizer.filter(|sanitizer| sanitizer.sets_own_options)?;
        let mut options = std::env::var_os(NAME).filter(|options| !options.is_empty()).unwrap_or_default();
        if !options.is_empty() {
            options.push(":");
        }
        options.push("verify_asan_link_order=0");
        Some((NAME.into(), options))
    }
}

/// Whether the program at `path` can be measured from inside or from outside, or why not. For a script, checks its interpreter.
pub fn way_in(path: &Path) -> Result<WayIn, RecordError> {
    let (kind, file) = executed(path)?;
    match kind {
        ElfPeek::Static => Ok(WayIn::Outside("statically linked".to_owned())),
        ElfPeek::Dynamic { .. } if Go::of(&file) == Some(Go::WithoutC) => {
            Ok(WayIn::Outside("built by Go without cgo".to_owned()))
        }
        ElfPeek::Dynamic { interpreter } if is_musl(&interpreter) => {
            Ok(WayIn::Outside("of another C library (musl)".to_owned()))
        }
        // SAFETY: returns a number.
        ElfPeek::Dynamic { .. } if unsafe { libc::geteuid() } == 0 && check_privilege(&file).is_err() => {
            Ok(WayIn::Outside("run with other privileges than yours".to_owned()))
        }
        _ => check_program(path).map(WayIn::Inside),
    }
}

/// Whether the program at `path`, or its interpreter, runs with other privileges than ours.
pub(crate) fn gains_privileges(path: &Path) -> bool {
    executed(path).is_ok_and(|(_, file)| check_privilege(&file).is_err())
}

fn is_musl(interpreter: &Path) -> bool {
    interpreter.file_name().unwrap_or_default().as_bytes().starts_with(b"ld-musl")
}

/// What is executed for the program at `path`, and the file: its interpreter, if it is a script.
fn executed(path: &Path) -> Result<(ElfPeek, PathBuf), RecordError> {
    let mut file = path.to_owned();
    for _ in 0..SCRIPTS {
        match kind_of(&file, path)? {
            ElfPeek::Script { interpreter, .. } => file = interpreter,
            kind => return Ok((kind, file)),
        }
    }
    Err(unsuitable(path, "its interpreter is itself a script, and so on: the chain of interpreters is too long"))
}

/// Checks whether the program at `path` can be measured from inside, and why not. Of a script, its interpreter is checked.
pub fn check_program(path: &Path) -> Result<Suitable, RecordError> {
    let (kind, file) = executed(path)?;
    let ElfPeek::Dynamic { interpreter } = kind else { return Err(unsuitable(path, &reason(&file, path, &kind))) };
    check_privilege(&file)?;
    if Go::of(&file) == Some(Go::WithoutC) {
        return Err(unsuitable(path, GO_WITHOUT_C));
    }
    Ok(Suitable { sanitizer: Sanitizer::of(&file), is_musl: is_musl(&interpreter) })
}

fn kind_of(file: &Path, program: &Path) -> Result<ElfPeek, RecordError> {
    let missing = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    if std::fs::metadata(file).is_err_and(missing) {
        let whose = if file == program { String::new() } else { format!(", the interpreter of {}", program.display()) };
        return Err(TargetError::NotFound { program: format!("{}{whose}", file.display()) }.into());
    }
    ElfPeek::read(file).map_err(|e| unsuitable(program, &format!("failed to {e}")))
}

fn unsuitable(program: &Path, reason: &str) -> RecordError {
    RecordError::Unsuitable { program: PathBuf::from(program), reason: reason.to_owned() }
}

fn reason(file: &Path, program: &Path, kind: &ElfPeek) -> String {
    let whose = if file == program { "it".to_owned() } else { format!("its interpreter {}", file.display()) };
    match kind {
        ElfPeek::Static => format!(
            "{whose} is statically linked, and callpath measures from a preloaded object that only dynamically linked \
             programs load; link it dynamically"
        ),
        ElfPeek::Elf32 => {
            format!("{whose} is a 32-bit program, and callpath measures 64-bit ones; build it for x86-64")
        }
        ElfPeek::OtherMachine { machine } => {
            format!("{whose} is for another processor (ELF machine {machine}), and callpath measures x86-64")
        }
        _ => format!("{whose} is neither an ELF program nor a script that names its interpreter"),
    }
}

/// The loader preloads nothing into a program that gains privileges.
fn check_privilege(file: &Path) -> Result<(), RecordError> {
    let metadata = std::fs::metadata(file).map_err(|e| unsuitable(file, &e.to_string()))?;
    // SAFETY: these return numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = metadata.permissions().mode();
    let gains = (mode & 0o4000 != 0 && metadata.uid() != uid) || (mode & 0o2010 == 0o2010 && metadata.gid() != gid);
    if gains || (uid != 0 && has_capabilities(file)) {
        return Err(unsuitable(
            file,
            "it runs with other privileges than yours (setuid, setgid or file capabilities), and the loader preloads \
             nothing into such a program; record a copy without them, or record it as the user whose privileges it takes",
        ));
    }
    Ok(())
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: asks for the size only.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}
