//! Who says which procedures are probed.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;

/// Says which procedures are probed.
pub trait Chooser {
    /// The first instructions of those of a module. Asked once for each, and for each that comes.
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Vec<LinkAddr>;

    /// Has more chosen from now on, by what somebody types.
    ///
    /// # Errors
    /// What is wrong with that.
    fn add(&mut self, patterns: &[String]) -> Result<(), String>;

    /// Those of a module that was looked at which are meant by what somebody types, ascending.
    ///
    /// # Errors
    /// What is wrong with that.
    fn meant(&self, patterns: &[String], image: &Image, path: &Path) -> Result<Vec<LinkAddr>, String>;

    /// What one of them is called, with its module.
    fn name(&self, path: &Path, entry: LinkAddr) -> String;

    /// What is not there of what was added last, for the user.
    fn unknown(&self) -> Unknown;

    /// Whether what was chosen in the modules that are there is worth to go on. `come`: what may come later.
    ///
    /// # Errors
    /// Why not, for the user.
    fn check(&mut self, come: Come) -> Result<(), String>;
}

/// Whether programs are probed that a probed one executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Come {
    /// Only libraries may come.
    Libraries,
    /// They are.
    Programs,
}

/// What patterns name that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// Why, of each.
    pub why: Vec<String>,
    /// A program that comes later may have it.
    pub may_come: bool,
}
