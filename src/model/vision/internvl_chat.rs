//! InternVL in the form of its authors' code, `InternVLChatModel`: its fields, its tower
//! `InternVisionModel`, and the token of an embedding, which only the tokenizer has.

use std::path::Path;

use serde_json::Value;

use super::block::{BlockConfig, HeadNorms};
use super::token;
use crate::model::config::{ConfigError, ConfigSource, Fields};
use crate::model::family::NormKind;
use crate::model_files;

/// The token in the places of embeddings.
pub(crate) const CONTEXT_TOKEN: &str = "<IMG_CONTEXT>";

/// The modules of the projector: the norm of a square, and the two layers.
pub(super) const PROJECTOR: (&str, &[&str]) = ("0", &["1", "3"]);

/// The number that the norms of queries and keys add, as all published models have it.
const HEAD_EPS: f32 = 1e-6;

/// Returns the fields of a `config.json`, with those of transformers' class that have another
/// name, and with the token in the places of embeddings.
///
/// # Errors
/// [`ConfigError::Invalid`] if a field asks for a part that is not served.
pub(crate) fn translated(outer: &Fields, context_token: u32) -> Result<Fields, ConfigError> {
    const VERSION: &str = "ps_version";
    const PADS: &str = "pad2square";
    if outer.text(VERSION)? != Some("v2") {
        let expected = "\"v2\": the first models, with another order of patches, are not supported";
        return Err(outer.invalid(VERSION, expected));
    }
    if outer.flag_or(PADS, false)? {
        return Err(outer.invalid(PADS, "false"));
    }
    for adapter in ["use_backbone_lora", "use_llm_lora"] {
        if outer.count(adapter)?.is_some_and(|rank| rank > 0) {
            return Err(outer.invalid(adapter, "0: merge the adapter into the weights"));
        }
    }
    let fields = outer.with_aliases(&[("select_layer", "vision_feature_layer")]);
    let fields = fields.without(&["image_token_index", "vision_feature_select_strategy"]);
    Ok(fields.with("image_token_id", context_token.into()))
}

/// Refuses images of another size than `side`, that of the tower, whose positions would have to
/// be resized.
pub(super) fn require_side(outer: &Fields, side: usize) -> Result<(), ConfigError> {
    const SIDE: &str = "force_image_size";
    match outer.size(SIDE)?.is_some_and(|forced| forced != side) {
        true => Err(outer.invalid(SIDE, &format!("{side}, the image_size of vision_config"))),
        false => Ok(()),
    }
}

/// Sets in the layers of the tower what `vision_config` says under the names of the authors.
pub(super) fn adjust(vision: &Fields, block: &mut BlockConfig) -> Result<(), ConfigError> {
    const NORM: &str = "norm_type";
    block.qkv_bias = vision.flag_or("qkv_bias", false)?;
    if vision.flag_or("qk_normalization", true)? {
        block.head_norms = HeadNorms::AcrossHeads;
    }
    match vision.text(NORM)? {
        None | Some("rms_norm") => block.norm.kind = NormKind::Rms,
        Some("layer_norm") => {}
        Some(_) => return Err(vision.invalid(NORM, "\"layer_norm\" or \"rms_norm\"")),
    }
    if block.head_norms != HeadNorms::None && block.norm.eps != HEAD_EPS {
        let expected = format!("{HEAD_EPS}, as queries and keys are normalised");
        return Err(vision.invalid("layer_norm_eps", &expected));
    }
    Ok(())
}

/// Returns the id of the token in the places of embeddings. `tokenizer` is the folder of the
/// tokenizer, or its `tokenizer.json`.
///
/// # Errors
/// [`ConfigError`] if no file of the tokenizer has the token, or one cannot be read.
pub(super) fn context_token(tokenizer: &Path) -> Result<u32, ConfigError> {
    added_token(tokenizer, CONTEXT_TOKEN)
}

/// Returns the id of the added token `text` of the same.
///
/// # Errors
/// As [`context_token`].
pub(super) fn added_token(tokenizer: &Path, text: &str) -> Result<u32, ConfigError> {
    const DECODER: &str = "added_tokens_decoder";
    let is_file = tokenizer.extension().is_some_and(|extension| extension == "json");
    let folder = if is_file { tokenizer.parent().unwrap_or(tokenizer) } else { tokenizer };
    let whole = if is_file { tokenizer.to_owned() } else { folder.join("tokenizer.json") };
    let read =
        |path: &Path| model_files::exists(path).then(|| ConfigSource::file(path)).transpose();
    let is_it = |value: &Value| value["content"] == text;
    if let Some(fields) = read(&whole)? {
        let listed = fields.value("added_tokens").and_then(Value::as_array);
        let found = listed.into_iter().flatten().find(|added| is_it(added));
        let id = found.and_then(|added| u32::try_from(added["id"].as_u64()?).ok());
        if let Some(id) = id {
            return Ok(id);
        }
    }
    let config = folder.join("tokenizer_config.json");
    if let Some(fields) = read(&config)?
        && let Some(decoder) = fields.nested(DECODER)?
        && let Some((id, _)) = decoder.object().iter().find(|(_, added)| is_it(added))
        && let Ok(id) = id.parse()
    {
        return Ok(id);
    }
    if let Some(fields) = read(&folder.join("added_tokens.json"))?
        && let Some(id) = token(&fields, text)?
    {
        return Ok(id);
    }
    let expected = format!("the added token {text}");
    Err(ConfigError::Missing { path: config, field: DECODER.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::model::config::fields;
    use crate::model::vision::{TileImages, VisionFamily};

    /// The fields of the published InternVL 2.5 1B.
    fn published() -> Value {
        json!({
            "downsample_ratio": 0.5, "dynamic_image_size": true, "force_image_size": 448,
            "max_dynamic_patch": 12, "min_dynamic_patch": 1, "pad2square": false,
            "ps_version": "v2", "select_layer": -1, "template": "internvl2_5",
            "use_backbone_lora": 0, "use_llm_lora": 0, "use_thumbnail": true,
            "vision_config": { "image_size": 448, "patch_size": 14 },
        })
    }

    fn images(config: Value) -> Result<TileImages, String> {
        let read = translated(&fields(config), 7)
            .and_then(|fields| TileImages::read(VisionFamily::InternVlChat, &fields));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_field_that_is_not_served_is_named() {
        let read = images(published()).unwrap();
        // As in its model card: an image of 448 x 448 is 256 tokens.
        assert_eq!((read.placeholder, read.num_embeds, read.image_size), (7, 256, 448));
        for (field, value) in [
            ("ps_version", json!("v1")),
            // The default of the authors' class is the first version.
            ("ps_version", json!(null)),
            ("pad2square", json!(true)),
            ("use_llm_lora", json!(16)),
            ("use_backbone_lora", json!(16)),
            ("force_image_size", json!(224)),
            ("downsample_ratio", json!(0.3)),
        ] {
            let mut config = published();
            config[field] = value;
            let why = images(config).unwrap_err();
            assert!(why.contains(&format!("{field}` is ")), "{why}");
        }
    }

    /// Each file as the tokenizers of published models have it.
    #[test]
    fn the_token_of_embeddings_is_in_one_of_three_files() {
        for (file, content) in [
            (
                "tokenizer.json",
                json!({ "added_tokens": [
                { "id": 3, "content": "<img>" }, { "id": 92_546, "content": "<IMG_CONTEXT>" },
            ] }),
            ),
            (
                "tokenizer_config.json",
                json!({ "added_tokens_decoder": {
                "92544": { "content": "<img>" }, "92546": { "content": "<IMG_CONTEXT>" },
            } }),
            ),
            ("added_tokens.json", json!({ "<img>": 92_544, "<IMG_CONTEXT>": 92_546 })),
        ] {
            let folder = TempDir::new().unwrap();
            let why = context_token(folder.path()).unwrap_err().to_string();
            assert!(why.contains("<IMG_CONTEXT>"), "{why}");
            std::fs::write(folder.path().join(file), content.to_string()).unwrap();
            assert_eq!(context_token(folder.path()).unwrap(), 92_546, "{file}");
        }
    }
}
