//! Modules of the actors' crate that import each other in a circle, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, Source, names};

/// Folders whose modules are in no import circle.
const FOLDERS: &[&str] = &["actors/src/shell", "actors/src/supervision", "actors/src/system"];

/// The source folder of the crate: module paths begin there.
const CRATE: &str = "actors/src/";

/// The modules that each module imports, by their paths: `supervision::slot`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the module of a file: `shell::worker` for `actors/src/shell/worker.rs`, and `shell` for
/// `actors/src/shell/mod.rs`.
fn module_of(path: &str) -> Option<String> {
    let path = path.strip_prefix(CRATE)?.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    Some(path.replace('/', "::"))
}

/// Returns the path from the crate's root that `name` in `module` may stand for. A single word is
/// no import: `pub(super)` names no parent.
fn absolute(module: &str, name: &str) -> Option<String> {
    let (first, _) = name.split_once("::")?;
    // A path without `crate`, `self` or `super` may name a child of the module.
    let mut path: Vec<_> = if first == "crate" { Vec::new() } else { module.split("::").collect() };
    for part in name.split("::").skip(usize::from(first == "crate")) {
        match part {
            "self" => {}
            "super" => drop(path.pop()),
            part => path.push(part),
        }
    }
    Some(path.join("::"))
}

/// Returns the imports among these files.
fn imports(sources: &[&Source]) -> Imports {
    let modules: BTreeMap<String, &Source> =
        sources.iter().filter_map(|source| Some((module_of(&source.path)?, *source))).collect();
    // The owner is the longest beginning of a path that is a module. Items that a folder's own file
    // re-exports or defines belong to that file.
    let owner = |path: &str| {
        let mut path = path;
        loop {
            if modules.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let of = |module: &str, source: &Source| {
        let named = names(&source.text).into_iter().filter_map(|(_, name)| absolute(module, &name));
        let imported = named.filter_map(|path| owner(&path));
        imported.filter(|imported| imported != module).collect()
    };
    modules.iter().map(|(module, source)| (module.clone(), of(module, source))).collect()
}

/// Returns all modules that can be reached from `module` by one import or more.
fn reachable<'a>(imports: &'a Imports, module: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![module]);
    while let Some(next) = open.pop() {
        for imported in imports.get(next).into_iter().flatten() {
            if seen.insert(imported.as_str()) {
                open.push(imported);
            }
        }
    }
    seen
}

/// Returns the strongly connected components of more than one module.
fn circles(sources: &[&Source]) -> BTreeSet<Vec<String>> {
    let imports = imports(sources);
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(&imports, module))).collect();
    let circle_of = |module: &str| -> Vec<String> {
        let others = reached[module].iter().filter(|other| reached[*other].contains(module));
        others.map(|other| (*other).to_owned()).collect()
    };
    reached.keys().map(|module| circle_of(module)).filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn no_module_is_in_an_import_circle() {
    let sources = source::all();
    let is_held =
        |source: &&Source| FOLDERS.iter().any(|folder| source.is_in(folder)) && !source.is_test();
    let held: Vec<_> = sources.iter().filter(is_held).collect();
    assert!(held.len() > 20, "the sources were not found");
    let found = circles(&held);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn planted_circles_are_found() {
    let file = |name: &str, text: &str| Source {
        path: format!("actors/src/shell/{name}.rs"),
        text: text.to_owned(),
    };
    let found = |texts: [&str; 4]| {
        let names = ["mod", "a", "b", "c/d"];
        let files: Vec<_> = names.iter().zip(texts).map(|(name, text)| file(name, text)).collect();
        circles(&files.iter().collect::<Vec<_>>()).into_iter().collect::<Vec<_>>()
    };
    let none =
        ["mod a;\npub use self::a::A;", "use super::b::B;", "use super::c::d::D;", "struct D;"];
    assert!(found(none).is_empty(), "a line of imports is no circle");
    let of_two = ["", "use super::b::B;", "fn f() -> crate::shell::a::A {}", ""];
    assert_eq!(found(of_two), [["shell::a", "shell::b"]]);
    let of_three = ["", "use super::{b::B, z};", "use super::c::d;", "use super::super::a::A;"];
    assert_eq!(found(of_three), [["shell::a", "shell::b", "shell::c::d"]]);
    let by_re_export = ["pub use a::A;", "use super::b::B;", "use super::A;", ""];
    assert_eq!(found(by_re_export), [["shell", "shell::a", "shell::b"]]);
    let in_a_comment = ["", "use super::b::B;", "// use super::a::A;", ""];
    assert!(found(in_a_comment).is_empty());
    let by_visibility = ["use a::A;", "pub(super) struct A;", "", ""];
    assert!(found(by_visibility).is_empty(), "a word is no import");
}
