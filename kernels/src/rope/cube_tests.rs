//! On a GPU: the results agree with a rotation of complex numbers.

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device, values};

#[test]
fn pairs_turn_by_their_angle() {
    let Some(device) = test_device() else { return };
    for (head_dim, rotary, heads) in [(8, 8, 3), (64, 64, 2), (80, 32, 1), (6, 4, 2)] {
        let (width, half, positions) = (head_dim * heads, rotary / 2, [3u32, 0, 63, 17, 3]);
        let angle = |p: usize, i: usize| p as f64 * 10_000f64.powf(-(i as f64) / half as f64);
        let of = |f: fn(f64) -> f64| -> Vec<f32> {
            (0..64).flat_map(|p| (0..half).map(move |i| f(angle(p, i)) as f32)).collect()
        };
        let table = RotaryTable::new(of(f64::cos), of(f64::sin), rotary, &device).unwrap();
        // x is part of wider rows, as queries lie beside keys.
        let x = numbers(2 * width * positions.len(), 1);
        let part = tensor(&x, 2 * width, &device).narrow(1, width, width);
        let y = values(rope(part, &positions, head_dim, &table));
        for (t, position) in positions.iter().enumerate() {
            for head in 0..heads {
                let x = &x[t * 2 * width + width + head * head_dim..][..head_dim];
                let y = &y[t * width + head * head_dim..][..head_dim];
                for i in 0..half {
                    let (sin, cos) = angle(*position as usize, i).sin_cos();
                    let (a, b) = (f64::from(x[i]), f64::from(x[i + half]));
                    assert!((f64::from(y[i]) - (a * cos - b * sin)).abs() < 1e-6);
                    assert!((f64::from(y[i + half]) - (b * cos + a * sin)).abs() < 1e-6);
                }
                assert_eq!(y[rotary..], x[rotary..]);
            }
        }
    }
}
