//! Resizes images of bytes as torchvision does on the CPU, to the bit: separable filters that grow
//! with the scale (antialiasing), weights of 16 bits, and rounding to bytes after each direction.
//! Pillow has weights of 32 bits. Up to its version 12 the width always changes first.

use std::f64::consts::PI;

use image::RgbImage;

/// The bits behind the point of Pillow's weights.
const PILLOW_PRECISION: u32 = 22;

/// The filter of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    /// A triangle.
    Bilinear,
    /// The same with the weights of Pillow.
    BilinearOfPillow,
    /// Keys' cubic with a = -0.5.
    Bicubic,
    /// The same with the weights of Pillow.
    BicubicOfPillow,
    /// Lanczos' filter of three lobes.
    Lanczos,
}

/// An image of bytes, `[height, width, 3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) data: Vec<u8>,
}

impl Filter {
    /// Returns the half of its width at scale 1.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear | Self::BilinearOfPillow => 1.0,
            Self::Bicubic | Self::BicubicOfPillow => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns its weight at the distance `x`.
    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        match self {
            Self::Bilinear | Self::BilinearOfPillow => (1.0 - distance).max(0.0),
            Self::Bicubic | Self::BicubicOfPillow if distance < 1.0 => {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Self::Bicubic | Self::BicubicOfPillow if distance < 2.0 => {
                ((A * distance - 5.0 * A) * distance + 8.0 * A) * distance - 4.0 * A
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Bicubic | Self::BicubicOfPillow | Self::Lanczos => 0.0,
        }
    }
}

/// The weights of one direction.
struct Weights {
    /// For each output, its first input and the weights from there.
    outputs: Vec<(usize, Vec<i32>)>,
    /// The bits behind the point.
    precision: u32,
}

impl Weights {
    /// Returns the weights from `inputs` elements to `outputs`.
    fn new(filter: Filter, inputs: usize, outputs: usize) -> Self {
        let scale = inputs as f64 / outputs as f64;
        let support = filter.support() * scale.max(1.0);
        let inverse = if scale >= 1.0 { 1.0 / scale } else { 1.0 };
        let of_output = |output: usize| {
            let center = scale * (output as f64 + 0.5);
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(inputs);
            let distance = |input: usize| (input as f64 - center + 0.5) * inverse;
            let weights: Vec<f64> =
                (first..end).map(|input| filter.weight(distance(input))).collect();
            let sum: f64 = weights.iter().sum();
            let normed = |weight: f64| if sum == 0.0 { weight } else { weight / sum };
            (first, weights.into_iter().map(normed).collect::<Vec<f64>>())
        };
        let floats: Vec<(usize, Vec<f64>)> = (0..outputs).map(of_output).collect();
        let largest = floats.iter().flat_map(|(_, weights)| weights).fold(0.0, |a, b| b.max(a));
        let fits = |bits: u32| 0.5 + largest * f64::from(1 << bits) < f64::from(1 << 15);
        let precision = match filter {
            Filter::BilinearOfPillow | Filter::BicubicOfPillow => PILLOW_PRECISION,
            _ => (0..22).find(|bits| !fits(bits + 1)).unwrap_or(22),
        };
        let round = |weight: &f64| {
            (weight * f64::from(1 << precision) + if *weight < 0.0 { -0.5 } else { 0.5 }) as i32
        };
        let outputs = floats.into_iter();
        let outputs = outputs.map(|(first, weights)| (first, weights.iter().map(round).collect()));
        Self { outputs: outputs.collect(), precision }
    }

    /// Returns the byte of a sum.
    fn byte(&self, sum: i32) -> u8 {
        ((sum + (1 << (self.precision - 1))) >> self.precision).clamp(0, 255) as u8
    }
}

impl Pixels {
    /// Copies an image.
    pub(super) fn of(image: &RgbImage) -> Self {
        let (width, height) = (image.width() as usize, image.height() as usize);
        Self { height, width, data: image.as_raw().clone() }
    }

    /// Returns the image in another size.
    pub(super) fn resized(self, filter: Filter, [height, width]: [usize; 2]) -> Self {
        let across = if width == self.width { self } else { self.across(filter, width) };
        if height == across.height { across } else { across.down(filter, height) }
    }

    /// Returns the image with another width.
    fn across(&self, filter: Filter, width: usize) -> Self {
        let weights = Weights::new(filter, self.width, width);
        let mut data = Vec::with_capacity(self.height * width * 3);
        for row in self.data.chunks_exact(self.width * 3) {
            for (first, column) in &weights.outputs {
                let mut sums = [0_i32; 3];
                for (pixel, weight) in row[first * 3..].chunks_exact(3).zip(column) {
                    for (sum, byte) in sums.iter_mut().zip(pixel) {
                        *sum += i32::from(*byte) * weight;
                    }
                }
                data.extend(sums.map(|sum| weights.byte(sum)));
            }
        }
        Self { height: self.height, width, data }
    }

    /// Returns the image with another height.
    fn down(&self, filter: Filter, height: usize) -> Self {
        let weights = Weights::new(filter, self.height, height);
        let line = self.width * 3;
        let mut data = Vec::with_capacity(height * line);
        let mut sums = vec![0_i32; line];
        for (first, row) in &weights.outputs {
            sums.fill(0);
            for (bytes, weight) in self.data[first * line..].chunks_exact(line).zip(row) {
                for (sum, byte) in sums.iter_mut().zip(bytes) {
                    *sum += i32::from(*byte) * weight;
                }
            }
            data.extend(sums.iter().map(|sum| weights.byte(*sum)));
        }
        Self { height, width: self.width, data }
    }

    /// Returns the image with rows and columns exchanged.
    pub(super) fn transposed(&self) -> Self {
        let Self { height, width, ref data } = *self;
        let at = |row: usize, column: usize| (row * width + column) * 3;
        let of_column =
            |column: usize| (0..height).flat_map(move |row| &data[at(row, column)..][..3]).copied();
        let data = (0..width).flat_map(of_column).collect();
        Self { height: width, width: height, data }
    }

    /// Returns the part of `size` from `top` and `left` on. The part outside the image is `fill`.
    pub(super) fn part(
        &self,
        [top, left]: [isize; 2],
        [height, width]: [usize; 2],
        fill: [u8; 3],
    ) -> Self {
        let mut data = Vec::with_capacity(height * width * 3);
        for row in top..top + height as isize {
            for column in left..left + width as isize {
                let inside = (0..self.height as isize).contains(&row)
                    && (0..self.width as isize).contains(&column);
                let at = || (row as usize * self.width + column as usize) * 3;
                match inside {
                    true => data.extend_from_slice(&self.data[at()..at() + 3]),
                    false => data.extend(fill),
                }
            }
        }
        Self { height, width, data }
    }

    /// Returns the part of `size` in the middle, with black around a smaller image.
    pub(super) fn center(&self, size: [usize; 2]) -> Self {
        let first = |all: usize, part: usize| match part > all {
            true => -(((part - all) / 2) as isize),
            false => ((all - part) / 2) as isize,
        };
        self.part([first(self.height, size[0]), first(self.width, size[1])], size, [0; 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Filter; 5] = [
        Filter::Bilinear,
        Filter::BilinearOfPillow,
        Filter::Bicubic,
        Filter::BicubicOfPillow,
        Filter::Lanczos,
    ];

    fn image(height: usize, width: usize) -> Pixels {
        let data = (0..height * width * 3).map(|at| (at * 37 % 251) as u8).collect();
        Pixels { height, width, data }
    }

    #[test]
    fn the_same_size_changes_nothing() {
        let before = image(5, 7);
        for filter in ALL {
            assert_eq!(before.across(filter, 7), before);
            assert_eq!(before.down(filter, 5), before);
        }
    }

    #[test]
    fn a_plain_image_stays_plain() {
        let plain = Pixels { height: 9, width: 4, data: vec![77; 9 * 4 * 3] };
        for filter in ALL {
            for size in [[3, 4], [20, 1], [1, 50]] {
                let resized = plain.clone().resized(filter, size);
                assert_eq!([resized.height, resized.width], size);
                assert!(resized.data.iter().all(|byte| *byte == 77), "{filter:?} {size:?}");
            }
        }
    }

    #[test]
    fn the_middle_of_a_small_image_has_black_around_it() {
        let one = Pixels { height: 1, width: 2, data: vec![1, 2, 3, 4, 5, 6] };
        let center = one.center([3, 1]);
        assert_eq!(center.data, [0, 0, 0, 1, 2, 3, 0, 0, 0]);
        assert_eq!(image(5, 5).center([2, 2]), image(5, 5).part([1, 1], [2, 2], [0; 3]));
    }
}
