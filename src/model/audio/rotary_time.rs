//! The times of states in Music Flamingo: HF `MusicFlamingoRotaryEmbedding`.
//!
//! | tensor | shape |
//! |---|---|
//! | states of a sound | `[windows · states, hidden_size]`; the last window may be shorter |
//! | cosines and sines | `[states, rotary_dim]`: half of them by the window, half by the state |
//!
//! The elements of a state rotate in neighbouring pairs. An angle is a frequency, times a place,
//! times the time of the state since the beginning of the sound. The place is that of the window,
//! or that of the state in it. All are computed in float32, as in transformers: the angles of a
//! long sound are large.

use std::f32::consts::{PI, TAU};

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::add;

use crate::model::config::{ConfigError, Fields};

/// Windows of the spectrogram that become one state.
const WINDOWS_OF_A_STATE: f64 = 4.0;

/// The rotation of states by their times.
#[derive(Debug, Clone)]
pub(super) struct RotaryTime {
    /// Those of pairs, for each of both places.
    frequencies: Vec<f32>,
    /// The number of places, which is also the base of frequencies.
    places: f32,
    /// Seconds from one state to the next.
    step: f32,
}

impl RotaryTime {
    /// Reads the fields of `config.json`. `width` is that of a state, and a whole window has
    /// `num_states`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        width: usize,
        num_states: usize,
    ) -> Result<Self, ConfigError> {
        const THETA: &str = "rope_theta";
        const PART: &str = "partial_rotary_factor";
        let rope = outer.rope()?.unwrap_or_else(|| Fields::empty_in(outer));
        for name in ["rope_type", "type"] {
            if rope.text(name)?.is_some_and(|kind| kind != "default") {
                return Err(rope.invalid(name, "\"default\""));
            }
        }
        // transformers also reads both beside the object, as it does for older files.
        let theta = rope.positive(THETA)?.or(outer.positive(THETA)?).unwrap_or(1_200.0);
        if (theta as usize) < num_states {
            let expected = format!("{num_states} or more, the states of a window");
            return Err(rope.invalid(THETA, &expected));
        }
        let part = rope.positive(PART)?.or(outer.positive(PART)?).unwrap_or(0.2);
        let dim = (width as f64 * part) as usize;
        let count = dim.div_ceil(2);
        if count == 0 || 4 * count > width {
            let expected = format!("a part of {width} that leaves a place for both rotations");
            return Err(rope.invalid(PART, &expected));
        }
        let frequency = |index: usize| {
            let power = 2.0 * index as f32 / dim as f32;
            1.0 / f64::from(theta as f32).powf(f64::from(power)) as f32
        };
        let seconds = outer.positive("audio_frame_step")?.unwrap_or(0.01);
        Ok(Self {
            frequencies: (0..count).map(frequency).collect(),
            places: theta as f32,
            step: (WINDOWS_OF_A_STATE * seconds) as f32,
        })
    }

    /// Returns the states of a sound, rotated. A whole window has `num_states`.
    pub(super) fn rotated(&self, states: Tensor<2>, num_states: usize) -> Tensor<2> {
        let [count, width] = states.dims();
        let of_window = |start: usize| {
            let rows = start..(start + num_states).min(count);
            let window = states.clone().slice([rows, 0..width]);
            self.rotated_window(window, start / num_states, num_states)
        };
        let windows = (0..count).step_by(num_states).map(of_window).collect();
        Tensor::cat(windows, 0)
    }

    /// Returns the states of a window, rotated.
    fn rotated_window(&self, states: Tensor<2>, window: usize, num_states: usize) -> Tensor<2> {
        let [count, width] = states.dims();
        let turning = 4 * self.frequencies.len();
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for state in 0..count {
            for angle in self.angles(window, state, num_states) {
                let (sine, cosine) = f64::from(angle).sin_cos();
                cosines.extend([cosine as f32; 2]);
                sines.extend([-sine as f32, sine as f32]);
            }
        }
        let device = states.device();
        let table = |values: Vec<f32>| {
            Tensor::<2>::from_data(TensorData::new(values, [count, turning]), &device)
        };
        let x = states.clone().slice([0..count, 0..turning]);
        let pairs = x.clone().reshape([count, turning / 2, 2]);
        let of_pairs =
            |element: usize| pairs.clone().slice([0..count, 0..turning / 2, element..element + 1]);
        let swapped = Tensor::cat(vec![of_pairs(1), of_pairs(0)], 2).reshape([count, turning]);
        let x = add(x.mul(table(cosines)), swapped.mul(table(sines)));
        match turning == width {
            true => x,
            false => Tensor::cat(vec![x, states.slice([0..count, turning..width])], 1),
        }
    }

    /// Returns the angles of the pairs of a state: by its window, and by its place there.
    fn angles(&self, window: usize, state: usize, num_states: usize) -> impl Iterator<Item = f32> {
        let first = (window * num_states) as f32 * self.step;
        let seconds = first + state as f32 * self.step;
        let time = -seconds * 2.0 * PI;
        let places = [window as f32 / self.places, state as f32 / self.places * TAU];
        let of_place = move |place: f32| {
            self.frequencies.iter().map(move |frequency| place * frequency * time)
        };
        places.into_iter().flat_map(of_place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_grow_with_windows_and_states() {
        let times = RotaryTime { frequencies: vec![1.0, 0.5], places: 100.0, step: 0.25 };
        let angles = |window, state| times.angles(window, state, 4).collect::<Vec<f32>>();
        assert!(angles(0, 0).iter().all(|angle| *angle == 0.0));
        let close = |found: Vec<f32>, expected: [f32; 4]| {
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5)
        };
        // The second state is at a quarter of a second.
        let turn = -0.25 * TAU;
        assert!(close(angles(0, 1), [0.0, 0.0, 0.01 * TAU * turn, 0.005 * TAU * turn]));
        // The first state of the third window is at two seconds.
        assert!(close(angles(2, 0), [0.02 * -2.0 * TAU, 0.01 * -2.0 * TAU, 0.0, 0.0]));
    }
}
