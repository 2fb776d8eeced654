//! The embeddings that a model takes in the place of its images and sounds.

use std::path::Path;

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};

use super::file::{Elements, FileTensor};
use crate::model::{
    ConfigError, ModelConfig,
    config::{ConfigSource, Fields},
    vision::VisionFamily,
};

/// The sizes of a model's embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EmbedsLayout {
    /// Elements of a hidden state of the text model.
    pub(super) hidden_size: usize,
    /// Hidden states that an image adds to later layers (deepstack). They stand behind its
    /// embedding in the same row.
    pub(super) num_layers: usize,
    /// Rows and columns of patches that become one embedding, in a model whose images need
    /// `image_grid_thw`.
    pub(super) merge: Option<usize>,
    /// Whether images may come as embeddings.
    pub(super) takes_images: bool,
}

impl EmbedsLayout {
    /// Reads the layout from the config of the model in the folder `model`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field of `config.json` has no valid value.
    pub(crate) fn of(model: &Path) -> Result<Self, ConfigError> {
        let source = ConfigSource::read(model)?;
        let outer = source.fields();
        let hidden_size = ModelConfig::of_model(model, None)?.hidden_size;
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let plain = Self { hidden_size, num_layers: 0, merge: None, takes_images: true };
        let merge = || Ok::<_, ConfigError>(Some(vision.size("spatial_merge_size")?.unwrap_or(2)));
        Ok(match VisionFamily::of(outer)? {
            Some(
                VisionFamily::Clip
                | VisionFamily::Siglip
                | VisionFamily::LlavaNext
                | VisionFamily::LlavaNextSiglip
                | VisionFamily::LlavaOnevision
                | VisionFamily::LlavaNextVideo
                | VisionFamily::InternVl
                | VisionFamily::InternVlChat
                | VisionFamily::NemotronVl
                | VisionFamily::LightOnOcr
                | VisionFamily::DeepseekOcr
                | VisionFamily::DeepseekOcr2
                | VisionFamily::GotOcr2
                | VisionFamily::Blip2
                | VisionFamily::PaliGemma
                | VisionFamily::Phi3V
                | VisionFamily::Phi4,
            ) => plain,
            Some(
                VisionFamily::Qwen2Vl
                | VisionFamily::Qwen2_5Vl
                | VisionFamily::Exaone4_5
                | VisionFamily::DotsOcr
                | VisionFamily::Qwen2_5Omni
                | VisionFamily::Qwen3_5
                | VisionFamily::PaddleOcr,
            ) => Self { merge: merge()?, ..plain },
            Some(VisionFamily::Qwen3Vl | VisionFamily::Qwen3Omni) => {
                let num_layers = match vision.value("deepstack_visual_indexes") {
                    // The default of HF `Qwen3VLVisionConfig`.
                    None => 3,
                    Some(_) => vision.indices("deepstack_visual_indexes")?.len(),
                };
                Self { num_layers, merge: merge()?, ..plain }
            }
            // The marks between an image's tokens follow from its pixels.
            _ => Self { takes_images: false, ..plain },
        })
    }

    /// Returns the elements of a row.
    fn width(&self) -> usize {
        self.hidden_size * (1 + self.num_layers)
    }

    /// Returns the rows of `tensor`, each an embedding with those of later layers. Checks the
    /// shape: `[num_embeds, width]`, or the same as a batch of one.
    pub(super) fn rows(
        &self,
        modality: Modality,
        tensor: FileTensor,
        most: usize,
    ) -> Result<(usize, Vec<f32>), MediaError> {
        let field = format!("{}_embeds", modality.as_str());
        let wrong = |why: String| MediaError::Embeds { modality, reason: format!("{field} {why}") };
        let width = self.width();
        let num_embeds = match *tensor.shape {
            [rows, of_row] | [1, rows, of_row] if of_row == width => rows,
            _ => {
                let parts = match self.num_layers {
                    0 => String::new(),
                    deep => format!(" ({} for each of {} layers)", self.hidden_size, deep + 1),
                };
                let shape = &tensor.shape;
                return Err(wrong(format!(
                    "has the shape {shape:?}, and the model takes [num_embeds, {width}]{parts}"
                )));
            }
        };
        if !(1..=most).contains(&num_embeds) {
            return Err(wrong(format!(
                "has {num_embeds} embeddings, and 1 to {most} are accepted"
            )));
        }
        match tensor.elements {
            Elements::Ints(_) => Err(wrong("has integers in the place of floats".to_owned())),
            Elements::Floats(values) if values.iter().all(|value| value.is_finite()) => {
                Ok((num_embeds, values))
            }
            Elements::Floats(_) => Err(wrong("has numbers that are not finite".to_owned())),
        }
    }

    /// Returns the frames, rows and columns of an image's embeddings. `grid` has those of its
    /// patches.
    pub(super) fn grid(
        &self,
        grid: &FileTensor,
        num_embeds: usize,
    ) -> Result<[u32; 3], MediaError> {
        let merge = self.merge.unwrap_or(1) as i64;
        let wrong = |why: String| {
            let reason = format!("image_grid_thw {why}");
            MediaError::Embeds { modality: Modality::Image, reason }
        };
        let sizes = match (&*grid.shape, &grid.elements) {
            ([3] | [1, 3], Elements::Ints(sizes)) => <[i64; 3]>::try_from(&**sizes).ok(),
            _ => None,
        };
        let Some([frames, rows, columns]) = sizes else {
            let shape = &grid.shape;
            return Err(wrong(format!(
                "has the shape {shape:?}, and three integers are taken: [3] or [1, 3]"
            )));
        };
        let is_whole = |size: i64| size > 0 && size % merge == 0 && size < 1 << 16;
        if !(1..1 << 16).contains(&frames) || !is_whole(rows) || !is_whole(columns) {
            return Err(wrong(format!(
                "is [{frames}, {rows}, {columns}], and rows and columns must be multiples of \
                 {merge}"
            )));
        }
        let merged = [frames, rows / merge, columns / merge];
        let expected: i64 = merged.iter().product();
        if usize::try_from(expected) != Ok(num_embeds) {
            return Err(wrong(format!(
                "is [{frames}, {rows}, {columns}], which are {expected} embeddings, and \
                 image_embeds has {num_embeds}"
            )));
        }
        Ok(merged.map(|size| size as u32))
    }
}
