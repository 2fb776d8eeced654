//! The config of the text model in a multimodal `config.json`: the object `text_config`, and the
//! fields beside it that count for text. In `InternVLChatModel` and Llama Nemotron VL the object is
//! `llm_config`, and in DeepSeek-OCR `language_config`.

use super::file::Fields;
use super::{ConfigError, retrieval, unsupported};
use crate::model::wrapper::{TextModel, TextSizes, Wrapped, Wrapper};

/// Whether the output layer uses the matrix of the embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    Yes,
    No,
    /// It does unless the checkpoint has an output layer of its own.
    AsStored,
}

/// Fields that transformers reads beside `text_config` first. Those in `text_config` count where
/// they are absent.
const SHARED: [&str; 2] = ["bos_token_id", "eos_token_id"];
/// The names of the dtype in transformers 5 and 4.
const DTYPES: [&str; 2] = ["dtype", "torch_dtype"];

const TEXT: &str = "text_config";
/// The name of the same object in the code of the authors of InternVL and of Llama Nemotron VL.
const LLM: &str = "llm_config";
/// The classes in the form of that code.
const OF_AUTHORS: [&str; 3] = ["internvl_chat", "llama_nemotron_vl", "llama_nemotron_vl_rerank"];
/// Its name in the code of DeepSeek-OCR's authors.
const LANGUAGE: &str = "language_config";
const MODEL_TYPE: &str = "model_type";

/// Returns the fields of the text model of `wrapper`, and its class.
///
/// # Errors
/// [`ConfigError`] if `text_config` is missing, or is of a class that is not supported here.
pub(super) fn text_of(
    outer: &Fields,
    wrapper: &'static Wrapper,
) -> Result<(Fields, Wrapped), ConfigError> {
    check_model_type(outer, wrapper)?;
    retrieval::require_causal(outer, wrapper.architecture)?;
    retrieval::require_token_vectors(outer, wrapper.architecture)?;
    unsupported::refuse(outer, &[])?;
    let is_of_authors = OF_AUTHORS.contains(&wrapper.model_type);
    let text_config = match wrapper.model_type {
        "deepseek_vl_v2" => LANGUAGE,
        _ if is_of_authors => LLM,
        _ => TEXT,
    };
    let nested = outer.nested(text_config)?;
    let mut fields = match &nested {
        Some(nested) => nested.clone(),
        None if wrapper.may_be_flat => outer.without(&[MODEL_TYPE]),
        None => {
            return Err(outer.missing(text_config, "an object with the fields of the text model"));
        }
    };
    let text = class_of(&fields, wrapper)?;
    let TextSizes {
        vocab_size,
        hidden_size,
        intermediate_size,
        num_hidden_layers,
        num_attention_heads,
    } = text.sizes;
    for (field, size) in [
        ("vocab_size", vocab_size),
        ("hidden_size", hidden_size),
        ("intermediate_size", intermediate_size),
        ("num_hidden_layers", num_hidden_layers),
        ("num_attention_heads", num_attention_heads),
    ] {
        fields.set_default(field, Some(&size.into()));
    }
    SHARED.iter().for_each(|field| fields.replace(field, outer, field));
    if DTYPES.iter().any(|field| outer.value(field).is_some()) {
        fields = fields.without(&DTYPES);
        DTYPES.iter().for_each(|field| fields.replace(field, outer, field));
    }
    let tie = match is_of_authors {
        // Their text model is a whole model, which reads its own field alone.
        true => tie(&Fields::empty_in(outer), nested.as_ref())?,
        false => tie(outer, nested.as_ref())?,
    };
    if tie != Tie::AsStored {
        fields.set("tie_word_embeddings", (tie == Tie::Yes).into());
    }
    Ok((fields, Wrapped { wrapper, text, tie }))
}

/// Other values of `model_type` beside an entry of `architectures`.
const OTHER_MODEL_TYPES: [(&str, &str); 3] = [
    ("LightOnOCRForConditionalGeneration", "lighton_ocr"),
    ("ColQwen3", "qwen3_vl"),
    ("ColModernVBertForRetrieval", "modernvbert"),
];

fn check_model_type(outer: &Fields, wrapper: &Wrapper) -> Result<(), ConfigError> {
    let is_other =
        |model_type: &str| OTHER_MODEL_TYPES.contains(&(wrapper.architecture, model_type));
    match outer.text(MODEL_TYPE)? {
        Some(model_type) if model_type != wrapper.model_type && !is_other(model_type) => {
            let Wrapper { architecture, model_type, .. } = wrapper;
            let expected = format!("\"{model_type}\", as `architectures` is {architecture}");
            Err(outer.invalid(MODEL_TYPE, &expected))
        }
        _ => Ok(()),
    }
}

/// Returns the class that `model_type` names.
fn class_of(fields: &Fields, wrapper: &'static Wrapper) -> Result<&'static TextModel, ConfigError> {
    let names = || wrapper.texts.iter().map(|text| format!("{:?}", text.family.model_type));
    let expected = || format!("one of {}", names().collect::<Vec<_>>().join(", "));
    let Some(first) = wrapper.texts.first() else {
        return Err(fields.invalid(MODEL_TYPE, &expected()));
    };
    match fields.text(MODEL_TYPE)? {
        None => Ok(first),
        Some(name) => {
            let mut texts = wrapper.texts.iter();
            let text = texts.find(|text| text.family.has_model_type(name));
            text.ok_or_else(|| fields.invalid(MODEL_TYPE, &expected()))
        }
    }
}

/// Returns what the two objects say about the output layer. transformers 4 reads the field of
/// `text_config`. transformers 5 reads the one beside it, which some classes set if `text_config`
/// has it. The versions differ where the two objects do, and where both leave it to a default.
fn tie(outer: &Fields, nested: Option<&Fields>) -> Result<Tie, ConfigError> {
    const FIELD: &str = "tie_word_embeddings";
    let of_text = nested.map(|nested| nested.flag(FIELD)).transpose()?.flatten();
    Ok(match (outer.flag(FIELD)?, of_text) {
        (None | Some(true), Some(true)) | (Some(true), None) => Tie::Yes,
        (None, None) | (Some(true), Some(false)) | (Some(false), Some(true)) => Tie::AsStored,
        (Some(false), _) | (None, Some(false)) => Tie::No,
    })
}

#[cfg(test)]
mod tests;
