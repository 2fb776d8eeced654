//! `modules.json` of sentence-transformers, as the readers of configs, tokenizers and poolers need
//! it: the modules of a model in their order. A `Router` has a list of modules for each kind of
//! text, and the folder of a list's first module is served with that list.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::model_files;

/// The file.
pub(crate) const FILE: &str = "modules.json";
/// The file of a `Router`.
pub(crate) const ROUTER_FILE: &str = "router_config.json";
const ROUTER: &str = "Router";
/// A table of vectors of tokens in the place of a transformer.
const STATIC_EMBEDDING: &str = "StaticEmbedding";

/// A module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its class, without the package.
    pub(crate) kind: String,
    /// Its folder within that of the model, which may be the same.
    pub(crate) path: String,
}

/// A list of modules of a `Router`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    /// The folder of the whole model, in which those of modules are.
    pub(crate) folder: PathBuf,
    /// The modules of the route and those behind the router, as `modules.json` has them.
    pub(crate) modules: Vec<Value>,
    /// Whether another route begins with the same folder, and goes on with other modules.
    pub(crate) is_ambiguous: bool,
}

/// Returns the modules in the content of the file, or `None` if that is no list.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Module>> {
    let modules: Value = serde_json::from_slice(text).ok()?;
    Some(modules.as_array()?.iter().map(module).collect())
}

fn module(module: &Value) -> Module {
    let field = |name: &str| module[name].as_str().unwrap_or_default();
    Module {
        kind: field("type").rsplit('.').next().unwrap_or_default().to_owned(),
        path: plain(field("path")).to_owned(),
    }
}

/// Returns the modules of the folder `model`. There are none without the file, unless the folder
/// begins a route. The reader of poolers reports its faults.
pub(crate) fn of_folder(model: &Path) -> Vec<Module> {
    if let Some(route) = route(model) {
        let mut modules: Vec<Module> = route.modules.iter().map(module).collect();
        // That of the first module is `model` itself.
        modules.iter_mut().take(1).for_each(|first| first.path.clear());
        return modules;
    }
    let text = model_files::read(&model.join(FILE));
    text.ok().and_then(|text| parse(&text)).unwrap_or_default()
}

/// Returns the route that begins with the folder `model`, of the `Router` in the folder around it.
/// A folder with modules of its own begins none.
pub(crate) fn route(model: &Path) -> Option<Route> {
    if model_files::exists(&model.join(FILE)) {
        return None;
    }
    // A dot has neither a name nor a folder around it.
    let model = std::path::absolute(model).ok()?;
    let (folder, name) = (model.parent()?, model.file_name()?.to_str()?);
    let (router, whole) = (json_in(folder, ROUTER_FILE)?, json_in(folder, FILE)?);
    let (first, behind) = whole.as_array()?.split_first()?;
    if module(first).kind != ROUTER {
        return None;
    }
    let routes = router["structure"].as_object()?.values().filter_map(Value::as_array);
    let mut routes = routes.filter(|ids| ids.first().is_some_and(|id| id == name));
    let ids = routes.next()?;
    let is_ambiguous = routes.any(|other| other != ids);
    let types = &router["types"];
    let of_id = |id: &Value| json!({"type": types[id.as_str().unwrap_or_default()], "path": id});
    let modules = ids.iter().map(of_id).chain(behind.iter().cloned()).collect();
    Some(Route { folder: folder.to_owned(), modules, is_ambiguous })
}

/// Returns the folders that begin the routes of the `Router` in the folder `model`, each once.
/// There are none without a router.
pub(crate) fn routes_in(model: &Path) -> Vec<String> {
    let router = json_in(model, ROUTER_FILE).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for route in router["structure"].as_object().into_iter().flat_map(|routes| routes.values()) {
        let first = route[0].as_str().unwrap_or_default();
        if !first.is_empty() && !names.iter().any(|known| known == first) {
            names.push(first.to_owned());
        }
    }
    names
}

fn json_in(folder: &Path, file: &str) -> Option<Value> {
    serde_json::from_slice(&model_files::read(&folder.join(file)).ok()?).ok()
}

/// Returns the path of a module's folder. That of the model itself is empty, which model2vec writes
/// as a dot.
pub(crate) fn plain(path: &str) -> &str {
    if path == "." { "" } else { path }
}

/// Returns the path of the table if the first module is a `StaticEmbedding`.
pub(crate) fn table_path(modules: &[Module]) -> Option<&str> {
    let first = modules.first().filter(|first| first.kind == STATIC_EMBEDDING)?;
    Some(&first.path)
}

/// Returns the folder of the table and its tokenizer, if the folder `model` is a
/// `StaticEmbedding`.
pub(crate) fn static_embedding(model: &Path) -> Option<PathBuf> {
    let modules = of_folder(model);
    let path = table_path(&modules)?;
    let is_inside = path.is_empty() || Path::new(path).file_name().is_some_and(|name| name == path);
    is_inside.then(|| model.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_may_begin_a_route() {
        let folder = tempfile::TempDir::new().unwrap();
        let write = |path: &str, value: Value| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        };
        let of = |name: &str| route(&folder.path().join(name));
        let router = |other: &str| {
            json!({
                "types": {"q_0_T": "a.Transformer", "q_1_P": "a.Pooling", "d_0_T": "a.Transformer"},
                "structure": {"query": ["q_0_T", "q_1_P"], "document": [other]},
            })
        };
        write("router_config.json", router("d_0_T"));
        assert_eq!(of("q_0_T"), None, "no list of modules");
        let norm = json!({"type": "a.Normalize", "path": "1_N"});
        write("modules.json", json!([{"type": "a.Router", "path": ""}, norm.clone()]));
        let query = of("q_0_T").unwrap();
        let first = json!({"type": "a.Transformer", "path": "q_0_T"});
        let second = json!({"type": "a.Pooling", "path": "q_1_P"});
        assert_eq!(query.modules, [first.clone(), second, norm.clone()]);
        assert_eq!((query.is_ambiguous, &*query.folder), (false, folder.path()));
        assert_eq!(of("d_0_T").unwrap().modules.len(), 2);
        assert_eq!(of("q_1_P"), None);
        let kinds = of_folder(&folder.path().join("q_0_T")).into_iter();
        let kinds: Vec<_> = kinds.map(|module| (module.kind, module.path)).collect();
        let named = |kind: &str, path: &str| (kind.to_owned(), path.to_owned());
        let expected = [named("Transformer", ""), named("Pooling", "q_1_P")];
        assert_eq!(kinds, [&expected[..], &[named("Normalize", "1_N")]].concat());
        assert_eq!(routes_in(folder.path()), ["q_0_T", "d_0_T"]);
        assert!(routes_in(&folder.path().join("q_0_T")).is_empty());
        write("router_config.json", router("q_0_T"));
        assert!(of("q_0_T").unwrap().is_ambiguous);
        write("q_0_T/modules.json", json!([]));
        assert_eq!(of("q_0_T"), None, "it has modules of its own");
    }

    #[test]
    fn a_table_is_the_first_module() {
        let path = |text: &str| {
            let modules = parse(text.as_bytes()).unwrap_or_default();
            table_path(&modules).map(str::to_owned)
        };
        let table =
            |path: &str| format!(r#"[{{"path": "{path}", "type": "a.b.StaticEmbedding"}}]"#);
        assert_eq!(path(&table(".")), Some(String::new()), "model2vec's own folders");
        assert_eq!(path(&table("")), Some(String::new()));
        assert_eq!(path(&table("0_StaticEmbedding")), Some("0_StaticEmbedding".to_owned()));
        assert_eq!(path(r#"[{"type": "Transformer"}, {"type": "StaticEmbedding"}]"#), None);
        for none in ["[]", "{}", "no JSON", "[3]"] {
            assert_eq!(path(none), None, "{none}");
        }
        let folder = tempfile::TempDir::new().unwrap();
        let found = |path: &str| {
            std::fs::write(folder.path().join(FILE), table(path)).unwrap();
            static_embedding(folder.path())
        };
        assert_eq!(found("0_Table"), Some(folder.path().join("0_Table")));
        assert_eq!(found("."), Some(folder.path().to_owned()));
        assert_eq!(found("../other"), None, "a folder outside of the model's");
    }
}
