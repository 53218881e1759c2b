//! Who says which procedures are probed.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;

/// Says which procedures are probed.
pub trait Chooser {
    /// The first instructions of those of a module. Asked once for each, and for each that comes.
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Vec<LinkAddr>;

    /// The same again, of what was added last alone.
    fn choose_added(&mut self, image: &Arc<Image>, path: &Path) -> Vec<LinkAddr>;

    /// Has more chosen from now on, by what somebody types.
    ///
    /// # Errors
    /// What is wrong with that.
    fn add(&mut self, patterns: &[String]) -> Result<(), String>;

    /// Whether a procedure that was chosen is meant by what somebody types.
    ///
    /// # Errors
    /// What is wrong with that.
    fn is_meant(&self, patterns: &[String], path: &Path, entry: LinkAddr) -> Result<bool, String>;

    /// What one of them is called, with its module.
    fn name(&self, path: &Path, entry: LinkAddr) -> String;

    /// Why what somebody has typed names nothing, for the user.
    fn unknown(&self) -> Vec<String>;

    /// Whether what was chosen in the modules that are there is worth to go on.
    ///
    /// # Errors
    /// Why not, for the user.
    fn check(&mut self) -> Result<(), String>;
}
