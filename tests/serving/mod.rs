//! A server on a free port, or on a Unix socket, in the test's process.

use metrics_exporter_prometheus::PrometheusBuilder;
use playhouse::{
    Engine, EngineConfig,
    server::{Drain, Listener, ServerConfig, ServerError, serve_on},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// A running server. A test must stop it; otherwise actors stay behind.
pub(crate) struct Served {
    /// The URL without a slash at the end.
    pub(crate) url: String,
    pub(crate) engine: Engine,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Drain, ServerError>>,
}

impl Served {
    /// Loads the model and listens.
    #[allow(dead_code, reason = "a test may start its own engine")]
    pub(crate) async fn start(engine: EngineConfig, server: ServerConfig) -> Self {
        Self::of(start(engine).await, server).await
    }

    /// Listens for a running engine.
    pub(crate) async fn of(engine: Engine, server: ServerConfig) -> Self {
        let server = ServerConfig { port: 0, ..server };
        let listener = Listener::bind(&server).await.unwrap();
        let scheme = if server.ssl_certfile.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.address().unwrap());
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = engine.clone();
        let task = tokio::spawn(async move {
            let stopped = async move { stopped.await.unwrap_or_default() };
            serve_on(listener, served, server, metrics, stopped).await
        });
        Self { url, engine, stop, task }
    }

    /// Asks the server to stop, waits until it has stopped, and stops the engine.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        let drain = self.task.await.unwrap().unwrap();
        assert_eq!(drain, Drain::Complete);
        self.engine.shutdown().await;
    }
}

/// Starts an engine. With `PLAYHOUSE_TEST_ENGINE_PROCESS` in the environment, its model is in a
/// process of its own.
pub(crate) async fn start(engine: EngineConfig) -> Engine {
    #[cfg(unix)]
    if std::env::var_os("PLAYHOUSE_TEST_ENGINE_PROCESS").is_some() {
        let program = env!("CARGO_BIN_EXE_playhouse");
        return Engine::start_in_process_of(program, engine).await.unwrap();
    }
    Engine::start(engine).await.unwrap()
}
