//! Holds the layout: the table of allowed imports, and rules that a compiler does not know.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod circles;
mod rules;
mod source;
mod tidy;

use std::{collections::BTreeSet, process::Command};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use self::{
    rules::{DEVICE_CRATES, RULES, Rule, SERVER_CRATES, TREES},
    source::{Source, names},
};

/// Returns the names in `source` that `rule` forbids.
fn violations(rule: &Rule, source: &Source) -> Vec<String> {
    match rule.except.iter().any(|folder| source.is_in(folder)) {
        true => Vec::new(),
        false => violations_without_exceptions(rule, source),
    }
}

/// Returns the names in `source` that `rule` forbids, exceptions ignored.
fn violations_without_exceptions(rule: &Rule, source: &Source) -> Vec<String> {
    if !source.is_in(rule.folder) || source.is_test() {
        return Vec::new();
    }
    // A path is forbidden with all paths below it, a single name wherever it stands in a path.
    let is_forbidden = |name: &str| {
        rule.forbidden.iter().any(|forbidden| match forbidden.contains("::") {
            true => format!("{name}::").starts_with(&format!("{forbidden}::")),
            false => name.split("::").any(|part| part == *forbidden),
        })
    };
    let found = names(&source.text).into_iter().filter(|(_, name)| is_forbidden(name));
    found.map(|(line, name)| format!("{}:{line}: {name}: {}", source.path, rule.reason)).collect()
}

#[test]
fn imports_follow_the_table() {
    let sources = source::all();
    assert!(sources.len() > 20, "the sources were not found");
    let all = RULES.iter().flat_map(|rule| sources.iter().flat_map(|s| violations(rule, s)));
    let all: Vec<_> = all.collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn every_rule_is_about_a_folder_that_exists() {
    let sources = source::all();
    for rule in RULES {
        let is_used = sources.iter().any(|source| source.is_in(rule.folder));
        assert!(is_used, "no file under {:?}: {}", rule.folder, rule.reason);
    }
}

/// Returns the exceptions of `rules` that no file of `sources` needs.
fn needless_exceptions(rules: &[Rule], sources: &[Source]) -> Vec<String> {
    let mut needless = Vec::new();
    for rule in rules {
        for folder in rule.except {
            let mut excepted = sources.iter().filter(|source| source.is_in(folder));
            if !excepted.any(|source| !violations_without_exceptions(rule, source).is_empty()) {
                needless.push(format!("{folder}: {}", rule.reason));
            }
        }
    }
    needless
}

#[test]
fn every_exception_is_needed() {
    let needless = needless_exceptions(RULES, &source::all());
    assert!(needless.is_empty(), "not needed:\n{}", needless.join("\n"));
}

#[test]
fn a_needless_exception_is_found() {
    let rule = |except| Rule { folder: "src", except, forbidden: &["axum"], reason: "HTTP" };
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let sources = [
        source("src/server/mod.rs", "use axum::Router;"),
        source("src/text/mod.rs", "use std::fmt;"),
        source("src/text/tests.rs", "use axum::Router;"),
    ];
    let needless = |except| needless_exceptions(&[rule(except)], &sources);
    assert!(needless(&["src/server"]).is_empty());
    assert_eq!(needless(&["src/server", "src/text"]), ["src/text: HTTP"]);
    assert_eq!(needless(&["src/absent.rs"]), ["src/absent.rs: HTTP"]);
}

#[test]
fn planted_violations_are_found() {
    let planted = [
        ("actors/src/logic/new.rs", "use std::{fmt, collections::{BTreeMap, HashMap}};"),
        ("actors/src/logic/new.rs", "fn now() { let t = std::time::Instant::now(); }"),
        ("actors/src/logic/new.rs", "pub async fn step() {}"),
        ("actors/src/message/new.rs", "use crate::{logic::ids, supervision::Directory};"),
        ("actors/src/shell/new.rs", "use burn::tensor::Tensor;"),
        ("actors/src/shell/new.rs", "use ractor::{ActorRef, rpc::CallResult};"),
        ("actors/src/system/new.rs", "use ractor::rpc::cast;"),
        ("actors/src/logic/text/new.rs", "use crate::system::memory::Lease;"),
        ("actors/src/logic/new.rs", "use crate::fault::{Bug, planted};"),
        ("actors/src/fault/new.rs", "use crate::{message::Edge, shell::worker::WorkerActor};"),
        ("kernels/src/new.rs", "use playhouse_actors::logic;"),
        ("src/model/new.rs", "async fn load() { tokio::task::yield_now().await }"),
        ("src/server/new.rs", "use burn::tensor::Tensor;"),
        ("src/server/new.rs", "use crate::{engine::Engine, model::Model};"),
        ("src/server/new.rs", "use playhouse_actors::system::Health;"),
        ("src/server/http/new.rs", "use crate::server::{chat::ChatRequest, state::AppState};"),
        ("src/server/http/new.rs", "use crate::server::generate::choices::Choices;"),
        ("src/server/generate/new.rs", "use crate::{api::Prompt, server::messages::Message};"),
        ("src/cli/new.rs", "fn f(health: playhouse_actors::system::Health) {}"),
        ("examples/new.rs", "use playhouse_actors::system::Health;"),
        ("src/parsers/new.rs", "use playhouse_actors::ports::TextCodec;"),
        ("src/engine/new.rs", "use crate::server::ServerConfig;"),
        ("src/executor/new.rs", "let mask: toktrie::SimpleVob = walk();"),
        ("src/engine/new.rs", "let t: tokenizers::Tokenizer = load();"),
        ("actors/src/shell/new.rs", "let bytes = bincode::serialize(&x);"),
        ("src/model/new.rs", "let x = unsafe { *p };"),
        ("src/text/new.rs", "let text = std::fs::read_to_string(path)?;"),
        ("src/cli/new.rs", "use std::fs; fn f() { fs::write(path, text) }"),
        ("src/weights/new.rs", "use std::fs::File; fn f() { File::open(path) }"),
    ];
    for (path, text) in planted {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        let found = RULES.iter().flat_map(|rule| violations(rule, &source)).count();
        assert!(found > 0, "not found in {path}: {text}");
    }
}

#[test]
fn allowed_imports_are_left_alone() {
    let allowed = [
        ("actors/src/logic/new.rs", "// tokio is not used here\nuse std::collections::BTreeMap;"),
        ("actors/src/logic/new.rs", "const WHY: &str = \"no HashMap, \\\" no tokio\";"),
        (
            "actors/src/logic/new.rs",
            "#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}",
        ),
        ("actors/src/logic/queue/tests.rs", "use std::collections::HashMap;"),
        ("kernels/src/new.rs", "let x = unsafe { *p };"),
        ("src/text/new.rs", "use tokenizers::Tokenizer;"),
        ("src/server/new.rs", "use crate::engine::Engine; // never burn"),
        ("src/server/new.rs", "use crate::api::Health;"),
        ("src/model/new.rs", "use burn::tensor::Tensor; fn tokio_free() {}"),
    ];
    for (path, text) in allowed {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        let found: Vec<_> = RULES.iter().flat_map(|rule| violations(rule, &source)).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// Returns the workspace as cargo sees it on this machine.
fn metadata() -> Metadata {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(rustc.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let options = ["--filter-platform".to_owned(), host.to_owned()];
    MetadataCommand::new().other_options(options).exec().unwrap()
}

/// Returns the names of all packages that `package` needs, except for tests.
fn tree(metadata: &Metadata, package: &PackageId) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let (mut seen, mut open) = (BTreeSet::new(), vec![package]);
    while let Some(id) = open.pop() {
        if !seen.insert(metadata[id].name.to_string()) {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| node.id == *id).unwrap();
        let is_normal = |kind: &cargo_metadata::DepKindInfo| kind.kind == DependencyKind::Normal;
        let needed = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(is_normal));
        open.extend(needed.map(|dep| &dep.pkg));
    }
    seen
}

#[test]
fn dependency_trees_stay_apart() {
    let metadata = metadata();
    for (package, forbidden) in TREES {
        let packages = metadata.workspace_packages();
        let package = packages.iter().find(|p| p.name.as_str() == *package).unwrap();
        let tree = tree(&metadata, &package.id);
        assert!(tree.len() > 5, "{} has no dependencies: {tree:?}", package.name);
        for name in *forbidden {
            assert!(!tree.contains(*name), "{} depends on {name}", package.name);
        }
    }
}

/// Asks `cargo tree`, because dev-dependencies turn the default features on in cargo's metadata.
#[test]
fn an_embedded_engine_needs_no_server_and_no_command_line() {
    let tree = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        let common = ["tree", "--offline", "--edges", "normal", "--prefix", "none"];
        let output = command.args(common).args(["--package", "playhouse"]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        let names = printed.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (all, embedded) = (tree(&[]), tree(&["--no-default-features"]));
    for name in SERVER_CRATES {
        assert!(all.contains(*name), "the program does not depend on {name}");
        assert!(!embedded.contains(*name), "an embedded engine depends on {name}");
    }
    assert!(embedded.contains("playhouse-actors"), "{embedded:?}");
}

#[test]
fn only_kernels_declare_device_crates() {
    for package in metadata().workspace_packages() {
        let declared = package.dependencies.iter().map(|dependency| &dependency.name);
        let is_device =
            |name: &&String| DEVICE_CRATES.iter().any(|crate_| name.starts_with(crate_));
        let found: Vec<_> = declared.filter(is_device).collect();
        let is_allowed = package.name.as_str() == "playhouse-kernels";
        assert_eq!(!found.is_empty(), is_allowed, "{}: {found:?}", package.name);
    }
}
