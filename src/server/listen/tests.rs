//! Connections to a server of two routes, one of which panics.

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

const REQUEST: &str = " HTTP/1.1\r\nHost: x\r\n\r\n";

/// The answers to GET requests for `paths` on one connection.
async fn answers(app: Router, paths: &[&str]) -> String {
    let listener = Listener::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let Address::Tcp(address) = listener.address().unwrap() else { panic!("it is TCP") };
    let (config, stop) = (ServerSettings::default(), CancellationToken::new());
    let client = async {
        let mut connection = TcpStream::connect(address).await.unwrap();
        for path in paths {
            connection.write_all(format!("GET {path}{REQUEST}").as_bytes()).await.unwrap();
        }
        // A drain waits for what was asked, and ends the connection then.
        let mut first = vec![0];
        connection.read_exact(&mut first).await.unwrap();
        stop.cancel();
        connection.read_to_end(&mut first).await.unwrap();
        String::from_utf8(first).unwrap()
    };
    tokio::join!(serve(listener, app, None, &config, stop.clone()), client).1
}

#[tokio::test]
async fn a_handler_that_panics_is_an_answer_like_others() {
    async fn panics() -> &'static str {
        panic!("on purpose")
    }
    let app = Router::new().route("/", get(async || "well")).route("/panic", get(panics));
    let answer = answers(app.clone(), &["/panic"]).await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("InternalServerError") && !answer.contains("purpose"), "{answer}");
    let answer = answers(app, &["/"]).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("well"), "{answer}");
}
