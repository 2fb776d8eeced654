//! The metadata of a GGUF file in the form of `config.json`, so that one reader checks both.
//!
//! The keys are those of `gguf.constants.Keys`. Their defaults are llama.cpp's.

mod architecture;
mod architectures;
mod authors;
mod blocks;
mod classifiers;
mod encoders;
mod factors;
mod gemmas;
mod latent;
mod layout;
mod metadata;
mod rope;
mod sigmoids;
mod states;
mod t5;
mod text_parts;
mod tokens;
mod unknown;
mod with_states;

use serde_json::json;

use self::architecture::{Architecture, Variant};
use self::architectures::ARCHITECTURES;
use self::authors::OF_AUTHORS;
use self::encoders::ENCODERS;
use self::gemmas::LATER_GEMMAS;
pub(super) use self::layout::Layout;
use self::metadata::Metadata;
use self::sigmoids::SIGMOIDS;
use self::t5::T5;
use self::text_parts::TEXT_PARTS;
use self::with_states::WITH_STATES;
use super::file::Fields;
use super::source::ConfigSource;
use super::{ConfigError, GenerationConfig};
use crate::gguf::GgufFile;
use crate::model::families::{self, Entry};
use crate::model::family::Family;
use crate::model::pooling;

const ARCHITECTURE: &str = "general.architecture";

/// The architectures of models that are read from a folder alone, each with the reason.
const OF_FOLDERS: [(&str, &str); 2] = [
    ("jina-bert-v3", "the matrices of its tasks are not in the file"),
    ("nomic-bert-moe", "the biases of its experts are not in the file"),
];

/// Returns the config of the model in `file`.
pub(super) fn read(file: &GgufFile) -> Result<ConfigSource, ConfigError> {
    let architecture = architecture(file)?;
    if !matches!(file.text("general.type")?, None | Some("model")) {
        return Err(file.unexpected("general.type", "\"model\"").into());
    }
    let mut metadata = Metadata::new(file, architecture);
    let class = class(&mut metadata)?;
    metadata.object.insert("architectures".to_owned(), json!([class]));
    if T5.iter().any(|t5| t5.class == class) {
        metadata.t5()?;
    } else {
        let family = families::text_family(class).or_else(|| of_pooling(class));
        let family = family.ok_or_else(|| unsupported(file, class))?;
        metadata.shape(family)?;
        metadata.rope(family)?;
    }
    metadata.own_keys()?;
    metadata.classes()?;
    if families::text_family(class).is_some() {
        metadata.pooling_of_language()?;
    }
    unknown::refuse(&metadata)?;
    metadata.tokens()?;
    let Metadata { object, origins, .. } = metadata;
    let fields = Fields::translated(file.path(), object, origins);
    Ok(ConfigSource { fields, layout: Some(Layout::of(file, architecture)?) })
}

/// Returns the family of a class without an output layer.
fn of_pooling(class: &str) -> Option<&'static Family> {
    let mut classes = pooling::converted();
    let (_, entry, _) = classes.find(|(name, ..)| name == class)?;
    match entry {
        Entry::Family(family) => Some(family),
        Entry::Wrapper(_) => None,
    }
}

/// Returns llama.cpp's names for the models of the class `class`.
pub(in crate::model) fn architectures_of(class: &str) -> impl Iterator<Item = &'static str> {
    let holds = move |architecture: &&Architecture| {
        let mut variants = architecture.variants.iter();
        architecture.class == class || variants.any(|variant| variant.class == class)
    };
    all().filter(holds).map(|architecture| architecture.name)
}

fn all() -> impl Iterator<Item = &'static Architecture> {
    let kinds =
        [ARCHITECTURES, SIGMOIDS, OF_AUTHORS, LATER_GEMMAS, WITH_STATES, TEXT_PARTS, ENCODERS, T5];
    kinds.into_iter().flatten()
}

fn architecture(file: &GgufFile) -> Result<&'static Architecture, ConfigError> {
    let missing = || file.missing(ARCHITECTURE, format!("one of {}", supported()));
    let name = file.text(ARCHITECTURE)?.ok_or_else(missing)?;
    if let Some((_, why)) = OF_FOLDERS.iter().find(|(known, _)| *known == name) {
        let expected = format!("another architecture, because {why}; load the model's folder");
        return Err(file.unexpected(ARCHITECTURE, expected).into());
    }
    let known = all().find(|architecture| architecture.name == name);
    known.ok_or_else(|| unsupported(file, name))
}

/// Returns the entry of `architectures` that config.json would have.
fn class(metadata: &mut Metadata<'_>) -> Result<&'static str, ConfigError> {
    if let Some(class) = metadata.classifier()? {
        return Ok(class);
    }
    for Variant { key, least, tensor, class } in metadata.architecture.variants {
        let key = metadata.key(key);
        let has = |end: &str| metadata.file.tensors().any(|(name, _)| name.ends_with(end));
        let flag = metadata.file.flag(&key).ok().flatten().map(u64::from);
        let number = match flag {
            Some(_) => flag,
            None => metadata.file.same_in_all_layers(&key)?,
        };
        let is_it = match number {
            Some(number) => number >= *least,
            None => tensor.is_some_and(has),
        };
        if is_it {
            return Ok(class);
        }
    }
    Ok(metadata.architecture.class)
}

fn supported() -> String {
    all().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
}

fn unsupported(file: &GgufFile, name: &str) -> ConfigError {
    ConfigError::UnsupportedFamily {
        path: file.path().to_owned(),
        field: ARCHITECTURE.to_owned(),
        value: format!("{:?}", name.chars().take(200).collect::<String>()),
        supported: supported(),
    }
}

/// Returns the sampling defaults of the model's authors.
pub(super) fn read_generation(file: &GgufFile) -> Result<GenerationConfig, ConfigError> {
    let number = |key: &str| file.number(&format!("general.sampling.{key}"));
    let top_k = number("top_k")?;
    if top_k.is_some_and(|top_k| top_k.fract() != 0.0) {
        return Err(file.unexpected("general.sampling.top_k", "an integer").into());
    }
    Ok(GenerationConfig {
        temperature: number("temp")?,
        top_p: number("top_p")?,
        top_k: top_k.map(|top_k| top_k as i64),
        min_p: number("min_p")?,
        repetition_penalty: number("penalty_repeat")?,
        ..GenerationConfig::default()
    })
}
