//! The MLP speculator: for each guess a small network over the last state and the last token.
//!
//! | tensor of `speculator.` | shape, for guess `i` |
//! |---|---|
//! | `emb.{i}.weight` | `[vocab, inner]` |
//! | `proj.{i}.weight` | `[inner, emb_dim]` for the first guess, `[inner, inner]` after it |
//! | `ln.{i}.weight`, `ln.{i}.bias` | `[inner]` |
//! | `head.{i}.weight` | `[vocab, inner]` |
//!
//! With `s = 0.5^(0.5 / n_predict)` and `a = √((1 - s²) · inner / 2) / s`, the state of a guess is
//! `gelu(ln(proj(state before) + a · emb(token before)))`. `ln(x)` is `x / rms(x) · weight + bias`.
//! With `scale_input`, the first state before is `h / rms(h) / √2`. With `tie_weights`, all guesses
//! share the tensors of the first one, apart from `proj`, of which those after the first share the
//! second. The format is that of IBM's `MLPSpeculatorPreTrainedModel`, as vLLM reads it. The source
//! is knowledge of the format: neither was at hand.

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::{Activation, WeightVector, activate, add, rms_norm, scale, select_rows};

use super::parts::{HeadLayers, Target, refused, size, stored_dtype};
use super::{HeadInput, HeadRows, Loaded};
use crate::model::layers::{Embedding, Linear, Part};
use crate::model::source::Expected;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, KvLayers, ModelError, ModelSource, Positions, Step};
use crate::weights::{Checkpoint, StoredDtype};

const ARCHITECTURE: &str = "MLPSpeculatorPreTrainedModel";
/// The number added to a mean square.
const EPS: f32 = 1e-6;
/// Most guesses of a checkpoint.
const PREDICTIONS_MAX: usize = 128;

/// Each list has a part for each guess, or fewer if the later guesses share the last one.
struct MlpSpeculator {
    embed_tokens: Vec<Embedding>,
    proj: Vec<Linear>,
    norms: Vec<BiasedNorm>,
    heads: Vec<Linear>,
    /// Ones, if the first hidden state is normalised.
    input_norm: Option<WeightVector>,
    /// `a`.
    token_weight: f32,
}

/// `x / rms(x) · weight + bias`.
struct BiasedNorm {
    weight: WeightVector,
    /// `[1, inner]`
    bias: Tensor<2>,
}

/// The settings in `config.json`.
#[derive(Clone, Copy)]
struct Settings {
    emb_dim: usize,
    inner_dim: usize,
    n_predict: usize,
    vocab_size: usize,
    is_tied: bool,
    scales_input: bool,
}

impl HeadLayers for MlpSpeculator {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        _positions: Positions<'_>,
        _step: &mut Step<'_>,
    ) -> Tensor<2> {
        let HeadRows { num_guesses, token_ids, states } = rows;
        let states = match (&self.input_norm, num_guesses) {
            (Some(ones), 0) => scale(rms_norm(states, ones, EPS), std::f32::consts::FRAC_1_SQRT_2),
            _ => states,
        };
        let tokens = of(&self.embed_tokens, num_guesses).forward(token_ids, Adapters::none());
        let mixed = of(&self.proj, num_guesses).forward(states, Adapters::none());
        let mixed = add(mixed, scale(tokens, self.token_weight));
        let BiasedNorm { weight, bias } = of(&self.norms, num_guesses);
        activate(rms_norm(mixed, weight, EPS).add(bias.clone()), Activation::Gelu)
    }

    fn logits(&self, num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        let states = select_rows(states, rows);
        of(&self.heads, num_guesses).forward(states, Adapters::none())
    }

    fn mapped_bytes(&self) -> u64 {
        self.proj.iter().chain(&self.heads).map(Linear::mapped_bytes).sum()
    }
}

/// Returns the part of a guess.
fn of<T>(parts: &[T], num_guesses: usize) -> &T {
    &parts[num_guesses.min(parts.len() - 1)]
}

/// Loads the head of `source`.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let settings = settings(source)?;
    target.require(source, settings.emb_dim, settings.vocab_size)?;
    let expected = Expected {
        quantization: None,
        dummy: StoredDtype::Bf16,
        base: "",
        renamed: None,
        task_adapters: None,
        merged: None,
    };
    let check = |checkpoint: &Checkpoint| {
        Ok(((), stored_dtype(None, checkpoint, "speculator.head.0.weight")?))
    };
    let max_model_len = target.model.max_model_len;
    source.load_checkpoint(expected, check, |(), loader| build(settings, max_model_len, loader))
}

fn settings(source: &ModelSource<'_>) -> Result<Settings, ModelError> {
    let fields = source.config.fields();
    let listed = fields.value("architectures").and_then(|listed| listed.as_array());
    if !listed.is_some_and(|listed| listed.iter().any(|name| name == ARCHITECTURE)) {
        return Err(fields.invalid("architectures", &format!("[\"{ARCHITECTURE}\"]")).into());
    }
    let emb_dim = fields.required_size("emb_dim")?;
    let n_predict = fields.required_size("n_predict")?;
    if n_predict > PREDICTIONS_MAX {
        return Err(refused(source, format!("n_predict is {n_predict}; at most 128 is supported")));
    }
    Ok(Settings {
        emb_dim,
        // 0 and null stand for the width of hidden states.
        inner_dim: match fields.count("inner_dim")? {
            None | Some(0) => emb_dim,
            Some(inner_dim) => inner_dim,
        },
        n_predict,
        vocab_size: size(source, "vocab_size")?.unwrap_or(32_000),
        is_tied: fields.flag("tie_weights")?.unwrap_or(false),
        scales_input: fields.flag("scale_input")?.unwrap_or(false),
    })
}

fn build(
    settings: Settings,
    max_model_len: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let Settings { emb_dim, inner_dim, n_predict, .. } = settings;
    let state_weight = 0.5_f64.powf(0.5 / n_predict as f64);
    let variance = (1.0 - state_weight * state_weight) * inner_dim as f64 / 2.0;
    let ones = || loader.on_device("the norm of hidden states", vec![1.0; emb_dim]);
    let input_norm = settings.scales_input.then(ones).transpose()?;
    let count = if settings.is_tied { 1 } else { n_predict };
    let num_proj = if settings.is_tied { n_predict.min(2) } else { n_predict };
    let head = MlpSpeculator {
        embed_tokens: each(count, |index| {
            let module = module("emb", index);
            Embedding::load(loader, &module, settings.vocab_size, inner_dim)
        })?,
        proj: each(num_proj, |index| {
            let inputs = if index == 0 { emb_dim } else { inner_dim };
            Linear::load(loader, &[Part::new(module("proj", index), inner_dim)], inputs, false)
        })?,
        norms: each(count, |index| norm(&module("ln", index), inner_dim, loader))?,
        heads: each(count, |index| {
            let part = [Part::new(module("head", index), settings.vocab_size)];
            Linear::load(loader, &part, inner_dim, false)
        })?,
        input_norm,
        token_weight: (variance.sqrt() / state_weight) as f32,
    };
    let kv_layers =
        KvLayers { windows: Vec::new(), num_kv_heads: 0, head_dim: 0, value_prefix: None };
    Ok(Loaded {
        input: HeadInput::Last,
        max_model_len,
        max_guesses: n_predict,
        kv_layers,
        places: Vec::new(),
        layers: Box::new(head),
    })
}

/// Returns the parts of `count` guesses.
fn each<T>(
    count: usize,
    load: impl FnMut(usize) -> Result<T, ModelError>,
) -> Result<Vec<T>, ModelError> {
    (0..count).map(load).collect()
}

fn module(part: &str, index: usize) -> String {
    format!("speculator.{part}.{index}")
}

fn norm(
    module: &str,
    size: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<BiasedNorm, ModelError> {
    let bias = loader.values(&format!("{module}.bias"), &[size])?;
    let bias = Tensor::from_data(TensorData::new(bias, [1, size]), loader.device());
    Ok(BiasedNorm { weight: loader.vector(&format!("{module}.weight"), size)?, bias })
}
