//! Samples as a file: the form in which pieces of a sound become items of a prompt.

use std::sync::Arc;

/// Returns a WAV file of one channel of f32.
#[must_use]
pub(crate) fn wav(samples: &[f32], rate: u32) -> Arc<[u8]> {
    const FLOATS: u16 = 3;
    const BYTES: u32 = 4;
    let len = BYTES * samples.len() as u32;
    let mut file = Vec::with_capacity(44 + len as usize);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(36 + len).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16u32.to_le_bytes());
    file.extend_from_slice(&FLOATS.to_le_bytes());
    file.extend_from_slice(&1u16.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&(BYTES * rate).to_le_bytes());
    file.extend_from_slice(&(BYTES as u16).to_le_bytes());
    file.extend_from_slice(&32u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&len.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file.into()
}
