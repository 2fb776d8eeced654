//! The files of a model: those of a folder, or the demo model's, which are part of the program. So
//! the program has a model to run wherever it was copied to.

mod error;

use std::{
    borrow::Cow,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

#[cfg(feature = "demo-model")]
use playhouse_demo_model::FILES;
use playhouse_kernels::MappedFile;

use crate::files;
pub use error::ModelFileError;

/// The name of the demo model's folder where it is part of the program. No file system has it.
const BUILT_IN: &str = "builtin:demo-model";
const DEMO_MODEL: &str = "demo-model";
const EMBEDDER: &str = "embedder";
/// The name of the demo model that sees pictures. It is no part of the program.
const DEMO_VISION: &str = "demo-vision";
/// The files that the embedder shares with the demo model.
const SHARED: [&str; 4] =
    ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];

/// The file of sentence-transformers with the longest text, by its names. A model has one of them.
pub(crate) const SENTENCE_CONFIGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Returns the demo model. It is the built-in one if the program has it (feature `demo-model`),
/// then that of an installation, `../share/playhouse/demo-model` beside the program, then the
/// source tree's.
pub(crate) fn demo_model() -> PathBuf {
    if cfg!(feature = "demo-model") {
        return BUILT_IN.into();
    }
    found(DEMO_MODEL).unwrap_or_else(in_source_tree)
}

/// Returns the demo model with the head that makes vectors, in the form of sentence-transformers.
pub(crate) fn demo_embedder() -> PathBuf {
    demo_model().join(EMBEDDER)
}

/// Returns the folder of the model that sees pictures, if `model` is its name and no file's. The
/// folder is that of an installation, `../share/playhouse/demo-vision`, or the source tree's.
pub(crate) fn demo_vision(model: &Path) -> Option<PathBuf> {
    if model != Path::new(DEMO_VISION) || model.exists() {
        return None;
    }
    let folder = found(DEMO_VISION).unwrap_or_else(|| in_source_tree().join("vision"));
    folder.is_dir().then_some(folder)
}

/// Returns whether `model` is a copy of the demo model that this program knows.
pub(crate) fn is_demo_model(model: &Path) -> bool {
    let known = [demo_model(), in_source_tree()];
    known.iter().any(|demo| model == demo || model == demo.join(EMBEDDER))
}

fn in_source_tree() -> PathBuf {
    // Cargo's own variable would put the path of the builder into a package: see `build.rs`.
    Path::new(env!("SOURCE_TREE")).join("examples").join(DEMO_MODEL)
}

/// Returns the model `name` that was installed with this program, if there is one.
fn found(name: &str) -> Option<PathBuf> {
    std::env::current_exe().ok().and_then(|program| installed(&program, name))
}

/// Returns the model `name` that was installed with `program`, if there is one.
fn installed(program: &Path, name: &str) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let folder = prefix.join("share/playhouse").join(name);
    folder.is_dir().then_some(folder)
}

/// Returns whether the file or folder `path` exists.
pub(crate) fn exists(path: &Path) -> bool {
    let is_folder = path == Path::new(BUILT_IN) || path == Path::new(BUILT_IN).join(EMBEDDER);
    is_folder && cfg!(feature = "demo-model") || built_in(path).is_some() || path.exists()
}

/// Returns the content of `path`.
///
/// # Errors
/// As [`files::read`].
pub(crate) fn read(path: &Path) -> io::Result<Cow<'static, [u8]>> {
    match built_in(path) {
        Some(contents) => Ok(Cow::Borrowed(contents)),
        None => files::read(path).map(Cow::Owned),
    }
}

/// The content of a whole file. Pages are read when they are first used.
#[derive(Debug)]
pub(crate) enum Contents {
    /// A file of the file system.
    Mapped(MappedFile),
    /// A file within the program.
    BuiltIn(&'static [u8]),
    /// Bytes that were read from another place of a file.
    Read(Vec<u8>),
}

impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Read(bytes)
    }
}

impl Contents {
    /// Maps `path`.
    ///
    /// # Errors
    /// As [`MappedFile::open`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match built_in(path) {
            Some(contents) => Ok(Self::BuiltIn(contents)),
            None => MappedFile::open(path).map(Self::Mapped),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file.bytes(),
            Self::BuiltIn(contents) => contents,
            Self::Read(bytes) => bytes,
        }
    }

    /// As [`MappedFile::release`]. The system itself drops the program's own pages.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Self::Mapped(file) = self {
            file.release(range);
        }
    }

    /// As [`MappedFile::is_unchanged`].
    pub(crate) fn is_unchanged(&self) -> bool {
        match self {
            Self::Mapped(file) => file.is_unchanged(),
            Self::BuiltIn(_) | Self::Read(_) => true,
        }
    }

    /// Returns whether it is part of the program.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }
}

/// Returns the file `path` of the demo model, if it is part of the program.
fn built_in(path: &Path) -> Option<&'static [u8]> {
    let name = path.strip_prefix(BUILT_IN).ok()?;
    let shared = name.strip_prefix(EMBEDDER).ok().and_then(Path::to_str);
    let name = shared.filter(|name| SHARED.contains(name)).or(name.to_str())?;
    FILES.iter().find(|(known, _)| *known == name).map(|(_, contents)| *contents)
}

#[cfg(not(feature = "demo-model"))]
const FILES: &[(&str, &[u8])] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    /// All names of a model's files in the code that reads them, and of the embedder's.
    const READ: [&str; 22] = [
        "added_tokens.json",
        "chat_template.jinja",
        "config.json",
        "embedder/1_Pooling/config.json",
        "embedder/2_Dense/config.json",
        "embedder/2_Dense/model.safetensors",
        "embedder/3_Dense/config.json",
        "embedder/3_Dense/model.safetensors",
        "embedder/chat_template.jinja",
        "embedder/config.json",
        "embedder/generation_config.json",
        "embedder/model.safetensors",
        "embedder/modules.json",
        "embedder/sentence_bert_config.json",
        "embedder/tokenizer.json",
        "embedder/tokenizer_config.json",
        "generation_config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];

    #[test]
    fn the_built_in_files_are_those_of_the_source_tree() {
        assert!(exists(&demo_model()) && exists(&demo_embedder()));
        for name in READ {
            let (there, here) = (in_source_tree().join(name), demo_model().join(name));
            assert_eq!(exists(&here), there.exists(), "{name}");
            if there.exists() {
                let expected = std::fs::read(&there).unwrap();
                assert_eq!(read(&here).unwrap(), expected);
                assert_eq!(Contents::open(&here).unwrap().bytes(), expected);
            }
        }
        assert!(FILES.iter().all(|(name, _)| READ.contains(name)));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for name in ["model.safetensors.index.json", "lessons", "../config.json"] {
            let path = demo_model().join(name);
            assert!(!exists(&path), "{path:?}");
            assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert!(Contents::open(&path).is_err());
        }
    }

    #[test]
    fn an_installation_has_it_beside_its_programs() {
        let prefix = tempfile::TempDir::new().unwrap();
        let program = prefix.path().join("bin/playhouse");
        for name in [DEMO_MODEL, DEMO_VISION] {
            assert_eq!(installed(&program, name), None);
            let folder = prefix.path().join("share/playhouse").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            assert_eq!(installed(&program, name), Some(folder));
        }
    }

    #[test]
    fn the_model_that_sees_has_a_name() {
        let folder = demo_vision(Path::new("demo-vision"));
        assert_eq!(folder, Some(in_source_tree().join("vision")));
        for other in ["demo", "./demo-vision", "org/demo-vision"] {
            assert_eq!(demo_vision(Path::new(other)), None, "{other}");
        }
    }
}
