//! Command lines of vLLM, and this program's forms of them.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::{table::FLAGS, variables::VARIABLES, *};

fn sorted(line: &str) -> Result<(String, usize), String> {
    let (kept, notes) = sort(line.split(' ').map(OsString::from)).map_err(|e| e.to_string())?;
    let kept: Vec<_> = kept.iter().map(|word| word.to_string_lossy()).collect();
    Ok((kept.join(" "), notes.len()))
}

/// Checks what becomes of a command line of `serve`, and the number of notes.
fn check(line: &str, expected: &str, notes: usize) {
    let expected = format!("playhouse serve m {expected}");
    let found = sorted(&format!("playhouse serve m {line}"));
    assert_eq!(found, Ok((expected.trim_end().to_owned(), notes)), "{line}");
}

#[test]
fn flags_without_a_meaning_are_left_out() {
    let line = "serve m --trust-remote-code --port 1 --swap-space 4 --disable-log-stats \
                --show-hidden-metrics-for-version=0.9";
    assert_eq!(sorted(line), Ok(("serve m --port 1".to_owned(), 4)));
    let line = "serve m --swap_space=4 -tp 1 --tensor-parallel-size=1 --seed 3";
    assert_eq!(sorted(line), Ok(("serve m --seed 3".to_owned(), 3)));
    let line = "bench startup -- --trust-remote-code";
    assert_eq!(sorted(line), Ok((line.to_owned(), 0)));
    check("-O3 -cc.mode 3 --compilation-config.cudagraph_mode=NONE --port 1", "--port 1", 3);
    check("--cudagraph-capture-sizes 1 2 4 --port 1", "--port 1", 1);
    check("--no-enable-log-requests --enable-log-requests --disable-log-requests", "", 3);
    check("--no-enable-expert-parallel --disable-dbo --data-parallel-backend mp", "", 3);
}

#[test]
fn a_short_flag_of_two_letters_is_written_out() {
    let line = "serve m -dp 2 -dp=3 --data-parallel-size 4 -- -dp 5";
    let long = "serve m --data-parallel-size 2 --data-parallel-size=3 --data-parallel-size 4 \
                -- -dp 5";
    assert_eq!(sorted(line), Ok((long.to_owned(), 0)));
    check("-q awq", "--quantization=none", 1);
    assert_eq!(sorted("playhouse chat -q awq"), Ok(("playhouse chat -q awq".to_owned(), 0)));
}

#[test]
fn names_and_values_of_vllm_get_the_spelling_of_this_program() {
    check("--max_model_len 4k --max_num_seqs=8", "--max-model-len=4k --max-num-seqs=8", 0);
    check("--disable-prefix-caching", "--no-enable-prefix-caching", 0);
    check("--enable-any-whitespace", "--no-disable-any-whitespace", 0);
    check("--load-format safetensors --dtype half", "--load-format=auto --dtype half", 1);
    check("--log-level WARNING", "--log-level=warn", 0);
    check("--hf-token --port 1", "--port 1", 1);
    check("--hf-token abc --port 1", "--hf-token=abc --port 1", 0);
    check("--mm-processor-cache-gb 0.5", "--mm-processor-cache-bytes=0.5GiB", 0);
    check("--device-memory-utilization 0.5", "--gpu-memory-utilization 0.5", 0);
    check("--override-pooler-config {}", "--pooler-config={}", 0);
    let chat = sorted("playhouse chat --url u --model-name n");
    assert_eq!(chat, Ok(("playhouse chat --url u --model n".to_owned(), 0)));
    let key = sorted("playhouse chat --url u --api-key k");
    assert!(key.is_err_and(|error| error.contains("OPENAI_API_KEY")));
}

#[test]
fn several_texts_may_follow_one_flag() {
    check(
        "--served-model-name a b --port 1 --api-key k l",
        "--served-model-name=a --served-model-name=b --port 1 --api-key=k --api-key=l",
        0,
    );
    let origins = "--allowed-origins [\"http://a\",\"http://b\"]";
    check(origins, "--allowed-origins=http://a --allowed-origins=http://b", 0);
    check("--allowed-origins []", "", 0);
    assert!(sorted("playhouse serve m --allowed-methods []").is_err());
    check("--api-key [] [\"k\"]", "--api-key=[] --api-key=[\"k\"]", 0);
    // The model follows, because none came before.
    let line = sorted("playhouse serve --served-model-name a folder");
    assert_eq!(line, Ok(("playhouse serve --served-model-name=a folder".to_owned(), 0)));
}

#[test]
fn fields_of_objects_become_an_object() {
    check(
        "--speculative-config.method ngram --speculative_config.num_speculative_tokens=3 --port 1",
        r#"--port 1 --speculative-config={"method":"ngram","num_speculative_tokens":3}"#,
        0,
    );
    check(
        "--spec-method ngram --spec-tokens 3",
        r#"--speculative-config={"method":"ngram","num_speculative_tokens":3}"#,
        0,
    );
    check(
        "--hf-overrides.architectures+ A,B --hf-overrides.rope_scaling.factor 2.0",
        r#"--hf-overrides={"architectures":["A","B"],"rope_scaling":{"factor":2.0}}"#,
        0,
    );
    check(
        "--default-chat-template-kwargs.enable_thinking=false",
        r#"--default-chat-template-kwargs={"enable_thinking":false}"#,
        0,
    );
    check("--speculative-config {} -- --a.b", "--speculative-config={} -- --a.b", 0);
    check("--max-logprobs -1", "--max-logprobs=-1", 0);
    let json = r#"{"backend":"xgrammar","disable_any_whitespace":false}"#;
    let own = "--disable-any-whitespace=false";
    check(&format!("--structured-outputs-config {json}"), own, 1);
    check("--structured-outputs-config.backend auto", "", 1);
    let closed = "--structured-outputs-config.disable_additional_properties true";
    check(closed, "--disable-additional-properties=true", 0);
    let refused = sorted("playhouse serve m --structured-outputs-config.disable_fallback true");
    assert!(refused.unwrap_err().contains("disable_fallback"));
    assert!(sorted("playhouse serve m --hf-overrides.a 1 --hf-overrides.a.b 2").is_err());
    for line in ["--hf-overrides.a --port 1", "--hf-overrides. 1", "--hf-overrides.a..b 1"] {
        assert!(sorted(&format!("playhouse serve m {line}")).is_err(), "{line}");
    }
}

/// vLLM's `FlexibleArgumentParser` puts the object of the fields behind all other flags, and the
/// last value of a flag counts.
#[test]
fn fields_replace_a_whole_object_and_a_later_object_an_earlier_one() {
    let fields = r#"--speculative-config={"num_speculative_tokens":3}"#;
    let whole = r#"--speculative-config {"method":"ngram"}"#;
    check(&format!("{whole} --speculative-config.num_speculative_tokens 3"), fields, 1);
    check(&format!("--spec-tokens 3 {whole}"), fields, 1);
    check(&format!("--speculative-config {{}} {whole}"), &whole.replace(' ', "="), 1);
    let json = r#"{"disable_any_whitespace":false}"#;
    let line = format!(
        "--structured-outputs-config.disable_any_whitespace true --structured-outputs-config {json}"
    );
    check(&line, "--disable-any-whitespace=true", 1);
}

#[test]
fn flags_of_the_command_line_go_before_those_of_a_file_of_vllm() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("vllm.yaml");
    let text = "model: other\nport: 1\nserved_model_name: [a, b]\nenable-prefix-caching: false\n\
                trust-remote-code: true\nspeculative-config:\n  method: ngram\n";
    std::fs::write(&file, text).unwrap();
    let file = file.display();
    let switches = "--served-model-name=a --served-model-name=b --no-enable-prefix-caching";
    let object = "--speculative-config={\"method\":\"ngram\"}";
    let behind = format!("{switches} --port 2 {object}");
    check(&format!("--port 2 --config {file}"), &behind, 1);
    let behind = format!("--port=1 {switches} {object}");
    check(&format!("--config {file} --disable-prefix-caching"), &behind, 1);
    let alone = format!("playhouse serve --model=other --port=1 {switches} {object}");
    assert_eq!(sorted(&format!("playhouse serve --config={file}")), Ok((alone, 1)));
    let twice = sorted(&format!("playhouse serve m --config {file} --config {file}"));
    assert!(twice.unwrap_err().contains("only one file"));
    let toml = "playhouse serve m --config=playhouse.toml";
    assert_eq!(sorted(toml), Ok((toml.to_owned(), 0)));
}

#[test]
fn other_flags_say_what_to_use() {
    let error = sorted("serve m --cpu-offload-gb 9").unwrap_err();
    assert!(error.contains("--quantization"), "{error}");
    assert!(sorted("serve m -tp 2").unwrap_err().contains("--device"));
    let error = sorted("serve m --collect-detailed-traces all").unwrap_err();
    assert!(error.contains("playhouse profile"), "{error}");
    for (line, named) in [
        ("--task embed", "--runner"),
        ("--rope-scaling {}", "--hf-overrides"),
        ("--speculative-model x", "--speculative-config"),
        ("--max-model-len -1", "--max-model-len -1"),
        ("--quantization fp8", "a checkpoint that is quantized needs no flag"),
        ("-q bitsandbytes", "--quantization int8 or int4 quantizes others at load"),
        ("--config vllm.yaml", "--config vllm.yaml: No such file"),
        ("-ep", "--device"),
    ] {
        let error = sorted(&format!("playhouse serve m {line}")).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn no_flag_of_this_program_is_among_them() {
    assert!(FLAGS.len() > 200);
    let names: BTreeSet<_> = FLAGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), FLAGS.len());
    let command = super::super::Cli::command();
    let mut open = vec![&command];
    let mut own = BTreeSet::new();
    while let Some(command) = open.pop() {
        open.extend(command.get_subcommands());
        own.extend(command.get_arguments().filter_map(clap::Arg::get_long));
    }
    for flag in &own {
        assert_eq!(meaning_of(flag), None, "--{flag}");
    }
    // The reasons name flags of this program.
    for (name, meaning) in FLAGS {
        let (Switch(text)
        | Valued(text)
        | Listed(text)
        | Only(_, text)
        | Off(text)
        | Instead(text)) = *meaning;
        check_named(name, text, &own);
    }
    for (name, text) in VARIABLES {
        check_named(name, text, &own);
    }
}

fn check_named(name: &str, text: &str, own: &BTreeSet<&str>) {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    for named in text.split(|c: char| !is_inner(c)).filter_map(|word| word.strip_prefix("--")) {
        assert!(own.contains(named), "--{name} names --{named}");
    }
}
