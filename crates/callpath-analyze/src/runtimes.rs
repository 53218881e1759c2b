//! The options of runtimes that give names to more of their code: one table.

/// Whose names are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nameless {
    /// Code that the runtime has generated.
    Generated,
    /// Procedures of the program that the runtime interprets: its own interpreter is seen in their place.
    Interpreted,
}

/// A runtime, by a module that is loaded where it runs.
struct Runtime {
    /// What its module's file name begins with, and the least version that must follow, if any.
    module: &'static str,
    least_minor: u32,
    whose: Nameless,
    /// What the interpreter's procedures begin and end with.
    procedures: &'static [(&'static str, &'static str)],
    /// The option, with the runtime's name.
    hint: &'static str,
}

const fn generated(module: &'static str, hint: &'static str) -> Runtime {
    Runtime { module, least_minor: 0, whose: Nameless::Generated, procedures: &[], hint }
}

const RUNTIMES: &[Runtime] = &[
    generated("node", "node --perf-basic-prof"),
    generated("libnode.so", "node --perf-basic-prof"),
    generated("libjvm.so", "java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit (17 or newer)"),
    generated("libcoreclr.so", "DOTNET_PerfMapEnabled=1 dotnet"),
    generated("beam.smp", "erl +JPperf true"),
    generated("php", "php -d opcache.jit_debug=16"),
    generated("opcache.so", "php -d opcache.jit_debug=16"),
    generated("ruby", "ruby --yjit-perf (3.3 or newer)"),
    generated("libruby", "ruby --yjit-perf (3.3 or newer)"),
    generated("wasmtime", "wasmtime run --profile=perfmap"),
    generated("mono", "mono --jitmap"),
    python("python3."),
    python("libpython3."),
    v8("node"),
    v8("libnode.so"),
];

const fn v8(module: &'static str) -> Runtime {
    let procedures = &[("Builtins_InterpreterEntryTrampoline", ""), ("Builtins_", "Handler")];
    let hint = "node --interpreted-frames-native-stack --perf-basic-prof";
    Runtime { module, least_minor: 0, whose: Nameless::Interpreted, procedures, hint }
}

const fn python(module: &'static str) -> Runtime {
    let (whose, hint) = (Nameless::Interpreted, "python3 -X perf");
    Runtime { module, least_minor: 12, whose, procedures: &[("_PyEval_EvalFrameDefault", "")], hint }
}

impl Runtime {
    fn is(&self, module: &str) -> bool {
        let Some(rest) = module.strip_prefix(self.module) else { return false };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.least_minor == 0 || rest[..digits].parse::<u32>().is_ok_and(|minor| minor >= self.least_minor)
    }
}

/// Whether a procedure of a module stands for procedures of the program that it interprets.
pub(crate) fn is_interpreter(module: &str, procedure: &str) -> bool {
    let of_module = RUNTIMES.iter().filter(|runtime| runtime.whose == Nameless::Interpreted && runtime.is(module));
    let mut procedures = of_module.flat_map(|runtime| runtime.procedures);
    procedures.any(|(begin, end)| procedure.starts_with(begin) && procedure.ends_with(end))
}

/// The options of the runtimes among these modules (file names).
pub(crate) fn hints<'a>(whose: Nameless, modules: impl Iterator<Item = &'a str> + Clone) -> Vec<&'static str> {
    let mut hints: Vec<&'static str> = Vec::new();
    for runtime in RUNTIMES.iter().filter(|runtime| runtime.whose == whose) {
        if modules.clone().any(|module| runtime.is(module)) && !hints.contains(&runtime.hint) {
            hints.push(runtime.hint);
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_their_modules() {
        let of = |whose, modules: &[&str]| hints(whose, modules.iter().copied());
        assert_eq!(of(Nameless::Generated, &["libc.so.6", "libjvm.so"]), [RUNTIMES[2].hint]);
        assert_eq!(of(Nameless::Generated, &["node", "libnode.so.108"]), ["node --perf-basic-prof"]);
        assert_eq!(of(Nameless::Generated, &["libc.so.6", "qemu-x86_64"]), Vec::<&str>::new());
        assert_eq!(of(Nameless::Interpreted, &["python3.12"]), ["python3 -X perf"]);
        assert_eq!(of(Nameless::Interpreted, &["libpython3.13.so.1.0"]), ["python3 -X perf"]);
        // It has no such option.
        assert_eq!(of(Nameless::Interpreted, &["python3.11", "libpython3.11.so.1.0"]), Vec::<&str>::new());
    }

    #[test]
    fn interpreters_are_told_by_their_procedures() {
        assert!(is_interpreter("python3.12", "_PyEval_EvalFrameDefault.cold"));
        assert!(!is_interpreter("python3.12", "list_sort"));
        assert!(!is_interpreter("python3.11", "_PyEval_EvalFrameDefault"));
        assert!(is_interpreter("node", "Builtins_LdaGlobalHandler"));
    }
}
