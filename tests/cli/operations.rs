//! The files for operators in `configs/` name only things that exist.

use std::{collections::BTreeSet, fs, io::Read, path::Path};

use crate::{process::playhouse, server::Server};

fn config(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name)).unwrap()
}

/// Returns the metrics that `text` names, each with the name of its family in `/metrics`.
fn families(text: &str) -> BTreeSet<String> {
    let names = text.split("playhouse:").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        name.strip_suffix("_count").or(name.strip_suffix("_sum")).unwrap_or(name).to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let server = Server::start(&["--allow-chaos"]);
    let answer = |mut stream: std::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    answer(server.post("/v1/completions", r#"{"model": "demo-model", "prompt": "x"}"#));
    answer(server.post("/chaos/kill", r#"{"role": "scheduler", "how": "panic"}"#));
    while !server.get("/chaos/tree").contains(r#""restarts":1"#) {}
    answer(server.post("/v1/completions", r#"{"model": "demo-model", "prompt": "x"}"#));
    let there = families(&server.get("/metrics"));
    for file in ["grafana.json", "alerts.yml"] {
        let asked = families(&config(file));
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(asked.len() > 4 && missing.is_empty(), "{file}: {missing:?} of {asked:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&config("grafana.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

#[test]
fn the_probes_and_flags_exist() {
    let server = Server::start(&[]);
    let manifest = config("kubernetes.yaml");
    let probes: Vec<_> = manifest.split("httpGet: {path: ").skip(1).collect();
    assert_eq!(probes.len(), 3);
    for probe in probes {
        let path = probe.split(',').next().unwrap();
        assert!(server.get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
    // Otherwise, a Service named playhouse would set PLAYHOUSE_PORT.
    assert!(manifest.contains("\n      enableServiceLinks: false\n"));
    let help = playhouse(&["serve", "--help"]).succeeds();
    for file in ["kubernetes.yaml", "playhouse.service", "Dockerfile"] {
        let text = config(file);
        let commands = text.lines().filter(|line| {
            ["args:", "ExecStart=", "CMD "].iter().any(|start| line.trim().starts_with(start))
        });
        let flags: Vec<_> = commands
            .flat_map(|line| line.split([' ', '"', ',']))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(!flags.is_empty(), "{file} starts no server");
        for flag in flags {
            assert!(help.contains(flag), "{file}: {flag}");
        }
    }
}
