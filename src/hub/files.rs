//! Which files of a repository a model needs. Pure: a listing in, names out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::name::is_path;
use crate::{model_files, module_list};

/// Small files of a model. All that a repository has of them are needed.
const SMALL: &[&str] = &[
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "model.safetensors.index.json",
    "hf_quant_config.json",
    // Of models that take images, videos or sounds.
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
];
/// Files of a tokenizer and its chat templates.
const TOKENIZER: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    TEKKEN,
];
/// Mistral's file in the place of `tokenizer.json`.
const TEKKEN: &str = "tekken.json";
/// The files that classes of tokenizers have in the place of `tokenizer.json`, a set a line. Which
/// class it is, the content of a config says. So all that are there are fetched.
const OF_CLASSES: &[&[&str]] = &[
    &["source.spm", "vocab.json"],
    &["sentencepiece.bpe.model"],
    &["spiece.model"],
    &["tokenizer.model"],
    &["vocab.json", "merges.txt"],
    &["vocab.txt"],
];
/// The folder of further chat templates.
const TEMPLATES: &str = "additional_chat_templates/";
const CONFIG: &str = "config.json";
pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const MODULES: &str = module_list::FILE;
const SINGLE: &str = "model.safetensors";
/// The weights of a module in older folders of sentence-transformers.
const OF_TORCH: &str = "pytorch_model.bin";
const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER: &str = "adapter_model.safetensors";
/// The layers of tokens of BGE-M3, beside the checkpoint.
const OF_TOKENS: &[&str] = &["colbert_linear.pt", "sparse_linear.pt"];
/// Ends of files with weights that this program does not read.
const OTHER_WEIGHTS: &[&str] = &[".bin", ".pth", ".pt", ".onnx", ".h5", ".msgpack", ".safetensors"];

/// The part of a repository that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// A model or an adapter.
    Model {
        /// Whether its weights are read.
        weights: bool,
        /// Whether its tokenizer is read. An adapter's is never.
        tokenizer: bool,
    },
    /// An adapter alone, also beside a model.
    Adapter,
    /// The tokenizer.
    Tokenizer,
    /// One GGUF file, by its name or the end of its name.
    Gguf(String),
}

impl Want {
    /// A model with all its files.
    pub(crate) const MODEL: Self = Self::Model { weights: true, tokenizer: true };
}

/// The reason why a listing does not have what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// The repository has no model.
    #[error("it has neither config.json nor adapter_config.json")]
    NoConfig,
    /// The repository has no adapter, because it lacks this file.
    #[error("it has no {0}; expected an adapter in PEFT's format, with its weights as safetensors")]
    NoAdapter(&'static str),
    /// The repository has no tokenizer in a known format.
    #[error(
        "it has neither tokenizer.json nor tekken.json, and no files of sentencepiece, BPE or word \
         pieces in their place"
    )]
    NoTokenizer,
    /// The repository has GGUF files only.
    #[error("it has GGUF files: add one to the name, for example :{}", .0.join(", or :"))]
    OnlyGguf(Vec<String>),
    /// The weights have another format.
    #[error(
        "it has no model.safetensors and no model.safetensors.index.json{}; expected a repository \
         with safetensors, or a GGUF file as org/name:file.gguf",
        if .0.is_empty() { String::new() } else { format!(" (only {})", .0.join(", ")) }
    )]
    NoWeights(Vec<String>),
    /// There is no such GGUF file.
    #[error(
        "it has no GGUF file {wanted}{}",
        if there.is_empty() { String::new() } else { format!("; it has {}", there.join(", ")) }
    )]
    NoSuchFile {
        /// The name given.
        wanted: String,
        /// The GGUF files of the repository.
        there: Vec<String>,
    },
    /// Several GGUF files have this end.
    #[error("{wanted} may be any of {}: give the whole name", there.join(", "))]
    Ambiguous {
        /// The end given.
        wanted: String,
        /// The files.
        there: Vec<String>,
    },
    /// Some parts of a GGUF file are absent.
    #[error("it lacks parts of {file}: it has {found} of {count}")]
    Parts {
        /// One of the parts.
        file: String,
        /// The number of parts that are there.
        found: usize,
        /// The number of all parts.
        count: usize,
    },
    /// A file that lists others cannot be read.
    #[error("its {file} cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// The reason.
        why: String,
    },
    /// A file that another one names is absent.
    #[error("its {by} names {file}, which it does not have")]
    Absent {
        /// The absent file.
        file: String,
        /// The file that names it.
        by: &'static str,
    },
}

/// Returns the files to fetch first. With their contents, [`large`] names the rest.
///
/// # Errors
/// [`Lacking`] if the repository cannot have what is wanted.
pub(crate) fn small(listing: &[String], want: &Want) -> Result<Vec<String>, Lacking> {
    let has = |name: &str| listing.iter().any(|file| file == name);
    let known = |names: &'static [&'static str]| {
        names.iter().filter(|name| has(name)).map(ToString::to_string)
    };
    let templates = listing
        .iter()
        .filter(|file| file.starts_with(TEMPLATES) && file.ends_with(".jinja") && is_path(file));
    let has_tokenizer = has_tokenizer(listing);
    // Without need, no second vocabulary is fetched.
    let known_here = known(TOKENIZER).filter(|name| name != TEKKEN || !has(TOKENIZER[0]));
    let sentences = known(&model_files::SENTENCE_CONFIGS);
    let of_class = of_class(listing).into_iter().map(str::to_owned);
    let tokenizer: Vec<_> =
        known_here.chain(of_class).chain(sentences).chain(templates.cloned()).collect();
    match want {
        Want::Gguf(_) => Ok(Vec::new()),
        Want::Adapter if !has(ADAPTER_CONFIG) => Err(Lacking::NoAdapter(ADAPTER_CONFIG)),
        Want::Adapter => Ok(vec![ADAPTER_CONFIG.to_owned()]),
        Want::Tokenizer if !has_tokenizer => Err(Lacking::NoTokenizer),
        // A tokenizer may depend on the model's config.
        Want::Tokenizer => Ok(known(&[CONFIG]).chain(tokenizer).collect()),
        Want::Model { .. } => {
            // A table of sentence-transformers needs no config.
            if !has(CONFIG) && !has(ADAPTER_CONFIG) && !has(MODULES) {
                let gguf = gguf_files(listing);
                return Err(match gguf.is_empty() {
                    true => Lacking::NoConfig,
                    false => Lacking::OnlyGguf(gguf),
                });
            }
            Ok(known(SMALL).chain(tokenizer).collect())
        }
    }
}

/// Returns the remaining files: those with weights, and the files of sentence-transformers'
/// modules. `index` and `modules` are the contents of [`INDEX`] and [`MODULES`].
///
/// # Errors
/// [`Lacking`] if one is absent, or has an unknown format.
pub(crate) fn large(
    listing: &[String],
    want: &Want,
    index: Option<&[u8]>,
    modules: Option<&[u8]>,
) -> Result<Vec<String>, Lacking> {
    match want {
        Want::Gguf(wanted) => gguf(listing, wanted),
        Want::Adapter => match listing.iter().any(|file| file == ADAPTER) {
            true => Ok(vec![ADAPTER.to_owned()]),
            false => Err(Lacking::NoAdapter(ADAPTER)),
        },
        Want::Tokenizer | Want::Model { weights: false, .. } => Ok(Vec::new()),
        Want::Model { weights: true, .. } => {
            let folders = modules.map_or_else(|| Ok(Vec::new()), module_folders)?;
            let in_folders = listing.iter().filter(|file| {
                folders.iter().any(|folder| is_of_module(file, folder, listing)) && is_path(file)
            });
            let modules = modules.and_then(module_list::parse).unwrap_or_default();
            let mut files = match module_list::table_path(&modules) {
                Some(folder) if !folder.is_empty() => Vec::new(),
                _ => weights(listing, index)?,
            };
            files.extend(in_folders.cloned());
            files.extend(task_adapters(listing));
            let is_of_tokens = |file: &&String| OF_TOKENS.contains(&file.as_str());
            files.extend(listing.iter().filter(is_of_tokens).cloned());
            Ok(files)
        }
    }
}

/// Returns the path within a complete folder that the engine loads: a GGUF file or its first part,
/// or the folder itself as an empty path. `read` returns the content of a file of the folder.
///
/// # Errors
/// [`Lacking`] if the folder is not complete.
pub(crate) fn complete(
    listing: &[String],
    want: &Want,
    read: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<String, Lacking> {
    let small = small(listing, want)?;
    let has = |name: &str| small.iter().any(|file| file == name);
    let has_tokenizer = has_tokenizer(&small);
    if matches!(want, Want::Model { tokenizer: true, .. }) && has(CONFIG) && !has_tokenizer {
        return Err(Lacking::NoTokenizer);
    }
    let (index, modules) = (read(INDEX), read(MODULES));
    let files = large(listing, want, index.as_deref(), modules.as_deref())?;
    Ok(match want {
        Want::Gguf(_) => files.into_iter().next().unwrap_or_default(),
        _ => String::new(),
    })
}

/// Returns the files of a class of tokenizers, if there is no other tokenizer.
fn of_class(listing: &[String]) -> BTreeSet<&'static str> {
    let has = |name: &str| listing.iter().any(|file| file == name);
    if has(TOKENIZER[0]) || has(TEKKEN) {
        return BTreeSet::new();
    }
    let complete = OF_CLASSES.iter().filter(|files| files.iter().all(|file| has(file)));
    let needs = complete.copied().flatten().copied();
    // M2M100 has this file beside its model.
    let beside = ["vocab.json"].into_iter().filter(|file| has(file));
    let files: BTreeSet<_> = needs.collect();
    if files.is_empty() { files } else { files.into_iter().chain(beside).collect() }
}

fn has_tokenizer(listing: &[String]) -> bool {
    let has = |name: &str| listing.iter().any(|file| file == name);
    has(TOKENIZER[0]) || has(TEKKEN) || !of_class(listing).is_empty()
}

fn weights(listing: &[String], index: Option<&[u8]>) -> Result<Vec<String>, Lacking> {
    let has = |name: &str| listing.iter().any(|file| file == name);
    if has(SINGLE) {
        return Ok(vec![SINGLE.to_owned()]);
    }
    if let Some(index) = index.filter(|_| has(INDEX)) {
        return shards(listing, index);
    }
    if has(ADAPTER_CONFIG) && has(ADAPTER) {
        return Ok(vec![ADAPTER.to_owned()]);
    }
    let gguf = gguf_files(listing);
    if !gguf.is_empty() {
        return Err(Lacking::OnlyGguf(gguf));
    }
    let is_other = |file: &&String| OTHER_WEIGHTS.iter().any(|end| file.ends_with(end));
    Err(Lacking::NoWeights(listing.iter().filter(is_other).cloned().collect()))
}

/// Returns the files that an index names.
fn shards(listing: &[String], index: &[u8]) -> Result<Vec<String>, Lacking> {
    let unreadable = |why: &str| Lacking::Unreadable { file: INDEX, why: why.to_owned() };
    let index: Value =
        serde_json::from_slice(index).map_err(|error| unreadable(&error.to_string()))?;
    let map = index["weight_map"].as_object().ok_or_else(|| unreadable("it has no weight_map"))?;
    let files: Option<BTreeSet<&str>> = map.values().map(Value::as_str).collect();
    let files = files.ok_or_else(|| unreadable("a file of its weight_map is no text"))?;
    let checked = files.into_iter().map(|file| match listing.iter().any(|there| there == file) {
        true if is_path(file) => Ok(file.to_owned()),
        _ => Err(Lacking::Absent { file: file.to_owned(), by: INDEX }),
    });
    checked.collect()
}

/// Returns the folders of sentence-transformers' modules, without the model's own.
fn module_folders(modules: &[u8]) -> Result<Vec<String>, Lacking> {
    let unreadable = |why: &str| Lacking::Unreadable { file: MODULES, why: why.to_owned() };
    let modules: Value =
        serde_json::from_slice(modules).map_err(|error| unreadable(&error.to_string()))?;
    let modules = modules.as_array().ok_or_else(|| unreadable("it is no list"))?;
    let paths = modules.iter().filter_map(|module| module["path"].as_str());
    let paths = paths.map(module_list::plain);
    Ok(paths.filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Returns the files of the adapters of tasks, a folder each, as `jina-embeddings-v5` has them.
fn task_adapters(listing: &[String]) -> impl Iterator<Item = String> {
    let is_of_one = |file: &&String| {
        let place = file.strip_prefix("adapters/").and_then(|rest| rest.split_once('/'));
        place.is_some_and(|(_, name)| [ADAPTER_CONFIG, ADAPTER].contains(&name)) && is_path(file)
    };
    listing.iter().filter(is_of_one).cloned()
}

/// Returns whether `file` is read with the module in `folder`.
fn is_of_module(file: &str, folder: &str, listing: &[String]) -> bool {
    let Some(name) = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let has_single = || listing.contains(&format!("{folder}/{SINGLE}"));
    let is_weights = name == SINGLE || name == OF_TORCH && !has_single();
    !name.contains('/') && (name.ends_with(".json") || is_weights)
}

fn gguf_files(listing: &[String]) -> Vec<String> {
    let is_gguf = |file: &&String| file.to_lowercase().ends_with(".gguf") && is_path(file);
    listing.iter().filter(is_gguf).cloned().collect()
}

/// Returns the GGUF file of this name, or the only one whose name ends in it. Of a file in parts,
/// returns all parts in order.
fn gguf(listing: &[String], wanted: &str) -> Result<Vec<String>, Lacking> {
    let there = gguf_files(listing);
    let wanted_lower = wanted.to_lowercase();
    let is_wanted = |file: &&String| match wanted_lower.ends_with(".gguf") {
        true => file.as_str() == wanted,
        false => ends_in(file, &wanted_lower),
    };
    let mut found: Vec<&String> = there.iter().filter(is_wanted).collect();
    // The parts of one file are one choice.
    found.sort_by(|a, b| Part::of(a).cmp(&Part::of(b)));
    found.dedup_by(|next, file| Part::of(next).is_some_and(|next| next.is_beside(file)));
    match found[..] {
        [] => Err(Lacking::NoSuchFile { wanted: wanted.to_owned(), there }),
        [file] => parts(&there, file),
        _ => {
            let there = found.iter().map(|file| (*file).clone()).collect();
            Err(Lacking::Ambiguous { wanted: wanted.to_owned(), there })
        }
    }
}

/// Returns the parts of a GGUF file in order, by any of them, or the file alone if it is whole.
///
/// # Errors
/// [`Lacking::Parts`].
pub(crate) fn parts(listing: &[String], file: &str) -> Result<Vec<String>, Lacking> {
    let Some(Part { count, .. }) = Part::of(file) else { return Ok(vec![file.to_owned()]) };
    let is_part = |other: &&String| Part::of(other).is_some_and(|part| part.is_beside(file));
    let mut found: Vec<String> = listing.iter().filter(is_part).cloned().collect();
    found.sort();
    let numbers = found.iter().filter_map(|file| Part::of(file)).map(|part| part.number);
    match numbers.eq(1..=count) {
        true => Ok(found),
        false => Err(Lacking::Parts { file: file.to_owned(), found: found.len(), count }),
    }
}

/// Returns whether the name of `file` ends in `end`, which begins after a separator. Projectors of
/// images (`mmproj-F16.gguf`) lie beside many models, and are none.
fn ends_in(file: &str, end: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_lowercase();
    if name.starts_with("mmproj") {
        return false;
    }
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    let stem = Part::of(stem).map_or(stem, |part| part.begin);
    stem.strip_suffix(end).is_some_and(|begin| begin.ends_with(['-', '.', '_']))
}

/// The name of one part of a GGUF file: `begin-00001-of-00003.gguf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part<'a> {
    begin: &'a str,
    count: usize,
    /// From 1.
    pub(crate) number: usize,
}

impl<'a> Part<'a> {
    /// Returns `None` for the name of a whole file.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let stem = name.strip_suffix(".gguf").unwrap_or(name);
        let (begin, count) = stem.rsplit_once("-of-")?;
        let (begin, number) = begin.rsplit_once('-')?;
        let number_of = |text: &str| {
            let is_number = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        Some(Self { begin, count: number_of(count)?, number: number_of(number)? })
    }

    /// Returns whether `name` is a part of the same file.
    fn is_beside(self, name: &str) -> bool {
        Part::of(name).is_some_and(|part| (part.begin, part.count) == (self.begin, self.count))
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
