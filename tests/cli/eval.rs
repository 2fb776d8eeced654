//! `playhouse eval`, on the demo model.

use serde_json::Value;

use crate::process::{Run, playhouse};

const TEXT: &str = "Once upon a time there was a lantern that nobody had lit. ";

fn eval(file: &std::path::Path, arguments: &[&str]) -> Run {
    let command = ["eval", "perplexity", file.to_str().unwrap(), "--max-model-len", "256"];
    playhouse(&[&command, arguments].concat())
}

fn text_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn a_format_agrees_with_itself_and_eight_bits_nearly_so() {
    let file = text_file(&TEXT.repeat(20));
    let measure = |arguments: &[&str]| -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        serde_json::from_str(&eval(file.path(), &arguments).succeeds()).unwrap()
    };
    let same = measure(&["--against", "bfloat16"]);
    let distance = (&same["top1_agreement"], &same["mean_logprob_difference"]);
    assert_eq!(distance, (&1.0.into(), &0.0.into()));
    assert_eq!(same["measured"], same["against"]);
    let perplexity = |figures: &Value| figures["perplexity"].as_f64().unwrap();
    assert!(perplexity(&same["measured"]) > 1.0);

    let int8 = measure(&["--quantization", "int8", "--against", "bfloat16"]);
    assert_eq!(
        (&int8["measured"]["format"], &int8["tokens"]),
        (&"int8 by int8".into(), &same["tokens"])
    );
    assert_eq!(int8["against"], same["against"]);
    let agreement = int8["top1_agreement"].as_f64().unwrap();
    assert!((0.8..=1.0).contains(&agreement), "{int8}");
    assert!(int8["mean_logprob_difference"].as_f64().unwrap() > 0.0, "{int8}");
    let ratio = perplexity(&int8["measured"]) / perplexity(&int8["against"]);
    assert!((0.9..1.1).contains(&ratio), "{int8}");

    // Other windows leave out other tokens: the first token of each window.
    let short = measure(&["--context", "16"]);
    assert_eq!(short["context"], 16);
    assert!(short["tokens"].as_u64() < same["tokens"].as_u64());
    let table = eval(file.path(), &["--quantization", "int4"]).succeeds();
    assert!(table.contains("int4 of 32") && table.contains("perplexity"), "{table}");
}

#[test]
fn nonsense_is_refused() {
    let file = text_file(TEXT);
    let stderr = eval(file.path(), &["--context", "256"]).fails_with(2);
    assert!(stderr.contains("--context must be in 2..=255, got 256"), "{stderr}");
    let stderr = eval(text_file("").path(), &[]).fails_with(2);
    assert!(stderr.contains("the text has 0 tokens: at least 2 are needed"), "{stderr}");
    let stderr = eval(file.path(), &["--quantization", "int3"]).fails_with(2);
    assert!(stderr.contains("expected none, int8 or int4"), "{stderr}");
    let stderr = eval(file.path(), &["--quantization-group-size", "48"]).fails_with(2);
    assert!(stderr.contains("32, 64 or 128"), "{stderr}");
    let stderr = eval("/nowhere.txt".as_ref(), &[]).fails_with(1);
    assert!(stderr.contains("cannot read /nowhere.txt"), "{stderr}");
}
