//! Models of random configs, which `random_vision.py` has made.

use std::{collections::BTreeMap, panic, path::PathBuf};

use playhouse::model::{LoadOptions, load_model};

use crate::vision::check_folder;

/// Prints the result of each model. A model that is refused names a field.
#[test]
#[ignore = "needs models that random_vision.py has made"]
fn random_vision() {
    let folder = PathBuf::from(std::env::var_os("PLAYHOUSE_TEST_VISION").unwrap());
    let mut counts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let refused = load_model(&path, &LoadOptions::default(), &mut |_| {}).err();
        let result = match refused.map(|error| error.to_string()) {
            Some(why) if why.contains("config.json: `") => "refused",
            Some(why) => {
                println!("{name}: {why}");
                "BROKEN"
            }
            None if panic::catch_unwind(|| check_folder(&name, &path)).is_err() => "WRONG",
            None => "ok",
        };
        println!("{result} {name} {}", std::fs::read_to_string(path.join("changes.json")).unwrap());
        *counts.entry(result).or_insert(0) += 1;
    }
    println!("{counts:?}");
    assert!(counts.contains_key("ok"));
    assert!(!counts.contains_key("WRONG") && !counts.contains_key("BROKEN"), "{counts:?}");
}
