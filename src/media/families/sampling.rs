//! Frames of a video at equal distances: HF `default_sample_indices_fn`, and that of InternVL.

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};
use serde_json::{Map, Value};

use crate::media::frames::FRAMES_MAX;
use crate::model::ConfigError;
use crate::model::config::Fields;

/// The rules of a model's frames.
#[derive(Debug)]
pub(super) struct Sampling {
    /// Whether frames are sampled. If not, all are processed.
    is_sampled: bool,
    num_frames: Option<usize>,
    fps: Option<f64>,
    steps: Steps,
    /// Whether all frames are processed of a video with fewer ones than are sampled.
    takes_short_videos: bool,
}

/// The places of sampled frames.
#[derive(Debug, Clone, Copy)]
pub(super) enum Steps {
    /// One in each part of a video, in floats.
    InParts {
        /// The first frame. `None`: the middle of the first part.
        first: Option<f64>,
    },
    /// From the first frame on, in integers: HF `default_sample_indices_fn`.
    FromFirst,
}

impl Sampling {
    /// Reads the rules of a processor of videos, which by default samples no frames.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a field has another form.
    pub(super) fn read(fields: &Fields, steps: Steps) -> Result<Self, ConfigError> {
        Ok(Self {
            is_sampled: fields.flag_or("do_sample_frames", false)?,
            num_frames: fields.size("num_frames")?,
            fps: fields.positive("fps")?,
            steps,
            takes_short_videos: false,
        })
    }

    /// Reads the rules of one that samples `count` frames by default, and all of a video with
    /// fewer. transformers refuses those.
    ///
    /// # Errors
    /// As [`Sampling::read`].
    pub(super) fn up_to(fields: &Fields, count: usize) -> Result<Self, ConfigError> {
        let own = Self::read(fields, Steps::FromFirst)?;
        Ok(Self {
            is_sampled: fields.flag_or("do_sample_frames", true)?,
            num_frames: own.num_frames.or(own.fps.is_none().then_some(count)),
            takes_short_videos: true,
            ..own
        })
    }

    /// Returns the places of the frames that are processed, of a video with `total` frames.
    pub(super) fn chosen(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        let given = |field: &str| kwargs.get(field).filter(|value| !value.is_null());
        let wrong = |field: &str, value: &Value, expected: &str| {
            MediaError::Kwargs(format!("`{field}` is {value}; expected {expected}"))
        };
        let above_0 = "a number above 0";
        let (mut is_sampled, mut count, mut wanted) = (self.is_sampled, self.num_frames, self.fps);
        if let Some(value) = given("fps") {
            let rate = value.as_f64().filter(|fps| *fps > 0.0 && fps.is_finite());
            wanted = Some(rate.ok_or_else(|| wrong("fps", value, above_0))?);
            (is_sampled, count) = (true, None);
        }
        if let Some(value) = given("num_frames") {
            let number = value.as_u64().filter(|count| *count > 0);
            count = Some(number.ok_or_else(|| wrong("num_frames", value, above_0))? as usize);
            is_sampled = true;
        }
        if let Some(value) = given("do_sample_frames") {
            let flag = value.as_bool();
            let expected = "true or false";
            is_sampled = flag.ok_or_else(|| wrong("do_sample_frames", value, expected))?;
        }
        if !is_sampled {
            return Ok((0..total.min(FRAMES_MAX)).collect());
        }
        let count = match (count, wanted) {
            (Some(count), _) => count,
            (None, Some(wanted)) => {
                let why = "its frames a second are not known; give `fps` in media_io_kwargs";
                let fps = fps.ok_or_else(|| invalid(why))?;
                let count = (total as f64 / fps * wanted) as usize;
                let least = usize::from(matches!(self.steps, Steps::FromFirst));
                count.max(least)
            }
            (None, None) if matches!(self.steps, Steps::FromFirst) => total.min(FRAMES_MAX),
            (None, None) => {
                return Err(invalid("its frames are sampled; give `fps` or `num_frames`"));
            }
        };
        let count = if self.takes_short_videos { count.min(total) } else { count };
        if count == 0 || count > total {
            return Err(invalid(&format!("{count} frames of {total} cannot be taken")));
        }
        let first = match self.steps {
            Steps::InParts { first } => first,
            Steps::FromFirst => {
                return Ok((0..count.min(FRAMES_MAX)).map(|at| at * total / count).collect());
            }
        };
        let step = total as f64 / count as f64;
        let first = first.unwrap_or(step / 2.0);
        let len = ((total as f64 - first) / step).ceil().max(0.0) as usize;
        // In floats of 32 bits, as in torch.
        let place = |index: usize| (first + index as f64 * step) as f32 as usize;
        Ok((0..len.min(FRAMES_MAX)).map(place).filter(|place| *place < total).collect())
    }
}

fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}
