//! Embeddings that are mixtures of features, for LLaVA-OneVision. The features of an image in many
//! tiles are resized to fewer rows and columns. Those of a frame are resized to half of each (HF
//! `LlavaOnevisionModel.pack_image_features`, `apply_pooling`: bilinear, without antialiasing).
//!
//! | tensor | shape |
//! |---|---|
//! | features | `[images · side², text_hidden_size]` and the learned vector behind them |
//! | embeddings of an image | `[side² + rows · (columns + 1), text_hidden_size]` |
//! | embeddings of frames | `[frames · half² + 1, text_hidden_size]`; not all have the vector |

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale_rows, select_rows};

use super::anyres::{AnyResTiles, END_OF_ROW};
use crate::model::MediaTensorView;

/// An image of more features than this times the most allowed ones has its features resized.
const TOLERANCE: f64 = 1.1;

/// The embeddings of an item: sums of four features with their shares.
#[derive(Debug, Default)]
pub(super) struct Mixed {
    features: [Vec<u32>; 4],
    shares: [Vec<f32>; 4],
}

impl Mixed {
    /// Returns the number of embeddings.
    pub(super) fn len(&self) -> usize {
        self.features[0].len()
    }

    /// Returns the embeddings. `row` returns the row of `all` that has a feature.
    pub(super) fn of(&self, all: &Tensor<2>, row: impl Fn(&u32) -> u32) -> Tensor<2> {
        let part = |at: usize| {
            let places: Vec<u32> = self.features[at].iter().map(&row).collect();
            scale_rows(select_rows(all.clone(), &places), &self.shares[at])
        };
        add(add(part(0), part(1)), add(part(2), part(3)))
    }

    fn push_one(&mut self, feature: u32) {
        self.push([feature; 4], [1.0, 0.0, 0.0, 0.0]);
    }

    fn push(&mut self, features: [u32; 4], shares: [f32; 4]) {
        for (at, (feature, share)) in features.into_iter().zip(shares).enumerate() {
            self.features[at].push(feature);
            self.shares[at].push(share);
        }
    }

    /// Appends the place `at` of a grid of `size`, to which one of `from` rows and columns is
    /// resized. `feature` returns the feature of a place of that one.
    fn push_between(
        &mut self,
        at: [usize; 2],
        from: [usize; 2],
        size: [usize; 2],
        feature: impl Fn(usize, usize) -> u32,
    ) {
        let ([top, bottom], down) = between(at[0], from[0], size[0]);
        let ([left, right], along) = between(at[1], from[1], size[1]);
        self.push(
            [
                feature(top, left),
                feature(top, right),
                feature(bottom, left),
                feature(bottom, right),
            ],
            [
                (1.0 - down) * (1.0 - along),
                (1.0 - down) * along,
                down * (1.0 - along),
                down * along,
            ],
        );
    }
}

/// Returns the two places of an axis of `from` between which the place `at` of `size` is, and the
/// share of the second one. In floats of 32 bits, as in torch.
fn between(at: usize, from: usize, size: usize) -> ([usize; 2], f32) {
    let scale = from as f32 / size as f32;
    let exact = (scale * (at as f32 + 0.5) - 0.5).max(0.0);
    let last = from.saturating_sub(1);
    let first = (exact as usize).min(last);
    ([first, (first + 1).min(last)], exact - first as f32)
}

/// Returns the rows and columns of features after they are resized. Features that are hardly more
/// than those of `most` tiles stay as they are. A tile has `side²` of them.
fn capped([rows, columns]: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let ratio = ((rows * columns) as f64 / (most * side * side) as f64).sqrt();
    // As the floor division of Python.
    let divided = |all: usize| {
        let all = all as f64;
        ((all - all % ratio) / ratio).round() as usize
    };
    if ratio > TOLERANCE { [divided(rows), divided(columns)] } else { [rows, columns] }
}

impl AnyResTiles {
    /// Returns the number of embeddings of an image whose tiles have `side²` features, of which
    /// those of `most` tiles are allowed.
    pub(crate) fn num_capped(self, side: usize, most: usize) -> usize {
        let size = self.unpadded(side).map(|range| range.len());
        let [rows, columns] = capped(size, side, most);
        side * side + rows * (columns + 1)
    }

    /// Returns the mixtures of features of the same image: the whole image first.
    pub(super) fn mixed(self, side: usize, most: usize) -> Mixed {
        let unpadded = self.unpadded(side);
        let first = [unpadded[0].start, unpadded[1].start];
        let from = unpadded.map(|range| range.len());
        let size = capped(from, side, most);
        let feature =
            |row: usize, column: usize| self.feature(side, first[0] + row, first[1] + column);
        let mut mixed = Mixed::default();
        (0..(side * side) as u32).for_each(|feature| mixed.push_one(feature));
        for row in 0..size[0] {
            for column in 0..size[1] {
                if size == from {
                    mixed.push_one(feature(row, column));
                } else {
                    mixed.push_between([row, column], from, size, feature);
                }
            }
            mixed.push_one(END_OF_ROW);
        }
        mixed
    }
}

/// Frames of a video, each of which has about a quarter of an image's features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PooledFrames {
    /// Whether the learned vector follows the last one.
    pub(crate) has_end: bool,
}

impl PooledFrames {
    /// Returns the shape of a tensor without elements, in which the processor hands this to the
    /// encoder.
    pub(crate) fn shape(self) -> Vec<usize> {
        vec![1 + usize::from(self.has_end), 0]
    }

    /// Returns the frames of an item with this tensor.
    pub(super) fn of(tensor: Option<&MediaTensorView<'_>>) -> Option<Self> {
        match *tensor?.shape {
            [1, 0] => Some(Self { has_end: false }),
            [2, 0] => Some(Self { has_end: true }),
            _ => None,
        }
    }

    /// Returns the number of embeddings of `count` frames with `side²` features each.
    pub(crate) fn num_embeds(self, side: usize, count: usize) -> usize {
        count * side.div_ceil(2).pow(2) + usize::from(self.has_end)
    }

    /// Returns the mixtures of their features.
    pub(super) fn mixed(self, side: usize, count: usize) -> Mixed {
        let half = side.div_ceil(2);
        let mut mixed = Mixed::default();
        for frame in 0..count {
            let feature =
                |row: usize, column: usize| (frame * side * side + row * side + column) as u32;
            for at in 0..half * half {
                mixed.push_between([at / half, at % half], [side; 2], [half; 2], feature);
            }
        }
        if self.has_end {
            mixed.push_one(END_OF_ROW);
        }
        mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_between_are_those_of_torch() {
        // `interpolate(size=2, mode="bilinear")` of five: 0.75 of the first and 3.25.
        assert_eq!(between(0, 5, 2), ([0, 1], 0.75));
        assert_eq!(between(1, 5, 2), ([3, 4], 0.25));
        // A place beside the grid is the nearest one.
        assert_eq!(between(0, 2, 4), ([0, 1], 0.0));
        assert_eq!(between(3, 2, 4), ([1, 1], 0.25));
    }

    #[test]
    fn features_of_too_many_tiles_are_resized() {
        // Nine tiles of 27 x 27 are allowed, and a few more.
        assert_eq!(capped([81, 81], 27, 9), [81, 81]);
        assert_eq!(capped([108, 81], 27, 9), [93, 70]);
        assert_eq!(capped([162, 162], 27, 9), [81, 81]);
        let tiles = AnyResTiles { grid: [6, 6], original: [100, 100] };
        assert_eq!(tiles.num_capped(27, 9), 27 * 27 + 81 * 82);
        assert_eq!(tiles.mixed(27, 9).len(), tiles.num_capped(27, 9));
    }

    #[test]
    fn a_frame_has_a_quarter_of_the_features() {
        let frames = PooledFrames { has_end: true };
        // As in the published models: 27 patches on a side become 14.
        assert_eq!(frames.num_embeds(27, 32), 32 * 196 + 1);
        let mixed = frames.mixed(3, 2);
        assert_eq!(mixed.len(), frames.num_embeds(3, 2));
        assert_eq!(mixed.features[3][4..], [13, 14, 16, 17, END_OF_ROW]);
    }
}
