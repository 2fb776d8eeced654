//! The state that an engine reports about itself: metrics under vLLM's names for Prometheus, and
//! the state of every actor.
//!
//! ```sh
//! cargo run --release --example metrics
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use metrics_exporter_prometheus::PrometheusBuilder;
use playhouse::{
    Engine, EngineConfig,
    api::{Prompt, RawRequest},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before the engine starts, because it takes the recorder that is installed then. `install` in
    // place of `install_recorder` serves the metrics over HTTP.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await?;
    for prompt in ["Once upon a time", "Once upon a time there was"] {
        let mut request = RawRequest::new(Prompt::Text(prompt.to_owned()));
        request.max_tokens = Some(32);
        let mut submission = engine.submit(request).await?;
        while submission.choices[0].next().await.is_some() {}
    }

    let status = engine.status().await?;
    println!("steps: {}", status.scheduler.step.0);
    println!("health: {:?}, epoch {}", engine.health(), engine.epoch().0);
    for actor in engine.actors() {
        let (role, index) = (actor.role.as_str(), actor.index);
        println!("{role} {index}: {} replaced, mailbox {}", actor.restarts, actor.mailbox_depth);
    }
    for line in metrics.render().lines().filter(|line| line.contains("_tokens_total{")) {
        println!("{line}");
    }
    engine.shutdown().await;
    Ok(())
}
