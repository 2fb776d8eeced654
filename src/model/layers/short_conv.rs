//! Gated convolutions over a few tokens: HF `Lfm2ShortConv`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMetadata, CausalConv, EmbeddingTable, GatedNorm, WeightDtype, WeightView,
    add, causal_conv, embedding, gated_norm, profile::timed, select_rows,
};

use super::mamba2::Convolution;
use super::{LayerPlace, Linear, Part};
use crate::model::config::ShortConvConfig;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

pub(in crate::model) const CONV: &str = "conv.conv";
pub(in crate::model) const IN: &str = "conv.in_proj";
pub(in crate::model) const OUT: &str = "conv.out_proj";

/// The product of each element with that of another tensor.
const PRODUCT: GatedNorm = GatedNorm {
    norm: None,
    norm_before_gate: false,
    activation: Activation::Identity,
    gate_scale: 1.0,
};

/// `out(C · conv(B · x))`, where one projection gives B, C and x.
#[derive(Debug)]
pub(in crate::model) struct ShortConv {
    input: Linear,
    /// B, then C.
    gates: Linear,
    channels: usize,
    conv: Conv,
    out: Linear,
}

/// The convolution.
#[derive(Debug)]
enum Conv {
    /// Over a token and those before it. The layer `kv_layer` of the KV cache holds its windows.
    Causal { conv: CausalConv, kv_layer: usize },
    /// Over the tokens around each one: `Lfm2BidirectionalModel`.
    Centered(CenteredConv),
}

impl ShortConv {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the windows of the step's sequences
    /// over these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (gates, x) = timed("qkv", || {
            (self.gates.forward(x.clone(), adapters), self.input.forward(x, adapters))
        });
        let x = gated_norm(x, gates.clone(), 0, &PRODUCT);
        let y = timed("conv", || match &self.conv {
            Conv::Causal { conv, kv_layer } => {
                let (meta, kv) = step.layer(*kv_layer);
                causal_conv(x, 0, conv, kv, meta)
            }
            Conv::Centered(conv) => conv.forward(&x, step.batch()),
        });
        let y = gated_norm(y, gates, self.channels, &PRODUCT);
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        [&self.input, &self.gates, &self.out].iter().map(|linear| linear.mapped_bytes()).sum()
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &ShortConvConfig,
    ) -> Result<Self, ModelError> {
        let ShortConvConfig { channels, kernel, bias, is_causal } = *config;
        let hidden = place.config.hidden_size;
        let [gates, input] = parts(place, channels).map(|part| [part]);
        let out = [Part::new(place.module(OUT), hidden)];
        let module = place.module(CONV);
        let conv = match is_causal {
            true => {
                let conv = Convolution { module, kernel, has_bias: bias, activation: None };
                let conv = conv.load(loader, &vec![1.0; channels])?;
                Conv::Causal { conv, kv_layer: place.kv_layer() }
            }
            false => Conv::Centered(CenteredConv::load(loader, &module, config)?),
        };
        Ok(Self {
            input: Linear::load(loader, &input, hidden, bias)?,
            gates: Linear::load(loader, &gates, hidden, bias)?,
            channels,
            conv,
            out: Linear::load(loader, &out, channels, bias)?,
        })
    }
}

/// `y[t] = bias + Σ_j weight[j] · x[t - kernel / 2 + j]` for each channel apart. Tokens outside of
/// the sequence are 0. The step has whole sequences.
#[derive(Debug)]
struct CenteredConv {
    /// The weights of each tap, the bias or zeros, and zeros: `[kernel + 2, channels]`.
    taps: EmbeddingTable,
    kernel: usize,
}

impl CenteredConv {
    /// Convolves x, `[num_tokens, channels]`.
    fn forward(&self, x: &Tensor<2>, meta: &AttentionMetadata) -> Tensor<2> {
        let (bias, zeros) = (self.kernel as u32, self.kernel as u32 + 1);
        let biases = embedding(&self.taps, &vec![bias; meta.num_tokens()]);
        (0..self.kernel).fold(biases, |sum, tap| {
            let neighbours = neighbours(&meta.query_start_loc, self.kernel / 2, tap);
            let rows: Vec<u32> = neighbours.iter().map(|(row, _)| *row).collect();
            let taps = neighbours.iter().map(|(_, is_inside)| match is_inside {
                true => tap as u32,
                false => zeros,
            });
            let weights = embedding(&self.taps, &taps.collect::<Vec<u32>>());
            add(sum, gated_norm(select_rows(x.clone(), &rows), weights, 0, &PRODUCT))
        })
    }

    /// Loads `{module}.weight`, `[channels, 1, kernel]`, and `{module}.bias`.
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &ShortConvConfig,
    ) -> Result<Self, ModelError> {
        let ShortConvConfig { channels, kernel, bias, .. } = *config;
        let weight = loader.values(&format!("{module}.weight"), &[channels, 1, kernel])?;
        let tap = |tap: usize| weight.iter().skip(tap).step_by(kernel).copied();
        let mut taps: Vec<f32> = (0..kernel).flat_map(tap).collect();
        match bias {
            true => taps.extend(loader.values(&format!("{module}.bias"), &[channels])?),
            false => taps.resize(taps.len() + channels, 0.0),
        }
        taps.resize(taps.len() + channels, 0.0);
        let (view, rows) = (WeightView::F32(&taps), kernel + 2);
        let taps = EmbeddingTable::new(view, rows, channels, WeightDtype::F32, loader.device())
            .map_err(refused(module))?;
        Ok(Self { taps, kernel })
    }
}

/// Returns for each token the row of the one `tap - before` tokens behind it, and whether that
/// belongs to its sequence. A token without one has its own row. Sequence `s` has the rows from
/// `starts[s]` to `starts[s + 1]`.
fn neighbours(starts: &[u32], before: usize, tap: usize) -> Vec<(u32, bool)> {
    let of_token = |row: u32, start: u32, end: u32| {
        let place = (i64::from(row) + tap as i64).checked_sub(before as i64);
        let place = place.and_then(|place| u32::try_from(place).ok());
        match place.filter(|place| (start..end).contains(place)) {
            Some(place) => (place, true),
            None => (row, false),
        }
    };
    let sequences = starts.windows(2).map(|bounds| (bounds[0], bounds[1]));
    let rows = sequences.flat_map(|(start, end)| (start..end).map(move |row| (row, start, end)));
    rows.map(|(row, start, end)| of_token(row, start, end)).collect()
}

/// Returns the rows of the gates, and those of the input, which are in one module.
pub(super) fn parts(place: LayerPlace<'_>, channels: usize) -> [Part; 2] {
    let split = 2 * channels as u32;
    let part = |rows| Part::some_rows(place.module(IN), rows, 3 * channels);
    [0..split, split..split + channels as u32].map(part)
}

#[cfg(test)]
mod tests {
    use super::neighbours;

    /// A sequence of three tokens, and one of two.
    #[test]
    fn neighbours_are_of_the_same_sequence() {
        let starts = [0, 3, 5];
        let before = [(0, false), (0, true), (1, true), (3, false), (3, true)];
        let after = [(1, true), (2, true), (2, false), (4, true), (4, false)];
        assert_eq!(neighbours(&starts, 1, 0), before);
        assert_eq!(neighbours(&starts, 1, 2), after);
        assert!(neighbours(&starts, 1, 1).iter().zip(0..).all(|(it, row)| *it == (row, true)));
        assert!(neighbours(&starts, 9, 0).iter().all(|(_, is_inside)| !is_inside));
    }
}
