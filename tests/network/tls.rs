//! TLS with both protocols, certificates of clients, and certificates that change.

use playhouse::{
    config::CertReqs,
    server::{Listener, ServerConfig, ServerError},
};
use tokio::time::{Duration, interval, timeout};

use crate::{
    PATIENCE,
    certificates::{Authority, Signed},
    client::{Version, ask, connect, get, post, shake_hands},
    serve, streamed,
};

fn with(signed: &Signed) -> ServerConfig {
    ServerConfig {
        ssl_certfile: Some(signed.certificate.clone()),
        ssl_keyfile: Some(signed.key.clone()),
        ..ServerConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_protocols_are_spoken_over_tls() {
    let authority = Authority::new();
    let served = serve(with(&authority.sign("server"))).await;
    for (protocol, version) in [("http/1.1", Version::Http1), ("h2", Version::Http2)] {
        let config = authority.client(protocol, None);
        let connection = shake_hands(&served, config.clone()).await.unwrap();
        assert_eq!(connection.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let (status, _) = ask(connection, version, get("/health")).await.unwrap();
        assert_eq!(status, 200, "{protocol}");
        let connection = shake_hands(&served, config).await.unwrap();
        let request = post("/v1/completions", &streamed());
        let (status, text) = ask(connection, version, request).await.unwrap();
        assert_eq!(status, 200, "{protocol}: {text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{protocol}: {text}");
    }
    // A plain request gets no answer and does no harm.
    assert!(ask(connect(&served).await, Version::Http1, get("/health")).await.is_err());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_certificates_where_they_must() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (ours, theirs) = (authority.sign("client"), stranger.sign("client"));
    let server = authority.sign("server");
    for (clients, without) in [(CertReqs::Required, false), (CertReqs::Optional, true)] {
        let config = ServerConfig {
            ssl_ca_certs: Some(authority.path()),
            ssl_cert_reqs: clients,
            ..with(&server)
        };
        let served = serve(config).await;
        for (own, welcome) in [(Some(&ours), true), (Some(&theirs), false), (None, without)] {
            let config = authority.client("http/1.1", own);
            // With TLS 1.3, a client learns that it is rejected only after its handshake.
            let answered = match shake_hands(&served, config).await {
                Ok(connection) => ask(connection, Version::Http1, get("/health")).await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(answered, welcome, "{clients:?}");
        }
        served.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_change_are_read_again() {
    let (first, second) = (Authority::new(), Authority::new());
    let signed = first.sign("server");
    let config = ServerConfig { enable_ssl_refresh: true, ..with(&signed) };
    let served = serve(config).await;
    let knows = async |authority: &Authority| {
        shake_hands(&served, authority.client("http/1.1", None)).await.is_ok()
    };
    assert!(knows(&first).await && !knows(&second).await);
    let new = second.sign("server");
    std::fs::copy(&new.key, &signed.key).unwrap();
    std::fs::copy(&new.certificate, &signed.certificate).unwrap();
    let mut ticks = interval(Duration::from_millis(100));
    let changed = async {
        while !knows(&second).await {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, changed).await.unwrap();
    // Unusable files change nothing.
    std::fs::write(&signed.certificate, "no certificate").unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(knows(&second).await);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let (one, other) = (authority.sign("one"), authority.sign("other"));
    let missing = ServerConfig { ssl_certfile: Some("nowhere.pem".into()), ..with(&one) };
    let mixed = ServerConfig { ssl_keyfile: Some(other.key), ..with(&one) };
    let keyless = ServerConfig { ssl_keyfile: None, ..with(&one) };
    for (config, setting) in
        [(missing, "ssl_certfile"), (mixed, "ssl_certfile"), (keyless, "ssl_keyfile")]
    {
        let served = crate::engine();
        let engine = playhouse::Engine::spawn(served, |_| {}).await.unwrap();
        let listener = Listener::bind(&ServerConfig { port: 0, ..config.clone() }).await.unwrap();
        let metrics = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let never = std::future::pending();
        let refused =
            playhouse::server::serve_on(listener, engine.clone(), config, metrics.handle(), never);
        match refused.await {
            Err(ServerError::Tls(error)) => assert_eq!(error.setting, setting, "{error}"),
            other => panic!("{other:?}"),
        }
        engine.shutdown().await;
    }
}
