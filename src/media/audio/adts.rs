//! The length of AAC without a container (ADTS, ISO 13818-7). The decoder guesses it from a few
//! frames, and frames of silence are much smaller than others.

/// Samples of a frame.
const FRAME_SAMPLES: u64 = 1024;

/// The bytes of the smallest header of a frame.
const HEAD: usize = 7;

/// Returns the number of samples of a stream, if the file begins with one. Those behind other bytes
/// do not count.
pub(super) fn num_samples(file: &[u8]) -> Option<u64> {
    let (mut at, mut num_frames) = (0, 0);
    while let Some([0xff, sync, _, high, middle, low, _]) =
        file.get(at..).and_then(|rest| rest.first_chunk::<HEAD>())
    {
        // 13 bits, for the frame with its header.
        let len = usize::from(high & 3) << 11 | usize::from(*middle) << 3 | usize::from(low >> 5);
        if sync & 0xf6 != 0xf0 || len < HEAD {
            break;
        }
        num_frames += 1;
        at += len;
    }
    (num_frames > 0).then_some(num_frames * FRAME_SAMPLES)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::decode;
    use super::*;

    fn read(name: &str) -> Vec<u8> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
        std::fs::read(folder.join(name)).unwrap()
    }

    #[test]
    fn all_frames_are_counted() {
        let file = read("formats/adts.aac");
        assert_eq!(num_samples(&file), Some(17 * FRAME_SAMPLES));
        assert_eq!(num_samples(&[&file[..], b"end of all"].concat()), Some(17 * FRAME_SAMPLES));
        assert_eq!(num_samples(&file[..HEAD]), Some(FRAME_SAMPLES));
        assert_eq!(num_samples(&file[1..]), None);
        assert_eq!(num_samples(&read("rising.wav")), None);
    }

    /// A guess from the first frames would be much too low.
    #[test]
    fn small_frames_behind_large_ones_are_heard() {
        let mut file = read("formats/adts.aac");
        // A frame of eight bytes, with the end of the frame and no sound.
        let mut small = [&file[..HEAD], &[0xe0]].concat();
        (small[3], small[4], small[5]) = (small[3] & !3, 1, small[5] & 0x1f);
        file.extend(small.repeat(2000));
        let samples = decode(file.into(), 16_000, 3600).unwrap();
        assert_eq!(samples.len() as u64, 2017 * FRAME_SAMPLES);
    }
}
