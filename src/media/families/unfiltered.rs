//! Resizes images of floats as torch does without antialiasing. Each pixel is made of those next to
//! its place, also where many lie between two places.

use super::resize::Pixels;
use crate::model::vision::PixelScale;

/// The pixels that a pixel of the result is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbours {
    /// Two on each axis.
    Bilinear,
    /// Four on each axis: Keys' cubic with a = -0.75.
    Bicubic,
}

impl Neighbours {
    /// Returns for each of `outputs` places on an axis of `inputs` the pixels and their weights.
    fn taps(self, inputs: usize, outputs: usize) -> Vec<Vec<(usize, f32)>> {
        let scale = inputs as f32 / outputs as f32;
        let last = inputs as i64 - 1;
        let of_place = |output: usize| {
            let source = scale * (output as f32 + 0.5) - 0.5;
            let (first, weights): (i64, Vec<f32>) = match self {
                Self::Bilinear => {
                    let source = source.max(0.0);
                    let part = source - source.floor();
                    (source as i64, vec![1.0 - part, part])
                }
                Self::Bicubic => {
                    let low = source.floor();
                    (low as i64 - 1, cubic_weights(source - low).to_vec())
                }
            };
            let at = (first..).map(|place| place.clamp(0, last) as usize);
            at.zip(weights).collect()
        };
        (0..outputs).map(of_place).collect()
    }
}

/// Returns the weights of the four places around one that lies `part` behind the second.
fn cubic_weights(part: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)]
}

/// Returns the numbers of an image in another size, `[3, side, side]`.
pub(super) fn resized(
    image: &Pixels,
    scale: &PixelScale,
    neighbours: Neighbours,
    side: usize,
) -> Vec<f32> {
    let rows = neighbours.taps(image.height, side);
    let columns = neighbours.taps(image.width, side);
    let mut values = Vec::with_capacity(3 * side * side);
    for channel in 0..3 {
        let numbers: Vec<f32> = (0..=u8::MAX).map(|byte| scale.of(channel, byte)).collect();
        let number = |row: usize, column: usize| {
            numbers[image.data[(row * image.width + column) * 3 + channel] as usize]
        };
        for of_row in &rows {
            for of_column in &columns {
                let across = |row: usize| -> f32 {
                    of_column.iter().map(|(column, weight)| number(row, *column) * weight).sum()
                };
                values.push(of_row.iter().map(|(row, weight)| across(*row) * weight).sum());
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_size_are_those_of_the_image() {
        for neighbours in [Neighbours::Bilinear, Neighbours::Bicubic] {
            for (place, taps) in neighbours.taps(5, 5).into_iter().enumerate() {
                let weight: f32 = taps.iter().filter(|(at, _)| *at == place).map(|it| it.1).sum();
                assert_eq!(weight, 1.0, "{neighbours:?}");
            }
        }
    }

    #[test]
    fn pixels_between_two_places_are_not_read() {
        let taps = Neighbours::Bilinear.taps(32, 4);
        assert_eq!(taps[1], [(11, 0.5), (12, 0.5)]);
        assert_eq!(Neighbours::Bicubic.taps(32, 4)[0].len(), 4);
    }
}
