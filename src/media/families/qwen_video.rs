//! Videos of Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5, EXAONE 4.5, Qwen2.5-Omni and Qwen3-Omni (HF
//! `Qwen2VLVideoProcessor`, `Qwen3VLVideoProcessor`).

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};
use serde_json::{Map, Value};

use super::resize::Filter;
use super::{fields, sizes};
use crate::media::frames::{FRAMES_MAX, Video};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::VisionFamily;

/// Frames a second of a video whose file does not say them: those of transformers.
const FPS_DEFAULT: f64 = 24.0;

/// The rules of a model's videos.
#[derive(Debug)]
pub(super) struct VideoRules {
    is_timed: bool,
    /// The least and the most pixels: of a frame, or of all frames if they are timed.
    pub(super) limits: [usize; 2],
    pub(super) filter: Filter,
    pub(super) resizes: bool,
    /// Frames that become one.
    pub(super) merge: usize,
    sampling: Sampling,
    clock: Clock,
}

/// The positions of frames on the first axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Clock {
    /// Each frame is one.
    Frames,
    /// Each second has so many: HF `Qwen2_5_VLModel.get_rope_index`.
    Seconds(f64),
    /// The same, where frames are as far from each other as the settings say, whatever the file
    /// says: HF `Qwen2_5OmniProcessor` and `Qwen3OmniMoeProcessor`.
    SecondsBySettings {
        per_second: f64,
        /// Frames a second, if a client gives none.
        fps: f64,
    },
}

/// Frames a second of HF `Qwen2_5OmniProcessor` and `Qwen3OmniMoeProcessor`, if a client gives
/// none.
const FPS_OF_QWEN2_5_OMNI: f64 = 2.0;
const FPS_OF_QWEN3_OMNI: f64 = 1.0;

/// The largest position of a frame, which is a day of video for Qwen2.5-Omni. The positions of a
/// thousand videos are below 2³².
const POSITION_MAX: usize = 1 << 21;

/// The frames that are processed.
#[derive(Debug, Clone, Copy)]
struct Sampling {
    is_on: bool,
    fps: Option<f64>,
    num_frames: Option<usize>,
    min_frames: usize,
    max_frames: usize,
}

impl VideoRules {
    /// Reads the rules from the fields of the video processor, and from those of `config.json`,
    /// `outer`. `patch` and `merge` are those of images.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        fields: &Fields,
        [patch, merge]: [usize; 2],
    ) -> Result<Self, ConfigError> {
        const CAP: &str = "cap_pixels_per_frame";
        let is_timed = is_timed(family);
        for (field, of_images) in [("patch_size", patch), ("merge_size", merge)] {
            if fields.size(field)?.is_some_and(|size| size != of_images) {
                return Err(fields.invalid(field, &format!("{of_images}, as for images")));
            }
        }
        if fields.flag_or(CAP, false)? {
            return Err(fields.invalid(CAP, "false"));
        }
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let temporal_field = "temporal_patch_size";
        let temporal = vision.size(temporal_field)?.unwrap_or(match family {
            // The default of `DotsVisionConfig`.
            VisionFamily::DotsOcr => 1,
            _ => 2,
        });
        if fields.size(temporal_field)?.unwrap_or(2) != temporal {
            let expected = format!("{temporal}, as in vision_config");
            return Err(fields.invalid(temporal_field, &expected));
        }
        let sampling = Sampling {
            is_on: fields.flag_or("do_sample_frames", is_timed)?,
            fps: fields.positive("fps")?.or(is_timed.then_some(2.0)),
            num_frames: fields.size("num_frames")?,
            min_frames: fields.size("min_frames")?.unwrap_or(4),
            max_frames: fields.size("max_frames")?.unwrap_or(768),
        };
        let has_large_units = is_timed || family == VisionFamily::Qwen3Omni;
        let unit = if has_large_units { 32 * 32 } else { 28 * 28 };
        let limits = [128 * unit, 768 * unit];
        let per_second =
            || Ok::<_, ConfigError>(outer.positive("position_id_per_seconds")?.unwrap_or(25.0));
        Ok(Self {
            is_timed,
            limits: match family {
                // HF `Qwen3OmniMoeProcessor` has its own, whatever the files of the model say.
                VisionFamily::Qwen3Omni => limits,
                _ => super::qwen::limits(fields, limits)?,
            },
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
            merge: temporal,
            sampling,
            clock: match family {
                VisionFamily::Qwen2_5Vl => {
                    Clock::Seconds(vision.positive("tokens_per_second")?.unwrap_or(4.0))
                }
                VisionFamily::Qwen2_5Omni => {
                    Clock::SecondsBySettings { per_second: per_second()?, fps: FPS_OF_QWEN2_5_OMNI }
                }
                VisionFamily::Qwen3Omni => {
                    Clock::SecondsBySettings { per_second: per_second()?, fps: FPS_OF_QWEN3_OMNI }
                }
                _ => Clock::Frames,
            },
        })
    }

    /// Returns the places of the frames that are processed.
    pub(super) fn chosen(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        let sampling = self.sampling.with(kwargs)?;
        if !sampling.is_on {
            return Ok((0..total.min(FRAMES_MAX)).collect());
        }
        match self.is_timed {
            true => Ok(sampling.first_to_last(total, fps)),
            false => sampling.in_steps(total, fps, self.merge),
        }
    }

    /// Returns the size of the frames in whole squares of `side`.
    pub(super) fn size(
        &self,
        video: &Video,
        side: usize,
        limits: [usize; 2],
    ) -> Result<[usize; 2], MediaError> {
        let (count, merge) = (video.frames.len(), self.merge);
        let before = video
            .frames
            .first()
            .map_or([0; 2], |frame| [frame.height() as usize, frame.width() as usize]);
        if !self.resizes {
            return Ok(before);
        }
        if self.is_timed && count < merge {
            return Err(invalid(&format!("it has {count} frames; expected {merge} or more")));
        }
        let size = match self.is_timed {
            true => sizes::in_volumes(count, before, [merge, side], limits),
            false => sizes::in_squares(before, side, limits),
        };
        let ratio = sizes::RATIO_MAX;
        size.ok_or_else(|| invalid(&format!("one side is more than {ratio} times the other")))
    }

    /// Returns the largest number of embeddings of a frame whose squares have `side` pixels, and
    /// the number of frames that vLLM takes by default.
    pub(super) fn most_embeds(&self, side: usize) -> usize {
        /// The largest number of embeddings of a video, if images do not have more.
        const MOST: usize = 16_384;
        let most = self.limits[1].max(4 * self.limits[0]) / (side * side);
        let frames = crate::media::frames::FRAMES_DEFAULT.div_ceil(self.merge);
        let most = if self.is_timed { most.max(frames) } else { most.max(1) * frames };
        most.min(MOST)
    }

    /// Returns the positions of merged frames on the first axis, if they count time.
    ///
    /// # Errors
    /// [`MediaError`] if a setting has no valid value, or the frames are too far from each other.
    pub(super) fn positions(
        &self,
        video: &Video,
        kwargs: &Map<String, Value>,
    ) -> Result<Option<Vec<usize>>, MediaError> {
        let count = video.frames.len().div_ceil(self.merge);
        let seconds = |sampled: f64| (self.merge as f64 / sampled) as f32;
        let positions: Vec<usize> = match self.clock {
            Clock::Frames => return Ok(None),
            Clock::Seconds(per_second) => {
                let sampled = match video.fps {
                    None => FPS_DEFAULT,
                    Some(fps) => video.indices.len() as f64 / video.total as f64 * fps,
                };
                let interval = per_second as f32 * seconds(sampled);
                (0..count).map(|frame| (frame as f32 * interval) as usize).collect()
            }
            Clock::SecondsBySettings { per_second, fps } => {
                let is_given = kwargs.get("fps").is_some_and(|fps| !fps.is_null());
                let given = is_given.then(|| self.sampling.with(kwargs)).transpose()?;
                let given = given.and_then(|sampling| sampling.fps);
                let seconds = seconds(given.unwrap_or(fps));
                let at = |frame: usize| (frame as f32 * seconds * per_second as f32) as usize;
                (0..count).map(at).collect()
            }
        };
        match positions.last().is_some_and(|last| *last > POSITION_MAX) {
            true => Err(invalid("its frames are too far from each other")),
            false => Ok(Some(positions)),
        }
    }

    /// Returns the texts before merged frames, if they are timed: HF `Qwen3VLProcessor`.
    pub(super) fn times(&self, video: &Video) -> Option<Vec<String>> {
        let fps = video.fps.unwrap_or(FPS_DEFAULT);
        let times: Vec<f64> = video.indices.iter().map(|index| *index as f64 / fps).collect();
        let text = |frames: &[f64]| {
            let last = frames.get(self.merge - 1).or(times.last()).copied().unwrap_or_default();
            format!("<{:.1} seconds>", f64::midpoint(frames[0], last))
        };
        self.is_timed.then(|| times.chunks(self.merge).map(text).collect())
    }
}

/// Returns whether the time of each frame stands in the prompt.
pub(super) fn is_timed(family: VisionFamily) -> bool {
    matches!(family, VisionFamily::Qwen3Vl | VisionFamily::Qwen3_5)
}

impl Sampling {
    /// Returns the same with the client's settings.
    fn with(self, kwargs: &Map<String, Value>) -> Result<Self, MediaError> {
        let number = |field: &str| kwargs.get(field).filter(|value| !value.is_null());
        let wrong = |field: &str, value: &Value| {
            MediaError::Kwargs(format!("`{field}` is {value}; expected a number above 0"))
        };
        let mut sampling = self;
        if let Some(value) = number("fps") {
            let fps = value.as_f64().filter(|fps| *fps > 0.0 && fps.is_finite());
            sampling.fps = Some(fps.ok_or_else(|| wrong("fps", value))?);
            (sampling.is_on, sampling.num_frames) = (true, None);
        }
        if let Some(value) = number("num_frames") {
            let count = value.as_u64().filter(|count| *count > 0);
            sampling.num_frames = Some(count.ok_or_else(|| wrong("num_frames", value))? as usize);
            sampling.is_on = true;
        }
        if let Some(value) = number("do_sample_frames") {
            let is_on = value.as_bool();
            let what = || format!("`do_sample_frames` is {value}; expected true or false");
            sampling.is_on = is_on.ok_or_else(|| MediaError::Kwargs(what()))?;
        }
        Ok(sampling)
    }

    /// Returns frames at equal distances from the first to the last: HF `Qwen3VLVideoProcessor`.
    fn first_to_last(self, total: usize, fps: Option<f64>) -> Vec<usize> {
        let Self { min_frames, max_frames, .. } = self;
        let count = match (self.num_frames, self.fps) {
            (Some(count), _) => count,
            (None, Some(wanted)) => {
                let count = (total as f64 / fps.unwrap_or(FPS_DEFAULT) * wanted) as usize;
                count.max(min_frames).min(max_frames).min(total)
            }
            (None, None) => total.max(min_frames).min(max_frames),
        };
        let count = count.clamp(1, FRAMES_MAX);
        let step = (total - 1) as f64 / (count - 1).max(1) as f64;
        (0..count).map(|index| (index as f64 * step).round_ties_even() as usize).collect()
    }

    /// Returns every so many frames, in groups of `merge`: HF `Qwen2VLVideoProcessor`.
    fn in_steps(
        self,
        total: usize,
        fps: Option<f64>,
        merge: usize,
    ) -> Result<Vec<usize>, MediaError> {
        let grouped = |count: f64| (count / merge as f64).floor() * merge as f64;
        let count = match (self.num_frames, self.fps) {
            (Some(count), _) => (count as f64 / merge as f64).round_ties_even() * merge as f64,
            (None, Some(wanted)) => {
                let fps = fps.ok_or_else(|| {
                    invalid("its frames a second are not known; give `fps` in media_io_kwargs")
                })?;
                let most = grouped(self.max_frames.min(total) as f64);
                let count = (total as f64 / fps * wanted).max(self.min_frames as f64);
                grouped(count.min(most).min(total as f64))
            }
            (None, None) => return Ok((0..total.min(FRAMES_MAX)).collect()),
        };
        if count < 1.0 || count > total as f64 {
            return Err(invalid(&format!("{count} frames of {total} cannot be taken")));
        }
        let step = total as f64 / count;
        let len = ((total as f64 / step).ceil() as usize).min(FRAMES_MAX);
        Ok((0..len).map(|index| (index as f64 * step) as f32 as usize).collect())
    }
}

fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}
