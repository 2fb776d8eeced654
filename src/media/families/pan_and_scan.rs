//! Pan and scan of Gemma 3: a wide or high image is also cut into crops, and the model sees both
//! (HF `Gemma3ImageProcessor.pan_and_scan_batched`).

use playhouse_actors::ports::MediaError;
use serde_json::{Map, Value};

use super::resize::Pixels;
use crate::model::ConfigError;
use crate::model::vision::ProcessorConfig;

const IS_ON: &str = "do_pan_and_scan";
const MIN_SIZE: &str = "pan_and_scan_min_crop_size";
const MAX_COUNT: &str = "pan_and_scan_max_num_crops";
const MIN_RATIO: &str = "pan_and_scan_min_ratio_to_activate";

/// The most crops that a setting may ask for. Each is as large as an image.
const CROPS_MAX: usize = 16;

/// The settings of the crops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PanAndScan {
    is_on: bool,
    /// The least pixels on a side of a crop.
    min_size: usize,
    max_count: usize,
    /// The least ratio of the sides of an image that is cut.
    min_ratio: f64,
}

impl PanAndScan {
    /// Reads the settings from the config of the image processor, or of the whole processor. By
    /// default, they are those of HF `Gemma3Processor`.
    pub(super) fn read(processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        let (image, whole) = (&processor.image, &processor.whole);
        let size = |field: &str, default: usize, most: usize| {
            for fields in [image, whole] {
                match fields.size(field)? {
                    None => {}
                    Some(size) if size <= most => return Ok(size),
                    Some(_) => return Err(fields.invalid(field, &format!("at most {most}"))),
                }
            }
            Ok(default)
        };
        Ok(Self {
            is_on: image.flag(IS_ON)?.or(whole.flag(IS_ON)?).unwrap_or(false),
            min_size: size(MIN_SIZE, 256, u32::MAX as usize)?,
            max_count: size(MAX_COUNT, 4, CROPS_MAX)?,
            min_ratio: image.positive(MIN_RATIO)?.or(whole.positive(MIN_RATIO)?).unwrap_or(1.2),
        })
    }

    /// Returns the same with the client's settings.
    pub(super) fn with(self, kwargs: &Map<String, Value>) -> Result<Self, MediaError> {
        let given = |field: &str| kwargs.get(field).filter(|value| !value.is_null());
        let count = |field: &str, default: usize, most: usize| {
            let Some(value) = given(field) else { return Ok(default) };
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| (1..=most).contains(count));
            count.ok_or_else(|| wrong(field, value, &format!("1 to {most}")))
        };
        let is_on = given(IS_ON)
            .map(|value| value.as_bool().ok_or_else(|| wrong(IS_ON, value, "true or false")));
        let min_ratio = given(MIN_RATIO).map(|value| {
            let ratio = value.as_f64().filter(|ratio| *ratio > 0.0);
            ratio.ok_or_else(|| wrong(MIN_RATIO, value, "a number above 0"))
        });
        Ok(Self {
            is_on: is_on.transpose()?.unwrap_or(self.is_on),
            min_size: count(MIN_SIZE, self.min_size, u32::MAX as usize)?,
            max_count: count(MAX_COUNT, self.max_count, CROPS_MAX)?,
            min_ratio: min_ratio.transpose()?.unwrap_or(self.min_ratio),
        })
    }

    /// Returns the crops of an image, along its longer side. There are none if the sides are nearly
    /// equal, or if the crops would be too small.
    ///
    /// # Errors
    /// The reason why the image cannot be cut.
    pub(super) fn crops(self, image: &Pixels) -> Result<Vec<Pixels>, String> {
        let (height, width) = (image.height, image.width);
        let is_wide = width >= height;
        let (long, short) = if is_wide { (width, height) } else { (height, width) };
        let ratio = long as f64 / short as f64;
        if !self.is_on || ratio < self.min_ratio {
            return Ok(Vec::new());
        }
        let count = (ratio + 0.5).floor() as usize;
        let count = count.min(long / self.min_size).max(2).min(self.max_count);
        let size = long.div_ceil(count);
        if size.min(short) < self.min_size {
            return Ok(Vec::new());
        }
        let crop = |index: usize| {
            let start = index * size;
            let len = size.min(long.saturating_sub(start));
            if len == 0 {
                return Err(format!("{long} pixels make no {count} crops of {size}"));
            }
            let (from, part) = match is_wide {
                true => ([0, start], [height, len]),
                false => ([start, 0], [len, width]),
            };
            Ok(image.part(from.map(|at| at as isize), part, [0; 3]))
        };
        (0..count).map(crop).collect()
    }
}

fn wrong(field: &str, value: &Value, expected: &str) -> MediaError {
    MediaError::Kwargs(format!("`{field}` is {value}; expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: PanAndScan = PanAndScan { is_on: true, min_size: 256, max_count: 4, min_ratio: 1.2 };

    fn sizes(rules: PanAndScan, height: usize, width: usize) -> Vec<[usize; 2]> {
        let image = Pixels { height, width, data: vec![0; height * width * 3] };
        let crops = rules.crops(&image).unwrap();
        crops.iter().map(|crop| [crop.height, crop.width]).collect()
    }

    #[test]
    fn crops_lie_along_the_longer_side() {
        assert_eq!(sizes(ON, 300, 301), [[0; 2]; 0], "nearly square");
        assert_eq!(sizes(ON, 300, 1001), [[300, 334], [300, 334], [300, 333]]);
        assert_eq!(sizes(ON, 1001, 300), [[334, 300], [334, 300], [333, 300]]);
        assert_eq!(sizes(ON, 260, 3000), [[260, 750]; 4], "no more than the most");
        assert_eq!(sizes(ON, 300, 400), [[0; 2]; 0], "too small");
        assert_eq!(sizes(PanAndScan { is_on: false, ..ON }, 300, 1001), [[0; 2]; 0]);
    }

    #[test]
    fn an_image_of_too_few_pixels_is_refused() {
        let image = Pixels { height: 1, width: 5, data: vec![0; 15] };
        let rules = PanAndScan { min_size: 1, ..ON };
        assert!(rules.crops(&image).unwrap_err().contains("4 crops of 2"));
    }
}
