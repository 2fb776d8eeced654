//! Every link has a target, and the book lists every chapter.

use std::{fs, path::Path};

use crate::{Document, ROOT, blocks::prose, chapter, documents};

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Returns the targets of all links of a text.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.map(str::to_owned).collect()
}

/// Returns the anchors of a text's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns whether the file exists and has the heading after `#`.
fn leads_somewhere(folder: &Path, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let there = folder.join(file);
    let has_anchor = || {
        let text = fs::read_to_string(&there).unwrap();
        anchors(&text).iter().any(|known| known == anchor)
    };
    there.exists() && (anchor.is_empty() || has_anchor())
}

#[test]
fn links_lead_somewhere() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for Document { path, text } in documents() {
        let folder = Path::new(ROOT).join(&path).parent().unwrap().to_owned();
        for target in targets(&text).iter().filter(|target| !target.contains("://")) {
            count += 1;
            let target = match target.starts_with('#') {
                true => format!("{}{target}", Path::new(&path).file_name().unwrap().display()),
                false => target.clone(),
            };
            if !leads_somewhere(&folder, &target) {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 20, "the links were not found");
}

#[test]
fn links_into_the_repository_lead_to_what_it_has() {
    let mut broken = Vec::new();
    for Document { path, text } in documents() {
        let targets = targets(&text);
        let files = targets.iter().filter_map(|target| target.strip_prefix(REPOSITORY));
        let files = files.filter_map(|rest| rest.split_once("/main/").map(|(_, file)| file));
        let missing = files.filter(|file| !leads_somewhere(Path::new(ROOT), file));
        broken.extend(missing.map(|file| format!("{path}: {file}")));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_summary_lists_every_chapter() {
    let listed = targets(&chapter("SUMMARY.md"));
    let summary = fs::read_dir(Path::new(ROOT).join("docs/src")).unwrap();
    for entry in summary {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        let is_chapter = name.ends_with(".md") && name != "SUMMARY.md";
        assert!(!is_chapter || listed.contains(&name), "{name} is not in SUMMARY.md");
    }
    assert!(listed.len() > 8);
}

/// A book is read alone, so it links to files outside of `docs` by the repository's address.
#[test]
fn the_book_links_within_itself() {
    for Document { path, text } in documents() {
        for target in targets(&text) {
            let leaves = path.starts_with("docs/") && target.starts_with("../");
            assert!(!leaves, "{path}: {target}");
        }
    }
}
