//! What the book lists is what there is: settings, routes, metrics.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use crate::{ROOT, blocks::quoted, chapter, sandbox::Sandbox};

/// A section of `configs/playhouse.toml` with its comment, and its keys.
struct Section {
    name: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    /// None if the file gives only an example.
    default: Option<String>,
    comment: String,
}

/// The settings as `configs/playhouse.toml` tells them. That it is true and complete is held by the
/// unit tests of `src/config`.
fn settings(toml: &str) -> Vec<Section> {
    let (mut sections, mut comment) = (Vec::<Section>::new(), Vec::new());
    for line in toml.lines() {
        let is_example = line.starts_with("# ") && line[2..].split_once(" = ").is_some_and(is_key);
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']').to_owned();
            sections.push(Section { name, keys: Vec::new() });
            comment.clear();
        } else if line.is_empty() {
            comment.clear();
        } else if line.starts_with('#') && !is_example {
            comment.push(line.trim_start_matches('#').trim());
        } else if let Some((name, value)) = line.trim_start_matches("# ").split_once(" = ")
            && let Some(section) = sections.last_mut()
        {
            let default = (!is_example).then(|| value.to_owned());
            let comment = std::mem::take(&mut comment).join(" ");
            section.keys.push(Key { name: name.to_owned(), default, comment });
        }
    }
    sections
}

fn is_key((name, _): (&str, &str)) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The chapter of all settings.
fn settings_reference() -> String {
    let toml = fs::read_to_string(Path::new(ROOT).join("configs/playhouse.toml")).unwrap();
    let mut chapter = "# All settings\n\n\
        <!-- Made from configs/playhouse.toml by tests/docs/reference.rs. -->\n\n\
        A setting `engine.max_num_seqs` is `max_num_seqs` in section `[engine]` of a file, the\n\
        variable `PLAYHOUSE_MAX_NUM_SEQS`, and the flag `--max-num-seqs`.\n"
        .to_owned();
    for Section { name, keys } in settings(&toml) {
        write!(chapter, "\n## [{name}]\n\n| Key | Default | Meaning |\n|---|---|---|\n").unwrap();
        for Key { name, default, comment } in keys {
            let default = default.map_or("–".to_owned(), |value| format!("`{value}`"));
            let comment = comment.replace('|', "\\|");
            writeln!(chapter, "| `{name}` | {default} | {comment} |").unwrap();
        }
    }
    chapter
}

/// With `PLAYHOUSE_UPDATE_DOCS=1` the chapter is written, otherwise it is compared.
#[test]
fn the_chapter_of_all_settings_is_up_to_date() {
    let (path, expected) = ("docs/src/settings.md", settings_reference());
    if std::env::var_os("PLAYHOUSE_UPDATE_DOCS").is_some() {
        fs::write(Path::new(ROOT).join(path), &expected).unwrap();
    }
    let command = "PLAYHOUSE_UPDATE_DOCS=1 cargo test --workspace --test docs settings";
    assert!(chapter("settings.md") == expected, "{path} is old; `{command}` makes it anew");
    let printed = Sandbox::new().playhouse("config --output json");
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    for (section, keys) in printed.as_object().unwrap() {
        for key in keys.as_object().unwrap().keys() {
            assert!(expected.contains(&format!("\n| `{key}` |")), "{section}.{key}");
        }
    }
}

/// The paths in the first column of a chapter's tables: "`POST /v1/x`", or several with commas.
fn listed_routes(chapter: &str) -> BTreeSet<String> {
    let rows = chapter.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let routes = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let routes = routes.filter_map(|route| route.split_whitespace().find(|w| w.starts_with('/')));
    routes.map(str::to_owned).collect()
}

#[test]
fn the_chapter_on_the_api_lists_every_route() {
    let mut sandbox = Sandbox::new();
    let document: serde_json::Value = serde_json::from_str(&sandbox.get("/openapi.json")).unwrap();
    let there: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let listed = listed_routes(&chapter("api.md"));
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/src/api.md: {missing:?}");
    let unknown: Vec<_> = listed.difference(&there).collect();
    assert!(unknown.is_empty(), "not served: {unknown:?}");
}

#[test]
fn metrics_in_the_book_are_measured() {
    let mut sandbox = Sandbox::new();
    // Some are there only once there is something to count.
    let body = r#"{"prompt": "x", "max_tokens": 2, "max_tokenz": 3}"#;
    let answer = sandbox.post("/v1/completions", body);
    assert!(answer.contains("\"choices\""), "{answer}");
    sandbox.post("/chaos/kill", r#"{"role": "detokenizer", "how": "panic"}"#);
    while !sandbox.get("/chaos/tree").contains("\"restarts\":1") {}
    let metrics = sandbox.get("/metrics");
    let mut count = 0;
    for name in fs::read_dir(Path::new(ROOT).join("docs/src")).unwrap() {
        let name = name.unwrap().file_name().to_str().unwrap().to_owned();
        if !name.ends_with(".md") {
            continue;
        }
        for quoted in quoted(&chapter(&name)) {
            let Some(metric) = quoted.strip_prefix("playhouse:") else { continue };
            let metric = metric.split(['{', ' ']).next().unwrap_or(metric);
            if metric.is_empty() {
                continue;
            }
            let type_line = format!("# TYPE playhouse:{metric} ");
            assert!(metrics.contains(&type_line), "{name}: playhouse:{metric}");
            count += 1;
        }
    }
    assert!(count > 5, "the metrics were not found");
}

#[test]
fn settings_are_read_from_their_file() {
    let toml = "# About.\n\n[engine]\n# Where from,\n# and how.\n# model = \"x\"\n# Many.\nn = 8\n";
    let sections = settings(toml);
    let keys: Vec<_> =
        sections[0].keys.iter().map(|k| (&*k.name, k.default.as_deref(), &*k.comment)).collect();
    let expected = [("model", None, "Where from, and how."), ("n", Some("8"), "Many.")];
    assert_eq!((sections.len(), keys), (1, expected.to_vec()));
    let routes = listed_routes("| Route | x |\n| `POST /v1/a`, `GET /v1/a/{id}` | y |\n");
    assert_eq!(routes.into_iter().collect::<Vec<_>>(), ["/v1/a", "/v1/a/{id}"]);
}
