//! `playhouse embed`, `score`, `rerank` and `classify`, on the demo model.

use serde_json::{Value, json};

use crate::process::{Run, playhouse};

const SMALL: &[&str] = &["--max-model-len", "512", "--max-num-seqs", "8"];

fn run(command: &str, arguments: &[&str]) -> Run {
    playhouse(&[&[command], SMALL, arguments].concat())
}

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn texts_come_from_arguments_files_and_pipes() {
    let arguments = run("embed", &["--output", "json", "a stage", "rain"]).succeeds();
    let vectors = lines(&arguments);
    assert_eq!(vectors.len(), 2);
    let vector: Vec<f64> = serde_json::from_value(vectors[0]["embedding"].clone()).unwrap();
    let length: f64 = vector.iter().map(|value| value * value).sum();
    assert!((length - 1.0).abs() < 1e-3, "{length}");
    let piped = run("embed", &["--output", "json"]).input("a stage\n\nrain\n").succeeds();
    assert_eq!(piped, arguments);
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("texts.jsonl");
    std::fs::write(&path, "\"a stage\"\n{\"text\": \"rain\"}\n").unwrap();
    let file = run("embed", &["--output", "json", "-f", path.to_str().unwrap()]).succeeds();
    assert_eq!(file, arguments);
    let npy = folder.path().join("vectors.npy");
    let to_file = ["--output", "npy", "-o", npy.to_str().unwrap(), "a stage", "rain"];
    assert_eq!(run("embed", &to_file).succeeds(), "");
    let bytes = std::fs::read(npy).unwrap();
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    assert_eq!(bytes.len(), 128 + 2 * vector.len() * 4);
    let first = f32::from_le_bytes(bytes[128..132].try_into().unwrap());
    assert!((f64::from(first) - vector[0]).abs() < 1e-6);
}

#[test]
fn texts_are_read_as_one_for_late_chunking() {
    let embed = |arguments: &[&str]| {
        let found = lines(&run("embed", &[&["--output", "json"], arguments].concat()).succeeds());
        let vectors = found.iter().map(|line| line["embedding"].clone());
        vectors.collect::<Vec<_>>()
    };
    let late = embed(&["--late-chunking", "a stage", " rain"]);
    let apart = embed(&["a stage", " rain"]);
    assert_eq!((late.len(), apart.len()), (2, 2));
    assert_ne!(late[1], apart[1], "the second text depends on the first one");
    let by_last = ["--pooler-config", r#"{"pooling_type": "LAST"}"#];
    let stderr = run("embed", &[&by_last[..], &["--late-chunking", "a"]].concat()).fails_with(1);
    assert!(stderr.contains("late_chunking must be unset"), "{stderr}");
}

/// The folder is a CLIP of the fidelity tests.
#[test]
fn images_are_embedded_and_ranked() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/pictures/clip");
    let folder = tempfile::TempDir::new().unwrap();
    let image = |name: &str, level: u8| {
        let path = folder.path().join(name);
        image::RgbImage::from_pixel(28, 28, image::Rgb([level, 90, 40])).save(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (dark, light) = (image("dark.png", 10), image("light.png", 240));
    let of = |command: &str, arguments: &[&str]| {
        let images = ["-m", model, "--output", "json", "--image", &dark, "--image", &light];
        lines(&playhouse(&[&[command], &images[..], arguments].concat()).succeeds())
    };
    let vectors = of("embed", &[]);
    assert_eq!(vectors.len(), 2);
    assert_eq!(vectors[0]["text"], json!(dark));
    assert_ne!(vectors[0]["embedding"], vectors[1]["embedding"]);
    let with_text = of("embed", &["a kettle"]);
    assert_eq!((with_text.len(), &with_text[0]["text"]), (3, &json!("a kettle")));
    assert_eq!(with_text[2]["embedding"], vectors[1]["embedding"]);
    let scores = of("score", &["a kettle"]);
    let scores: Vec<f64> = scores.iter().map(|line| line["score"].as_f64().unwrap()).collect();
    let best = usize::from(scores[1] > scores[0]);
    let ranking = of("rerank", &["a kettle"]);
    assert_eq!(ranking[0]["document"], json!([&dark, &light][best]));
    let pairs = playhouse(&["score", "-m", model, "--image", &dark]).fails_with(2);
    assert!(pairs.contains("--image needs a query"), "{pairs}");
    let missing = playhouse(&["embed", "-m", model, "--image", "no.png"]).fails_with(1);
    assert!(missing.contains("no.png"), "{missing}");
}

#[test]
fn a_newcomer_gets_a_sensible_ranking() {
    let texts = [
        "Where does Ada live?",
        "It rains in the forest.",
        "Ada lives in Amberby.",
        "Boris works as a baker.",
    ];
    let ranking = run("rerank", &texts).succeeds();
    assert!(ranking.lines().next().unwrap().ends_with("Ada lives in Amberby."), "{ranking}");
}

#[test]
fn documents_are_sorted_by_their_scores() {
    let texts = ["a stage", "rain", "a stage"];
    let scores = run("score", &[&["--output", "json"], &texts[..]].concat()).succeeds();
    let scores: Vec<f64> =
        lines(&scores).iter().map(|line| line["score"].as_f64().unwrap()).collect();
    assert!(scores[0] < scores[1] && (scores[1] - 1.0).abs() < 1e-3, "{scores:?}");
    let ranking = run("rerank", &[&["--output", "json"], &texts[..]].concat()).succeeds();
    let ranking = lines(&ranking);
    assert_eq!((&ranking[0]["index"], &ranking[0]["document"]), (&json!(1), &json!("a stage")));
    let best = run("rerank", &[&["--top-n", "1"], &texts[..]].concat()).succeeds();
    assert_eq!(best.lines().count(), 1);
    assert!(best.ends_with("\ta stage\n"), "{best}");
    let pairs = "{\"text_1\": \"rain\", \"text_2\": \"rain\"}\n";
    let pairs = run("score", &["--jsonl", "--output", "json"]).input(pairs).succeeds();
    assert!((lines(&pairs)[0]["score"].as_f64().unwrap() - 1.0).abs() < 1e-3);
}

#[test]
fn work_that_the_model_cannot_do_is_an_error() {
    let stderr = run("classify", &["a"]).fails_with(1);
    assert!(stderr.contains("does not support `classify`"), "{stderr}");
    let stderr = run("embed", &["--dimensions", "7", "a"]).fails_with(1);
    assert!(stderr.contains("dimensions"), "{stderr}");
    let stderr = run("embed", &["--prompt-name", "query", "a"]).fails_with(2);
    assert!(stderr.contains("--prompt-name"), "{stderr}");
    let stderr = run("embed", &["--jsonl"]).input("7\n").fails_with(2);
    assert!(stderr.contains("line 1"), "{stderr}");
}

#[test]
fn the_bench_has_a_row_for_each_task() {
    let arguments = ["bench", "pooling", "--num-prompts", "3", "--input-len", "4"];
    let output = playhouse(&[&arguments[..], &["--output", "json"], SMALL].concat()).succeeds();
    let rows: Value = serde_json::from_str(&output).unwrap();
    let tasks: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["task"]).collect();
    assert_eq!(tasks, ["embed", "token_embed"]);
    assert_eq!(rows[0]["total_input_tokens"], 12);
}
