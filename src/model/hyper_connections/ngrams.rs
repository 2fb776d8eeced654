//! The embeddings of n-grams in a layer: HF `Qwen4ExpTextPLELayer`.
//!
//! With the embeddings `e` of a token and `x` its streams, each after a norm where it says so:
//! `y[s] = σ(√(key(e)[s] · x[s] / √hidden)) · value(e)`, where the root has the sign of its number,
//! and the result is `y + silu(conv(norm(y)))`.
//!
//! The convolution has `size` tokens from tap to tap. It is computed as one without distances whose
//! other taps are zeros. The ids of the tokens before a step are in the state of the layer, too: a
//! convolution whose only tap is a one returns the id of an earlier token. Ids are exact in f32.

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::{
    Activation, CausalConv, activate, add, causal_conv, profile::timed, scale,
};

use super::hash::NgramHash;
use super::streams::StreamNorm;
use super::table::NgramTable;
use crate::model::config::{HyperConfig, LayerConfig, Mixer, NgramConfig, RecurrentConfig};
use crate::model::layers::{LayerPlace, Linear, Part, RowMean};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

/// The modules of a layer.
pub(super) const EMBEDDING: &str = "ple.ple_embedding";
pub(super) const KEY: &str = "ple.key_proj";
pub(super) const VALUE: &str = "ple.value_proj";
pub(super) const CONV: &str = "ple.conv1d";
pub(super) const NORM_KEY: &str = "ple.norm_key";
pub(super) const NORM_QUERY: &str = "ple.norm_query";
pub(super) const NORM_CONV: &str = "ple.norm_conv";

/// The least magnitude of a score, of which the root is taken.
const SCORE_MIN: f32 = 1e-6;

/// The embeddings of n-grams of one layer.
#[derive(Debug)]
pub(super) struct Ngrams {
    hash: NgramHash,
    table: NgramTable,
    /// Elements of a token's embeddings.
    width: usize,
    key: Linear,
    value: Linear,
    norm_key: StreamNorm,
    norm_query: StreamNorm,
    norm_conv: StreamNorm,
    mean: RowMean,
    /// Returns the ids of a token and of those before it, the newest first.
    history: CausalConv,
    conv: CausalConv,
    count: usize,
    hidden: usize,
    /// The layer of the KV cache that holds both windows.
    kv_layer: usize,
}

/// Returns the n-grams of a layer, if it has embeddings of them, and the place of their windows in
/// the state.
fn placed(layer: &LayerConfig) -> Option<(&NgramConfig, usize)> {
    match &layer.mixer {
        Mixer::Recurrent(RecurrentConfig::DeltaNet(rule)) => {
            rule.ngrams.as_ref().map(|ngrams| (ngrams, rule.ngrams_at()))
        }
        _ => None,
    }
}

/// Returns the n-grams of a layer, if it has embeddings of them.
pub(super) fn of(layer: &LayerConfig) -> Option<&NgramConfig> {
    placed(layer).map(|(ngrams, _)| ngrams)
}

/// Returns `hidden`, `[num_tokens, hidden_size]`, and behind it `size` columns with the number of
/// the token: its id plus one, as 0 stands for no token.
pub(super) fn beside(hidden: Tensor<2>, token_ids: &[u32], size: usize) -> Tensor<2> {
    let numbers = token_ids.iter().flat_map(|id| std::iter::repeat_n((id + 1) as f32, size));
    let data = TensorData::new(numbers.collect::<Vec<f32>>(), [token_ids.len(), size]);
    let numbers = Tensor::from_data(data, &hidden.device());
    Tensor::cat(vec![hidden, numbers], 1)
}

impl Ngrams {
    /// Loads those of the layer at `place`, if it has some.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        HyperConfig { count, .. }: HyperConfig,
    ) -> Result<Option<Self>, ModelError> {
        let Some((config, state_at)) = placed(place.layer()) else { return Ok(None) };
        let (model, hidden) = (place.config, place.config.hidden_size);
        let linear = |loader: &mut WeightLoader<'_>, name: &str, outputs| {
            let part = [Part::new(place.module(name), outputs)];
            Linear::load(loader, &part, config.width, false)
        };
        let norm = |loader: &mut WeightLoader<'_>, name: &str| {
            StreamNorm::load(loader, model, count, &place.module(name))
        };
        let embedding = place.module(EMBEDDING);
        Ok(Some(Self {
            hash: NgramHash::load(loader, &embedding, config)?,
            table: NgramTable::load(loader, &embedding, config)?,
            width: config.width,
            key: linear(loader, KEY, config.channels)?,
            value: linear(loader, VALUE, hidden)?,
            norm_key: norm(loader, NORM_KEY)?,
            norm_query: norm(loader, NORM_QUERY)?,
            norm_conv: norm(loader, NORM_CONV)?,
            mean: RowMean::new(loader, hidden)?,
            history: history(loader, config.size, state_at, &embedding)?,
            conv: convolution(loader, &place.module(CONV), config, state_at)?,
            count,
            hidden,
            kv_layer: place.kv_layer(),
        }))
    }

    /// Returns the numbers to add to `streams`, both `[num_tokens, count * hidden_size]`.
    /// `embedded` is the result of [`beside`]. Takes the windows of the step's sequences over these
    /// tokens.
    pub(super) fn forward(
        &self,
        streams: &Tensor<2>,
        embedded: &Tensor<2>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let [tokens, _] = streams.dims();
        let (meta, kv) = step.layer(self.kv_layer);
        let numbers = causal_conv(embedded.clone(), self.hidden, &self.history, kv, meta);
        let numbers: Vec<u32> = numbers.into_data().iter::<f32>().map(|it| it as u32).collect();
        let embeddings = timed("embedding", || self.table.of(&self.hash.rows(&numbers)));
        let embeddings = embeddings.reshape([tokens, self.width]);
        let keys = self.norm_key.forward(self.key.forward(embeddings.clone(), adapters));
        let value = self.value.forward(embeddings, adapters);
        let gates = self.gates(keys, streams);
        let gated = |index| value.clone().mul(gates.clone().narrow(1, index, 1));
        let gated = Tensor::cat((0..self.count).map(gated).collect(), 1);
        let normed = self.norm_conv.forward(gated.clone());
        let (meta, kv) = step.layer(self.kv_layer);
        let convolved = timed("conv", || causal_conv(normed, 0, &self.conv, kv, meta));
        add(gated, convolved)
    }

    /// Returns the gate of each stream, `[num_tokens, count]`.
    fn gates(&self, keys: Tensor<2>, streams: &Tensor<2>) -> Tensor<2> {
        let [tokens, _] = streams.dims();
        let products = keys.mul(self.norm_query.forward(streams.clone()));
        let products = products.reshape([tokens * self.count, self.hidden]);
        // The sum divided by the root of the width.
        let scores = scale(self.mean.of(products), (self.hidden as f32).sqrt());
        let roots = scores.clone().abs().clamp_min(SCORE_MIN).sqrt();
        let scores = roots.mul(scores.sign()).reshape([tokens, self.count]);
        activate(scores, Activation::Sigmoid)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.key.mapped_bytes() + self.value.mapped_bytes()
    }
}

/// Returns a convolution of `size` channels. Channel `c` is the number of the token `c` tokens
/// before.
fn history(
    loader: &WeightLoader<'_>,
    size: usize,
    state_at: usize,
    module: &str,
) -> Result<CausalConv, ModelError> {
    let tap = |(channel, tap): (usize, usize)| f32::from(u8::from(tap + channel + 1 == size));
    let taps = (0..size).flat_map(|channel| (0..size).map(move |tap| (channel, tap)));
    let weight: Vec<f32> = taps.map(tap).collect();
    CausalConv::new(&weight, None, size, None, state_at, loader.device()).map_err(refused(module))
}

/// Loads `{module}.weight`, `[channels, 1, kernel]`, whose taps are `size` tokens apart.
fn convolution(
    loader: &mut WeightLoader<'_>,
    module: &str,
    config: &NgramConfig,
    state_at: usize,
) -> Result<CausalConv, ModelError> {
    let NgramConfig { size, kernel, channels, .. } = *config;
    let reach = config.reach();
    let stored = loader.values(&format!("{module}.weight"), &[channels, 1, kernel])?;
    let mut weight = vec![0.0; channels * reach];
    for (taps, stored) in weight.chunks_exact_mut(reach).zip(stored.chunks_exact(kernel)) {
        taps.iter_mut().step_by(size).zip(stored).for_each(|(tap, stored)| *tap = *stored);
    }
    let state_at = state_at + config.history_len();
    CausalConv::new(&weight, None, reach, Some(Activation::Silu), state_at, loader.device())
        .map_err(refused(module))
}
