//! Files that `tests/fidelity/make_sounds.py` made with ffmpeg, and hostile ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::super::{decode, decoded_bytes};
use super::*;

const RATE: u32 = 16_000;

/// The samples of a file, as ffmpeg decodes it.
#[derive(Deserialize)]
struct Golden {
    count: usize,
    step: usize,
    values: Vec<f32>,
}

fn read(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
    std::fs::read(folder.join(name)).unwrap()
}

fn decoded(file: &[u8]) -> Result<Vec<f32>, String> {
    decode(Arc::from(file), RATE, 60).map_err(|error| error.to_string())
}

/// Returns the place of the `number`-th `name`, from 0.
fn place(file: &[u8], name: &[u8; 4], number: usize) -> usize {
    file.windows(4).enumerate().filter(|(_, it)| it == name).nth(number).unwrap().0
}

#[test]
fn samples_are_those_of_ffmpeg() {
    let all: BTreeMap<String, Golden> =
        serde_json::from_slice(&read("formats/golden.json")).unwrap();
    assert_eq!(all.len(), 8);
    for (name, Golden { count, step, values }) in all {
        let samples = decoded(&read(&format!("formats/{name}"))).unwrap();
        // Codecs with blocks fill the last one.
        assert!(samples.len().abs_diff(count) <= 1024, "{name}: {} samples", samples.len());
        for (at, expected) in values.iter().enumerate() {
            let Some(sample) = samples.get(at * step) else { continue };
            assert!((sample - expected).abs() < 2e-3, "{name}: {at} is {sample}, not {expected}");
        }
    }
}

#[test]
fn lossless_formats_are_exact() {
    let exact = decoded(&read("rising.wav")).unwrap();
    for name in ["alac.m4a", "alac.caf"] {
        assert_eq!(decoded(&read(&format!("formats/{name}"))).unwrap(), exact, "{name}");
    }
}

#[test]
fn containers_do_not_change_the_sound() {
    let plain = decoded(&read("formats/aac.m4a")).unwrap();
    for name in ["adts.aac", "fragments.mp4", "video.mp4"] {
        assert_eq!(decoded(&read(&format!("formats/{name}"))).unwrap(), plain, "{name}");
    }
}

#[test]
fn only_the_track_of_sound_is_kept() {
    let file = read("formats/video.mp4");
    let plan = Plan::of(&file).unwrap();
    let (video, tags) = (place(&file, b"trak", 0), place(&file, b"udta", 0));
    assert_eq!(plan.patches, [(video, FREE), (tags, FREE)]);
    assert!(!plan.is_too_large());
    // The sound comes first, or there is none.
    let mut other = file.clone();
    let (first, second) = (place(&file, b"vide", 0), place(&file, b"soun", 0));
    other[first..first + 4].copy_from_slice(b"soun");
    other[second..second + 4].copy_from_slice(b"vide");
    let kept = Plan::of(&other).unwrap();
    assert_eq!(kept.patches[0], (place(&file, b"trak", 1), FREE));
    other[first..first + 4].copy_from_slice(b"vide");
    assert_eq!(Plan::of(&other).unwrap().patches.len(), 3);
    assert!(decoded(&other).is_err());
    assert!(Plan::of(&read("rising.wav")).is_none());
}

#[test]
fn a_codec_that_is_not_known_is_refused() {
    let file = read("formats/aac.m4a");
    let mut other = file.clone();
    let name = place(&file, b"mp4a", 0);
    other[name..name + 4].copy_from_slice(b"sevc");
    assert!(decoded(&other).is_err());
    let hidden = [&b"ID3\x04\0\0\0\0\0\0"[..], &file].concat();
    let told = decoded(&hidden).unwrap_err();
    assert!(told.contains("other bytes before it"), "{told}");
}

#[test]
fn tables_that_take_too_long_are_refused() {
    let mut file = read("formats/aac.m4a");
    let rows = place(&file, b"stts", 0) + 12;
    // All samples of the first row, and so many that a search in two rows takes hours.
    file[rows..rows + 4].copy_from_slice(&[0xff; 4]);
    assert!(!Plan::of(&file).unwrap().is_too_large(), "two rows");
    let many = [&[0xff_u8, 0xff, 0xff, 0xff, 0, 0, 0, 1][..]; 9].concat();
    let mut table = ((16 + many.len()) as u32).to_be_bytes().to_vec();
    table.extend(b"stts\0\0\0\0\0\0\0\x09");
    table.extend(many);
    let wrapped = |name: &[u8; 4], content: &[u8]| {
        [&((8 + content.len()) as u32).to_be_bytes()[..], name, content].concat()
    };
    let track = |table: &[u8]| {
        let table = wrapped(b"minf", &wrapped(b"stbl", table));
        let handler = wrapped(b"hdlr", b"\0\0\0\0\0\0\0\0soun\0\0\0\0");
        let media = wrapped(b"mdia", &[handler, table].concat());
        let header = wrapped(b"tkhd", &[0; 84]);
        wrapped(b"moov", &wrapped(b"trak", &[header, media].concat()))
    };
    let head = wrapped(b"ftyp", b"M4A \0\0\0\0");
    assert!(Plan::of(&[head.clone(), track(&table)].concat()).unwrap().is_too_large());
    let run = wrapped(b"trun", &[&b"\0\0\0\0\xff\xff\xff\xff"[..], &[0; 64]].concat());
    let fragment = wrapped(b"moof", &wrapped(b"traf", &run));
    let file = [head.clone(), track(&[]), fragment].concat();
    assert!(Plan::of(&file).unwrap().is_too_large());
    let told = decoded(&file).unwrap_err();
    assert!(told.contains("tables of samples are too large"), "{told}");
    let tracks = wrapped(b"moov", &wrapped(b"udta", b"").repeat(PATCHES_MAX + 1));
    assert!(Plan::of(&[&head[..], &tracks].concat()).unwrap().is_too_large());
    let empty = |count: usize| [&head[..], &wrapped(b"moof", b"").repeat(count)].concat();
    assert!(!Plan::of(&empty(50_000)).unwrap().is_too_large());
    assert!(Plan::of(&empty(70_000)).unwrap().is_too_large());
}

/// The decoder may accept a broken file or refuse it, but it ends.
#[test]
fn broken_files_end() {
    for name in ["aac.m4a", "fragments.mp4", "alac.m4a", "alac.caf", "adts.aac", "ima.wav"] {
        let whole = read(&format!("formats/{name}"));
        for at in (0..whole.len()).step_by(whole.len() / 12) {
            let _ = decoded(&whole[..at]);
            for value in [0, 0xff] {
                let mut file = whole.clone();
                file[at] = value;
                let _ = decoded(&file);
                let _ = decoded_bytes(&file.into(), RATE);
            }
        }
    }
    let whole = read("formats/aac.m4a");
    for name in [b"stts", b"stsc", b"stsz", b"stco", b"mdhd", b"tkhd", b"esds"] {
        let size = place(&whole, name, 0) - 4;
        for at in (size..size + 20).step_by(3) {
            let mut file = whole.clone();
            file[at] = 0xff;
            let _ = decoded(&file);
        }
    }
}
