//! A journal with a key: its files do not show what clients said, and streams go on as without one.

use std::{fs, path::Path};

use reqwest::Client;
use serde_json::json;

use crate::{
    check,
    client::{Ask, Reader, get, post, read},
    process::playhouse,
    server::Server,
    undisturbed,
};

const SECRET: &str = "the code of the vault is 5917";

/// Returns the content of all files in a folder and in those within it.
fn contents(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.extend(if path.is_dir() { contents(&path) } else { fs::read(path).unwrap() });
    }
    all
}

fn holds(folder: &Path, text: &str) -> bool {
    contents(folder).windows(text.len()).any(|bytes| bytes == text.as_bytes())
}

fn key(folder: &Path, name: &str, digits: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, digits.repeat(32) + "\n").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

/// The first process has no key, the second encrypts what it finds, and the third goes on.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_and_only_the_key_reads_them() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = folder.path();
    let right = key(keys.path(), "right", "7c");
    let ask = Ask {
        path: "/v1/completions",
        body: json!({
            "model": "demo", "prompt": SECRET, "max_tokens": 300, "stream": true, "seed": 8,
            "ignore_eos": true, "temperature": 1,
        }),
    };
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let client = Client::new();
    let mut reader = Reader::default();
    let flags = ["--journal-key-file", &right];
    for flags in [&[][..], &flags] {
        let server = Server::start(Some(journal), flags);
        let more = reader.events.len() + 5;
        let last = reader.last_id().map(str::to_owned);
        let response = post(&client, &server.url, &ask, last.as_deref()).await;
        let connection = read(response, &mut reader, |reader| reader.events.len() >= more).await;
        server.kill();
        drop(connection);
        reader.lose_connection();
        assert_eq!(holds(journal, SECRET), flags.is_empty(), "{flags:?}");
    }
    let wrong = key(keys.path(), "wrong", "7d");
    for (flags, why) in [
        (&[][..], "no journal_key_file"),
        (&["--journal-key-file", &wrong], "no key in journal_key_file opens it"),
        (&["--journal-key-file", "/nowhere/key"], "/nowhere/key"),
    ] {
        let all = ["serve", "--port", "0", "--journal", journal.to_str().unwrap()];
        let stderr = playhouse(&[&all[..], flags].concat()).fails_with(1);
        assert!(stderr.contains(why), "{stderr}");
    }
    // The key is changed: both are there for one start, then the new one alone.
    let new = key(keys.path(), "new", "7e");
    let both = key(keys.path(), "both", "7e");
    fs::write(&both, format!("{}\n{}\n", "7e".repeat(32), "7c".repeat(32))).unwrap();
    Server::start(Some(journal), &["--journal-key-file", &both]).kill();
    let server = Server::start(Some(journal), &["--journal-key-file", &new]);
    let last = reader.last_id().unwrap().to_owned();
    read(get(&client, &server.url, &ask, &last).await, &mut reader, |_| false).await;
    check(&ask, &reader, &expected[0]);
    server.kill();
    assert!(!holds(journal, SECRET));
}
