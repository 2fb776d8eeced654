//! The image encoder of SAM (HF `SamVisionEncoder`, <https://arxiv.org/abs/2304.02643>), as readers
//! of documents have it (vLLM's `ImageEncoderViT`). Two more convolutions are behind it.
//!
//! | tensor | shape |
//! |---|---|
//! | patches | `[images · side², 3 · patch_size²]` |
//! | hidden states | `[images · side², hidden_size]` |
//! | features | `[images · (side / 4)², channels]`, the quotient rounded up |
//!
//! Most layers attend within windows, the others within images. Pixels beside an image have states,
//! too, where its windows reach beyond it.

use std::ops::RangeInclusive;

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{Activation, activate, add, profile::timed, select_rows};

use super::batch::rows;
use super::bicubic;
use super::pixels::PatchSize;
use super::sam_attention::{Relative, SamAttention};
use crate::model::config::NormConfig;
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The norms of the neck.
pub(super) const NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-6 };
/// Elements on a side of a convolution's kernel.
const KERNEL: usize = 3;
/// Patches between two results of the convolutions behind the neck.
const STEP: usize = 2;
/// The patches on a side of a window that a config may ask for. The windows of an image may be
/// wider than the image, and take memory for all of their places.
pub(super) const WINDOWS: RangeInclusive<usize> = 2..=128;

/// The names of the modules in a checkpoint.
#[derive(Debug)]
pub(super) struct SamNames {
    pub(super) patches: &'static str,
    pub(super) layer: &'static str,
    pub(super) norms: [&'static str; 2],
    /// A layer and its norm, twice.
    pub(super) neck: [&'static str; 4],
}

/// The shape of an encoder.
#[derive(Debug, Clone)]
pub(super) struct SamConfig {
    pub(super) names: &'static SamNames,
    pub(super) hidden_size: usize,
    pub(super) mlp_size: usize,
    pub(super) num_layers: usize,
    pub(super) num_heads: usize,
    pub(super) qkv_bias: bool,
    /// The norms of the layers.
    pub(super) norm: NormConfig,
    pub(super) activation: Activation,
    pub(super) patch: PatchSize,
    /// Places on a side of the grid of learned positions.
    pub(super) positions_side: usize,
    /// Patches on a side of a window.
    pub(super) window: usize,
    /// The layers that attend within images.
    pub(super) global_layers: Vec<usize>,
    /// The outputs of the neck, and of the two convolutions behind it.
    pub(super) channels: [usize; 3],
}

/// Returns the features on a side of an image with `side` patches on a side.
pub(super) fn features_on_side(side: usize) -> usize {
    side.div_ceil(STEP).div_ceil(STEP)
}

/// An encoder for images of some sizes.
#[derive(Debug)]
pub(super) struct Sam {
    patch_embed: Linear,
    /// The learned positions for each size, `[side², hidden_size]`.
    positions: Vec<Vec<f32>>,
    /// Patches on a side, for each size.
    sides: Vec<usize>,
    blocks: Vec<SamBlock>,
    neck: (Linear, Norm),
    /// The second layer of the neck, and the two behind it.
    convs: [Conv; 3],
    last_norm: Norm,
    window: usize,
    device: Device,
}

impl Sam {
    /// Loads the encoder `module`, and the convolutions `behind` it, for images with `sides`
    /// patches on a side.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        behind: [&str; 2],
        sides: &[usize],
        config: &SamConfig,
    ) -> Result<Self, ModelError> {
        let SamConfig { names, hidden_size, patch, positions_side: side, .. } = *config;
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden_size, 3, patch.side, patch.side];
        let table = loader.values(&full("pos_embed"), &[1, side, side, hidden_size])?;
        let resized = |size: &usize| bicubic::resized(&table, side, *size, hidden_size);
        let [neck, outer, inner] = config.channels;
        let [first, first_norm, second, second_norm] = names.neck.map(full);
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full(names.patches), &shape, true)?,
            positions: sides.iter().map(resized).collect(),
            sides: sides.to_vec(),
            blocks: (0..config.num_layers)
                .map(|index| SamBlock::load(loader, module, index, sides, config))
                .collect::<Result<_, _>>()?,
            neck: {
                let shape = [neck, hidden_size, 1, 1];
                let conv = Linear::of_patches(loader, &first, &shape, false)?;
                (conv, Norm::load(loader, &first_norm, neck, NORM)?)
            },
            convs: [
                Conv::load(loader, &second, [neck, neck], 1)?,
                Conv::load(loader, behind[0], [outer, neck], STEP)?,
                Conv::load(loader, behind[1], [inner, outer], STEP)?,
            ],
            last_norm: Norm::load(loader, &second_norm, neck, NORM)?,
            window: config.window,
            device: loader.device().clone(),
        })
    }

    /// Returns the features of the images whose `patches` these are. All have the size with the
    /// index `size`.
    pub(super) fn forward(&self, patches: Tensor<2>, size: usize) -> Tensor<2> {
        let (side, positions) = (self.sides[size], &self.positions[size]);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let [count, width] = hidden.dims();
        let images = count / (side * side);
        let mut hidden = add(hidden, rows(positions.repeat(images), width, &self.device));
        let windows = Windows::new(images, side, self.window);
        let mut residual = None;
        for block in &self.blocks {
            let (output, stream) = block.forward(hidden, residual, size, &windows);
            (hidden, residual) = (output, Some(stream));
        }
        let hidden = super::block::sum(hidden, residual);
        timed("neck", || {
            let (conv, norm) = &self.neck;
            let [second, outer, inner] = &self.convs;
            let x = norm.forward(conv.forward(hidden, Adapters::none()));
            let x = self.last_norm.forward(second.forward(x, images, side));
            let x = outer.forward(x, images, side);
            inner.forward(x, images, side.div_ceil(STEP))
        })
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let convs = self.convs.iter().map(|conv| conv.linear.mapped_bytes()).sum::<u64>();
        let blocks = self.blocks.iter().map(SamBlock::mapped_bytes).sum::<u64>();
        self.patch_embed.mapped_bytes() + self.neck.0.mapped_bytes() + convs + blocks
    }
}

/// The rows of windows.
#[derive(Debug)]
struct Windows {
    /// For each place of all windows the row of its patch. Places outside of an image have the row
    /// behind all patches.
    inside: Vec<u32>,
    /// For each patch its place.
    places: Vec<u32>,
}

impl Windows {
    /// Returns the windows of `images` images of `side²` patches.
    fn new(images: usize, side: usize, window: usize) -> Self {
        let on_side = side.div_ceil(window);
        let (area, outside) = (side * side, (images * side * side) as u32);
        let mut inside = vec![outside; images * (on_side * window).pow(2)];
        let mut places = Vec::with_capacity(images * area);
        for image in 0..images {
            for row in 0..side {
                for column in 0..side {
                    let of_image = row / window * on_side + column / window;
                    let within = row % window * window + column % window;
                    let place = (image * on_side * on_side + of_image) * window * window + within;
                    inside[place] = places.len() as u32;
                    places.push(place as u32);
                }
            }
        }
        Self { inside, places }
    }
}

/// One layer: HF `SamVisionLayer`.
#[derive(Debug)]
struct SamBlock {
    attention_norm: Norm,
    qkv: Linear,
    attention: SamAttention,
    /// The biases of a window alone, or those of each size of images.
    biases: Vec<Relative>,
    is_global: bool,
    o: Linear,
    mlp_norm: Norm,
    inner: Linear,
    activation: Activation,
    down: Linear,
}

impl SamBlock {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        index: usize,
        sides: &[usize],
        config: &SamConfig,
    ) -> Result<Self, ModelError> {
        let SamConfig { names, hidden_size, mlp_size, num_heads, window, norm, .. } = *config;
        let full = |name: &str| format!("{module}.{}.{index}.{name}", names.layer);
        let part = |name: &str, outputs: usize| [Part::new(full(name), outputs)];
        let head_dim = hidden_size / num_heads;
        let is_global = config.global_layers.contains(&index);
        let of_window = [window];
        let (known, wanted) = match is_global {
            true => (config.positions_side, sides),
            false => (window, of_window.as_slice()),
        };
        let shape = [2 * known - 1, head_dim];
        let tables = [
            loader.values(&full("attn.rel_pos_h"), &shape)?,
            loader.values(&full("attn.rel_pos_w"), &shape)?,
        ];
        let biases = wanted.iter().map(|side| Relative::new(loader, &tables, head_dim, *side));
        let biases = biases.collect::<Result<_, _>>()?;
        let [first, second] = names.norms.map(full);
        Ok(Self {
            attention_norm: Norm::load(loader, &first, hidden_size, norm)?,
            qkv: {
                let parts = part("attn.qkv", 3 * hidden_size);
                Linear::of_media(loader, &parts, hidden_size, config.qkv_bias)?
            },
            attention: SamAttention::new(loader, &full("attn"), [num_heads, head_dim])?,
            biases,
            is_global,
            o: Linear::of_media(loader, &part("attn.proj", hidden_size), hidden_size, true)?,
            mlp_norm: Norm::load(loader, &second, hidden_size, norm)?,
            inner: Linear::of_media(loader, &part("mlp.lin1", mlp_size), hidden_size, true)?,
            activation: config.activation,
            down: Linear::of_media(loader, &part("mlp.lin2", hidden_size), mlp_size, true)?,
        })
    }

    /// Returns the layer's output and the residual stream. The next norm adds them.
    fn forward(
        &self,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        size: usize,
        windows: &Windows,
    ) -> (Tensor<2>, Tensor<2>) {
        let none = Adapters::none();
        let (x, stream) = self.attention_norm.add_forward(hidden, residual);
        let attend = |x: Tensor<2>, biases: &Relative| {
            let qkv = timed("qkv", || self.qkv.forward(x, none));
            timed("attention", || self.attention.forward(qkv, biases))
        };
        let attended = match self.is_global {
            true => attend(x, &self.biases[size]),
            false => {
                let [_, width] = x.dims();
                let outside = Tensor::zeros([1, width], &x.device());
                let x = select_rows(Tensor::cat(vec![x, outside], 0), &windows.inside);
                select_rows(attend(x, &self.biases[0]), &windows.places)
            }
        };
        let attended = timed("o", || self.o.forward(attended, none));
        let (x, stream) = self.mlp_norm.add_forward(attended, Some(stream));
        let inner = timed("up", || activate(self.inner.forward(x, none), self.activation));
        (timed("down", || self.down.forward(inner, none)), stream)
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = [&self.qkv, &self.o, &self.inner, &self.down];
        layers.into_iter().map(Linear::mapped_bytes).sum()
    }
}

/// A convolution of squares of nine patches around each patch, or around every second one.
#[derive(Debug)]
struct Conv {
    linear: Linear,
    step: usize,
}

impl Conv {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [outputs, inputs]: [usize; 2],
        step: usize,
    ) -> Result<Self, ModelError> {
        let linear = Linear::of_squares_alone(loader, module, [outputs, inputs, KERNEL])?;
        Ok(Self { linear, step })
    }

    /// Maps `[images · side², inputs]` to `[images · (side / step)², outputs]`, the quotient
    /// rounded up.
    fn forward(&self, x: Tensor<2>, images: usize, side: usize) -> Tensor<2> {
        let [count, width] = x.dims();
        let outside = Tensor::zeros([1, width], &x.device());
        let around = around(images, side, self.step);
        let results = around.len() / (KERNEL * KERNEL);
        let x = select_rows(Tensor::cat(vec![x, outside], 0), &around);
        debug_assert_eq!(count, images * side * side);
        self.linear.forward(x.reshape([results, KERNEL * KERNEL * width]), Adapters::none())
    }
}

/// Returns the rows of the patches around each result. Places outside of an image have the row
/// behind all patches.
fn around(images: usize, side: usize, step: usize) -> Vec<u32> {
    let outside = images * side * side;
    let on_side = side.div_ceil(step);
    let mut all = Vec::with_capacity(images * (on_side * KERNEL).pow(2));
    for image in 0..images {
        for result in 0..on_side * on_side {
            let [row, column] = [result / on_side * step, result % on_side * step];
            for at in 0..KERNEL * KERNEL {
                let place = |center: usize, tap: usize| {
                    (center + tap).checked_sub(1).filter(|place| *place < side)
                };
                let patch = place(row, at / KERNEL).zip(place(column, at % KERNEL));
                let found = patch.map(|(row, column)| (image * side + row) * side + column);
                all.push(found.unwrap_or(outside) as u32);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_reach_beyond_an_image() {
        let windows = Windows::new(1, 3, 2);
        assert_eq!(windows.inside, [0, 1, 3, 4, 2, 9, 5, 9, 6, 7, 9, 9, 8, 9, 9, 9]);
        assert_eq!(windows.places, [0, 1, 4, 2, 3, 6, 8, 9, 12]);
        let one = Windows::new(2, 1, 14);
        assert_eq!(one.places, [0, 196]);
    }

    #[test]
    fn a_kernel_has_places_outside() {
        assert_eq!(around(1, 2, 2), [4, 4, 4, 4, 0, 1, 4, 2, 3]);
        let second = around(2, 2, 1)[9 * 4..][..9].to_vec();
        assert_eq!(second, [8, 8, 8, 8, 4, 5, 8, 6, 7]);
        assert_eq!(around(1, 3, 2).len(), 4 * 9);
    }

    #[test]
    fn a_side_is_halved_twice() {
        assert_eq!([64, 40, 5, 3, 2].map(features_on_side), [16, 10, 2, 1, 1]);
    }
}
