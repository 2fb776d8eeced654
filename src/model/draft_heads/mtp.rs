//! Multi-token prediction: the layer after a model's last one, which its own checkpoint has.
//!
//! | tensor of `model.layers.{L}.` | shape |
//! |---|---|
//! | `enorm.weight`, `hnorm.weight` | `[hidden]`: over the token, over the hidden state |
//! | `eh_proj.weight` | `[hidden, 2 · hidden]` |
//! | `input_layernorm`, `self_attn`, `mlp`, … | as the model's layers |
//! | `shared_head.norm.weight` | `[hidden]`: before the output layer alone |
//! | `shared_head.head.weight`, `embed_tokens.weight` | `[vocab, hidden]`; absent: the model's |
//!
//! `L` is `num_hidden_layers`. The form is that of DeepSeek V3 and GLM-4-MoE, as vLLM's
//! `DeepSeekMTP` and `Glm4MoeMTP` compute it. The source is knowledge of vLLM, which was not at
//! hand: the hidden state is that after the model's final norm, and the embedding at position 0 is
//! zero.

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale_rows};

use super::eagle::UNLIMITED;
use super::parts::{HeadEmbedding, HeadLayers, HeadOutput, Target, load_with, refused};
use super::{HeadInput, HeadRows, Loaded};
use crate::config::JsonObject;
use crate::model::config::{ConfigSource, ModelConfig, architecture};
use crate::model::decoder::{DecoderLayer, kv_layers};
use crate::model::families::{self, Entry};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, KvPlace, ModelError, ModelSource, Positions, Step};

struct Mtp {
    embed_tokens: HeadEmbedding,
    enorm: Norm,
    hnorm: Norm,
    eh_proj: Linear,
    layer: DecoderLayer,
    norm: Norm,
    output: HeadOutput,
}

impl HeadLayers for Mtp {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let is_not_first = |position: &u32| if *position == 0 { 0.0 } else { 1.0 };
        let factors: Vec<f32> = positions.in_sequence().iter().map(is_not_first).collect();
        let embedded = scale_rows(self.embed_tokens.forward(rows.token_ids), &factors);
        let both = vec![self.enorm.forward(embedded), self.hnorm.forward(rows.states)];
        let hidden = self.eh_proj.forward(Tensor::cat(both, 1), Adapters::none());
        match self.layer.forward(hidden, None, positions, step) {
            (hidden, Some(residual)) => add(hidden, residual),
            (hidden, None) => hidden,
        }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| self.norm.forward(states))
    }

    fn mapped_bytes(&self) -> u64 {
        self.layer.mapped_bytes() + self.eh_proj.mapped_bytes() + self.output.mapped_bytes()
    }
}

/// Loads the head of `source`, a model with such a layer, or a folder with its config and that
/// layer alone.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let fields = source.config.fields();
    let name = architecture(fields, &families::architectures())?;
    let Some(family) = families::text_family(name) else {
        return Err(refused(source, format!("{name} has no layer for several tokens a step")));
    };
    let read = |config: &ConfigSource| ModelConfig::of_entry(config, Entry::Family(family), None);
    let of_model = read(source.config)?;
    target.require(source, of_model.hidden_size, of_model.vocab_size)?;
    let index = of_model.layers.len();
    match of_model.num_nextn_layers {
        1 => {}
        0 => {
            let what = "config.json names no layer for several tokens a step: \
                        num_nextn_predict_layers is 0 or absent";
            return Err(refused(source, what.to_owned()));
        }
        count => {
            let what = format!("num_nextn_predict_layers is {count}; 1 is supported");
            return Err(refused(source, what));
        }
    }
    // The layer after the last has the form that a longer model's last layer has.
    let mut longer = source.config.clone();
    let mut count = serde_json::Map::new();
    count.insert("num_hidden_layers".to_owned(), (index + 1).into());
    longer.override_with(&JsonObject(count));
    let config = read(&longer)?;
    let probe = format!("{}.weight", config.names.of_layer(index, "eh_proj"));
    load_with(source, config, &probe, None, |config, loader| build(config, index, target, loader))
}

fn build(
    config: &ModelConfig,
    index: usize,
    target: &Target<'_>,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let (place, hidden) = (LayerPlace { config, index }, config.hidden_size);
    let module = |name: &str| place.module(name);
    let mut norm = |name: &str| Norm::load(loader, &module(name), hidden, config.norm);
    let [enorm, hnorm] = [norm("enorm")?, norm("hnorm")?];
    let norm = norm("shared_head.norm")?;
    let eh_proj = [Part::new(module("eh_proj"), hidden)];
    let mut rotary = RotaryTables::new(config, loader.device());
    let head = Mtp {
        embed_tokens: target.embedding(loader, &module("embed_tokens"))?,
        enorm,
        hnorm,
        eh_proj: Linear::load(loader, &eh_proj, 2 * hidden, false)?,
        layer: DecoderLayer::load(loader, place, &mut rotary)?,
        norm,
        output: target.output(loader, &module("shared_head.head"), config.vocab_size)?,
    };
    Ok(Loaded {
        input: HeadInput::Last,
        max_model_len: config.max_model_len,
        max_guesses: UNLIMITED,
        kv_layers: kv_layers(&config.layers[index..]),
        // The layer's number in the model is the first layer of the head's cache.
        places: vec![KvPlace::default(); config.first_kv_layer(index) + 1],
        layers: Box::new(head),
    })
}
