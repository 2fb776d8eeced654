//! Encoder-decoder models for text. The encoder takes the prompt, and the decoder writes.
//!
//! | tensor | shape |
//! |---|---|
//! | token ids of a text | `[num_text_tokens]` |
//! | states of the encoder | `[num_text_tokens, hidden_size]` |
//! | [`EncoderOutput::by_layer`](crate::model::EncoderOutput::by_layer): keys and values of each layer of the decoder, in turn | `[num_text_tokens, num_heads * head_dim]` each |
//! | hidden states of the decoder | `[num_tokens, hidden_size]` |

mod bart;
mod decoder;
mod encoder;
mod families;
mod plan;
mod positions;
mod prompts;
mod stack;
mod t5;
mod tables;

use std::sync::Arc;

use self::decoder::Decoder;
use self::encoder::Encoder;
use self::families::{FAMILIES, TextFamily};
use self::plan::TextPlan;
use self::tables::Tables;
use crate::model::source::Expected;
use crate::model::supported::SupportedModels;
use crate::model::weight_loader::WeightLoader;
use crate::model::{KvLayers, Model, ModelError, ModelFamily, ModelSource, StoredDtype};
use crate::weights::{Checkpoint, GgufName};

pub(crate) use self::prompts::TextPrompts;

/// Returns the families by their entry in `architectures`.
pub(in crate::model) fn families() -> impl Iterator<Item = (&'static str, Arc<dyn ModelFamily>)> {
    FAMILIES.iter().map(|family| (family.architecture, Arc::new(family) as Arc<dyn ModelFamily>))
}

/// Returns their entries in the list of supported models.
pub(in crate::model) fn supported() -> impl Iterator<Item = SupportedModels> {
    FAMILIES.iter().map(TextFamily::supported)
}

impl ModelFamily for &'static TextFamily {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let plan = self.read(source.fields())?;
        let max_model_len = source.max_model_len(plan.num_positions)?;
        let banned = prompts::banned(source.path(), source.fields(), &plan)?;
        let gguf_name: Option<GgufName> = Some(t5::gguf_name);
        let expected = Expected { gguf_name, ..Expected::dense(plan.stored) };
        let check = |checkpoint: &Checkpoint| Ok(((), stored_dtype(&plan, checkpoint)?));
        source.load_checkpoint(expected, check, |(), loader| {
            let tables = Tables::load(loader, &plan, &banned)?;
            load(loader, self, &plan, tables, max_model_len)
        })
    }
}

/// Returns the type that the weights were made for. A GGUF file has no field for it: it is that of
/// the table, and the usual one beside quantized weights.
fn stored_dtype(plan: &TextPlan, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    let table = plan.tables.shared;
    if !checkpoint.is_gguf() {
        return Ok(plan.stored);
    }
    if checkpoint.is_quantized(table) {
        return Ok(StoredDtype::Bf16);
    }
    let shape = [plan.vocab_size, plan.hidden_size];
    Ok(checkpoint.tensor(&format!("{table}.weight"), &shape)?.dtype())
}

fn load(
    loader: &mut WeightLoader<'_>,
    family: &TextFamily,
    plan: &TextPlan,
    tables: Tables,
    max_model_len: usize,
) -> Result<Model, ModelError> {
    let decoder = Decoder::load(loader, plan, tables.of_decoder)?;
    let encoder = Encoder::load(loader, plan, tables.of_encoder)?;
    let attention = &plan.decoder.attention;
    let num_layers = plan.decoder.num_layers;
    Ok(Model {
        architecture: family.architecture.to_owned(),
        vocab_size: plan.vocab_size,
        max_model_len,
        eos_token_ids: plan.eos_token_ids.clone(),
        kv_layers: KvLayers::full(num_layers, attention.heads, attention.head_dim),
        dtype: loader.dtype(),
        quantized_weights: loader.quantized_weights().cloned(),
        adapter_sites: Arc::default(),
        backbone: Arc::new(decoder),
        lm_head: Some(Arc::new(tables.lm_head)),
        pooler: None,
        media: Some(Arc::new(encoder)),
    })
}
