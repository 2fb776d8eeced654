//! Learned positions of a square grid in another size: bicubic, with a filter that grows where the
//! grid shrinks (`torch.nn.functional.interpolate` with `antialias`).

/// The parameter of Keys' cubic.
const A: f64 = -0.5;

/// Returns the rows `table` of a grid of `side²` places, `[side², width]`, for a grid of `size²`
/// places, `[size², width]`.
pub(super) fn resized(table: &[f32], side: usize, size: usize, width: usize) -> Vec<f32> {
    if side == size {
        return table.to_vec();
    }
    let taps = weights(side, size);
    let add = |sums: &mut [f32], from: &[f32], weight: f32| {
        sums.iter_mut().zip(from).for_each(|(sum, value)| *sum += weight * value);
    };
    // The columns change first: [side, size, width].
    let mut between = vec![0.0; side * size * width];
    for (line, sums) in between.chunks_exact_mut(width).enumerate() {
        let (row, column) = (line / size, line % size);
        for (place, weight) in &taps[column] {
            add(sums, &table[(row * side + place) * width..][..width], *weight);
        }
    }
    let mut positions = vec![0.0; size * size * width];
    for (sums, taps) in positions.chunks_exact_mut(size * width).zip(&taps) {
        for (place, weight) in taps {
            add(sums, &between[place * size * width..][..size * width], *weight);
        }
    }
    positions
}

/// Returns for each of `size` places the places of an axis of `side` that count, and their weights.
fn weights(side: usize, size: usize) -> Vec<Vec<(usize, f32)>> {
    let scale = side as f64 / size as f64;
    let support = 2.0 * scale.max(1.0);
    let of_place = |at: usize| {
        let center = (at as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(side);
        let distance = |place: usize| (place as f64 + 0.5 - center) / scale.max(1.0);
        let taps: Vec<(usize, f64)> =
            (first..end).map(|place| (place, cubic(distance(place)))).collect();
        let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
        taps.into_iter().map(|(place, weight)| (place, (weight / sum) as f32)).collect()
    };
    (0..size).map(of_place).collect()
}

/// Returns the weight of a place at the distance `x`.
fn cubic(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_grid_stays_plain() {
        for (side, size) in [(4, 2), (3, 5), (4, 4), (1, 3)] {
            let positions = resized(&vec![3.0; side * side * 2], side, size, 2);
            assert_eq!(positions.len(), size * size * 2);
            assert!(positions.iter().all(|value| (value - 3.0).abs() < 1e-5), "{side} {size}");
        }
    }

    /// The numbers come from torch.
    #[test]
    fn positions_are_those_of_torch() {
        let table: Vec<f32> = (0..9).map(|at| (at * at) as f32).collect();
        let check = |size: usize, expected: &[f32]| {
            let found = resized(&table, 3, size, 1);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
            }
        };
        check(2, TWO);
        check(4, FOUR);
    }

    const TWO: &[f32] = &[2.8712, 8.1978, 30.2845, 47.0445];
    const FOUR: &[f32] = &[
        -0.506, -0.2283, 1.2673, 3.0433, 3.5198, 6.0216, 10.7567, 14.7568, 19.2044, 24.9457,
        34.3995, 41.6391, 36.715, 44.6803, 57.3736, 66.8373,
    ];
}
