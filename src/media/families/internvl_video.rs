//! Videos whose frames are tiles: those of InternVL (HF `InternVLVideoProcessor`) and of
//! LLaVA-OneVision (`LlavaOnevisionVideoProcessor`).

use playhouse_actors::ports::MediaError;
use serde_json::{Map, Value};

use super::adjustable::reason;
use super::fields::{self, Size};
use super::resize::Filter;
use super::sampling::{Sampling, Steps};
use crate::model::ConfigError;
use crate::model::vision::{ProcessorConfig, TileImages};

/// The rules of a model's videos.
#[derive(Debug)]
pub(super) struct VideoRules {
    pub(super) filter: Filter,
    sampling: Sampling,
}

impl VideoRules {
    /// Reads the rules of a model with these images.
    ///
    /// # Errors
    /// The reason why its videos are not served. Its images may be.
    pub(super) fn read(
        processor: &ProcessorConfig,
        images: TileImages,
        steps: Steps,
    ) -> Result<Self, String> {
        let checked = Self::checked(processor, images, steps);
        checked.map_err(|error| format!("the model's processor of videos: {}", reason(&error)))
    }

    fn checked(
        processor: &ProcessorConfig,
        images: TileImages,
        steps: Steps,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        const CROP: &str = "do_center_crop";
        const FIRST: &str = "initial_shift";
        let TileImages { image_size: side, scale, .. } = images;
        let fields = &processor.video;
        let exact = |side: usize| Size::Exact { height: side, width: side };
        if fields::size(fields, SIZE, true, exact(384))? != exact(side) {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        fields::require_resize(fields)?;
        if fields.flag_or(CROP, false)? {
            return Err(fields.invalid(CROP, "false"));
        }
        if processor.video_scale(scale)? != processor.scale(scale)? {
            return Err(fields.invalid("image_mean", "the numbers of images"));
        }
        let steps = match (steps, fields.value(FIRST)) {
            (Steps::FromFirst, _) | (_, None | Some(Value::Bool(true))) => steps,
            (_, Some(Value::Bool(false))) => Steps::InParts { first: Some(0.0) },
            (_, Some(value)) => {
                let first = value.as_f64().filter(|first| *first >= 0.0);
                let wrong = || fields.invalid(FIRST, "true, false or a frame");
                Steps::InParts { first: Some(first.ok_or_else(wrong)?) }
            }
        };
        Ok(Self {
            filter: fields::filter(fields, Filter::Bicubic)?,
            sampling: Sampling::read(fields, steps)?,
        })
    }

    /// Returns the places of the frames that are processed, of a video with `total` frames.
    pub(super) fn chosen(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.sampling.chosen(total, fps, kwargs)
    }
}
