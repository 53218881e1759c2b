//! The linker's names of procedures for which DWARF has none: gcc says none of what other files cannot call, such as static
//! procedures and lambdas of C++. With it a procedure and its inlined copies are called the same.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

use callpath_image::elf::Image;
use callpath_image::scopes::Origin;
use callpath_image::symbols::Procedures;

/// The symbols of a module, read when they are first needed.
pub(super) struct LinkersNames {
    image: Arc<Image>,
    debug_file: Arc<Image>,
    procedures: Mutex<OnceCell<Procedures>>,
}

impl LinkersNames {
    /// Of the module with this image, and the file that holds its DWARF: itself or another.
    pub(super) fn new(image: Arc<Image>, debug_file: Arc<Image>) -> LinkersNames {
        LinkersNames { image, debug_file, procedures: Mutex::default() }
    }

    /// The mangled name of the procedure that `origin` is, without the suffix of a clone, if it has code of its own and DWARF
    /// has no such name.
    pub(super) fn of(&self, origin: Origin<'_>) -> Option<String> {
        let code = origin.own_code()?;
        let procedures = self.procedures.lock().unwrap_or_else(PoisonError::into_inner);
        let debug_file = (!Arc::ptr_eq(&self.image, &self.debug_file)).then_some(&*self.debug_file);
        let procedures = procedures.get_or_init(|| Procedures::new(Arc::clone(&self.image), debug_file));
        let name = procedures.procedure_at(code).filter(|procedure| procedure.start == code)?.name?;
        let stem = name.split('.').next().filter(|stem| stem.starts_with("_Z"))?;
        Some(stem.to_owned())
    }
}
