//! Every example runs and prints the texts that it should.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod building;

use std::{collections::BTreeSet, path::Path, process::Command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Texts that each example prints, among others.
const EXAMPLES: [(&str, &[&str]); 10] = [
    ("embed", &["\n"]),
    ("chat", &["> Who are you?", "> Thank you", " prompt tokens were cached", "the end: "]),
    ("stream", &["whole: ", "ended by length", "half:  ", "ended by us", "open requests: 0"]),
    ("two_engines", &["first:  ", "second: ["]),
    ("supervised", &["first engine:", "the owner failed: the engine is dead", "second engine:"]),
    ("survive_a_kill", &["the scheduler panics", "the streamer panics", "the same text: true"]),
    ("structured_output", &[" is ", "\n"]),
    ("tools", &["the model calls add(", "and says: "]),
    ("picture", &["takes no images; name the folder"]),
    ("metrics", &["health: Ready, epoch ", "scheduler 0: 0 replaced", "generation_tokens_total{"]),
];

#[test]
fn every_example_shows_what_it_says() {
    let folder = building::examples();
    for (name, shown) in EXAMPLES {
        let output =
            Command::new(folder.join(name)).env_remove("PLAYHOUSE_CONFIG").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {printed}{errors}");
        for text in shown {
            assert!(printed.contains(text), "{name} does not show {text:?}: {printed}{errors}");
        }
    }
}

/// The model stands beside the repository. Without it, the test prints a note and passes.
#[test]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
fn a_picture_is_answered_by_a_model_that_takes_it() {
    let model = Path::new(ROOT).join("../shared/conformance2/models/qwen2_5_vl");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let mut example = Command::new(building::examples().join("picture"));
    let output = example.env_remove("PLAYHOUSE_CONFIG").arg(model).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for text in ["prompt: ", "encoded: 1 pictures"] {
        assert!(printed.contains(text), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_example_is_run() {
    let folder = std::fs::read_dir(Path::new(ROOT).join("examples")).unwrap();
    let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<_> =
        files.filter_map(|file| file.strip_suffix(".rs").map(str::to_owned)).collect();
    let run: BTreeSet<_> = EXAMPLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, run);
}
