//! The tower of sounds of Granite Speech with its projector: HF `GraniteSpeechCTCEncoder`,
//! `GraniteSpeechPlusCTCEncoder`, `GraniteSpeechEncoderProjector`.
//!
//! | tensor | shape |
//! |---|---|
//! | spectrogram of an item, two times a row | `[states, 2 · num_mel_bins]` |
//! | states beside those of kept layers | `[states, (1 + kept) · hidden_size]` |
//! | embeddings | `[windows · num_queries, text_hidden_size]` |
//!
//! After half of the layers, the states become shares of classes (CTC), whose vectors are added to
//! them. After all layers, a window of states becomes a few embeddings by a Q-Former. The last
//! window is filled with zeros.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData, activation::softmax};
use playhouse_kernels::{add, profile::timed};

use super::granite_config::GraniteSounds;
use super::granite_layer::GraniteLayer;
use super::shaw::Blocks;
use crate::model::layers::{Linear, Part};
use crate::model::vision::QFormer;
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

/// The places of the two parts in checkpoints of different versions of transformers.
const ENCODERS: [&str; 2] = ["encoder", "model.encoder"];
const PROJECTORS: [&str; 2] = ["projector", "model.projector"];

/// The encoder of sounds.
#[derive(Debug)]
struct GraniteHearing {
    input: Linear,
    layers: Vec<GraniteLayer>,
    /// From states to classes, and back.
    classes: [Linear; 2],
    former: QFormer,
    projector: Linear,
    config: GraniteSounds,
    device: Device,
}

impl GraniteSounds {
    /// Loads the tower with its projector.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(in crate::model) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        let is_inside = loader.has(&format!("{}.input_linear.weight", ENCODERS[1]));
        let place = usize::from(is_inside);
        let (encoder, projector) = (ENCODERS[place], PROJECTORS[place]);
        let mut linear = |module: String, [inputs, outputs]: [usize; 2]| {
            Linear::of_media(loader, &[Part::new(module, outputs)], inputs, true)
        };
        let (hidden, classes) = (self.hidden_size, self.num_classes);
        let input = linear(format!("{encoder}.input_linear"), [2 * self.num_mel_bins, hidden])?;
        let out = linear(format!("{encoder}.out"), [hidden, classes])?;
        let back = linear(format!("{encoder}.out_mid"), [classes, hidden])?;
        let last = linear(format!("{projector}.linear"), [self.former.width, self.outputs])?;
        let layers = (0..self.num_layers)
            .map(|index| GraniteLayer::load(loader, &format!("{encoder}.layers.{index}"), self));
        let layers = layers.collect::<Result<_, _>>()?;
        let (module, queries) = (format!("{projector}.qformer"), format!("{projector}.query"));
        let queries = (&*queries, self.num_queries());
        let former = QFormer::load(loader, &module, queries, &self.former)?;
        Ok(Arc::new(GraniteHearing {
            input,
            layers,
            classes: [out, back],
            former,
            projector: last,
            config: self.clone(),
            device: loader.device().clone(),
        }))
    }
}

impl GraniteHearing {
    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let [mel] = &*item.tensors else {
            return Err("a sound is one spectrogram".to_owned());
        };
        let mel = self.spectrogram(mel)?;
        let [count, _] = mel.dims();
        let (found, expected) = (self.config.num_embeds(count), item.num_embeds);
        if found != expected {
            return Err(format!("the item has {found} embeddings, and {expected} placeholders"));
        }
        let states = self.states(mel);
        let embeddings = timed("projector", || self.projected(states));
        Ok(EncoderOutput { embeddings, by_layer: Vec::new() })
    }

    /// Returns the spectrogram as the first layer takes it.
    ///
    /// # Errors
    /// The difference, if it has another form.
    fn spectrogram(&self, tensor: &MediaTensorView<'_>) -> Result<Tensor<2>, String> {
        let width = 2 * self.config.num_mel_bins;
        let MediaTensorView { shape, data: MediaData::F32(bytes) } = tensor else {
            return Err("a spectrogram has elements of f32".to_owned());
        };
        let count = shape.first().copied().unwrap_or_default();
        if count == 0 || **shape != [count, width] || bytes.len() != 4 * count * width {
            return Err(format!("a spectrogram is [states, {width}], not {shape:?}"));
        }
        let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        let values: Vec<f32> = values.collect();
        Ok(Tensor::from_data(TensorData::new(values, [count, width]), &self.device))
    }

    /// Returns the states after the last layer, behind those of the layers that are kept.
    fn states(&self, mel: Tensor<2>) -> Tensor<2> {
        let none = Adapters::none();
        let blocks = Blocks::new(mel.dims()[0], &self.config, &self.device);
        let [to_classes, to_states] = &self.classes;
        let is_kept = |layer: usize| self.config.kept_layers.contains(&layer);
        let mut x = self.input.forward(mel, none);
        let mut kept = Vec::new();
        if is_kept(0) {
            kept.push(x.clone());
        }
        for (number, layer) in (1..).zip(&self.layers) {
            x = layer.forward(x, &blocks);
            if number == self.layers.len() / 2 {
                let shares = softmax(to_classes.forward(x.clone(), none), 1);
                x = add(x, to_states.forward(shares, none));
            }
            // As in transformers, which adds the classes in place, they are in kept states, too.
            if is_kept(number) {
                kept.push(x.clone());
            }
        }
        kept.push(x);
        Tensor::cat(kept, 1)
    }

    /// Returns the embeddings of states.
    fn projected(&self, states: Tensor<2>) -> Tensor<2> {
        let ([count, width], window) = (states.dims(), self.config.window);
        let windows = count.div_ceil(window);
        let states = match windows * window - count {
            0 => states,
            missing => {
                let zeros = Tensor::<2>::zeros([missing, width], &self.device);
                Tensor::cat(vec![states, zeros], 0)
            }
        };
        self.projector.forward(self.former.forward(&states, windows), Adapters::none())
    }
}

impl MediaEncoder for GraniteHearing {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        token_id == self.config.placeholder
    }

    fn mapped_bytes(&self) -> u64 {
        let linears = [&self.input, &self.projector].into_iter().chain(&self.classes);
        linears.map(Linear::mapped_bytes).sum::<u64>()
            + self.layers.iter().map(GraniteLayer::mapped_bytes).sum::<u64>()
            + self.former.mapped_bytes()
    }
}
