//! Procedures of the program's C library: found behind ours, with their types, and the hooks that are called instead.
//!
//! [`real!`] finds one by its C signature. [`hook!`] declares one that the program calls instead. The author of the
//! signature vouches for it: only here does an address become a procedure ([`Procedure::at`]).

use core::ffi::CStr;
use core::marker::PhantomData;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::look_up::next;

/// A pointer to a C procedure.
pub trait Procedure: Copy {
    /// Its arguments, as a tuple.
    type Arguments: Copy;
    type Result;

    /// The procedure at an address.
    ///
    /// # Safety
    /// A procedure with this signature must be there, as long as the result is used.
    unsafe fn at(address: usize) -> Self;

    /// Calls it.
    ///
    /// # Safety
    /// As for the procedure itself.
    unsafe fn call(self, arguments: Self::Arguments) -> Self::Result;
}

macro_rules! procedures {
    ($($($argument:ident)*;)*) => {$(
        impl<R, $($argument: Copy),*> Procedure for unsafe extern "C" fn($($argument),*) -> R {
            type Arguments = ($($argument,)*);
            type Result = R;

            unsafe fn at(address: usize) -> Self {
                // SAFETY: on x86-64 a procedure's pointer is its address. The caller
                // vouches for what is there, so it is not null.
                unsafe { core::mem::transmute::<usize, Self>(address) }
            }

            #[allow(non_snake_case)]
            #[inline(always)]
            unsafe fn call(self, ($($argument,)*): Self::Arguments) -> R {
                // SAFETY: the caller keeps the procedure's own contract.
                unsafe { self($($argument),*) }
            }
        }
    )*};
}

procedures! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

/// A name that is looked up once.
#[repr(C)]
struct Definition {
    name: &'static CStr,
    /// 0: not looked up yet.
    address: AtomicUsize,
}

/// Looked up, and not there.
const MISSING: usize = 1;

impl Definition {
    fn address(&self) -> Option<usize> {
        match self.address.load(Relaxed) {
            // What was not there may have come with a library since: before glibc 2.34 threads are in one of their own.
            0 | MISSING => self.look_up(),
            address => Some(address),
        }
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let address = next(self.name) as usize;
        self.address.store(if address == 0 { MISSING } else { address }, Relaxed);
        (address != 0).then_some(address)
    }
}

/// The definition of a procedure behind ours. All are in one section, so that the constructor can look
/// them up ([`resolve_all`]); [`real!`] makes them.
#[repr(transparent)]
pub struct Real<F> {
    definition: Definition,
    signature: PhantomData<F>,
}

impl<F: Procedure> Real<F> {
    /// # Safety
    /// Every definition of this name behind ours must be a procedure with the signature `F` that stays loaded.
    pub const unsafe fn new(name: &'static CStr) -> Real<F> {
        Real { definition: Definition { name, address: AtomicUsize::new(0) }, signature: PhantomData }
    }

    /// The procedure. `None`: there is none.
    pub fn get(&self) -> Option<F> {
        // SAFETY: `new`'s caller vouches for the type of what has this name.
        self.definition.address().map(|address| unsafe { F::at(address) })
    }
}

/// The C library's procedure of this name and signature behind ours, or `None`.
macro_rules! real {
    (fn $name:ident($($type:ty),* $(,)?) -> $result:ty) => {{
        type Signature = unsafe extern "C" fn($($type),*) -> $result;
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
        // SAFETY: the C library and its replacements (sanitizers, other preloaded objects) declare this name
        // with this signature on x86-64, and are never unloaded.
        #[used]
        #[unsafe(link_section = "callpath_reals")]
        static REAL: $crate::hook::Real<Signature> = unsafe { $crate::hook::Real::new(NAME) };
        REAL.get()
    }};
}
pub(crate) use real;

/// The real procedure behind a hook, with the arguments of the intercepted call.
pub struct Next<F: Procedure> {
    /// The real procedure, for a call with other arguments.
    pub real: F,
    arguments: F::Arguments,
}

impl<F: Procedure> Next<F> {
    /// # Safety
    /// As for a call of `real` with these arguments, at any time until the hook returns.
    #[inline(always)]
    pub unsafe fn new(real: F, arguments: F::Arguments) -> Next<F> {
        Next { real, arguments }
    }

    /// The program's own.
    #[inline(always)]
    pub fn arguments(&self) -> F::Arguments {
        self.arguments
    }

    /// Calls the real procedure as the program has called the hook.
    #[inline(always)]
    pub fn original(&self) -> F::Result {
        // SAFETY: `new`'s caller vouches for the arguments, and `arguments` never changes.
        unsafe { self.real.call(self.arguments) }
    }
}

/// Declares hooks: procedures that the program calls instead of the C library's of the same name. Each is given by the
/// real one's C signature, its result if there is no real one, and its body, which gets a [`Next`].
macro_rules! hook {
    ($(
        $(#[$documentation:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty, or $missing:expr;
        |$next:ident| $body:expr
    )*) => {$(
        $(#[$documentation])*
        ///
        /// # Safety
        /// As for the real procedure of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let Some(real) = $crate::hook::real!(fn $name($($type),*) -> $result) else { return $missing };
            // SAFETY: the program keeps the contract of the procedure that it means to call, which is `real`.
            let $next = unsafe { $crate::hook::Next::new(real, ($($argument,)*)) };
            $body
        }
    )*};
}
pub(crate) use hook;

/// Looks all of them up while nothing else runs: later it would take the loader's lock, perhaps inside a signal handler
/// of the program's, and overwrite what its `dlerror` returns.
pub fn resolve_all() {
    unsafe extern "C" {
        #[link_name = "__start_callpath_reals"]
        static FIRST: u8;
        #[link_name = "__stop_callpath_reals"]
        static END: u8;
    }
    let (mut at, end) = ((&raw const FIRST).cast::<Definition>(), (&raw const END).cast::<Definition>());
    while at < end {
        // SAFETY: the section holds nothing but `Real`s, each of which is a `Definition` (`repr(transparent)`), one
        // after the other without gaps; the linker names its bounds.
        unsafe {
            (*at).address();
            at = at.add(1);
        }
    }
    // A failed look-up has left an error that is not the program's.
    if let Some(dlerror) = real!(fn dlerror() -> *mut core::ffi::c_char) {
        // SAFETY: it may be called at any time; the text is not used.
        unsafe { dlerror() };
    }
}
