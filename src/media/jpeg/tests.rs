//! Pixels are those of PIL. `tests/fidelity/make_pictures.py` recorded them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::*;

#[derive(Deserialize)]
struct Recorded {
    name: String,
    size: (u32, u32),
    /// The digest of the pixels.
    rgb: String,
    /// The file in base64.
    file: String,
}

impl Recorded {
    fn all() -> Vec<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/pictures.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn file(&self) -> Vec<u8> {
        STANDARD.decode(&self.file).unwrap()
    }
}

#[test]
fn pixels_are_those_of_pil() {
    let all = Recorded::all();
    assert_eq!(all.len(), 68);
    for recorded in all {
        let (name, file) = (&recorded.name, recorded.file());
        let header = header(&file).unwrap_or_else(|| panic!("{name}: no header"));
        let picture = decoded(&file).unwrap_or_else(|| panic!("{name}: no picture"));
        assert_eq!(header.size, recorded.size, "{name}");
        assert_eq!((picture.width, picture.height), recorded.size, "{name}");
        let least = picture.rgb.len() + (picture.width * picture.height) as usize;
        assert!(header.working_bytes >= least, "{name}: {}", header.working_bytes);
        let digest = Sha256::digest(&picture.rgb);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, recorded.rgb, "{name}: other pixels");
    }
}

#[test]
fn a_file_without_its_last_scans_has_no_picture_here() {
    let is_progressive = |recorded: &Recorded| recorded.name == "progressive grey";
    let file = Recorded::all().into_iter().find(is_progressive).unwrap().file();
    let scans: Vec<usize> =
        (0..file.len() - 1).filter(|at| file[*at..].starts_with(&[0xff, 0xda])).collect();
    assert!(scans.len() > 3);
    let cut = [&file[..scans[3]], &[0xff, 0xd9]].concat();
    assert!(header(&cut).is_some() && decoded(&cut).is_none());
}

proptest! {
    /// Damaged files have a picture of the header's size or none, and nothing panics.
    #[test]
    fn damaged_files_do_no_harm(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        len in any::<prop::sample::Index>(),
    ) {
        let mut file = index.get(&Recorded::all()).file();
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        file.truncate(len.index(2 * file.len()));
        let header = header(&file).filter(|header| header.working_bytes < 1 << 20);
        if let Some(header) = header
            && let Some(picture) = decoded(&file)
        {
            prop_assert_eq!((picture.width, picture.height), header.size);
        }
    }
}
