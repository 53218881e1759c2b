//! Files without code: what the commands that analyse a file's code answer for one.

use std::path::Path;

use callpath_tables::module::Module;

/// An error that names the file, if there is no code in it. Debug information is split from its program with all
/// headers, so that such a file looks like a program otherwise.
pub(crate) fn expect_code(module: &Module, file: &Path) -> anyhow::Result<()> {
    if !module.file().code().is_empty() {
        return Ok(());
    }
    let file = file.display();
    if module.image().section(".debug_info").is_some() {
        anyhow::bail!("{file} holds debug information without code: name the program or library that it belongs to");
    }
    anyhow::bail!("{file} holds no code")
}
