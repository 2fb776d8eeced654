//! The book's lists of settings, routes and metrics equal those of the program.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::Path,
    thread::park_timeout,
    time::{Duration, Instant},
};

use playhouse::config::Setting;

use crate::{ROOT, blocks::quoted, chapter, sandbox::Sandbox};

/// The head of `configs/playhouse.toml`.
const FILE_HEAD: &str = "\
# All settings with their defaults. Use a copy with `playhouse serve --config FILE`, or name it in
# PLAYHOUSE_CONFIG. Over the file go environment variables (engine.max_num_seqs is
# PLAYHOUSE_MAX_NUM_SEQS) and over those flags (--max-num-seqs). `playhouse config` shows the
# resulting values. Unknown keys are rejected. Relative paths start from the current directory.
#
# A line that is a comment as a whole has no value unless you give it one.
";

/// The head of `docs/src/settings.md`.
const CHAPTER_HEAD: &str = "\
# All settings

<!-- Made from the tables in src/config by tests/docs/reference.rs. -->

A setting `engine.max_num_seqs` is `max_num_seqs` in section `[engine]` of a file, the
variable `PLAYHOUSE_MAX_NUM_SEQS`, and the flag `--max-num-seqs`.
";

/// Returns the file of all settings.
fn settings_file() -> String {
    let mut file = FILE_HEAD.to_owned();
    let (mut section, mut heading) = ("", "");
    for setting in Setting::all() {
        if setting.section != section {
            write!(file, "\n[{}]\n", setting.section).unwrap();
        } else if setting.heading != heading {
            file.push('\n');
        }
        (section, heading) = (setting.section, setting.heading);
        for line in setting.meaning {
            writeln!(file, "#{line}").unwrap();
        }
        match (setting.default_toml(), setting.usage.example) {
            (Some(value), _) => writeln!(file, "{} = {value}", setting.name).unwrap(),
            (None, example) => {
                writeln!(file, "# {} = {}", setting.name, example.unwrap()).unwrap();
            }
        }
    }
    file
}

/// Returns the chapter of all settings.
fn settings_chapter() -> String {
    let mut chapter = CHAPTER_HEAD.to_owned();
    let mut section = "";
    for setting in Setting::all() {
        if setting.section != section {
            section = setting.section;
            let table = "| Key | Default | Meaning |\n|---|---|---|";
            write!(chapter, "\n## [{section}]\n\n{table}\n").unwrap();
        }
        let default = setting.default_toml().map_or("–".to_owned(), |value| format!("`{value}`"));
        let meaning = setting.meaning.concat().trim().replace('|', "\\|");
        writeln!(chapter, "| `{}` | {default} | {meaning} |", setting.name).unwrap();
    }
    chapter
}

/// With `PLAYHOUSE_UPDATE_DOCS=1`, the test writes file and chapter before it compares them. The
/// unit tests of `src/config` read the file as a server does.
#[test]
fn the_file_and_the_chapter_of_all_settings_are_up_to_date() {
    let command = "PLAYHOUSE_UPDATE_DOCS=1 cargo test --workspace --test docs settings";
    let made =
        [("configs/playhouse.toml", settings_file()), ("docs/src/settings.md", settings_chapter())];
    for (path, expected) in made {
        let place = Path::new(ROOT).join(path);
        if std::env::var_os("PLAYHOUSE_UPDATE_DOCS").is_some() {
            fs::write(&place, &expected).unwrap();
        }
        let found = fs::read_to_string(place).unwrap();
        assert!(found == expected, "{path} is old; `{command}` makes it anew");
    }
    let chapter = chapter("settings.md");
    let printed = Sandbox::new().playhouse("config --output json");
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    for (section, keys) in printed.as_object().unwrap() {
        for key in keys.as_object().unwrap().keys() {
            assert!(chapter.contains(&format!("\n| `{key}` |")), "{section}.{key}");
        }
    }
}

/// Returns the routes in the first column of a chapter's tables: "`POST /v1/x`", or several with
/// commas.
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
    // Some metrics exist only after there was something to count.
    let body = r#"{"prompt": "x", "max_tokens": 2, "max_tokenz": 3}"#;
    let answer = sandbox.post("/v1/completions", body);
    assert!(answer.contains("\"choices\""), "{answer}");
    sandbox.post("/chaos/kill", r#"{"role": "detokenizer", "how": "panic"}"#);
    let limit = Instant::now() + Duration::from_secs(60);
    let mut tree = String::new();
    while !tree.contains("\"restarts\":1") {
        assert!(Instant::now() < limit, "the detokenizer is not replaced: {tree}");
        park_timeout(Duration::from_millis(5));
        tree = sandbox.get("/chaos/tree");
    }
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
            // `playhouse::model` is a path in Rust.
            if metric.is_empty() || metric.starts_with(':') {
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
fn routes_are_read_from_their_tables() {
    let routes = listed_routes("| Route | x |\n| `POST /v1/a`, `GET /v1/a/{id}` | y |\n");
    assert_eq!(routes.into_iter().collect::<Vec<_>>(), ["/v1/a", "/v1/a/{id}"]);
}
