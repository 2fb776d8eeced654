//! Videos of GLM-4.1V to GLM-4.6V (HF `Glm4vVideoProcessor`, `Glm46VVideoProcessor`).

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};
use serde_json::{Map, Value};

use super::resize::Filter;
use super::{fields, qwen, sizes};
use crate::media::frames::{FRAMES_DEFAULT, FRAMES_MAX, Video};
use crate::model::ConfigError;
use crate::model::vision::ProcessorConfig;

/// The rules of a model's videos.
#[derive(Debug)]
pub(super) struct VideoRules {
    class: Class,
    /// The least and the most pixels of all frames.
    pub(super) limits: [usize; 2],
    pub(super) filter: Filter,
    resizes: bool,
    /// Frames that become one.
    merge: usize,
    samples: bool,
    fps: f64,
    /// The most seconds that have `fps` frames each. Those of a longer video have fewer.
    max_duration: f64,
}

/// The class of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// That of GLM-4.1V and GLM-4.5V.
    Glm4v,
    /// That of GLM-4.6V.
    Glm46V,
}

impl VideoRules {
    /// Reads the rules of the `processor`. Patches of an image have `patch` pixels on a side, a
    /// square has `merge` patches on a side, and a patch spans `frames`.
    pub(super) fn read(
        processor: &ProcessorConfig,
        [patch, merge, frames]: [usize; 3],
    ) -> Result<Self, ConfigError> {
        let fields = &processor.video;
        for (field, of_images) in
            [("patch_size", patch), ("merge_size", merge), ("temporal_patch_size", frames)]
        {
            if fields.size(field)?.is_some_and(|size| size != of_images) {
                return Err(fields.invalid(field, &format!("{of_images}, as for images")));
            }
        }
        let names = [
            (fields, "video_processor_type"),
            (fields, "processor_class"),
            (&processor.image, "processor_class"),
            (&processor.whole, "processor_class"),
        ];
        let mut class = Class::Glm4v;
        for (fields, field) in names {
            if fields.text(field)?.is_some_and(|name| name.starts_with("Glm46V")) {
                class = Class::Glm46V;
            }
        }
        Ok(Self {
            class,
            limits: qwen::limits(fields, [112 * 112, 28 * 28 * 2 * 30_000])?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
            merge: frames,
            samples: fields.flag_or("do_sample_frames", true)?,
            fps: fields.positive("fps")?.unwrap_or(2.0),
            max_duration: fields.positive("max_duration")?.unwrap_or(300.0),
        })
    }

    /// Returns the places of the frames that are processed. The last one may be there twice,
    /// because their number is even.
    pub(super) fn chosen(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        let given = |field: &str| kwargs.get(field).filter(|value| !value.is_null());
        let samples = match given("do_sample_frames") {
            None => self.samples,
            Some(value) => value.as_bool().ok_or_else(|| {
                let why = format!("`do_sample_frames` is {value}; expected true or false");
                MediaError::Kwargs(why)
            })?,
        };
        let wanted = match given("fps") {
            None => self.fps,
            Some(value) => {
                let fps = value.as_f64().filter(|fps| *fps > 0.0 && fps.is_finite());
                let why = || format!("`fps` is {value}; expected a number above 0");
                fps.ok_or_else(|| MediaError::Kwargs(why()))?
            }
        };
        // The prompt has the times of frames, so also those that are not sampled need the rate.
        let fps = known(fps)?;
        let chosen = match (samples, self.class) {
            (false, _) => (0..total).collect(),
            (true, Class::Glm4v) => evened(self.by_rate(total, fps, wanted)?),
            (true, Class::Glm46V) => evened(self.by_length(total, fps)),
        };
        match chosen.len() {
            0 => Err(invalid("it is too short for a frame")),
            count if count > FRAMES_MAX => {
                Err(invalid(&format!("{count} of its frames would be read; at most {FRAMES_MAX}")))
            }
            _ => Ok(chosen),
        }
    }

    /// Returns `wanted` frames of each second: HF `Glm4vVideoProcessor.sample_frames`.
    fn by_rate(&self, total: usize, fps: f64, wanted: f64) -> Result<Vec<usize>, MediaError> {
        /// The most times of frames that are looked at.
        const TIMES_MAX: usize = 1 << 16;
        let (last, duration) = (total.saturating_sub(1), total as f64 / fps);
        let frame = |at: f64| last.min(at.ceil() as usize);
        if duration <= self.max_duration {
            let count = ((duration * wanted).floor() as usize).max(1);
            if count > TIMES_MAX {
                let why = format!("{count} times would be looked at; at most {TIMES_MAX}");
                return Err(invalid(&why));
            }
            return Ok((0..count).map(|index| frame(index as f64 * fps / wanted)).collect());
        }
        let count = (self.max_duration * wanted) as usize;
        if count >= total {
            return Ok((0..total).collect());
        }
        Ok(spread(0.0, duration, count).map(|second| frame(second * fps)).collect())
    }

    /// Returns fewer frames of each second of a longer video: HF
    /// `Glm46VVideoProcessor.sample_frames`.
    fn by_length(&self, total: usize, fps: f64) -> Vec<usize> {
        const COUNT_MAX: usize = 640;
        const DURATION_MAX: f64 = 2400.0;
        let duration = total as f64 / fps;
        let effective = duration.min(DURATION_MAX);
        let wanted = match effective {
            seconds if seconds <= 30.0 => 3.0,
            seconds if seconds <= 300.0 => 1.0,
            _ => 0.5,
        };
        let (last, merge) = (total.saturating_sub(1), self.merge as f64);
        let count = ((effective * wanted * merge) as usize).min(COUNT_MAX);
        let evenly = |first: usize, last: usize| -> Vec<usize> {
            spread(first as f64, last as f64, count).map(|place| place.floor() as usize).collect()
        };
        if total < count {
            return evenly(0, last);
        }
        let (step, seconds) = (1.0 / (merge * wanted), duration.floor());
        let (mut next, mut chosen) = (0.0, Vec::new());
        for index in 0..total {
            if index as f64 * (1.0 / fps) >= next {
                next += step;
                chosen.push(index);
                if next >= seconds {
                    break;
                }
            }
        }
        match (chosen.len() < count, chosen.first(), chosen.last()) {
            (true, Some(&first), Some(&last)) => evenly(first, last),
            _ if chosen.len() > count => evenly(0, last),
            _ => chosen,
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
        let first = video.frames.first();
        let before =
            first.map_or([0; 2], |frame| [frame.height() as usize, frame.width() as usize]);
        if !self.resizes {
            return Ok(before);
        }
        if count < merge {
            return Err(invalid(&format!("it has {count} frames; expected {merge} or more")));
        }
        let ratio = sizes::RATIO_MAX;
        sizes::in_volumes(count, before, [merge, side], limits)
            .ok_or_else(|| invalid(&format!("one side is more than {ratio} times the other")))
    }

    /// Returns the number of frames after merging.
    pub(super) fn num_merged(&self, video: &Video) -> usize {
        video.frames.len().div_ceil(self.merge)
    }

    /// Returns the largest number of embeddings of a video whose squares have `side` pixels.
    pub(super) fn most_embeds(&self, side: usize) -> usize {
        /// The largest number of embeddings of a video, if images do not have more.
        const MOST: usize = 16_384;
        let most = self.limits[1].max(4 * self.limits[0]) / (side * side * self.merge);
        most.max(FRAMES_DEFAULT.div_ceil(self.merge)).min(MOST)
    }

    /// Returns the text behind each merged frame, its time: HF `Glm4vProcessor` and
    /// `Glm46VProcessor`. They take every second time, whatever the number of merged frames.
    ///
    /// # Errors
    /// [`MediaError`] of a video whose rate is not known. Transformers would take 24 frames a
    /// second, so the prompt would have wrong times.
    pub(super) fn times(&self, video: &Video) -> Result<Vec<String>, MediaError> {
        let fps = known(video.fps)?;
        let seconds: Vec<f64> =
            video.indices.iter().step_by(2).map(|index| *index as f64 / fps).collect();
        let last = seconds.last().copied().unwrap_or_default();
        let text = |frame: usize| {
            let second = seconds.get(frame).copied().unwrap_or(last);
            match self.class {
                Class::Glm4v => format!("{}", second as u64),
                Class::Glm46V => format!("{second:.1} seconds"),
            }
        };
        Ok((0..self.num_merged(video)).map(text).collect())
    }
}

/// Returns the frames a second, if they are known.
fn known(fps: Option<f64>) -> Result<f64, MediaError> {
    let why = "its frames a second are not known; give `fps` in media_io_kwargs";
    fps.ok_or_else(|| invalid(why))
}

/// Returns places without repetitions, then the last one again if their number is odd.
fn evened(mut places: Vec<usize>) -> Vec<usize> {
    places.dedup();
    if places.len() % 2 == 1 {
        places.extend(places.last().copied());
    }
    places
}

/// Returns `count` numbers at equal distances from `first` to `last`: numpy's `linspace`.
fn spread(first: f64, last: f64, count: usize) -> impl Iterator<Item = f64> {
    let step = (last - first) / count.saturating_sub(1).max(1) as f64;
    (0..count).map(move |index| match index + 1 == count && count > 1 {
        true => last,
        false => index as f64 * step + first,
    })
}

pub(super) fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}
