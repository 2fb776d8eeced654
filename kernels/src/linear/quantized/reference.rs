//! Straight loops: integers in i64, scaled in f64.

use crate::{Offsets, QuantizedMatrix};

/// Returns a row of activations as integers, with a scale for each `size` columns.
pub(super) fn activations(x: &[f32], size: usize) -> (Vec<i64>, Vec<f32>) {
    let (mut integers, mut scales) = (Vec::new(), Vec::new());
    for group in x.chunks(size) {
        let magnitude = group.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
        let inverse = if magnitude > 0.0 { 127.0 / magnitude } else { 0.0 };
        integers.extend(group.iter().map(|x| (x * inverse).round_ties_even() as i64));
        scales.push(magnitude / 127.0);
    }
    (integers, scales)
}

/// Returns the number that one step of a code stands for in group `at`.
fn scale(w: &QuantizedMatrix, at: usize) -> f64 {
    let step = if let crate::Codes::E2M1(_) = w.codes() { 0.5 } else { 1.0 };
    step * f64::from(w.scales()[at])
}

/// Returns the code of row `o` and column `c`, less its zero point. Floats of four bits are
/// doubled.
fn code(w: &QuantizedMatrix, o: usize, c: usize) -> i64 {
    let element = o * w.in_features() + c;
    let zero_point = match w.offsets() {
        Offsets::ZeroPoints(zero_points) => i64::from(zero_points[element / w.group_size()]),
        Offsets::None | Offsets::Values(_) => 0,
    };
    let code = match w.codes() {
        crate::Codes::U4(bytes) => i64::from(bytes[element / 2] >> (4 * (element % 2)) & 15),
        crate::Codes::I8(codes) => i64::from(codes[element]),
        crate::Codes::E2M1(bytes) => {
            let code = bytes[element / 2] >> (4 * (element % 2)) & 15;
            (2.0 * crate::quantized::E2M1_VALUES[usize::from(code)]) as i64
        }
    };
    code - zero_point
}

/// Returns the offset of row `o` and column `c`, without the zero point.
fn offset(w: &QuantizedMatrix, o: usize, c: usize) -> f64 {
    match w.offsets() {
        Offsets::Values(values) => f64::from(values[(o * w.in_features() + c) / w.group_size()]),
        Offsets::None | Offsets::ZeroPoints(_) => 0.0,
    }
}

/// Returns row `o` as numbers, in the order of the inputs.
pub(super) fn numbers(w: &QuantizedMatrix, o: usize) -> Vec<f64> {
    let mut row = vec![0.0; w.in_features()];
    for c in 0..w.in_features() {
        let scale = scale(w, (o * w.in_features() + c) / w.group_size());
        let input = w.input_order().map_or(c, |order| order[c] as usize);
        row[input] = scale * code(w, o, c) as f64 + offset(w, o, c);
    }
    row
}

/// Returns `x Wᵀ` for row-major x, and for each result the sum of the magnitudes in it.
pub(super) fn product(x: &[f32], w: &QuantizedMatrix) -> Vec<(f64, f64)> {
    let (inputs, size) = (w.in_features(), w.group_size());
    let groups = inputs / size;
    let per_block = (128 / size).max(1);
    let mut y = Vec::new();
    for row in x.chunks_exact(inputs) {
        let column = |c: usize| w.input_order().map_or(c, |order| order[c] as usize);
        let row: Vec<f32> = (0..inputs).map(|c| row[column(c)]).collect();
        let (q, scales) = activations(&row, size * per_block);
        for o in 0..w.out_features() {
            let (mut total, mut magnitude) = (0.0, 0.0);
            for g in 0..groups {
                let columns = g * size..(g + 1) * size;
                let dot: i64 = columns.clone().map(|c| code(w, o, c) * q[c]).sum();
                let sum: i64 = columns.map(|c| q[c]).sum();
                let activation = f64::from(scales[g / per_block]);
                let scale = scale(w, o * groups + g);
                let offset = offset(w, o, g * size);
                let scaled = scale * activation * dot as f64;
                let moved = offset * activation * sum as f64;
                total += scaled + moved;
                magnitude += scaled.abs() + moved.abs();
            }
            y.push((total, magnitude));
        }
    }
    y
}
