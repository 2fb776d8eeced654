//! The image towers of models of two towers: one vector of an image. That of CLIP is a product with
//! the state of the class token. That of SigLIP is attention of a learned vector to all patches,
//! and an MLP (HF `CLIPModel.visual_projection`, `SiglipMultiheadAttentionPoolingHead`).
//!
//! | tensor | shape |
//! |---|---|
//! | states of an image | `[1, hidden_size]` in CLIP, `[patches, hidden_size]` in SigLIP |
//! | embeddings | `[images, width]`, whose first elements are the vector |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, LinearWeight, WeightVector, WeightView, activate,
    add, encoder_attention, linear, profile::timed, select_rows,
};

use super::VisionFamily;
use super::batch::{rows, sequences};
use super::encoder::Tower;
use super::llava;
use super::pixels::Pixels;
use super::projector::{ProjectorConfig, ProjectorNorm};
use super::vit::{Patches, VitConfig, VitTower};
use crate::model::config::{ConfigError, Fields};
use crate::model::layers::{Linear, Norm, Part};
use crate::model::two_towers::TwoTowers;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const HEAD: &str = "vision_model.head";

/// The shape of an image tower with its head.
#[derive(Debug, Clone)]
pub(super) struct PooledConfig {
    pub(super) vit: VitConfig,
    head: HeadKind,
    /// The widths of vectors, and of the rows that hold them.
    towers: TwoTowers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadKind {
    /// A product with the only state.
    Projection,
    /// Attention of a learned vector.
    Attention,
}

impl PooledConfig {
    /// Reads the tower of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        vision: &Fields,
        towers: TwoTowers,
    ) -> Result<Self, ConfigError> {
        const CHANNELS: &str = "num_channels";
        const USES_HEAD: &str = "vision_use_head";
        if vision.size(CHANNELS)?.is_some_and(|count| count != 3) {
            return Err(vision.invalid(CHANNELS, "3"));
        }
        let vit = llava::vit(outer, vision, 1, family)?;
        let head = match family {
            VisionFamily::SiglipModel => HeadKind::Attention,
            _ => HeadKind::Projection,
        };
        if head == HeadKind::Attention {
            if !vision.flag_or(USES_HEAD, true)? {
                let expected = "true: without its head, an image has no vector";
                return Err(vision.invalid(USES_HEAD, expected));
            }
            if vit.block.hidden_size != towers.outputs {
                let expected = format!("{}, the width of the vectors of texts", towers.outputs);
                return Err(vision.invalid("hidden_size", &expected));
            }
        }
        Ok(Self { vit, head, towers })
    }
}

/// Returns no projector: the head follows the tower.
pub(super) fn no_projector(outputs: usize) -> ProjectorConfig {
    ProjectorConfig {
        layers: &[],
        inner: None,
        is_gated: false,
        activation: Activation::Gelu,
        has_bias: false,
        merge: 1,
        averages: false,
        norm: ProjectorNorm::None,
        merging: None,
        last_norm: None,
        outputs,
    }
}

/// An image tower with its head.
#[derive(Debug)]
pub(super) struct PooledTower {
    vit: VitTower,
    head: Head,
    towers: TwoTowers,
}

#[derive(Debug)]
enum Head {
    Projection(Box<Linear>),
    Attention(Box<AttentionHead>),
}

/// HF `SiglipMultiheadAttentionPoolingHead`.
#[derive(Debug)]
struct AttentionHead {
    /// The learned vector.
    probe: Vec<f32>,
    /// The projections to queries, keys and values, one below the other.
    in_proj: LinearWeight,
    in_bias: WeightVector,
    params: AttentionParams,
    out: Linear,
    norm: Norm,
    inner: Linear,
    activation: Activation,
    down: Linear,
    device: Device,
}

impl PooledTower {
    /// Loads the tower and its head.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &PooledConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let PooledConfig { ref vit, head, towers } = *config;
        let hidden_size = vit.block.hidden_size;
        let head = match head {
            HeadKind::Projection => {
                let part = [Part::new("visual_projection".to_owned(), towers.outputs)];
                let projection = Linear::of_media(loader, &part, hidden_size, false)?;
                Head::Projection(Box::new(projection))
            }
            HeadKind::Attention => Head::Attention(Box::new(AttentionHead::load(loader, vit)?)),
        };
        Ok(Self { vit: llava::load_vit(loader, vit, pixels)?, head, towers })
    }
}

impl Tower for PooledTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        self.vit.prepare(item)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.count()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let counts: Vec<usize> = items.iter().map(Patches::count).collect();
        let states = self.vit.run(items)?.into_iter().map(|output| output.embeddings);
        let states = Tensor::cat(states.collect(), 0);
        let vectors = timed("head", || match &self.head {
            Head::Projection(projection) => projection.forward(states, Adapters::none()),
            Head::Attention(head) => head.forward(states, counts.iter().sum()),
        });
        let (all, mut first) = (self.towers.widened(vectors), 0);
        let of_item = |count: usize| {
            let (from, to) = (first, first + count);
            first = to;
            let embeddings = all.clone().slice([from..to, 0..self.towers.width()]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(counts.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let head = match &self.head {
            Head::Projection(projection) => projection.mapped_bytes(),
            Head::Attention(head) => {
                [&head.out, &head.inner, &head.down].map(Linear::mapped_bytes).iter().sum()
            }
        };
        self.vit.mapped_bytes() + head
    }
}

impl AttentionHead {
    /// Returns the vectors of `images` images, whose states are `[images · patches, hidden_size]`.
    fn forward(&self, states: Tensor<2>, images: usize) -> Tensor<2> {
        let [count, width] = states.dims();
        let patches = count / images.max(1);
        let projected = |x: Tensor<2>| linear(x, &self.in_proj, Some(&self.in_bias));
        let probe = projected(rows(self.probe.clone(), width, &self.device));
        // Each patch asks the same, and the first answer of an image is read.
        let q = select_rows(probe.slice([0..1, 0..width]), &vec![0; count]);
        let all = projected(states);
        let k = all.clone().slice([0..count, width..2 * width]);
        let v = all.slice([0..count, 2 * width..3 * width]);
        let sequences = sequences(std::iter::repeat_n(patches, images));
        let num_heads = self.params.num_heads;
        let attended = encoder_attention(q, k, v, num_heads, &sequences, &self.params);
        let firsts: Vec<u32> = (0..images).map(|image| (image * patches) as u32).collect();
        let none = Adapters::none();
        let attended = self.out.forward(select_rows(attended, &firsts), none);
        let inner = self.inner.forward(self.norm.forward(attended.clone()), none);
        add(attended, self.down.forward(activate(inner, self.activation), none))
    }

    fn load(loader: &mut WeightLoader<'_>, vit: &VitConfig) -> Result<Self, ModelError> {
        let block = &vit.block;
        let (hidden, inner) = (block.hidden_size, block.intermediate_size);
        let full = |name: &str| format!("{HEAD}.{name}");
        let part = |name: &str, outputs: usize| [Part::new(full(name), outputs)];
        let name = full("attention.in_proj_weight");
        let in_proj = loader.packed(&name, [3 * hidden, hidden], |loader| {
            let values = loader.values(&name, &[3 * hidden, hidden])?;
            let view = [WeightView::F32(&values)];
            let packed = LinearWeight::pack(&view, hidden, loader.dtype(), loader.device());
            Ok(packed.map_err(refused(&name))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(block.num_heads, (block.head_dim() as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(&full("attention")))?;
        Ok(Self {
            probe: loader.values(&full("probe"), &[1, 1, hidden])?,
            in_proj,
            in_bias: loader.vector(&full("attention.in_proj_bias"), 3 * hidden)?,
            params,
            out: Linear::of_media(loader, &part("attention.out_proj", hidden), hidden, true)?,
            norm: Norm::load(loader, &full("layernorm"), hidden, block.norm)?,
            inner: Linear::of_media(loader, &part("mlp.fc1", inner), hidden, true)?,
            activation: block.activation,
            down: Linear::of_media(loader, &part("mlp.fc2", hidden), inner, true)?,
            device: loader.device().clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    fn read(family: VisionFamily, vision: Value) -> Result<PooledConfig, String> {
        let outer = fields(json!({ "text_config": {}, "vision_config": vision }));
        let towers = TwoTowers::read(family, &outer, 768).unwrap().unwrap();
        let vision = outer.nested("vision_config").unwrap().unwrap();
        let read = PooledConfig::read(family, &outer, &vision, towers);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn towers_have_the_defaults_of_their_classes() {
        let clip = read(VisionFamily::ClipModel, json!({})).unwrap();
        assert_eq!((clip.vit.num_embeds(), clip.towers.outputs), (1, 512));
        assert_eq!((clip.vit.patch.side, clip.vit.image_size), (32, 224));
        let siglip = read(VisionFamily::SiglipModel, json!({})).unwrap();
        assert_eq!((siglip.vit.num_embeds(), siglip.towers.outputs), (196, 768));
        assert_eq!(siglip.head, HeadKind::Attention);
    }

    #[test]
    fn towers_without_a_vector_are_refused_by_their_field() {
        for (field, value) in [
            ("vision_use_head", json!(false)),
            ("num_channels", json!(1)),
            ("hidden_size", json!(384)),
            ("num_attention_heads", json!(7)),
        ] {
            let why = read(VisionFamily::SiglipModel, json!({ field: value })).unwrap_err();
            assert!(why.contains(&format!("vision_config.{field}")), "{why}");
        }
    }
}
