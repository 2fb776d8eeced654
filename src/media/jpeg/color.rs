//! From samples to pixels: libjpeg's "fancy" upsampling (a triangle), and its conversion of colours
//! with 16 bits behind the point.

use super::frame::{Component, Frame};

/// The meaning of a file's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Grey,
    Rgb,
    YCbCr,
    Cmyk,
    /// CMYK whose first three colours are stored as luminance and chrominance.
    Ycck,
}

/// Returns the pixels of a frame, `[height, width, 3]`. `None` if a component has a fraction of the
/// pixels that is no whole number.
pub(super) fn rgb(frame: &Frame, space: Space) -> Option<Vec<u8>> {
    let [width, height] = frame.size;
    let mut pixels = vec![0; width * height * 3];
    let mut rows = vec![vec![0; width]; frame.components.len()];
    let scale = |component: &Component| {
        let [across, down] = [0, 1].map(|axis| {
            let (all, own) = (frame.sampling[axis], component.sampling[axis]);
            all.is_multiple_of(own).then_some(all / own)
        });
        Some([across?, down?])
    };
    let scales: Vec<[usize; 2]> = frame.components.iter().map(scale).collect::<Option<_>>()?;
    for (y, line) in pixels.chunks_exact_mut(width * 3).enumerate() {
        for ((component, scale), row) in frame.components.iter().zip(&scales).zip(&mut rows) {
            upsampled(component, *scale, y, row);
        }
        let line = line.as_chunks_mut::<3>().0.iter_mut().enumerate();
        match (space, &*rows) {
            (Space::Grey, [grey]) => line.for_each(|(x, pixel)| *pixel = [grey[x]; 3]),
            (Space::Rgb, [r, g, b]) => line.for_each(|(x, pixel)| *pixel = [r[x], g[x], b[x]]),
            (Space::YCbCr, [luma, cb, cr]) => {
                line.for_each(|(x, pixel)| *pixel = of_ycbcr(luma[x], cb[x], cr[x]));
            }
            (Space::Cmyk, [c, m, y, k]) => {
                line.for_each(|(x, pixel)| *pixel = of_cmyk([c[x], m[x], y[x]], k[x]));
            }
            (Space::Ycck, [luma, cb, cr, k]) => line.for_each(|(x, pixel)| {
                let inverse = of_ycbcr(luma[x], cb[x], cr[x]).map(|colour| 255 - colour);
                *pixel = of_cmyk(inverse, k[x]);
            }),
            _ => return None,
        }
    }
    Some(pixels)
}

/// Fills a row of pixels with the samples of a component that has one sample for `across` x `down`
/// pixels.
fn upsampled(component: &Component, [across, down]: [usize; 2], y: usize, to: &mut [u8]) {
    let own = component.row(y / down);
    let is_smooth = component.size[0] > 2;
    // The row that is nearest after its own.
    let next = || match y % 2 {
        0 => component.row((y / 2).saturating_sub(1)),
        _ => component.row(y / 2 + 1),
    };
    match [across, down] {
        [1, 1] => to.copy_from_slice(&own[..to.len()]),
        [2, 1] if is_smooth => {
            let sums: Vec<u16> = own.iter().map(|sample| u16::from(*sample)).collect();
            doubled(&sums, [1, 2], 2, to);
        }
        [1, 2] => {
            let half = 1 + (y % 2) as u16;
            for (to, (own, next)) in to.iter_mut().zip(own.iter().zip(next())) {
                *to = ((u16::from(*own) * 3 + u16::from(*next) + half) >> 2) as u8;
            }
        }
        [2, 2] if is_smooth => {
            let sum = |(own, next): (&u8, &u8)| u16::from(*own) * 3 + u16::from(*next);
            let sums: Vec<u16> = own.iter().zip(next()).map(sum).collect();
            doubled(&sums, [8, 7], 4, to);
        }
        _ => to.iter_mut().enumerate().for_each(|(x, to)| *to = own[x / across]),
    }
}

/// Fills a row with two pixels for each of `sums`. Each is three parts of its own and one of its
/// neighbour, rounded by `halves` for left and right pixels.
fn doubled(sums: &[u16], halves: [u16; 2], bits: u32, to: &mut [u8]) {
    let at = |index: usize| sums[index.min(sums.len() - 1)];
    for (index, pixels) in to.chunks_mut(2).enumerate() {
        let own = 3 * at(index);
        let neighbours = [at(index.saturating_sub(1)), at(index + 1)];
        for ((pixel, neighbour), half) in pixels.iter_mut().zip(neighbours).zip(halves) {
            *pixel = ((own + neighbour + half) >> bits) as u8;
        }
    }
}

/// Returns the colour of a luminance and its chrominance.
fn of_ycbcr(luma: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let [luma, cb, cr] = [i32::from(luma), i32::from(cb) - 128, i32::from(cr) - 128];
    let red = (91_881 * cr + HALF) >> 16;
    let green = (-22_554 * cb - 46_802 * cr + HALF) >> 16;
    let blue = (116_130 * cb + HALF) >> 16;
    [red, green, blue].map(|part| (luma + part).clamp(0, 255) as u8)
}

/// Returns the colour of inks. They are stored inverted, as Adobe's programs do: PIL reads all
/// files so.
fn of_cmyk(inks: [u8; 3], black: u8) -> [u8; 3] {
    inks.map(|ink| {
        let product = u32::from(255 - ink) * u32::from(black) + 128;
        let covered = ((product >> 8) + product) >> 8;
        (u32::from(black) - covered.min(u32::from(black))) as u8
    })
}
