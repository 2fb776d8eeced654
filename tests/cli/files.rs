//! Files that are cut while they are mapped, and paths to files that are not regular.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{process::playhouse, server::Server};

fn pipe(folder: &Path) -> PathBuf {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    pipe
}

/// Starts a server over packed weights, and cuts their file. Returns the server with the file's
/// name.
fn over_a_cut_cache(folder: &Path, more: &[&str]) -> (Server, String) {
    let flags = [&["--weights-cache", folder.to_str().unwrap()][..], more].concat();
    let server = Server::start(&flags);
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let packed = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let packed: Vec<_> = packed.collect();
    assert_eq!(packed.len(), 1, "{packed:?}");
    let server = Server::start(&flags);
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    File::options().write(true).open(&packed[0]).unwrap().set_len(4096).unwrap();
    (server, packed[0].file_name().unwrap().to_str().unwrap().to_owned())
}

#[test]
fn a_weights_cache_that_is_cut_under_the_server_ends_it_with_the_files_name() {
    let folder = tempfile::tempdir().unwrap();
    let (server, name) = over_a_cut_cache(folder.path(), &["--single-process"]);
    let mut answer = Vec::new();
    // The connection ends with the process.
    let _ = server.stream(4).read_to_end(&mut answer);
    let (code, log) = server.end();
    assert_eq!(code, Some(74), "{log}");
    assert!(log.contains(&format!("{name}: a part of this file, which is mapped")), "{log}");
}

#[cfg(unix)]
#[test]
fn a_stream_survives_a_weights_cache_that_is_cut_under_its_engine_process() {
    let folder = tempfile::tempdir().unwrap();
    let (server, name) = over_a_cut_cache(folder.path(), &[]);
    let mut answer = String::new();
    server.stream(4).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("data: [DONE]"), "{answer}");
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains(&format!("{name}: a part of this file, which is mapped")), "{log}");
}

#[test]
fn pipes_are_refused_where_files_are_read_again_or_wanted_whole() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe(folder.path());
    let pipe = pipe.to_str().unwrap();
    for (arguments, code) in [
        (&["config", "--config", pipe][..], 2),
        (&["serve", "--port", "0", "--chat-template", pipe], 1),
        (&["serve", "--port", "0", "--api-key-file", pipe], 1),
        (&["serve", "--port", "0", "--ssl-certfile", pipe], 1),
    ] {
        let stderr = playhouse(arguments).fails_with(code);
        assert!(stderr.contains("it is a FIFO; expected a regular file"), "{arguments:?} {stderr}");
    }
}

#[test]
fn a_pipe_is_an_input_where_a_person_gives_one() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe(folder.path());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "Once upon a time").unwrap()
    });
    let arguments = ["generate", "--max-tokens", "2", "--file", pipe.to_str().unwrap()];
    assert!(!playhouse(&arguments).succeeds().is_empty());
    writer.join().unwrap();
}
