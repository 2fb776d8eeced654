//! `modules.json` of sentence-transformers, as the readers of configs, tokenizers and poolers need
//! it: the modules of a model in their order.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::model_files;

/// The file.
pub(crate) const FILE: &str = "modules.json";
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

/// Returns the modules in the content of the file, or `None` if that is no list.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Module>> {
    let modules: Value = serde_json::from_slice(text).ok()?;
    let field = |module: &Value, name: &str| module[name].as_str().unwrap_or_default().to_owned();
    let read = |module: &Value| Module {
        kind: field(module, "type").rsplit('.').next().unwrap_or_default().to_owned(),
        path: plain(&field(module, "path")).to_owned(),
    };
    Some(modules.as_array()?.iter().map(read).collect())
}

/// Returns the modules of the folder `model`. There are none without the file. The reader of
/// poolers reports its faults.
pub(crate) fn of_folder(model: &Path) -> Vec<Module> {
    let text = model_files::read(&model.join(FILE));
    text.ok().and_then(|text| parse(&text)).unwrap_or_default()
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
