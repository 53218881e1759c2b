//! System calls that callpath's code makes in a measured process, and which
//! of them a seccomp filter refuses: a set of bits.

/// A set of the calls below, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls(pub u32);

macro_rules! calls {
    ($($bit:literal $number:literal $constant:ident $name:literal;)*) => {
        impl Calls {
            $(#[doc = concat!("`", $name, "`")] pub const $constant: Calls = Calls(1 << $bit);)*

            /// Each with its number and its name.
            pub const ALL: &[(Calls, usize, &str)] = &[$((Calls::$constant, $number, $name),)*];

            /// The set of the call with this number; empty if callpath makes no such call.
            #[inline(always)]
            pub const fn of_number(number: usize) -> Calls {
                match number {
                    $($number => Calls::$constant,)*
                    _ => Calls(0),
                }
            }
        }
    };
}

calls! {
    // Made by a sample.
    0 228 CLOCK_GETTIME "clock_gettime";
    1 98 GETRUSAGE "getrusage";
    2 14 RT_SIGPROCMASK "rt_sigprocmask";
    3 202 FUTEX "futex";
    4 186 GETTID "gettid";
    5 39 GETPID "getpid";
    6 9 MMAP "mmap";
    7 11 MUNMAP "munmap";
    8 15 RT_SIGRETURN "rt_sigreturn";
    9 127 RT_SIGPENDING "rt_sigpending";
    // Made by hooks.
    10 13 RT_SIGACTION "rt_sigaction";
    11 62 KILL "kill";
    12 234 TGKILL "tgkill";
    13 129 RT_SIGQUEUEINFO "rt_sigqueueinfo";
    14 297 RT_TGSIGQUEUEINFO "rt_tgsigqueueinfo";
    15 222 TIMER_CREATE "timer_create";
    16 223 TIMER_SETTIME "timer_settime";
    17 226 TIMER_DELETE "timer_delete";
    18 257 OPENAT "openat";
    19 3 CLOSE "close";
    20 5 FSTAT "fstat";
    21 17 PREAD64 "pread64";
    22 269 FACCESSAT "faccessat";
    23 193 FGETXATTR "fgetxattr";
    24 97 GETRLIMIT "getrlimit";
    25 102 GETUID "getuid";
    26 107 GETEUID "geteuid";
    27 108 GETEGID "getegid";
    28 157 PRCTL "prctl";
    29 158 ARCH_PRCTL "arch_prctl";
    30 28 MADVISE "madvise";
}

impl Calls {
    /// The calls that a sample makes or requires.
    pub const OF_SAMPLES: Calls = Calls(0x1ff);

    /// Whether all of these are in it.
    #[inline(always)]
    pub const fn has(self, others: Calls) -> bool {
        self.0 & others.0 == others.0
    }

    /// The names of those in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Calls::ALL.iter().filter(move |(call, ..)| self.has(*call)).map(|(.., name)| *name)
    }
}
