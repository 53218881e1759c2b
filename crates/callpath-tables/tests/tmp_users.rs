use callpath_tables::{module::Module, return_users::ReturnUsers};
use std::path::Path;
#[test]
fn tmp() {
    let paths: Vec<String> = std::env::var("MODS").unwrap().split(':').map(String::from).collect();
    let modules: Vec<Module> = paths.iter().map(|p| Module::read(Path::new(p)).unwrap()).collect();
    let begun = std::time::Instant::now();
    let u = ReturnUsers::of(&modules.iter().collect::<Vec<_>>());
    eprintln!("{:?}", begun.elapsed());
    u.report();
    for (m, at) in &u.reached_by_pointers { eprintln!("TAKEN {} {:#x}", paths[*m], at.0); }
}
