//! Models of two towers, one of texts and one of images: the backbone of texts with its projection,
//! which lets the vectors of images through.
//!
//! | tensor | shape |
//! |---|---|
//! | embeddings of tokens, and vectors of images | `[num_tokens, width]` |
//! | states of the text tower | `[num_tokens, hidden_size]` |
//! | results | `[num_tokens, outputs]` |

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::select_rows;

use super::config::{ConfigError, Fields};
use super::layers::{Linear, Part};
use super::vision::VisionFamily;
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};

/// The widths of a model of two towers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TwoTowers {
    /// The module of the projection of texts.
    module: &'static str,
    has_bias: bool,
    /// The width of the text tower.
    hidden_size: usize,
    /// The width of the vectors.
    pub(super) outputs: usize,
}

impl TwoTowers {
    /// Reads the widths of a model whose `config.json` has the fields `outer`, and whose text tower
    /// has `hidden_size`. Returns `None` for a family of another kind.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a width is no size.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        hidden_size: usize,
    ) -> Result<Option<Self>, ConfigError> {
        Ok(match family {
            VisionFamily::ClipModel => {
                let outputs = outer.size("projection_dim")?.unwrap_or(512);
                Some(Self { module: "text_projection", has_bias: false, hidden_size, outputs })
            }
            VisionFamily::SiglipModel => {
                let text = outer.nested("text_config")?;
                let outputs = text.map(|text| text.size("projection_size")).transpose()?.flatten();
                let outputs = outputs.unwrap_or(hidden_size);
                Some(Self { module: "text_model.head", has_bias: true, hidden_size, outputs })
            }
            _ => None,
        })
    }

    /// Returns the width of the rows that hold embeddings of tokens and vectors of images.
    pub(super) fn width(self) -> usize {
        self.hidden_size.max(self.outputs)
    }

    /// Returns `x`, `[rows, columns]`, with zeros behind its columns: `[rows, width]`.
    pub(super) fn widened(self, x: Tensor<2>) -> Tensor<2> {
        let [rows, columns] = x.dims();
        match self.width() - columns {
            0 => x,
            missing => {
                let zeros = Tensor::zeros([rows, missing], &x.device());
                Tensor::cat(vec![x, zeros], 1)
            }
        }
    }

    /// Returns the text tower `inner` with its projection.
    ///
    /// # Errors
    /// [`ModelError::Weights`] if the projection is missing or has another shape.
    pub(super) fn over(
        self,
        inner: Arc<dyn Backbone>,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn Backbone>, ModelError> {
        let part = [Part::new(self.module.to_owned(), self.outputs)];
        let projection = Linear::of_media(loader, &part, self.hidden_size, self.has_bias)?;
        Ok(Arc::new(Texts { inner, projection, towers: self }))
    }
}

/// The text tower with its projection. The row of an image holds its vector already.
struct Texts {
    inner: Arc<dyn Backbone>,
    projection: Linear,
    towers: TwoTowers,
}

impl Backbone for Texts {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.towers.widened(self.inner.embed(token_ids, adapters))
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let TwoTowers { hidden_size, outputs, .. } = self.towers;
        let [count, _] = hidden.dims();
        let texts = first_columns(hidden.clone(), hidden_size);
        let states = self.inner.forward(texts, positions, step);
        let vectors = self.projection.forward(states, Adapters::none());
        let images = &step.media().rows;
        if images.is_empty() {
            return vectors;
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        for image in images {
            for row in order.iter_mut().skip(image.row).take(image.len) {
                *row += count as u32;
            }
        }
        select_rows(Tensor::cat(vec![vectors, first_columns(hidden, outputs)], 0), &order)
    }

    fn short_context(&self) -> Option<usize> {
        self.inner.short_context()
    }

    fn mapped_bytes(&self) -> u64 {
        self.inner.mapped_bytes() + self.projection.mapped_bytes()
    }
}

/// Returns the first columns of `x`.
fn first_columns(x: Tensor<2>, columns: usize) -> Tensor<2> {
    let [rows, all] = x.dims();
    match all == columns {
        true => x,
        false => x.slice([0..rows, 0..columns]),
    }
}
