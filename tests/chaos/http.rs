//! The chaos routes of a server: their effects, their answers, and the requests that they reject.

use std::time::Duration;

use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::serving::Served;

async fn serve(server: ServerConfig) -> Served {
    let engine = EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(512),
        kv_cache_memory_bytes: Some(16 << 20),
        hang_timeout_secs: 0.5,
        ..EngineConfig::default()
    };
    Served::start(engine, server).await
}

async fn post(served: &Served, path: &str, body: Value) -> (StatusCode, Value) {
    let url = format!("{}{path}", served.url);
    let response = Client::new().post(url).json(&body).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn tree(served: &Served) -> Value {
    let url = format!("{}/chaos/tree", served.url);
    Client::new().get(url).send().await.unwrap().json().await.unwrap()
}

fn actor<'a>(tree: &'a Value, role: &str) -> &'a Value {
    tree["actors"].as_array().unwrap().iter().find(|actor| actor["role"] == role).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_is_struck_by_its_name() {
    let served = serve(ServerConfig::default()).await;
    let strikes = [
        ("scheduler", "panic"),
        ("kv_cache", "kill"),
        ("structured_output", "kill"),
        ("worker", "hang"),
        ("detokenizer", "panic"),
        ("streamer", "kill"),
        ("input", "panic"),
        ("ledger", "kill"),
        ("core", "panic"),
        ("egress", "kill"),
        ("ingress", "panic"),
    ];
    for (role, how) in strikes {
        let restarts = |tree: &Value| actor(tree, role)["restarts"].as_u64().unwrap();
        let before = restarts(&tree(&served).await);
        let (status, answer) =
            post(&served, "/chaos/kill", json!({"role": role, "how": how})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["role"], role);
        assert!(answer["epoch"].is_u64(), "{answer}");
        let replaced = async {
            while restarts(&tree(&served).await) == before {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(Duration::from_secs(60), replaced).await.is_ok(), "{role} {how}");
    }
    let body = json!({"prompt": "x", "max_tokens": 5, "ignore_eos": true});
    let (status, answer) = post(&served, "/v1/completions", body).await;
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (StatusCode::OK, &json!(5)));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_the_routes_only_if_it_is_allowed() {
    let engine = EngineConfig { max_model_len: Some(512), ..EngineConfig::default() };
    let served = Served::start(engine, ServerConfig::default()).await;
    for path in ["/chaos/kill", "/chaos/edges", "/chaos/calm", "/chaos/process"] {
        let (status, answer) = post(&served, path, json!({"role": "worker", "how": "kill"})).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {answer}");
    }
    let house = Client::new().get(format!("{}/house", served.url)).send().await.unwrap();
    assert_eq!(house.json::<Value>().await.unwrap()["has_chaos"], false);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_sites_strike_nothing() {
    let served = serve(ServerConfig::default()).await;
    let own = served.url.clone();
    for (origin, status) in [(own.as_str(), 200), ("https://evil.example", 403)] {
        let url = format!("{}/chaos/calm", served.url);
        let request = Client::new().post(url).header("Origin", origin).json(&json!({}));
        assert_eq!(request.send().await.unwrap().status(), status, "{origin}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tree_shows_every_actor() {
    let served = serve(ServerConfig::default()).await;
    let (_, struck) = post(&served, "/chaos/kill", json!({"role": "worker", "how": "kill"})).await;
    let struck = struck["epoch"].as_u64().unwrap();
    let newer = async {
        loop {
            let tree = tree(&served).await;
            if tree["epoch"].as_u64().unwrap() > struck {
                return tree;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let tree = timeout(Duration::from_secs(60), newer).await.expect("a new epoch");
    let actors = tree["actors"].as_array().unwrap();
    // Four supervisors, seven roles with one actor each, and three roles with two actors each.
    assert_eq!(actors.len(), 17, "{tree}");
    for actor in actors {
        assert!(actor["role"].is_string() && actor["index"].is_u64(), "{actor}");
        assert!(actor["state"] == "alive" || actor["state"] == "dead", "{actor}");
        assert!(actor["mailbox_depth"].is_u64() && actor["heartbeat_age_ms"].is_f64(), "{actor}");
    }
    assert_eq!(actor(&tree, "worker")["restarts"], 1);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_is_disturbed_until_calm() {
    let served = serve(ServerConfig::default()).await;
    let disturbed = json!({"edge": "scheduler->worker", "delay_ms": 20});
    assert_eq!(
        post(&served, "/chaos/edges", disturbed).await,
        (StatusCode::OK, json!({"edge": "scheduler->worker"}))
    );
    let lossy = json!({"edge": "worker->scheduler", "drop": 0.2, "duplicate": 0.2, "late": 0});
    assert_eq!(post(&served, "/chaos/edges", lossy).await.0, StatusCode::OK);
    let body = json!({"prompt": "x", "max_tokens": 8, "ignore_eos": true, "temperature": 0});
    let (status, in_chaos) = post(&served, "/v1/completions", body.clone()).await;
    assert_eq!(status, StatusCode::OK, "{in_chaos}");
    assert_eq!(post(&served, "/chaos/calm", json!({})).await, (StatusCode::OK, json!({})));
    let (_, in_peace) = post(&served, "/v1/completions", body).await;
    assert_eq!(in_chaos["choices"], in_peace["choices"]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_strikes_and_faults_are_rejected_with_valid_values() {
    let served = serve(ServerConfig::default()).await;
    let kill = "/chaos/kill";
    let edges = "/chaos/edges";
    let cases = [
        (kill, json!({"role": "sheduler", "how": "kill"}), "role", "scheduler, worker"),
        (kill, json!({"role": "root", "how": "kill"}), "role", "ledger, input, kv_cache"),
        (kill, json!({"role": "worker", "how": "maim"}), "how", "panic, kill, hang"),
        (kill, json!({"role": "input", "how": "kill", "index": 2}), "index", "below 2"),
        (kill, json!({"role": "input"}), "body", "missing field `how`"),
        (kill, json!({"role": "input", "how": "kill", "idx": 2}), "body.idx", "`index`"),
        (edges, json!({"edge": "a->b"}), "edge", "scheduler->worker, worker->scheduler"),
        (edges, json!({"edge": "timer", "drop": 1.5}), "drop", "[0, 1]"),
        (edges, json!({"edge": "timer", "duplicate": -1}), "duplicate", "[0, 1]"),
        (edges, json!({"edge": "timer", "late": 2, "delay_ms": 1}), "late", "[0, 1]"),
        (edges, json!({"edge": "timer", "delay_ms": 1e9}), "delay_ms", "[0, 600000]"),
        (edges, json!({"edge": "timer", "drop": "often"}), "body.drop", "f64"),
    ];
    for (path, body, param, accepted) in cases {
        let (status, answer) = post(&served, path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(accepted), "{message}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_guards_it() {
    let server = ServerConfig {
        api_keys: vec!["client".to_owned()],
        admin_api_keys: vec!["secret".to_owned()],
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let (status, _) = post(&served, "/chaos/kill", json!({"role": "worker", "how": "kill"})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let url = format!("{}/chaos/tree", served.url);
    let client = Client::new();
    assert_eq!(client.get(&url).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let client_key = client.get(&url).bearer_auth("client").send().await.unwrap();
    assert_eq!(client_key.status(), 403);
    let allowed = client.get(&url).bearer_auth("secret").send().await.unwrap();
    assert_eq!(allowed.status(), StatusCode::OK);
    served.stop().await;
}
