//! The files of a model's image processor: `preprocessor_config.json` of transformers 4, or the
//! object `image_processor` of `processor_config.json`, which transformers 5 writes.

use std::path::Path;

use half::bf16;

use crate::model::config::{ConfigError, ConfigSource, Fields};
use crate::model_files;

const PREPROCESSOR: &str = "preprocessor_config.json";
const VIDEO: &str = "video_preprocessor_config.json";
/// The file of the processor as a whole.
pub(super) const PROCESSOR: &str = "processor_config.json";

/// The means and deviations of CLIP's pixels.
pub(crate) const CLIP_SCALE: PixelScale = PixelScale {
    mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
    std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
    factor: PixelScale::PER_BYTE,
    rounds_to_bf16: false,
};
/// Those of ImageNet.
pub(crate) const IMAGENET_SCALE: PixelScale = PixelScale {
    mean: [0.485, 0.456, 0.406],
    std: [0.229, 0.224, 0.225],
    factor: PixelScale::PER_BYTE,
    rounds_to_bf16: false,
};
/// Those of SigLIP, which map bytes to -1 to 1.
pub(crate) const UNIT_SCALE: PixelScale = PixelScale {
    mean: [0.5; 3],
    std: [0.5; 3],
    factor: PixelScale::PER_BYTE,
    rounds_to_bf16: false,
};

/// The fields of a model's processor.
#[derive(Debug, Clone)]
pub(crate) struct ProcessorConfig {
    /// Those of images.
    pub(crate) image: Fields,
    /// Those of videos: as transformers, by default those of images.
    pub(crate) video: Fields,
    /// Those of the processor as a whole. Older models have none.
    pub(crate) whole: Fields,
}

impl ProcessorConfig {
    /// Reads the files of the folder `model`. A model without these files has no image processor.
    ///
    /// # Errors
    /// [`ConfigError`] if a file cannot be read, or is not a JSON object.
    pub(crate) fn read(model: &Path) -> Result<Option<Self>, ConfigError> {
        let read = |name: &str| {
            let path = model.join(name);
            model_files::exists(&path).then(|| ConfigSource::file(&path)).transpose()
        };
        let whole = read(PROCESSOR)?;
        let nested = whole.as_ref().map(|whole| whole.nested("image_processor")).transpose()?;
        let Some(image) = nested.flatten().map_or_else(|| read(PREPROCESSOR), |it| Ok(Some(it)))?
        else {
            return Ok(None);
        };
        let image = without_nulls(&image);
        let nested = whole.as_ref().map(|whole| whole.nested("video_processor")).transpose()?;
        let video = nested.flatten().map_or_else(|| read(VIDEO), |it| Ok(Some(it)))?;
        let video = video.map_or_else(|| image.clone(), |video| without_nulls(&video));
        let whole = whole.unwrap_or_else(|| Fields::empty_in(&image));
        Ok(Some(Self { image, video, whole }))
    }

    /// Returns the processor of a model whose `config.json` has its fields, `outer`.
    pub(crate) fn of_model(outer: &Fields) -> Self {
        let image = without_nulls(outer);
        Self { video: image.clone(), whole: Fields::empty_in(&image), image }
    }

    /// Reads the fields that a processor of authors' code has in `processor_config.json` of the
    /// folder `model`. Without that file, all have their defaults. `outer` are the fields of
    /// `config.json`.
    ///
    /// # Errors
    /// As [`ProcessorConfig::read`].
    pub(crate) fn read_whole(model: &Path, outer: &Fields) -> Result<Self, ConfigError> {
        let path = model.join(PROCESSOR);
        let whole = model_files::exists(&path).then(|| ConfigSource::file(&path)).transpose()?;
        let whole = whole.map_or_else(|| Fields::empty_in(outer), |whole| without_nulls(&whole));
        let image = whole.with_aliases(&[("normalize", "do_normalize")]);
        Ok(Self { video: image.clone(), whole, image })
    }

    /// Returns how bytes become numbers. `default` has the numbers of the processor's class.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a field has another form.
    pub(crate) fn scale(&self, default: PixelScale) -> Result<PixelScale, ConfigError> {
        scale_of(&self.image, default)
    }

    /// Returns the same for the frames of videos.
    ///
    /// # Errors
    /// As [`ProcessorConfig::scale`].
    pub(crate) fn video_scale(&self, default: PixelScale) -> Result<PixelScale, ConfigError> {
        scale_of(&self.video, default)
    }
}

/// Returns fields of a processor without those that are null: for transformers they are absent.
fn without_nulls(fields: &Fields) -> Fields {
    let nulls = fields.object().iter().filter(|(_, value)| value.is_null());
    fields.without(&nulls.map(|(name, _)| name.as_str()).collect::<Vec<_>>())
}

/// Returns how the processor with these fields makes numbers of bytes.
pub(super) fn scale_of(fields: &Fields, default: PixelScale) -> Result<PixelScale, ConfigError> {
    let channels = |field: &str, default: [f64; 3]| {
        let three = |value: &serde_json::Value| {
            let list: Option<Vec<f64>> =
                value.as_array()?.iter().map(serde_json::Value::as_f64).collect();
            <[f64; 3]>::try_from(list?).ok()
        };
        match fields.value(field) {
            None => Ok(default),
            Some(value) => {
                let all = value.as_f64().map(|number| [number; 3]);
                all.or_else(|| three(value))
                    .ok_or_else(|| fields.invalid(field, "a number, or a list of 3 numbers"))
            }
        }
    };
    let mut scale = PixelScale {
        mean: channels("image_mean", default.mean)?,
        std: channels("image_std", default.std)?,
        factor: fields.positive("rescale_factor")?.unwrap_or(default.factor),
        ..default
    };
    if scale.std.iter().any(|std| *std <= 0.0) {
        return Err(fields.invalid("image_std", "3 numbers above 0"));
    }
    if !fields.flag_or("do_rescale", true)? {
        scale.factor = 1.0;
        scale.rounds_to_bf16 = false;
    }
    if !fields.flag_or("do_normalize", true)? {
        scale.rounds_to_bf16 = false;
        (scale.mean, scale.std) = ([0.0; 3], [1.0; 3]);
    }
    Ok(scale)
}

/// How bytes become numbers: `(factor · byte − mean) / std` for each channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PixelScale {
    pub(crate) mean: [f64; 3],
    pub(crate) std: [f64; 3],
    pub(crate) factor: f64,
    /// Whether each step rounds to bfloat16, as in Llama 4's processor.
    pub(crate) rounds_to_bf16: bool,
}

impl PixelScale {
    /// The usual factor.
    const PER_BYTE: f64 = 1.0 / 255.0;

    /// Returns the number of a byte, rounded as in transformers: mean and deviation are divided by
    /// the factor first (`TorchvisionBackend.rescale_and_normalize`).
    pub(crate) fn of(&self, channel: usize, byte: u8) -> f32 {
        if self.rounds_to_bf16 {
            let rounded = |x: f32| bf16::from_f32(x).to_f32();
            let [mean, std] = [self.mean, self.std].map(|of| rounded(of[channel] as f32));
            let rescaled = rounded(f32::from(byte) * self.factor as f32);
            return rounded(rounded(rescaled - mean) / std);
        }
        let inverse = (1.0 / self.factor) as f32;
        let [mean, std] = [self.mean, self.std].map(|of| of[channel] as f32 * inverse);
        (f32::from(byte) - mean) / std
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(file: &str, json: &Value) -> ProcessorConfig {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join(file), json.to_string()).unwrap();
        ProcessorConfig::read(folder.path()).unwrap().unwrap()
    }

    #[test]
    fn a_null_of_a_processor_is_its_default() {
        let fields = json!({ "do_normalize": null, "do_resize": null, "image_mean": null });
        for config in [
            read(PREPROCESSOR, &fields),
            read(PROCESSOR, &json!({ "image_processor": fields, "video_processor": fields })),
        ] {
            assert_eq!(config.scale(CLIP_SCALE).unwrap(), CLIP_SCALE);
            assert_eq!(config.video_scale(CLIP_SCALE).unwrap(), CLIP_SCALE);
            assert!(config.image.flag_or("do_resize", true).unwrap());
        }
    }

    #[test]
    fn one_number_is_that_of_all_channels() {
        let config = read(PREPROCESSOR, &json!({ "image_mean": 0.5, "image_std": 0.25 }));
        let scale = config.scale(CLIP_SCALE).unwrap();
        assert_eq!((scale.mean, scale.std), ([0.5; 3], [0.25; 3]));
        let config = read(PREPROCESSOR, &json!({ "image_mean": [0.5, 0.5] }));
        let why = config.scale(CLIP_SCALE).unwrap_err().to_string();
        assert!(why.contains("`image_mean` is [0.5,0.5]; expected a number, or a list of 3"));
    }
}
