//! Images in bytes, and their patches as rows of floats.

use super::super::{MediaData, MediaTensorView};
use super::config::PixelScale;

/// The numbers that the channels of a pixel become: rescaled and normalised.
#[derive(Debug)]
pub(super) struct Pixels {
    /// For each channel, the number of each byte.
    table: [[f32; 256]; 3],
}

/// Images of one size: `[count, height, width, 3]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Images<'a> {
    data: &'a [u8],
    pub(super) count: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The size of a patch in pixels, and the frames that one patch spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct PatchSize {
    pub(super) side: usize,
    pub(super) frames: usize,
}

impl PatchSize {
    /// Returns the numbers of a patch.
    pub(super) fn len(self) -> usize {
        3 * self.frames * self.side * self.side
    }
}

/// The place of a patch: its frames, row and column, in patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatchPlace {
    pub(super) frame: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a> Images<'a> {
    /// Reads the images of an item's tensor: `[height, width, 3]` or `[count, height, width, 3]`.
    ///
    /// # Errors
    /// The difference, if it is another tensor.
    pub(super) fn read(tensor: Option<&MediaTensorView<'a>>) -> Result<Self, String> {
        let tensor = tensor.ok_or("the item has no pixels")?;
        let MediaData::U8(data) = tensor.data else { return Err("pixels are bytes".into()) };
        let (count, height, width) = match *tensor.shape {
            [height, width, 3] => (1, height, width),
            [count, height, width, 3] => (count, height, width),
            _ => return Err(format!("pixels have the shape {:?}", tensor.shape)),
        };
        if data.is_empty() || data.len() != count * height * width * 3 {
            return Err(format!("{} bytes for pixels of {:?}", data.len(), tensor.shape));
        }
        Ok(Self { data, count, height, width })
    }
}

impl Pixels {
    /// Makes the table of `scale`.
    pub(super) fn new(scale: &PixelScale) -> Self {
        let mut table = [[0.0; 256]; 3];
        for (channel, numbers) in table.iter_mut().enumerate() {
            for (byte, number) in (0..=u8::MAX).zip(numbers.iter_mut()) {
                *number = scale.of(channel, byte);
            }
        }
        Self { table }
    }

    /// Returns the same with other numbers, each a function of the one before.
    pub(super) fn mapped(mut self, function: impl Fn(f32) -> f32) -> Self {
        self.table.iter_mut().flatten().for_each(|number| *number = function(*number));
        self
    }

    /// Returns the patches of images whose sides have `image_size` pixels, row by row.
    ///
    /// # Errors
    /// The size, if the images have another one.
    pub(super) fn tiles(
        &self,
        images: Images<'_>,
        size: PatchSize,
        image_size: usize,
    ) -> Result<Vec<f32>, String> {
        let Images { count, height, width, .. } = images;
        if [height, width] != [image_size; 2] {
            return Err(format!("an image of {height} x {width} pixels; expected {image_size}"));
        }
        let side = image_size / size.side;
        let mut values = Vec::with_capacity(count * side * side * size.len());
        for frame in 0..count {
            for at in 0..side * side {
                let place = PatchPlace { frame, row: at / side, column: at % side };
                self.push_patch(images, size, place, &mut values);
            }
        }
        Ok(values)
    }

    /// Appends the patch at `place` to `out`, by channels, frames, rows and columns. A video
    /// without enough frames repeats its last one.
    pub(super) fn push_patch(
        &self,
        images: Images<'_>,
        size: PatchSize,
        place: PatchPlace,
        out: &mut Vec<f32>,
    ) {
        let Images { data, count, height, width } = images;
        let PatchSize { side, frames } = size;
        for (channel, numbers) in self.table.iter().enumerate() {
            for frame in place.frame * frames..(place.frame + 1) * frames {
                let frame = frame.min(count - 1);
                for row in place.row * side..(place.row + 1) * side {
                    let first = (frame * height + row) * width + place.column * side;
                    let pixels = &data[first * 3..(first + side) * 3];
                    out.extend(
                        pixels.iter().skip(channel).step_by(3).map(|x| numbers[*x as usize]),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_its_channels_one_after_the_other() {
        let data: Vec<u8> = (0..2 * 4 * 3).collect();
        let tensor = MediaTensorView { shape: &[2, 4, 3], data: MediaData::U8(&data) };
        let images = Images::read(Some(&tensor)).unwrap();
        let scale =
            PixelScale { mean: [0.0; 3], std: [1.0; 3], factor: 1.0, rounds_to_bf16: false };
        let (mut out, size) = (Vec::new(), PatchSize { side: 2, frames: 1 });
        let place = PatchPlace { frame: 0, row: 0, column: 1 };
        Pixels::new(&scale).push_patch(images, size, place, &mut out);
        assert_eq!(out, [6.0, 9.0, 18.0, 21.0, 7.0, 10.0, 19.0, 22.0, 8.0, 11.0, 20.0, 23.0]);
    }

    #[test]
    fn other_tensors_are_refused() {
        let read = |shape: &[usize], data: &[u8]| {
            Images::read(Some(&MediaTensorView { shape, data: MediaData::U8(data) })).map(drop)
        };
        assert!(Images::read(None).is_err());
        assert!(read(&[1, 2, 3], &[0; 6]).is_ok());
        for (shape, len) in [(&[1, 2, 3][..], 5), (&[2, 3], 6), (&[0, 2, 3], 0), (&[1, 2, 4], 8)] {
            assert!(read(shape, &vec![0; len]).is_err(), "{shape:?}");
        }
    }
}
