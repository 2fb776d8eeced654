//! One layer of the decoder: norms, a mixer, and a feed-forward part.

use burn::tensor::Tensor;
use playhouse_kernels::{add, recycle, scale};

use crate::model::config::{FeedForward, Mixer, NormedResidual};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{FeedForwardLayer, Interpolation, LayerPlace, MixerLayer, Norm};
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// HF `LlamaDecoderLayer`, and those of the other families.
///
/// | form | stream `x` after the layer |
/// |---|---|
/// | in turn | `x + r·after(attention(before(x)))`, then the same with the feed-forward part |
/// | post-norm | `after(x + attention(x))`, then the same with the feed-forward part |
/// | twice post-norm | `after(x + of(x + attention(x)))`, then `after(x + mlp(x))` |
/// | of norms | `a·h + b·attention(h)` with `h = before(x)`, then the same |
/// | normalized | `(1-r)·h + r·y/‖y‖` with `h = x/‖x‖` and `y = attention(h)`, then the same |
/// | parallel | `x + attention(before(x)) + mlp(before(x))` |
///
/// Each norm is absent in some families. `r` is the residual multiplier.
#[derive(Debug)]
pub(in crate::model) struct DecoderLayer {
    norms: Norms,
    is_parallel: bool,
    is_post_norm: bool,
    residual_multiplier: f32,
    normed_residual: Option<NormedResidual>,
    /// The ways to the outputs of both parts, in a normalized transformer.
    interpolations: [Option<Interpolation>; 2],
    mixer: Option<MixerLayer>,
    feed_forward: Option<FeedForwardLayer>,
}

/// The norms of a layer.
#[derive(Debug)]
struct Norms {
    /// The norms of a part that a layer lacks are absent, too.
    before_attention: Option<Norm>,
    after_attention: Option<Norm>,
    before_mlp: Option<Norm>,
    after_mlp: Option<Norm>,
    /// That of the first of two sums with the residual stream after attention.
    of_attention: Option<Norm>,
}

impl DecoderLayer {
    /// Returns the layer's output and the residual stream, both `[num_tokens, hidden_size]`. The
    /// next norm adds them. A post-norm layer returns its output alone.
    pub(in crate::model) fn forward(
        &self,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let Norms { before_attention, after_attention, before_mlp, after_mlp, .. } = &self.norms;
        if self.is_post_norm {
            let (hidden, _) = add_and_norm(before_attention.as_ref(), hidden, residual);
            return (self.forward_post_norm(hidden, positions, step), None);
        }
        let (mut hidden, mut residual) = (hidden, residual);
        if let Some(mixer) = &self.mixer {
            let (normed_hidden, stream) = add_and_norm(before_attention.as_ref(), hidden, residual);
            if self.is_parallel {
                let output = self.forward_parallel(mixer, normed_hidden, &stream, positions, step);
                return (output, Some(stream));
            }
            let factors = self.normed_residual.map(|residual| match mixer {
                MixerLayer::Recurrent(_) => residual.recurrent,
                _ => residual.attention,
            });
            let [interpolation, _] = &self.interpolations;
            residual = Some(match interpolation {
                Some(interpolation) => interpolation.kept.forward(stream),
                None => kept(factors, &normed_hidden, stream),
            });
            let attended = mixer.forward(normed_hidden, positions, step);
            hidden = match interpolation {
                Some(interpolation) => interpolation.added.forward(attended),
                None => self.scaled(factors, normed(after_attention.as_ref(), attended)),
            };
        }
        if let Some(feed_forward) = &self.feed_forward {
            let (normed_hidden, stream) = add_and_norm(before_mlp.as_ref(), hidden, residual);
            let factors = self.normed_residual.map(|residual| residual.feed_forward);
            let [_, interpolation] = &self.interpolations;
            residual = Some(match interpolation {
                Some(interpolation) => interpolation.kept.forward(stream),
                None => kept(factors, &normed_hidden, stream),
            });
            let output = feed_forward.forward(normed_hidden, step.adapters());
            hidden = match interpolation {
                Some(interpolation) => interpolation.added.forward(output),
                None => self.scaled(factors, normed(after_mlp.as_ref(), output)),
            };
        }
        (hidden, residual)
    }

    /// Returns the stream after a layer whose norms follow the sums.
    fn forward_post_norm(
        &self,
        mut x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let Norms { after_attention, after_mlp, of_attention, .. } = &self.norms;
        if let Some(mixer) = &self.mixer {
            let mut attended = self.scaled(None, mixer.forward(x.clone(), positions, step));
            if of_attention.is_some() {
                attended = add_and_normed(of_attention.as_ref(), attended, x.clone());
            }
            x = add_and_normed(after_attention.as_ref(), attended, x);
        }
        if let Some(feed_forward) = &self.feed_forward {
            let output = self.scaled(None, feed_forward.forward(x.clone(), step.adapters()));
            x = add_and_normed(after_mlp.as_ref(), output, x);
        }
        x
    }

    /// Computes both parts from the same stream, the feed-forward part after its own norm if it has
    /// one.
    fn forward_parallel(
        &self,
        mixer: &MixerLayer,
        hidden: Tensor<2>,
        stream: &Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let for_mlp = match &self.norms.before_mlp {
            Some(norm) => norm.forward(stream.clone()),
            None => hidden.clone(),
        };
        let attended = mixer.forward(hidden, positions, step);
        let output = match &self.feed_forward {
            Some(feed_forward) => add(attended, feed_forward.forward(for_mlp, step.adapters())),
            None => attended,
        };
        self.scaled(None, output)
    }

    /// Returns the output of a part with its factor.
    fn scaled(&self, factors: Option<[f32; 2]>, output: Tensor<2>) -> Tensor<2> {
        times(output, factors.map_or(self.residual_multiplier, |[_, factor]| factor))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let mixer = self.mixer.as_ref().map_or(0, MixerLayer::mapped_bytes);
        mixer + self.feed_forward.as_ref().map_or(0, FeedForwardLayer::mapped_bytes)
    }

    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let config = place.config;
        let norm = |loader: &mut WeightLoader<'_>, name: Option<&str>| {
            let load =
                |name| Norm::load(loader, &place.module(name), config.hidden_size, config.norm);
            name.map(load).transpose()
        };
        let [of_mixer, of_mlp] = match config.ngpt {
            None => [None, None],
            Some(ngpt) => ngpt.rates.map(Some),
        };
        let of_mixer = of_mixer.filter(|_| place.layer().mixer != Mixer::None);
        let of_mlp = of_mlp.filter(|_| place.layer().feed_forward != FeedForward::None);
        let of_mixer = of_mixer.map(|rates| Interpolation::load(loader, place, rates));
        let of_mlp = of_mlp.map(|rates| Interpolation::load(loader, place, rates));
        let interpolations = [of_mixer.transpose()?, of_mlp.transpose()?];
        let names = config.norms_of(place.index);
        let norms = Norms {
            before_attention: norm(loader, names.before_attention)?,
            after_attention: norm(loader, names.after_attention)?,
            before_mlp: norm(loader, names.before_mlp)?,
            after_mlp: norm(loader, names.after_mlp)?,
            of_attention: norm(loader, config.names.attention_norm)?,
        };
        Ok(Self {
            norms,
            is_parallel: config.is_parallel,
            is_post_norm: config.is_post_norm,
            residual_multiplier: config.residual_multiplier,
            normed_residual: config.normed_residual,
            interpolations,
            mixer: MixerLayer::load(loader, place, rotary)?,
            feed_forward: FeedForwardLayer::load(loader, place)?,
        })
    }
}

/// Returns the stream beside a part: itself, or with the factors of a normed residual its norm.
fn kept(factors: Option<[f32; 2]>, normed: &Tensor<2>, stream: Tensor<2>) -> Tensor<2> {
    match factors {
        None => stream,
        Some([factor, _]) => {
            recycle(stream);
            times(normed.clone(), factor)
        }
    }
}

fn times(x: Tensor<2>, factor: f32) -> Tensor<2> {
    if factor == 1.0 { x } else { scale(x, factor) }
}

/// Returns the norm of `x + residual`, and that sum. Without a norm, both are the sum.
fn add_and_norm(
    norm: Option<&Norm>,
    x: Tensor<2>,
    residual: Option<Tensor<2>>,
) -> (Tensor<2>, Tensor<2>) {
    match (norm, residual) {
        (Some(norm), residual) => norm.add_forward(x, residual),
        (None, Some(residual)) => {
            let sum = add(x, residual);
            (sum.clone(), sum)
        }
        (None, None) => (x.clone(), x),
    }
}

/// Returns the norm of `x + residual`, or that sum without a norm.
fn add_and_normed(norm: Option<&Norm>, x: Tensor<2>, residual: Tensor<2>) -> Tensor<2> {
    let (output, sum) = add_and_norm(norm, x, Some(residual));
    recycle(sum);
    output
}

fn normed(norm: Option<&Norm>, x: Tensor<2>) -> Tensor<2> {
    match norm {
        None => x,
        Some(norm) => norm.forward(x),
    }
}
