//! Which procedures are one, although they are called otherwise or stand in other modules.
//!
//! - A qualified name of C++ or Rust is one procedure wherever its code is: the library's own, or a copy in the program.
//! - A name without parameters, as DWARF has it, is that with parameters with which it agrees, if there is one; of several
//!   (overloads), the one that is defined in the same line.

use rustc_hash::FxHashMap;

use super::identity::Identity;
use super::spelling::Spelling;
use crate::{Name, Strings};

/// Where a procedure is defined, by side A and by side B; none where it is not known or says nothing.
pub(super) type Defined = [Option<(Name, u32)>; 2];

/// By procedure, the first of those that it is one with.
pub(super) fn classes(procedures: &[Identity], defined: &[Defined], strings: &Strings) -> Vec<usize> {
    let spelled = |number: usize| match procedures[number] {
        Identity::Frame { name, .. } => Some(Spelling::of(strings.get(name))),
        _ => None,
    };
    let mut groups: FxHashMap<(Name, String), Vec<usize>> = FxHashMap::default();
    for (number, identity) in procedures.iter().enumerate() {
        let (Identity::Frame { module, .. }, Some(spelling)) = (identity, spelled(number)) else { continue };
        let module = if spelling.is_qualified() { Name::EMPTY } else { *module };
        groups.entry((module, spelling.stem())).or_default().push(number);
    }
    let mut classes: Vec<usize> = (0..procedures.len()).collect();
    for group in groups.values().filter(|group| group.len() > 1) {
        let mut first: FxHashMap<&str, usize> = FxHashMap::default();
        for &number in group {
            if let Some(spelling) = spelled(number) {
                classes[number] = *first.entry(spelling.signature).or_insert(number);
            }
        }
        let mut members: Vec<usize> = first.into_values().collect();
        members.sort_unstable();
        let has_parameters = |number: &usize| spelled(*number).is_some_and(|spelling| spelling.has_parameters);
        let (whole, bare): (Vec<usize>, Vec<usize>) = members.into_iter().partition(has_parameters);
        for &short in &bare {
            let agrees =
                |long: &usize| spelled(short).zip(spelled(*long)).is_some_and(|(short, long)| short.agrees(long));
            let mut found: Vec<usize> = whole.iter().copied().filter(agrees).collect();
            match found.len() {
                0 | 1 => found.retain(|&long| may_be_one(&defined[short], &defined[long])),
                _ => found.retain(|&long| is_one_line(&defined[short], &defined[long])),
            }
            if let [long] = found[..] {
                let class = classes[long];
                for &number in group {
                    classes[number] = if classes[number] == short { class } else { classes[number] };
                }
            }
        }
    }
    classes
}

/// What one build defines in two places are two procedures. Another build may be one of changed source.
fn may_be_one(a: &Defined, b: &Defined) -> bool {
    let differs = |side: usize| a[side].zip(b[side]).is_some_and(|(a, b)| a != b);
    !differs(0) && !differs(1)
}

fn is_one_line(a: &Defined, b: &Defined) -> bool {
    a.iter().flatten().any(|place| b.contains(&Some(*place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        strings: Strings,
        procedures: Vec<Identity>,
        defined: Vec<Defined>,
    }

    impl Case {
        /// Names with their modules and lines on both sides; line 0: not known.
        fn classes_of(names: &[(&str, &str, [u32; 2])]) -> Vec<usize> {
            let mut case = Case { strings: Strings::default(), procedures: Vec::new(), defined: Vec::new() };
            for (module, name, lines) in names {
                let file = case.strings.intern("f.cpp");
                let [module, name] = [module, name].map(|text| case.strings.intern(text));
                case.procedures.push(Identity::Frame { module, name });
                case.defined.push(lines.map(|line| (line > 0).then_some((file, line))));
            }
            classes(&case.procedures, &case.defined, &case.strings)
        }
    }

    #[test]
    fn a_copy_in_the_program_is_the_librarys() {
        let found = Case::classes_of(&[("app", "std::f(int)", [0; 2]), ("lib", "std::f(int)", [0; 2])]);
        assert_eq!(found, [0, 0]);
        let found =
            Case::classes_of(&[("app", "void std::f<int>(int)", [0; 2]), ("app", "int& std::f<int>(int)", [0; 2])]);
        assert_eq!(found, [0, 0]);
        // Names of C say less.
        assert_eq!(Case::classes_of(&[("app", "init", [0; 2]), ("lib", "init", [0; 2])]), [0, 1]);
    }

    #[test]
    fn a_name_without_parameters_is_the_one_that_has_them() {
        assert_eq!(Case::classes_of(&[("app", "heap", [0, 30]), ("app", "heap(int)", [30, 0])]), [1, 1]);
        // Another version of the source: the line moved.
        assert_eq!(Case::classes_of(&[("app", "heap", [0, 33]), ("app", "heap(int)", [30, 0])]), [1, 1]);
        // Overloads: the line tells, or nothing does.
        let overloads = |line| {
            Case::classes_of(&[("app", "f", [0, line]), ("app", "f(int)", [30, 30]), ("app", "f(long)", [40, 0])])
        };
        assert_eq!(overloads(40), [2, 1, 2]);
        assert_eq!(overloads(50), [0, 1, 2]);
        // One build that defines both in different lines has two.
        assert_eq!(Case::classes_of(&[("app", "f", [20, 0]), ("app", "f(int)", [30, 30])]), [0, 1]);
    }
}
