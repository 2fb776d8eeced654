//! The measuring tools, run against servers and engines of our own, so that the right counts are
//! known.

use serde_json::{Value, json};

use crate::{device::software_gpu, process::playhouse, server::Server};

const SMALL: &[&str] = &["--max-model-len", "256", "--max-num-seqs", "8"];

fn json_of(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}

fn bench_serve(server: &Server, flags: &[&str]) -> Value {
    let url = format!("http://{}", server.address);
    let common = ["bench", "serve", "--base-url", &url, "--output", "json"];
    json_of(&playhouse(&[&common, flags].concat()).succeeds())
}

fn f64_of(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap()
}

/// The server has one of the two adapters, so every second request fails.
#[test]
fn requests_name_adapters_by_turns() {
    let pirate = concat!("pirate=", env!("CARGO_MANIFEST_DIR"), "/examples/demo-model/pirate");
    let server = Server::start(&["--enable-lora", "--lora-modules", pirate]);
    let flags = ["--num-prompts=4", "--random-input-len=9", "--random-output-len=3"];
    let adapters = ["--lora-assignment=round-robin", "--lora-modules", "pirate", "parrot"];
    let result = bench_serve(&server, &[&flags[..], &adapters].concat());
    assert_eq!((&result["completed"], &result["failed"]), (&json!(2), &json!(2)), "{result}");
    let result = bench_serve(&server, &[&flags[..], &["--lora-modules", "pirate"]].concat());
    assert_eq!((&result["completed"], &result["failed"]), (&json!(4), &json!(0)), "{result}");
}

/// The fields that vLLM 0.32's client saves for this kind of run, except `rtfx`, which is about
/// audio.
const VLLM_FIELDS: &[&str] = &[
    "date",
    "endpoint_type",
    "backend",
    "label",
    "model_id",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "latencies",
    "start_times",
    "queue_times",
    "generated_texts",
    "errors",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    "mean_ttft_ms",
    "median_ttft_ms",
    "std_ttft_ms",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "mean_itl_ms",
    "mean_e2el_ms",
    "p99_e2el_ms",
];

#[test]
fn the_client_counts_what_a_server_does() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let result = bench_serve(
        &server,
        &[
            "--num-prompts=12",
            "--max-concurrency=3",
            "--random-input-len=20",
            "--random-output-len=6",
            "--percentile-metrics=ttft,tpot,itl,e2el",
            "--metric-percentiles=50,99",
            "--goodput=ttft:1e6,tpot:1e6,e2el:1e6",
            "--save-result",
            "--save-detailed",
            "--result-filename=run.json",
            "--metadata=machine=small",
            "--result-dir",
            folder,
        ],
    );
    for field in VLLM_FIELDS {
        assert!(result.get(field).is_some(), "{field}");
    }
    assert_eq!((&result["completed"], &result["failed"]), (&json!(12), &json!(0)));
    assert_eq!(result["total_output_tokens"], 72, "by the server's usage");
    // The server counts prompt tokens as the client's tokenizer does.
    let lengths: Vec<u64> =
        result["input_lens"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap()).collect();
    assert!(lengths.iter().filter(|len| **len == 20).count() >= 10, "{lengths:?}");
    assert_eq!(result["total_input_tokens"], lengths.iter().sum::<u64>());
    let most = result["max_concurrent_requests"].as_u64().unwrap();
    assert!((1..=3).contains(&most), "{most}");
    let ttfts = result["ttfts"].as_array().unwrap();
    assert!(ttfts.iter().all(|ttft| ttft.as_f64().unwrap() > 0.0));
    assert!(f64_of(&result, "mean_e2el_ms") > f64_of(&result, "mean_ttft_ms"));
    assert_eq!(result["request_goodput"], result["request_throughput"]);
    let throughput = 72.0 / f64_of(&result, "duration");
    assert!((f64_of(&result, "output_throughput") / throughput - 1.0).abs() < 1e-9);
    assert_eq!(result["machine"], "small");
    let saved = std::fs::read_to_string(format!("{folder}/run.json")).unwrap();
    assert_eq!(json_of(&saved), result);
}

#[test]
fn chats_come_at_their_rate_and_objectives_can_be_missed() {
    let server = Server::start(&[]);
    let result = bench_serve(
        &server,
        &[
            "--backend=openai-chat",
            "--num-prompts=10",
            "--input-len=10",
            "--output-len=4",
            "--request-rate=20",
            "--burstiness=0.7",
            "--seed=5",
            "--temperature=0",
            "--goodput",
            "ttft:0",
            "--save-detailed",
        ],
    );
    assert_eq!((&result["completed"], &result["total_output_tokens"]), (&json!(10), &json!(40)));
    assert_eq!((f64_of(&result, "request_rate"), f64_of(&result, "request_goodput")), (20.0, 0.0));
    let mut times: Vec<f64> =
        result["start_times"].as_array().unwrap().iter().map(|at| at.as_f64().unwrap()).collect();
    // Each request is a task. On a busy machine, a task may begin before an earlier one.
    times.sort_by(f64::total_cmp);
    // The last of ten requests comes after half a second, whatever the seed.
    assert!((0.5..4.0).contains(&times[9]) && times[0] < 0.4, "{times:?}");
}

#[test]
fn recorded_and_repeated_prompts_are_sent() {
    let server = Server::start(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let turn = |text: &str| json!({"from": "human", "value": text});
    let talk =
        json!([{"conversations": [turn("What is the sea made of?"), turn("Water and salt.")]}]);
    std::fs::write(file.path(), talk.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let result = bench_serve(
        &server,
        &[
            "--dataset-name=sharegpt",
            "--num-prompts=2",
            "--output-len=3",
            "--ignore-eos",
            "--dataset-path",
            path,
        ],
    );
    assert_eq!((&result["completed"], &result["total_output_tokens"]), (&json!(2), &json!(6)));
    let repeated = [
        "--dataset-name=prefix-repetition",
        "--num-prompts=4",
        "--prefix-repetition-num-prefixes=2",
        "--prefix-repetition-prefix-len=40",
        "--prefix-repetition-suffix-len=5",
        "--prefix-repetition-output-len=2",
        "--ignore-eos",
    ];
    assert_eq!(bench_serve(&server, &repeated)["total_output_tokens"], 8);
}

#[test]
fn requests_that_fail_are_counted_and_reported() {
    let server = Server::start(&[]);
    let url = format!("http://{}", server.address);
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let flags = [
        "bench",
        "serve",
        "--base-url",
        &url,
        "--model",
        "nobody",
        "--tokenizer",
        demo,
        "--num-prompts",
        "2",
        "--random-input-len",
        "5",
    ];
    let (code, stdout, stderr) = playhouse(&flags).finish();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.contains("Failed requests:                         2"), "{stdout}");
    assert!(stderr.contains("404") && stderr.contains("no request was served"), "{stderr}");
}

#[test]
fn engines_are_measured_without_a_server() {
    let throughput = ["bench", "throughput", "--num-prompts=6", "--input-len=12", "--output-len=5"];
    let text = playhouse(&[&throughput, SMALL].concat()).succeeds();
    assert!(text.starts_with("Throughput: ") && text.contains(" output tokens/s\n"), "{text}");
    let json = playhouse(&[&throughput, SMALL, &["--output", "json"]].concat()).succeeds();
    let json = json_of(&json);
    assert_eq!((&json["num_requests"], &json["total_num_tokens"]), (&json!(6), &json!(6 * 17)));
    let rate = f64_of(&json, "total_num_tokens") / f64_of(&json, "elapsed_time");
    assert!((f64_of(&json, "tokens_per_second") / rate - 1.0).abs() < 1e-3);

    let latency = [
        "bench",
        "latency",
        "--batch-size=2",
        "--input-len=8",
        "--output-len=3",
        "--num-iters=4",
        "--num-iters-warmup=1",
        "--output=json",
    ];
    let json = json_of(&playhouse(&[&latency, SMALL].concat()).succeeds());
    assert_eq!(json["latencies"].as_array().unwrap().len(), 4);
    let names: Vec<_> = json["percentiles"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["10", "25", "50", "75", "90", "99"]);
    assert!(f64_of(&json, "avg_latency") > 0.0);

    let lists = ["bench", "latency", "--batch-size=1,3", "--input-len=8", "--output-len=1,4"];
    let rounds = ["--num-iters=2", "--num-iters-warmup=0", "--enable-prefix-caching"];
    let measure = [&lists, &rounds[..], SMALL].concat();
    let text = playhouse(&measure).succeeds();
    let sizes = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let rows: Vec<_> = text.lines().skip(1).map(sizes).collect();
    assert_eq!(rows, ["1 8 1", "1 8 4", "3 8 1", "3 8 4"], "{text}");
    let json = json_of(&playhouse(&[&measure, &["--output=json"][..]].concat()).succeeds());
    let cases = json.as_array().unwrap();
    assert_eq!(cases.len(), 4);
    assert_eq!((&cases[1]["batch_size"], &cases[1]["output_len"]), (&json!(1), &json!(4)));
    assert!(cases.iter().all(|case| case["latencies"].as_array().unwrap().len() == 2));
}

#[test]
fn a_start_is_measured_to_its_first_token() {
    let flags =
        ["bench", "startup", "--num-iters=2", "--num-iters-warmup=0", "--output=json", "--"];
    // If clients need a key, this command needs it too.
    let run = playhouse(&[&flags, SMALL].concat()).env("PLAYHOUSE_API_KEY", "secret");
    let json = json_of(&run.succeeds());
    let list = |name: &str| -> Vec<f64> {
        json[name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let (healthy, first_token) = (list("healthy_s"), list("first_token_s"));
    assert_eq!((healthy.len(), first_token.len()), (2, 2));
    assert!(
        healthy.iter().zip(&first_token).all(|(healthy, token)| 0.0 < *healthy && healthy < token)
    );
    if cfg!(target_os = "linux") {
        assert!(f64_of(&json, "median_resident_mb") > 1.0, "{json}");
    }
    let wrong = ["bench", "startup", "--", "-m", "/nowhere"];
    let stderr = playhouse(&wrong).fails_with(1);
    assert!(stderr.contains("ended before it was healthy"), "{stderr}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[engine]\nmodel = \"/nowhere\"\n").unwrap();
    let stderr =
        playhouse(&["bench", "startup", "--config", file.path().to_str().unwrap()]).fails_with(1);
    assert!(stderr.contains("ended before it was healthy"), "the file is the server's: {stderr}");
}

#[test]
fn only_https_wants_certificates() {
    let error = |url: &str| {
        let flags = ["bench", "serve", "--base-url", url];
        playhouse(&flags).env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "").fails_with(1)
    };
    // No server listens on the discard port.
    assert!(error("http://127.0.0.1:9").contains("the server's models: "));
    assert!(error("https://127.0.0.1:9").contains("cannot read the system's certificates"));
}

#[test]
fn operations_stand_beside_the_machines_limits() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let flags = [
        "bench",
        "kernels",
        "-m",
        demo,
        "--num-tokens=1,4",
        "--context-len=33",
        "--seconds=0.001",
        "--dtype=float32",
        "--output=json",
    ];
    let json = json_of(&playhouse(&flags).succeeds());
    for name in ["read_max_gb_per_s", "f32_max_gflops", "bf16_max_gflops"] {
        assert!(f64_of(&json, name) > 0.0, "{name}");
    }
    let ops = json["ops"].as_array().unwrap();
    let named = |name: &str| ops.iter().filter(|op| op["op"] == name).count();
    for name in [
        "embedding",
        "norm",
        "linear_qkv",
        "linear_lm_head",
        "qk_norm_rope",
        "kv_write",
        "attention",
    ] {
        assert_eq!(named(name), 2, "{name}");
    }
    assert_eq!((named("attention_prompt"), named("sampling")), (1, 1));
    assert!(ops.iter().all(|op| f64_of(op, "time_us") > 0.0), "{json}");
    let more =
        ["--op=linear_o", "--num-tokens=1", "--seconds=0.001", "--output=json", "--quantization"];
    for quantization in [&["int8"][..], &["int4", "--activation-quantization=none"]] {
        let json = ["bench", "kernels", "-m", demo, "--group-size=32"];
        let json = json_of(&playhouse(&[&json, &more[..], quantization].concat()).succeeds());
        assert_eq!(json["ops"][0]["op"], "linear_o");
        assert!(json["ops"][0]["percent_of_flops_max"].is_null(), "{json}");
    }
    let stderr = playhouse(&["bench", "kernels", "--op", "linaer"]).fails_with(2);
    assert!(stderr.contains("no operation begins with [\"linaer\"]"), "{stderr}");
}

/// A tensor larger than the device's largest binding. The device rejects its kernels, so it would
/// look fast.
#[test]
fn an_operation_that_the_device_refuses_has_no_time() {
    let Some(device) = software_gpu() else {
        eprintln!("skipped: there is no software GPU");
        return;
    };
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let flags = ["bench", "kernels", "-m", demo, "--seconds=0.001", "--output=json"];
    let which = ["--device", &device, "--op=norm", "--num-tokens=4,262144"];
    let (code, stdout, stderr) = playhouse(&[&flags[..], &which].concat()).finish();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("1 of 2 operations failed"), "{stderr}");
    let rows = &json_of(&stdout)["ops"];
    assert!(f64_of(&rows[0], "time_us") > 0.0, "{rows}");
    assert!(rows[1]["error"].is_string() && rows[1]["time_us"].is_null(), "{rows}");
}

#[test]
fn invalid_flags_are_rejected() {
    for (flags, says) in [
        (&["serve", "--request-rate", "0"][..], "--request-rate must be above 0, got 0"),
        (&["serve", "--max-concurrency", "0"], "--max-concurrency must be above 0"),
        (&["serve", "--metric-percentiles", "x"], "\"x\" is no percentile"),
        (&["serve", "--goodput", "ttft"], "\"ttft\" is no objective"),
        (&["serve", "--percentile-metrics", "tbt"], "there is no metric \"tbt\""),
        (&["serve", "--extra-body", "[]"], "--extra-body"),
        (&["throughput", "--num-prompts", "0"], "--num-prompts must be at least 1"),
        (&["latency", "--output-len", "0"], "--input-len and --output-len must be at least 1"),
        (&["kernels", "--num-tokens", "0"], "must be at least 1"),
    ] {
        let stderr = playhouse(&[&["bench"], flags].concat()).fails_with(2);
        assert!(stderr.contains(says), "{stderr}");
    }
}
