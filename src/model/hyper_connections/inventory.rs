//! The tensors beside those of other decoders.

use super::layer::{AROUND_MIXER, AROUND_MLP};
use super::streams::{DOWN, INJECT, NORM, UP};
use super::{LAST, hash, ngrams, table};
use crate::model::config::{HyperConfig, ModelConfig};

/// A table in the embeddings of n-grams, and the first part of the names of their statistics.
const TOKEN_LOOKUP: &str = "token_lookup";
const STATISTICS: &str = "hashstats_";

/// Tensors with their shapes.
type Shapes = Vec<(String, Vec<usize>)>;

/// Returns the tensors outside of layers.
pub(in crate::model) fn outside(config: &ModelConfig, streams: HyperConfig) -> Shapes {
    mixed(config, streams, &config.names.stored(LAST))
}

/// Returns the tensors of layer `index`.
pub(in crate::model) fn of_layer(
    config: &ModelConfig,
    index: usize,
    streams: HyperConfig,
) -> Shapes {
    let (names, hidden, size) =
        (&config.names, config.hidden_size, streams.count * config.hidden_size);
    let mut tensors = Vec::new();
    for module in [AROUND_MIXER, AROUND_MLP] {
        let module = names.of_layer(index, module);
        tensors.extend(mixed(config, streams, &module));
        tensors.push((format!("{module}.{INJECT}.weight"), vec![streams.count, size]));
    }
    let Some(own) = ngrams::of(&config.layers[index]) else { return tensors };
    let mut weight =
        |module: String, shape: Vec<usize>| tensors.push((format!("{module}.weight"), shape));
    for norm in [ngrams::NORM_KEY, ngrams::NORM_QUERY, ngrams::NORM_CONV] {
        weight(names.of_layer(index, norm), vec![size]);
    }
    weight(names.of_layer(index, ngrams::KEY), vec![size, own.width]);
    weight(names.of_layer(index, ngrams::VALUE), vec![hidden, own.width]);
    weight(names.of_layer(index, ngrams::CONV), vec![size, 1, own.kernel]);
    let module = names.of_layer(index, ngrams::EMBEDDING);
    for (part, rows) in own.parts().into_iter().enumerate() {
        weight(table::part(&module, part), vec![rows, own.head_width()]);
    }
    tensors
}

/// Returns the names of the tensors that a checkpoint may have. The numbers of hashes are read. The
/// others change no result, and vLLM skips them, too: a table of tokens in the same modules, and a
/// weight of the last sum of the streams.
pub(in crate::model) fn optional(config: &ModelConfig) -> Vec<String> {
    if config.hyper_connections.is_none() {
        return Vec::new();
    }
    let has_ngrams = |index: &usize| ngrams::of(&config.layers[*index]).is_some();
    let of_layer = |index: usize| {
        let module = config.names.of_layer(index, ngrams::EMBEDDING);
        let tensors = [hash::MULTIPLIERS, hash::VOCAB_SIZES, hash::OFFSETS, TOKEN_LOOKUP];
        tensors.map(|tensor| format!("{module}.{tensor}"))
    };
    let last = format!("{}.{INJECT}.weight", config.names.stored(LAST));
    (0..config.layers.len()).filter(has_ngrams).flat_map(of_layer).chain([last]).collect()
}

/// Returns whether a tensor has statistics of hashes, by the last part of its name. They are not
/// read, as in vLLM.
pub(in crate::model) fn is_statistic(config: &ModelConfig, part: &str) -> bool {
    config.hyper_connections.is_some() && part.starts_with(STATISTICS)
}

/// Returns the tensors of a weighted mean of the streams.
fn mixed(config: &ModelConfig, HyperConfig { count, rank }: HyperConfig, module: &str) -> Shapes {
    let size = count * config.hidden_size;
    let weight = |(name, shape): (&str, Vec<usize>)| (format!("{module}.{name}.weight"), shape);
    let tensors = [(NORM, vec![size]), (DOWN, vec![rank, size]), (UP, vec![size, rank])];
    tensors.map(weight).into()
}
