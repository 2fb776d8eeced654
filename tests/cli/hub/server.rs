//! A small server that speaks the hub's protocol as huggingface.co does, with faults on request.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A repository at one commit.
#[derive(Default, Clone)]
pub(crate) struct Repository {
    pub(crate) commit: String,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The token without which only the listing is given out.
    pub(crate) token: Option<String>,
}

/// The faults of the server.
#[derive(Default)]
pub(crate) struct Faults {
    /// Connections that break off in the middle of a large file.
    pub(crate) cuts: usize,
    /// Answers with status 503 to requests for files.
    pub(crate) unavailable: usize,
    /// Whether large files have a wrong byte.
    pub(crate) corrupts: bool,
    /// Bytes that the listing says of each large file.
    pub(crate) claimed_size: Option<u64>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) repositories: BTreeMap<String, Repository>,
    pub(crate) faults: Faults,
    /// Requests: their paths, and the beginnings of their ranges.
    pub(crate) log: Vec<(String, Option<usize>)>,
}

/// The server. It ends with the test's process.
pub(crate) struct Hub {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let hub = Self { endpoint: endpoint.clone(), state: Arc::clone(&state) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, endpoint) = (Arc::clone(&state), endpoint.clone());
                thread::spawn(move || answer(&stream.unwrap(), &state, &endpoint));
            }
        });
        hub
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn add(&self, name: &str, commit: &str, files: BTreeMap<String, Vec<u8>>) {
        let repository = Repository { commit: commit.to_owned(), files, token: None };
        self.state().repositories.insert(name.to_owned(), repository);
    }

    /// Returns the beginnings of the ranges that were asked for of large files, longer ones than
    /// the one byte of a request for metadata.
    pub(crate) fn large_requests(&self) -> Vec<usize> {
        let state = self.state();
        let large = state.log.iter().filter(|(path, _)| path.starts_with("/cdn/"));
        large.filter_map(|(_, from)| *from).collect()
    }
}

/// Returns whether the hub stores a file with LFS, as it does with large ones.
fn is_large(path: &str) -> bool {
    [".safetensors", ".gguf", ".bin"].iter().any(|end| path.ends_with(end))
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request: its path, the range's beginning and end, and the token.
struct Request {
    path: String,
    range: Option<(usize, Option<usize>)>,
    token: Option<String>,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let mut request = Self { path, range: None, token: None };
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            match name.to_lowercase().as_str() {
                "range" => {
                    let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
                    request.range = Some((from.parse().ok()?, to.parse().ok()));
                }
                "authorization" => {
                    request.token = value.strip_prefix("Bearer ").map(str::to_owned);
                }
                _ => {}
            }
        }
        Some(request)
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>, endpoint: &str) {
    let Some(request) = Request::read(stream) else { return };
    let mut state = state.lock().unwrap();
    let from = request.range.filter(|(_, to)| to.is_none()).map(|(from, _)| from);
    state.log.push((request.path.clone(), from));
    let path = request.path.split('?').next().unwrap_or_default().to_owned();
    if let Some(rest) = path.strip_prefix("/api/models/") {
        if let Some((name, _)) = rest.split_once("/tree/") {
            // Python's client lists the files here.
            let repository = state.repositories.get(name).unwrap();
            let tree = tree(&listing(name, repository, &state.faults));
            return send(stream, "200 OK", "", tree.to_string().as_bytes());
        }
        let Some((name, revision)) = rest.split_once("/revision/") else {
            return send(stream, "404 Not Found", "", b"{}");
        };
        return match state.repositories.get(name) {
            Some(repository) if [repository.commit.as_str(), "main"].contains(&revision) => {
                let listing = listing(name, repository, &state.faults).to_string();
                send(stream, "200 OK", "", listing.as_bytes());
            }
            // As huggingface.co, which does not tell strangers what is private.
            _ if request.token.is_none() => send(stream, "401 Unauthorized", "", b"{}"),
            _ => send(stream, "404 Not Found", "", b"{}"),
        };
    }
    if let Some(hash) = path.strip_prefix("/cdn/") {
        let mut files = state.repositories.values().flat_map(|repo| repo.files.values());
        let mut content = files.find(|content| sha256(content) == hash).unwrap().clone();
        if state.faults.corrupts {
            let middle = content.len() / 2;
            content[middle] ^= 1;
        }
        let is_cut = from.is_some() && state.faults.cuts > 0;
        state.faults.cuts -= usize::from(is_cut);
        drop(state);
        return part(stream, &content, request.range, is_cut, "");
    }
    let Some((name, rest)) = path[1..].split_once("/resolve/") else {
        return send(stream, "404 Not Found", "", b"{}");
    };
    let (commit, file) = rest.split_once('/').unwrap();
    let Some(repository) = state.repositories.get(name).filter(|repo| repo.commit == commit) else {
        return send(stream, "404 Not Found", "", b"");
    };
    if repository.token.is_some() && repository.token != request.token {
        return send(stream, "401 Unauthorized", "X-Error-Code: GatedRepo\r\n", b"");
    }
    let Some(content) = repository.files.get(file).cloned() else {
        return send(stream, "404 Not Found", "", b"");
    };
    let hash = sha256(&content);
    let of_commit = format!("X-Repo-Commit: {commit}\r\n");
    if state.faults.unavailable > 0 {
        state.faults.unavailable -= 1;
        return send(stream, "503 Service Unavailable", "", b"");
    }
    drop(state);
    if is_large(file) {
        // Large files are on another host.
        let elsewhere = endpoint.replace("127.0.0.1", "localhost");
        let headers = format!(
            "{of_commit}Location: {elsewhere}/cdn/{hash}\r\nX-Linked-Etag: \"{hash}\"\r\n\
             X-Linked-Size: {}\r\nETag: \"other\"\r\n",
            content.len()
        );
        return send(stream, "302 Found", &headers, b"");
    }
    // Small files, too, are elsewhere, at a path of the same server.
    if file == "tokenizer.json" && !request.path.contains("?moved") {
        let headers = format!("Location: {path}?moved\r\n");
        return send(stream, "307 Temporary Redirect", &headers, b"");
    }
    part(
        stream,
        &content,
        request.range,
        false,
        &format!("{of_commit}ETag: \"{}\"\r\n", &hash[..40]),
    );
}

fn listing(name: &str, repository: &Repository, faults: &Faults) -> Value {
    let sibling = |(path, content): (&String, &Vec<u8>)| {
        let (hash, mut size) = (sha256(content), content.len() as u64);
        let mut sibling = json!({ "rfilename": path, "blobId": &hash[..40] });
        if is_large(path) {
            size = faults.claimed_size.unwrap_or(size);
            sibling["lfs"] = json!({ "sha256": hash, "size": size, "pointerSize": 134 });
        }
        sibling["size"] = size.into();
        sibling
    };
    let siblings: Vec<_> = repository.files.iter().map(sibling).collect();
    let is_gated = repository.token.is_some();
    json!({ "id": name, "sha": repository.commit, "siblings": siblings, "gated": is_gated })
}

/// Returns the same as the entries of a tree.
fn tree(listing: &Value) -> Value {
    let entry = |sibling: &Value| {
        let mut entry = json!({
            "type": "file",
            "path": sibling["rfilename"],
            "oid": sibling["blobId"],
            "size": sibling["size"],
        });
        if sibling["lfs"].is_object() {
            entry["lfs"] = json!({
                "oid": sibling["lfs"]["sha256"], "size": sibling["size"], "pointerSize": 134,
            });
        }
        entry
    };
    listing["siblings"].as_array().unwrap().iter().map(entry).collect()
}

/// Sends a part of `content`, or the first half of that part.
fn part(
    mut stream: &TcpStream,
    content: &[u8],
    range: Option<(usize, Option<usize>)>,
    is_cut: bool,
    headers: &str,
) {
    let Some((from, to)) = range else { return send(stream, "200 OK", headers, content) };
    if from >= content.len() {
        return send(stream, "416 Range Not Satisfiable", "", b"");
    }
    let end = to.map_or(content.len(), |to| content.len().min(to + 1));
    let (total, last, len) = (content.len(), end - 1, end - from);
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {len}\r\n\
         Content-Range: bytes {from}-{last}/{total}\r\n{headers}Connection: close\r\n\r\n"
    );
    let sent = if is_cut { from + len / 2 } else { end };
    // The client may leave.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&content[from..sent]);
}

fn send(mut stream: &TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}
