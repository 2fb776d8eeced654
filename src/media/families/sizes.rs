//! The sizes that images are resized to.

use super::fields::Size;

/// The largest side of a resized image: that of an image of one pixel's height grows with its
/// shorter side.
const SIDE_MAX: usize = 1 << 14;
/// The most pixels of a resized image. A client may set the size.
const AREA_MAX: usize = 1 << 24;

/// Returns the size of an image of `[height, width]` whose `size` a processor gives: HF
/// `get_resize_output_image_size`. `None` if a side would be too long.
pub(super) fn target([height, width]: [usize; 2], size: Size) -> Option<[usize; 2]> {
    let is_small = |[height, width]: [usize; 2]| height.saturating_mul(width) <= AREA_MAX;
    let side = match size {
        Size::Exact { height, width } => {
            return Some([height, width]).filter(|size| is_small(*size));
        }
        Size::Bounded { shortest, longest } => {
            let size = bounded([height, width], shortest, longest);
            return Some(size).filter(|size| is_small(*size) && !size.contains(&0));
        }
        Size::Shortest(side) => side,
    };
    let (short, long) = (height.min(width), height.max(width));
    let other = (side as f64 * long as f64 / short as f64) as usize;
    let size = if width <= height { [other, side] } else { [side, other] };
    (other <= SIDE_MAX && is_small(size)).then_some(size)
}

/// Returns the size of an image of `[height, width]` whose shorter side becomes `shortest`, or less
/// so that the longer one is not longer than `longest`: HF `get_size_with_aspect_ratio`.
fn bounded([height, width]: [usize; 2], shortest: usize, longest: usize) -> [usize; 2] {
    let [short, long] = [height.min(width), height.max(width)].map(|side| side as f64);
    let is_long = long / short * shortest as f64 > longest as f64;
    let exact = match is_long {
        true => longest as f64 * short / long,
        false => shortest as f64,
    };
    let side = exact.round_ties_even() as usize;
    if height.min(width) == side {
        return [height, width];
    }
    match width < height {
        true => [(exact * height as f64 / width as f64) as usize, side],
        false => [side, (exact * width as f64 / height as f64) as usize],
    }
}

/// The largest accepted ratio of the sides.
pub(super) const RATIO_MAX: usize = 200;

/// Returns the size of an image of `[height, width]` in whole squares of `factor` pixels, with
/// `least` to `most` pixels: HF `smart_resize` of Qwen2-VL. `None` if one side is more than
/// [`RATIO_MAX`] times the other.
pub(super) fn in_squares(
    [height, width]: [usize; 2],
    factor: usize,
    [least, most]: [usize; 2],
) -> Option<[usize; 2]> {
    let (short, long) = (height.min(width), height.max(width));
    if short == 0 || long as f64 / short as f64 > RATIO_MAX as f64 {
        return None;
    }
    let by = factor as f64;
    let area = (height * width) as f64;
    let sides = |round: &dyn Fn(f64) -> f64| {
        [height, width].map(|side| (round(side as f64) as usize) * factor)
    };
    let rounded = sides(&|side| (side / by).round_ties_even());
    let pixels = rounded[0] * rounded[1];
    Some(if pixels > most {
        let shrink = (area / most as f64).sqrt();
        sides(&|side| (side / shrink / by).floor().max(1.0))
    } else if pixels < least {
        let grow = (least as f64 / area).sqrt();
        sides(&|side| (side * grow / by).ceil())
    } else {
        rounded
    })
}

/// Returns the size of `count` frames of `[height, width]` in whole squares of `factor` pixels,
/// where `merge` frames become one. All frames together have `least` to `most` pixels: HF
/// `smart_resize` of Qwen3-VL's videos and of GLM-4.1V. `None` as [`in_squares`].
pub(super) fn in_volumes(
    count: usize,
    [height, width]: [usize; 2],
    [merge, factor]: [usize; 2],
    [least, most]: [usize; 2],
) -> Option<[usize; 2]> {
    if height.min(width) == 0 {
        return None;
    }
    let by = factor as f64;
    let mut sides = [height as f64, width as f64];
    if height < factor || width < factor {
        let scale = (by / sides[0]).max(by / sides[1]);
        sides = sides.map(|side| (side * scale).floor());
    }
    let [short, long] = [sides[0].min(sides[1]), sides[0].max(sides[1])];
    if long / short > RATIO_MAX as f64 {
        return None;
    }
    let squares = |round: &dyn Fn(f64) -> f64| sides.map(|side| (round(side) as usize) * factor);
    let rounded = squares(&|side| (side / by).round_ties_even());
    let frames = (count as f64 / merge as f64).round_ties_even() as usize * merge;
    let pixels = frames * rounded[0] * rounded[1];
    let volume = count as f64 * sides[0] * sides[1];
    Some(if pixels > most {
        let shrink = (volume / most as f64).sqrt();
        squares(&|side| (side / shrink / by).floor().max(1.0))
    } else if pixels < least {
        let grow = (least as f64 / volume).sqrt();
        squares(&|side| (side * grow / by).ceil())
    } else {
        rounded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_is_rounded_down() {
        assert_eq!(target([30, 40], Size::Shortest(56)), Some([56, 74]));
        assert_eq!(target([40, 30], Size::Shortest(56)), Some([74, 56]));
        assert_eq!(target([40, 30], Size::Exact { height: 7, width: 9 }), Some([7, 9]));
        assert_eq!(target([1, 1000], Size::Shortest(56)), None);
    }

    /// The numbers come from HF `get_size_with_aspect_ratio`.
    #[test]
    fn the_longer_side_is_bounded() {
        let size = Size::Bounded { shortest: 56, longest: 80 };
        for (before, after) in [
            ([30, 40], [56, 74]),
            ([40, 197], [16, 80]),
            ([120, 30], [80, 20]),
            ([300, 200], [80, 53]),
            ([56, 70], [56, 70]),
            ([61, 83], [56, 76]),
        ] {
            assert_eq!(target(before, size), Some(after), "{before:?}");
        }
        assert_eq!(target([1, 1000], size), None);
    }

    /// The numbers come from HF `smart_resize`.
    #[test]
    fn squares_are_those_of_qwen() {
        let limits = [784, 50_176];
        assert_eq!(in_squares([56, 56], 28, limits), Some([56, 56]));
        assert_eq!(in_squares([42, 70], 28, limits), Some([56, 56]));
        assert_eq!(in_squares([5, 7], 28, limits), Some([28, 56]));
        assert_eq!(in_squares([1000, 600], 28, limits), Some([280, 168]));
        assert_eq!(in_squares([1, 200], 28, limits), Some([28, 420]));
        assert_eq!(in_squares([1, 201], 28, limits), None);
    }
}
