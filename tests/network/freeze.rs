//! Stuck threads of the runtime, seen from outside.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use playhouse::server::ServerConfig;
use tokio::runtime::{Builder, Runtime};

use crate::{serve, serving::Served};

const WORKERS: usize = 2;
/// A thread counts as stuck after three seconds. The limit is twice that time, and two seconds for
/// a slow machine.
const LIMIT: Duration = Duration::from_secs(8);

/// Holds up threads until it is opened, or until a minute has passed.
#[derive(Default)]
struct Barrier(Mutex<bool>, Condvar);

impl Barrier {
    fn wait(&self) {
        let limit = Duration::from_secs(60);
        let closed = self.1.wait_timeout_while(self.0.lock().unwrap(), limit, |open| !*open);
        drop(closed.unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

/// Starts a server on a runtime of its own, which does not use the test's thread.
fn start() -> (Runtime, Served) {
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let served = runtime.block_on(serve(ServerConfig::default()));
    (runtime, served)
}

fn freeze(runtime: &Runtime, threads: usize) -> Arc<Barrier> {
    let barrier = Arc::new(Barrier::default());
    for _ in 0..threads {
        let barrier = barrier.clone();
        runtime.spawn(async move { barrier.wait() });
    }
    barrier
}

/// Returns the whole answer on a connection of its own. It is empty if none comes within half a
/// second.
fn ask(served: &Served, request: &str, body: &str) -> String {
    let (_, address) = served.url.split_once("://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    // A request that is rejected early still has an answer.
    let _ = connection.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Returns the first answer that comes. A busy machine may take longer than half a second.
fn answer(served: &Served, request: &str, body: &str) -> String {
    let began = Instant::now();
    loop {
        let answer = ask(served, request, body);
        if !answer.is_empty() {
            return answer;
        }
        assert!(began.elapsed() < 4 * LIMIT, "{request} has no answer");
    }
}

fn get(served: &Served, path: &str) -> String {
    answer(served, &format!("GET {path}"), "")
}

/// Sends requests until the answer begins with `status`. Returns the time that this took.
fn until(served: &Served, path: &str, status: &str) -> Duration {
    let began = Instant::now();
    loop {
        let answer = ask(served, &format!("GET {path}"), "");
        if answer.starts_with(&format!("HTTP/1.1 {status}")) {
            return began.elapsed();
        }
        assert!(began.elapsed() < 4 * LIMIT, "{path} is not {status} but {answer}");
    }
}

#[test]
fn a_frozen_runtime_is_answered_for_until_it_is_at_work_again() {
    let (runtime, served) = start();
    until(&served, "/health", "200");
    let barrier = freeze(&runtime, WORKERS);
    let took = until(&served, "/health", "503");
    assert!(took < LIMIT, "{took:?}");
    assert!(get(&served, "/health").contains(r#"{"status":"frozen"}"#));
    let expected = [("/readyz", "503"), ("/livez", "200"), ("/metrics", "200"), ("/ping", "503")];
    for (path, status) in expected {
        let answer = get(&served, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    let refused = answer(&served, "POST /v1/completions", r#"{"prompt":"x"}"#);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("frozen"), "{refused}");
    barrier.open();
    until(&served, "/health", "200");
    until(&served, "/v1/models", "200");
    runtime.block_on(served.stop());
}

#[test]
fn one_stuck_thread_of_several_turns_health_red_while_the_others_serve() {
    let (runtime, served) = start();
    until(&served, "/health", "200");
    let barrier = freeze(&runtime, 1);
    let took = until(&served, "/health", "503");
    assert!(took < LIMIT, "{took:?}");
    assert!(get(&served, "/livez").starts_with("HTTP/1.1 200"));
    until(&served, "/v1/models", "200");
    barrier.open();
    until(&served, "/health", "200");
    runtime.block_on(served.stop());
}
