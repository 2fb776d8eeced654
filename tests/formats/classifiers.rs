//! GGUF files of classifiers that are refused, and the texts of pairs in those that are read.

use std::fs;
use std::path::{Path, PathBuf};

use playhouse::api::TextCodec;
use playhouse::model::ModelConfig;
use playhouse::text::HfTextCodec;
use tempfile::TempDir;

use crate::metadata::place;

fn converted(name: &str) -> PathBuf {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted_encoders");
    files.join(format!("{name}.gguf"))
}

/// Returns the error for the converted model `name` in which `old` is `new`, of the same length.
fn error_with(name: &str, old: &str, new: &str) -> String {
    let mut file = fs::read(converted(name)).unwrap();
    let at = place(&file, old);
    file[at..at + new.len()].copy_from_slice(new.as_bytes());
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file).unwrap();
    ModelConfig::of_model(&path, None).map(|_| ()).unwrap_err().to_string()
}

/// llama.cpp's converter leaves out the layer before the classifier of BERT.
#[test]
fn a_classifier_without_its_first_layer_is_refused() {
    for missing in ["cls.weight", "cls.output.weight"] {
        let error = error_with("roberta-score", missing, &missing.replace("cls", "clx"));
        assert!(error.contains("`cls.weight` and `cls.output.weight`"), "{error}");
        assert!(error.contains("load the model's folder"), "{error}");
    }
}

#[test]
fn names_of_classes_must_fit_the_classifier() {
    let error = error_with("qwen3-reranker", "yes", "yep");
    assert!(error.contains("`qwen3.classifier.output_labels`"), "{error}");
    assert!(error.contains(r#"["yes", "no"]"#), "{error}");
}

#[test]
fn pairs_are_joined_as_in_the_folder() {
    const NAME: &str = "roberta-score";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/encoders").join(NAME);
    let [file, folder] = [converted(NAME), folder].map(|path| HfTextCodec::load(&path).unwrap());
    for (first, second) in [("Where is the kettle?", "In the hall."), ("a", ""), ("", "b")] {
        let [file, folder] =
            [&file, &folder].map(|codec| codec.encode_pair(first, second, true, None).unwrap());
        assert_eq!(file.tokens, folder.tokens, "{first:?} {second:?}");
        assert_eq!(file.second_text_at, folder.second_text_at);
    }
}
