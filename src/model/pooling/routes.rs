//! The modules of a folder of sentence-transformers: those of `modules.json`, or those of the route
//! of a `Router` that begins with the folder.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::module_files::{invalid, json};
use crate::{model::ConfigError, module_list};

/// The modules of a model, and where they are.
pub(super) struct ModuleLists {
    /// The folder that has those of modules.
    pub(super) folder: PathBuf,
    /// The file that lists them.
    pub(super) path: PathBuf,
    /// The modules in their order.
    pub(super) modules: Vec<Value>,
}

impl ModuleLists {
    /// Returns the modules of the folder `model`, or `None` if it has none.
    ///
    /// # Errors
    /// [`ConfigError`] for a file that is no list, and for a folder that begins several routes.
    pub(super) fn read(model: &Path) -> Result<Option<Self>, ConfigError> {
        if let Some(route) = module_list::route(model) {
            let path = route.folder.join(module_list::ROUTER_FILE);
            if route.is_ambiguous {
                let name = model.file_name().unwrap_or_default().to_string_lossy();
                let expected = "one route that begins with this folder";
                return Err(invalid(&path, "structure", &name.into(), expected));
            }
            return Ok(Some(Self { folder: route.folder, path, modules: route.modules }));
        }
        let path = model.join(module_list::FILE);
        match json(&path)? {
            None => Ok(None),
            Some(Value::Array(modules)) => {
                Ok(Some(Self { folder: model.to_owned(), path, modules }))
            }
            Some(other) => Err(invalid(&path, "", &other, "a list")),
        }
    }
}
