//! Files that `tests/fidelity/make_sounds.py` made with ffmpeg, and that libopus decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use symphonia::core::units::Timestamp;

use super::super::webm::WebM;
use super::super::{Decoder, decode, decoded_bytes};
use super::*;

/// The samples of a file, as libopus decodes it.
#[derive(Deserialize)]
struct Golden {
    count: usize,
    step: usize,
    values: Vec<f32>,
}

fn read(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech/opus");
    std::fs::read(folder.join(name)).unwrap()
}

fn golden() -> BTreeMap<String, Golden> {
    serde_json::from_slice(&read("golden.json")).unwrap()
}

fn decoded(file: &[u8]) -> Result<Vec<f32>, String> {
    decode(file.into(), RATE, 60).map_err(|error| error.to_string())
}

/// The decoder computes with integers, and libopus with floats. The mean of channels differs by
/// less than 2e-4.
#[test]
fn samples_are_those_of_libopus() {
    let all = golden();
    assert_eq!(all.len(), 14);
    for (name, Golden { count, step, values }) in all {
        let file = read(&name);
        let samples = decoded(&file).unwrap();
        assert_eq!(samples.len(), count, "{name}");
        assert_eq!(values.len(), count.div_ceil(step));
        for (sample, expected) in samples.iter().step_by(step).zip(&values) {
            assert!((sample - expected).abs() < 1e-3, "{name}: {sample}, not {expected}");
        }
        let bytes = decoded_bytes(&file.into(), RATE);
        assert!(bytes >= 4 * samples.len(), "{name}: {bytes}");
        assert!(bytes <= 4 * 3 * RATE as usize, "{name}: {bytes}");
    }
}

/// RFC 6716, table 2: the first bits of a packet name its codec.
#[test]
fn packets_are_of_all_codecs() {
    let mut all = BTreeSet::new();
    for name in ["hybrid.webm", "hybrid_stereo.webm", "celt_stereo.webm", "live.webm"] {
        let mut webm = WebM::open(read(name).into(), 0).unwrap();
        while let Some(packet) = webm.next_packet().unwrap() {
            all.insert(match packet.data[0] >> 3 {
                0..12 => "SILK",
                12..16 => "both",
                _ => "CELT",
            });
        }
    }
    assert_eq!(all, BTreeSet::from(["CELT", "SILK", "both"]));
}

#[test]
fn a_sound_at_the_models_rate_has_its_length() {
    for name in ["silk.ogg", "live.webm", "opus.mp4"] {
        let samples = decode(read(name).into(), 16_000, 60).unwrap();
        assert_eq!(samples.len(), 16_000, "{name}");
    }
}

#[test]
fn the_length_counts_before_anything_is_decoded() {
    for name in ["celt.ogg", "hybrid.webm", "opus.mp4"] {
        let told = Decoder::open(read(name).into(), RATE, 0).map(|_| name).unwrap_err();
        let expected = "the audio has 1 seconds, and at most 0 are accepted";
        let told = told.to_string();
        // Ogg and MP4 count the frames before the sound.
        assert!(told == expected || told == expected.replace("1 seconds", "2 seconds"), "{told}");
    }
}

/// A broken file ends with an error or with a sound that is not longer.
#[test]
fn broken_files_end() {
    for (name, golden) in golden() {
        let whole = read(&name);
        for at in (0..whole.len()).step_by(whole.len() / 60) {
            let mut file = whole.clone();
            for (index, byte) in file[at..].iter_mut().take(3).enumerate() {
                *byte ^= 0x55 << (index % 2);
            }
            if let Ok(samples) = decoded(&file) {
                assert!(samples.len() <= 4 * golden.count, "{name}: {at}");
            }
            let _ = decoded(&whole[..at]);
        }
    }
}

/// The durations in an MP4 file may all be 0. Decoding then takes time, and the sound has no end.
#[test]
fn packets_without_a_length_end() {
    let head = Head::read(b"OpusHead\0\x01\0\0\0\0\xbb\x80\0\0\0").unwrap();
    let mut decoder = OpusDecoder::new(&head, None).unwrap();
    // 60 ms of silence in a byte.
    let packet = Packet::new(0, Timestamp::ZERO, Duration::ZERO, &[0x18][..]);
    let mut samples = Vec::new();
    for _ in 0..1_000 {
        decoder.decode(&packet, &mut samples).unwrap();
        assert!(samples.is_empty());
    }
    let told = decoder.decode(&packet, &mut samples).unwrap_err().to_string();
    assert!(told.contains("no length"), "{told}");
}

#[test]
fn heads_are_checked() {
    let mono = b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0";
    let head = Head::read(mono).unwrap();
    assert_eq!((head.channels, head.pre_skip, head.gain), (1, 312, 0));
    assert_eq!((head.num_streams, head.num_coupled, &*head.mapping), (1, 0, &[0][..]));
    // The fields of MP4.
    let mp4 = b"OpusHead\0\x02\x01\x38\0\0\xbb\x80\xff\0\0";
    let head = Head::read(mp4).unwrap();
    assert_eq!((head.channels, head.pre_skip, head.gain), (2, 312, -256));
    assert_eq!((head.num_streams, head.num_coupled, &*head.mapping), (1, 1, &[0, 1][..]));
    let with = |at: usize, byte: u8| {
        let mut head = mono.to_vec();
        head[at] = byte;
        Head::read(&head).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(12, 7), Ok(()), "the rate of the original sound does not matter");
    let family = "Failed to load audio: Opus of 1 channels, mapped by family 255";
    assert_eq!(with(18, 255), Err(family.to_owned()));
    assert!(with(9, 0).is_err() && with(9, 3).is_err() && with(0, b'o').is_err());
    let surround = |rest: &[u8]| {
        let head = [&mono[..9], &[6], &mono[10..18], &[1], rest].concat();
        Head::read(&head)
            .and_then(|head| OpusDecoder::new(&head, None))
            .map(|decoder| decoder.channels)
    };
    assert_eq!(surround(&[4, 2, 0, 4, 1, 2, 3, 5]), Ok(6));
    for rest in [
        &[][..],
        &[4, 2, 0, 4, 1, 2, 3],
        &[4, 2, 0, 4, 1, 2, 3, 6],
        &[4, 5, 0, 4, 1, 2, 3, 5],
        &[0, 0, 0, 4, 1, 2, 3, 5],
        &[255, 255, 0, 4, 1, 2, 3, 5],
    ] {
        assert!(surround(rest).is_err(), "{rest:?}");
    }
}

/// RFC 6716, sections 3.1 and 3.2.
#[test]
fn lengths_of_packets_are_in_their_first_bytes() {
    for (packet, frames) in [
        (&[0x00][..], Some(480)),
        (&[0x18], Some(2_880)),
        (&[0x48, 9], Some(960)),
        (&[0x68], Some(960)),
        (&[0x80], Some(120)),
        (&[0xf8], Some(960)),
        (&[0xf9], Some(1_920)),
        (&[0xfb, 6], Some(5_760)),
        (&[0x83, 0xc0 | 48], Some(5_760)),
        (&[0x83, 49], None),
        (&[0xfb, 0], None),
        (&[0xfb], None),
        (&[], None),
    ] {
        assert_eq!(num_frames(packet), frames, "{packet:?}");
    }
}
