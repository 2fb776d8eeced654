//! Resizes images of bytes as torch does in floats without antialiasing, and rounds (torch
//! `upsample_bilinear2d` on the CPU, to the bit). A pixel is a mixture of four, also where an image
//! becomes smaller.

use super::resize::Pixels;

/// The places of an axis between which each output is.
struct Axis {
    /// The first place, the next one, and the share of the next one.
    outputs: Vec<(usize, usize, f32)>,
}

impl Axis {
    /// Returns the places of `outputs` outputs on an axis of `inputs`.
    fn new(inputs: usize, outputs: usize) -> Self {
        let scale = inputs as f32 / outputs as f32;
        let last = inputs.saturating_sub(1);
        let of_output = |output: usize| {
            let exact = fused(scale, output as f32 + 0.5, -0.5).max(0.0);
            let first = (exact as usize).min(last);
            (first, (first + 1).min(last), (exact - first as f32).clamp(0.0, 1.0))
        };
        Self { outputs: (0..outputs).map(of_output).collect() }
    }
}

/// Returns `a · b + c` with one rounding, as torch's build has it. A product of two floats is exact
/// in 64 bits.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// Returns the image in another size.
pub(super) fn bilinear(image: &Pixels, [height, width]: [usize; 2]) -> Pixels {
    let (rows, columns) = (Axis::new(image.height, height), Axis::new(image.width, width));
    let mut data = Vec::with_capacity(height * width * 3);
    for (top, bottom, down) in rows.outputs {
        for (left, right, along) in &columns.outputs {
            let (up, before) = (1.0 - down, 1.0 - along);
            let pixel = |row: usize, column: usize| {
                let at = (row * image.width + column) * 3;
                &image.data[at..at + 3]
            };
            let corners = [
                (up * along, pixel(top, *right)),
                (up * before, pixel(top, *left)),
                (down * before, pixel(bottom, *left)),
                (down * along, pixel(bottom, *right)),
            ];
            for channel in 0..3 {
                // The first sum adds to 0, so it is the rounded product.
                let sum = corners.iter().fold(0.0_f32, |sum, (share, pixel)| {
                    fused(*share, f32::from(pixel[channel]), sum)
                });
                data.push(sum.round_ties_even().clamp(0.0, 255.0) as u8);
            }
        }
    }
    Pixels { height, width, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(height: usize, width: usize) -> Pixels {
        let data = (0..height * width * 3).map(|at| (at * 37 % 251) as u8).collect();
        Pixels { height, width, data }
    }

    #[test]
    fn the_same_size_has_the_same_pixels() {
        assert_eq!(bilinear(&image(3, 5), [3, 5]), image(3, 5));
        assert_eq!(bilinear(&image(1, 1), [2, 3]).data, image(1, 1).data.repeat(6));
    }

    /// The numbers are those of torch. Of 2 and 3, which are as near to 2.5, the even one counts.
    #[test]
    fn a_pixel_is_between_its_neighbours() {
        let two = Pixels { height: 1, width: 2, data: vec![1, 1, 1, 4, 4, 4] };
        let wide = bilinear(&two, [1, 4]);
        assert_eq!(wide.data.iter().step_by(3).copied().collect::<Vec<u8>>(), [1, 2, 3, 4]);
        assert_eq!(bilinear(&two, [1, 1]).data, [2; 3]);
    }

    /// Without antialiasing, most pixels of a large image do not count.
    #[test]
    fn a_smaller_image_reads_single_pixels() {
        let mut data = vec![9; 9 * 3];
        data[4 * 3..5 * 3].fill(200);
        let spot = Pixels { height: 1, width: 9, data };
        assert_eq!(bilinear(&spot, [1, 3]).data, [9, 9, 9, 200, 200, 200, 9, 9, 9]);
    }
}
