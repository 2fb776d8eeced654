//! Web pages of other origins, and servers behind proxies.

use playhouse::server::ServerConfig;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;

use crate::{serve, serving::Served};

async fn preflight(served: &Served, origin: &str) -> Response {
    let request = Client::new().request(Method::OPTIONS, format!("{}/v1/models", served.url));
    let request = request.header("origin", origin).header("access-control-request-method", "GET");
    request.header("access-control-request-headers", "authorization").send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_may_do_what_the_settings_say() {
    let ours = "https://example.org";
    let server = ServerConfig {
        api_keys: vec!["secret".to_owned()],
        allowed_origins: vec![ours.to_owned()],
        allowed_methods: vec!["get".to_owned()],
        allow_credentials: true,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let answer = preflight(&served, ours).await;
    assert_eq!(answer.status(), StatusCode::OK, "no key is needed to ask");
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("access-control-allow-origin"), ours);
    assert_eq!(header("access-control-allow-methods"), "GET");
    assert_eq!(header("access-control-allow-headers"), "authorization");
    assert_eq!(header("access-control-allow-credentials"), "true");
    let stranger = preflight(&served, "https://example.com").await;
    assert!(!stranger.headers().contains_key("access-control-allow-origin"));
    served.stop().await;

    let all = vec!["*".to_owned()];
    let server =
        ServerConfig { allowed_origins: all, allow_credentials: true, ..ServerConfig::default() };
    let served = serve(server).await;
    let answer = preflight(&served, ours).await;
    assert_eq!(answer.headers()["access-control-allow-origin"], ours, "no * with credentials");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_answer_with_their_prefix_and_without() {
    let server = ServerConfig {
        root_path: "/llm".to_owned(),
        api_keys: vec!["secret".to_owned()],
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let ask = async |path: &str, key: &str| {
        let request = Client::new().get(format!("{}{path}", served.url)).bearer_auth(key);
        request.send().await.unwrap()
    };
    for path in ["/v1/models", "/llm/v1/models"] {
        let answer = ask(path, "secret").await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.json::<Value>().await.unwrap()["data"][0]["id"], "demo");
        assert_eq!(ask(path, "wrong").await.status(), 401, "{path}");
    }
    assert_eq!(ask("/llm/health", "").await.status(), 200);
    for path in ["/llm/llm/health", "/llmhealth", "/other/health"] {
        assert_eq!(ask(path, "secret").await.status(), 404, "{path}");
    }
    served.stop().await;
}
