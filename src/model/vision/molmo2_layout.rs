//! The crops of an image of Molmo 2, the patches of each embedding, and the tokens around them (HF
//! `Molmo2ImageProcessor`, `Molmo2Processor`).
//!
//! An image is encoded twice: as a whole in the size of a crop, and in crops that overlap. Of the
//! patches that several crops have, one counts. The patches of all crops are one grid, and those of
//! the whole image are another. A window over a grid is one embedding.

use std::ops::Range;

use serde_json::Value;

use super::{ProcessorConfig, token};
use crate::model::config::{ConfigError, Fields};

/// The most patches on a side of a crop, and of a window.
const SIDE_MAX: usize = 1 << 10;
/// The most pixels on a side of a crop.
const PIXELS_MAX: usize = 2_048;
/// The most pixels of all crops of an image, and of the whole image in the size of one.
const AREA_MAX: usize = 1 << 28;
/// The field of the pixels of a crop.
const SIZE: &str = "image_size";
/// The most crops that a config may ask for.
const CROPS_MAX: usize = 1 << 10;

/// A token of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The place of an embedding of the tower.
    Patch,
    /// Behind a row of embeddings.
    Column,
    /// Before the whole image.
    WholeStart,
    /// Before the crops.
    Start,
    /// Behind both.
    End,
}

/// The fields of `config.json` that have the ids of marks, in their order. The defaults are those
/// of HF `Molmo2Config`. It has no field for the second one.
const TOKENS: [(&str, u32); 5] = [
    ("image_patch_id", 151_938),
    ("image_col_id", 151_939),
    ("low_res_image_start_token_id", 151_940),
    ("image_start_token_id", 151_936),
    ("image_end_token_id", 151_937),
];

/// The form of a model's images.
#[derive(Debug, Clone)]
pub(crate) struct Molmo2Layout {
    /// Pixels on a side of a crop.
    pub(crate) side: usize,
    /// Pixels on a side of a patch.
    pub(super) patch: usize,
    /// Patches on a side of a crop.
    pub(super) patches: usize,
    /// Patches before and behind those that no other crop has.
    margins: [usize; 2],
    /// Rows and columns of patches of a window.
    pool: [usize; 2],
    /// Whether rows of the whole image, and of the crops, end with [`Mark::Column`].
    ends_rows: [bool; 2],
    /// The most crops of an image.
    pub(crate) most_crops: usize,
    /// The ids of all marks.
    tokens: [u32; 5],
}

/// Returns the fields of the tower, with the names of HF `Molmo2VisionConfig`.
pub(super) fn vision_fields(outer: &Fields) -> Result<Fields, ConfigError> {
    let nested = match outer.nested("vision_config")? {
        None => outer.nested("vit_config")?,
        nested => nested,
    };
    let fields = nested.unwrap_or_else(|| Fields::empty_in(outer));
    Ok(fields.with_aliases(&[
        ("image_default_input_size", "image_size"),
        ("image_patch_size", "patch_size"),
        ("image_num_pos", "num_position_embeddings"),
    ]))
}

/// Returns the pixels on a side of a crop.
fn side(vision: &Fields) -> Result<usize, ConfigError> {
    let both = match vision.value(SIZE) {
        None => return Ok(378),
        Some(Value::Array(list)) => {
            let size = |value: &Value| usize::try_from(value.as_u64()?).ok();
            let list = list.iter().map(size).collect::<Option<Vec<usize>>>();
            list.and_then(|list| <[usize; 2]>::try_from(list).ok())
        }
        Some(_) => vision.size(SIZE)?.map(|side| [side; 2]),
    };
    let square = both.filter(|[height, width]| height == width);
    let [side, _] =
        square.ok_or_else(|| vision.invalid(SIZE, "a height, and a width that is equal to it"))?;
    Ok(side)
}

/// Returns the list of two sizes that `field` has, each from `least` on.
fn pair(
    fields: &Fields,
    field: &str,
    default: [usize; 2],
    least: usize,
) -> Result<[usize; 2], ConfigError> {
    let Some(value) = fields.value(field) else { return Ok(default) };
    let size = |value: &Value| {
        let size = usize::try_from(value.as_u64()?).ok()?;
        (least..=SIDE_MAX).contains(&size).then_some(size)
    };
    let list = value.as_array().map(|list| list.iter().map(size).collect::<Option<Vec<_>>>());
    let pair = list.flatten().and_then(|list| <[usize; 2]>::try_from(list).ok());
    let expected = format!("a list of two integers from {least} to {SIDE_MAX}");
    pair.ok_or_else(|| fields.invalid(field, &expected))
}

impl Molmo2Layout {
    /// The text of [`Mark::Column`].
    pub(crate) const COLUMN: &str = "<im_col>";

    /// Reads the form of the images of a model whose `config.json` has the fields `outer`. `column`
    /// finds the id of [`Self::COLUMN`] where these have none.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value, or the error of `column`.
    pub(crate) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        column: impl FnOnce() -> Result<u32, ConfigError>,
    ) -> Result<Self, ConfigError> {
        const PATCH: &str = "patch_size";
        const MARGINS: &str = "overlap_margins";
        const CROPS: &str = "max_crops";
        const POOL: &str = "pooling_size";
        let (vision, fields, whole) = (vision_fields(outer)?, &processor.image, &processor.whole);
        let patch = vision.size(PATCH)?.unwrap_or(14);
        if fields.size(PATCH)?.unwrap_or(14) != patch {
            return Err(fields.invalid(PATCH, &format!("{patch}, that of the tower")));
        }
        let side = side(&vision)?;
        if side > PIXELS_MAX {
            return Err(vision.invalid(SIZE, &format!("at most {PIXELS_MAX} pixels on a side")));
        }
        let patches = side / patch;
        if !side.is_multiple_of(patch) || !(1..=SIDE_MAX).contains(&patches) {
            let expected = format!("1 to {SIDE_MAX} patches of {patch} pixels on a side");
            return Err(vision.invalid(SIZE, &expected));
        }
        let margins = pair(fields, MARGINS, [4; 2], 0)?;
        if margins[0] + margins[1] >= patches {
            let expected = format!("less than {patches} together, the patches of a crop");
            return Err(fields.invalid(MARGINS, &expected));
        }
        let most_crops = fields.size(CROPS)?.unwrap_or(8);
        // Crops overlap, so they have at least the pixels of the image from which they are cut.
        let crops_max = CROPS_MAX.min(AREA_MAX / (side * side) - 1);
        if most_crops > crops_max {
            let expected = format!("1 to {crops_max}, for crops of {side} x {side} pixels");
            return Err(fields.invalid(CROPS, &expected));
        }
        let pool = pair(fields, POOL, [2; 2], 1)?;
        if pool.iter().any(|pool| *pool > patches) {
            let expected = format!("at most {patches} each, the patches on a side of a crop");
            return Err(fields.invalid(POOL, &expected));
        }
        let ends = whole.flag_or("image_use_col_tokens", true)?;
        let ends_whole = whole.flag("use_single_crop_col_tokens")?.unwrap_or(ends);
        let mut tokens = [0; 5];
        for (id, (field, default)) in tokens.iter_mut().zip(TOKENS) {
            *id = token(outer, field)?.unwrap_or(default);
        }
        let has_columns = ends || ends_whole;
        if has_columns && token(outer, TOKENS[Mark::Column as usize].0)?.is_none() {
            tokens[Mark::Column as usize] = column()?;
        }
        if !has_columns {
            // No image has this token.
            tokens[Mark::Column as usize] = tokens[Mark::Patch as usize];
        }
        if !whole.flag_or("use_single_crop_start_token", true)? {
            tokens[Mark::WholeStart as usize] = tokens[Mark::Start as usize];
        }
        Ok(Self {
            side,
            patch,
            patches,
            margins,
            pool,
            ends_rows: [ends_whole, ends],
            most_crops,
            tokens,
        })
    }

    /// Refuses ids that the embedding has no row for. It has `vocab_size` of them.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for the first of them.
    pub(super) fn require_rows(
        &self,
        outer: &Fields,
        vocab_size: usize,
    ) -> Result<(), ConfigError> {
        let mut ids = self.tokens.iter().zip(TOKENS);
        match ids.find(|(id, _)| **id as usize >= vocab_size) {
            None => Ok(()),
            Some((_, (field, _))) => {
                Err(outer.invalid(field, &format!("a token below {vocab_size}")))
            }
        }
    }

    /// Returns the ids of all marks, in the order of [`Mark`].
    pub(crate) fn tokens(&self) -> [u32; 5] {
        self.tokens
    }

    /// Returns the patches of a crop, on one side, that no other crop has.
    fn window(&self) -> usize {
        self.patches - self.margins[0] - self.margins[1]
    }

    /// Returns the pixels of a step from one crop to the next.
    pub(crate) fn step(&self) -> usize {
        self.window() * self.patch
    }

    /// Returns the pixels of an axis that crops have beside their steps.
    pub(crate) fn margin(&self) -> usize {
        (self.margins[0] + self.margins[1]) * self.patch
    }

    /// Returns the rows and columns of windows over the whole image, and over a grid of crops.
    fn windows_of(&self, grid: [usize; 2]) -> [[usize; 2]; 2] {
        let margin = self.margins[0] + self.margins[1];
        let pooled = |patches: [usize; 2]| [0, 1].map(|at| patches[at].div_ceil(self.pool[at]));
        let crops = grid.map(|crops| crops * self.window() + margin);
        [pooled([self.patches; 2]), pooled(crops)]
    }

    /// Returns the tokens of an image whose crops have so many rows and columns.
    pub(crate) fn num_tokens(&self, grid: [usize; 2]) -> usize {
        let views = self.windows_of(grid).into_iter().zip(self.ends_rows);
        views.map(|([rows, columns], ends)| 2 + rows * (columns + usize::from(ends))).sum()
    }

    /// Returns the same as marks, in order.
    pub(crate) fn marks(&self, grid: [usize; 2]) -> Vec<Mark> {
        let mut marks = Vec::with_capacity(self.num_tokens(grid));
        let starts = [Mark::WholeStart, Mark::Start];
        let views = starts.into_iter().zip(self.windows_of(grid)).zip(self.ends_rows);
        for ((start, [rows, columns]), ends) in views {
            marks.push(start);
            for _ in 0..rows {
                marks.extend(std::iter::repeat_n(Mark::Patch, columns));
                marks.extend(ends.then_some(Mark::Column));
            }
            marks.push(Mark::End);
        }
        marks
    }

    /// Returns the patches of each window of an image, in the order of its embeddings. A patch is
    /// counted through the whole image, then through each crop.
    pub(super) fn windows(&self, grid: [usize; 2]) -> Vec<Vec<u32>> {
        let side = self.patches;
        let mut all = Vec::new();
        self.push_windows([side; 2], |row, column| row * side + column, &mut all);
        let [rows, columns] = grid.map(|crops| self.axis(crops));
        let patch = |row: usize, column: usize| {
            let ([of_row, row], [of_column, column]) = (rows[row], columns[column]);
            let crop = 1 + of_row * grid[1] + of_column;
            (crop * side + row) * side + column
        };
        self.push_windows([rows.len(), columns.len()], patch, &mut all);
        all
    }

    /// Returns the crop of each patch on an axis of `crops` crops, and its place in that.
    fn axis(&self, crops: usize) -> Vec<[usize; 2]> {
        let ([before, behind], patches) = (self.margins, self.patches);
        let all = (0..crops).flat_map(|crop| (0..patches).map(move |patch| [crop, patch]));
        let is_first = |crop: usize, patch: usize| crop == 0 || patch >= before;
        let is_last = |crop: usize, patch: usize| crop + 1 == crops || patch + behind < patches;
        all.filter(|[crop, patch]| is_first(*crop, *patch) && is_last(*crop, *patch)).collect()
    }

    /// Appends the windows over a grid of patches. `patch` returns the patch of a row and a column.
    fn push_windows(
        &self,
        size: [usize; 2],
        patch: impl Fn(usize, usize) -> usize,
        all: &mut Vec<Vec<u32>>,
    ) {
        let [rows, columns] = [0, 1].map(|axis| windows(size[axis], self.pool[axis]));
        for row in &rows {
            for column in &columns {
                let places =
                    row.clone().flat_map(|row| column.clone().map(move |column| (row, column)));
                all.push(places.map(|(row, column)| patch(row, column) as u32).collect());
            }
        }
    }
}

/// Returns the places of each window of `pool` places on an axis of `size`. The windows at both
/// ends may have fewer. If an odd number of places has no patch, one more of them is behind.
fn windows(size: usize, pool: usize) -> Vec<Range<usize>> {
    let count = size.div_ceil(pool);
    let before = (count * pool - size) / 2;
    let window = |at: usize| {
        let end = ((at + 1) * pool).saturating_sub(before);
        (at * pool).saturating_sub(before)..end.min(size)
    };
    (0..count).map(window).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::config::fields;

    fn layout(patches: usize, margins: [usize; 2], pool: [usize; 2]) -> Molmo2Layout {
        Molmo2Layout {
            side: patches * 2,
            patch: 2,
            patches,
            margins,
            pool,
            ends_rows: [false, true],
            most_crops: 4,
            tokens: [5, 6, 7, 8, 9],
        }
    }

    /// Returns the layout of a model with these fields of the tower and of both files of the
    /// processor.
    fn read(vision: Value, image: Value, whole: Value) -> Result<Molmo2Layout, String> {
        let (image, whole) = (fields(image), fields(whole));
        let processor = ProcessorConfig { video: image.clone(), image, whole };
        let outer = fields(json!({ "vision_config": vision }));
        let layout = Molmo2Layout::read(&outer, &processor, || Ok(7));
        layout.map_err(|error| error.to_string())
    }

    #[test]
    fn the_crops_of_an_image_have_bounded_pixels() {
        let side = |side: usize, most_crops: usize| {
            let vision = json!({ "image_size": [side, side], "patch_size": 64 });
            let image = json!({ "patch_size": 64, "max_crops": most_crops });
            read(vision, image, json!({})).map(|layout| layout.side)
        };
        assert_eq!(side(2_048, 63), Ok(2_048));
        let why = side(2_048, 64).unwrap_err();
        assert!(why.contains("max_crops` is 64") && why.contains("1 to 63"), "{why}");
        let why = side(2_112, 1).unwrap_err();
        assert!(why.contains("vision_config.image_size") && why.contains("2048"), "{why}");
    }

    /// As in Python. Rows of the whole image end as those of crops by default.
    #[test]
    fn a_flag_that_is_null_is_false() {
        let of = |whole: Value| {
            let layout = read(json!({}), json!({}), whole).unwrap();
            let [start, crops] = [Mark::WholeStart, Mark::Start].map(|mark| mark as usize);
            (layout.ends_rows, layout.tokens[start] == layout.tokens[crops])
        };
        assert_eq!(of(json!({})), ([true, true], false));
        assert_eq!(of(json!({ "image_use_col_tokens": null })), ([false, false], false));
        assert_eq!(of(json!({ "use_single_crop_col_tokens": null })), ([true, true], false));
        assert_eq!(of(json!({ "use_single_crop_start_token": null })), ([true, true], true));
    }

    /// The ranges are those of HF `arange_for_pooling`.
    #[test]
    fn windows_at_the_ends_have_fewer_places() {
        assert_eq!(windows(4, 2), [0..2, 2..4]);
        assert_eq!(windows(5, 2), [0..2, 2..4, 4..5]);
        assert_eq!(windows(4, 3), [0..2, 2..4]);
        assert_eq!((windows(1, 3).len(), &windows(1, 3)[0]), (1, &(0..1)));
    }

    /// A patch of both crops is that of one.
    #[test]
    fn the_patches_of_an_axis_come_from_its_crops() {
        let layout = layout(4, [1, 1], [2, 2]);
        assert_eq!(layout.axis(1), [[0, 0], [0, 1], [0, 2], [0, 3]]);
        assert_eq!(layout.axis(2), [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [1, 3]]);
        assert_eq!((layout.step(), layout.margin()), (4, 4));
    }

    #[test]
    fn an_image_has_a_token_for_each_window_and_mark() {
        let layout = layout(4, [1, 1], [2, 2]);
        for grid in [[1, 1], [1, 2], [3, 1]] {
            let marks = layout.marks(grid);
            assert_eq!(marks.len(), layout.num_tokens(grid));
            let patches = marks.iter().filter(|mark| **mark == Mark::Patch).count();
            let windows = layout.windows(grid);
            assert_eq!(windows.len(), patches, "{grid:?}");
            let crops = 1 + grid[0] * grid[1];
            assert!(windows.iter().flatten().all(|patch| (*patch as usize) < crops * 16));
        }
        let columns = layout.marks([3, 1]).iter().filter(|mark| **mark == Mark::Column).count();
        assert_eq!(columns, 4, "rows of crops alone end with one");
        assert_eq!(layout.windows([1, 1])[5], [18, 19, 22, 23]);
    }
}
