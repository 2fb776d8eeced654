//! The results agree with a rotation of complex numbers, and with HF's formula.

use burn::tensor::{Device, Tensor, TensorData};

use super::*;

fn angle(position: usize, i: usize, half: usize) -> f64 {
    position as f64 * 10_000f64.powf(-(i as f64) / half as f64)
}

fn table(max_position: usize, rotary_dim: usize) -> RotaryTable {
    let half = rotary_dim / 2;
    let of = |f: fn(f64) -> f64| -> Vec<f32> {
        (0..max_position)
            .flat_map(|p| (0..half).map(move |i| f(angle(p, i, half)) as f32))
            .collect()
    };
    RotaryTable::new(of(f64::cos), of(f64::sin), rotary_dim, &Device::flex()).unwrap()
}

fn rotated(x: &[f32], width: usize, positions: &[u32], head_dim: usize, rotary: usize) -> Vec<f32> {
    let data = TensorData::new(x.to_vec(), [positions.len(), width]);
    let x = Tensor::<2>::from_data(data, &Device::flex());
    rope(x, positions, head_dim, &table(64, rotary)).into_data().try_to_vec().unwrap()
}

#[test]
fn pairs_turn_by_their_angle() {
    for (head_dim, rotary, heads) in [(8, 8, 3), (64, 64, 2), (80, 32, 1), (6, 4, 2)] {
        let (width, half, positions) = (head_dim * heads, rotary / 2, [3u32, 0, 63, 17, 3]);
        let x: Vec<f32> = (0..width * positions.len()).map(|i| (i as f32 * 0.77).sin()).collect();
        let y = rotated(&x, width, &positions, head_dim, rotary);
        for (t, position) in positions.iter().enumerate() {
            for at in (t * width..(t + 1) * width).step_by(head_dim) {
                for i in 0..half {
                    let (sin, cos) = angle(*position as usize, i, half).sin_cos();
                    let (a, b) = (f64::from(x[at + i]), f64::from(x[at + i + half]));
                    assert!((f64::from(y[at + i]) - (a * cos - b * sin)).abs() < 1e-6);
                    assert!((f64::from(y[at + i + half]) - (b * cos + a * sin)).abs() < 1e-6);
                }
                assert_eq!(y[at + rotary..at + head_dim], x[at + rotary..at + head_dim]);
            }
        }
    }
}

#[test]
fn a_shared_tensor_is_left_alone() {
    let x = Tensor::<2>::from_data([[1.0, 2.0]], &Device::flex());
    let y = rope(x.clone(), &[1], 2, &table(2, 2));
    assert_eq!(x.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_ne!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn a_table_must_be_whole_rows_of_both() {
    let table = |cos: usize, sin: usize, dim: usize| {
        RotaryTable::new(vec![0.0; cos], vec![0.0; sin], dim, &Device::flex())
    };
    assert_eq!(table(8, 8, 4).unwrap().max_position(), 4);
    assert!(table(8, 6, 4).unwrap_err().to_string().contains("sin"));
    assert!(table(7, 7, 4).unwrap_err().to_string().contains("cos"));
    assert!(table(8, 8, 3).unwrap_err().to_string().contains("rotary_dim"));
}
