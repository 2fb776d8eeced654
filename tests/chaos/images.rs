//! Actors die while clients stream answers about pictures. The model stands beside the repository.
//! Without it, the test prints a note and passes.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::{path::Path, time::Duration};

use playhouse::{
    Engine,
    api::{How, Role},
    config::Dtype,
};

use crate::workload::{self, BusyEngine};

/// The roles that pictures pass.
const ROLES: [Role; 6] = [
    Role::EncoderCacheManager,
    Role::EncoderWorker,
    Role::Worker,
    Role::Scheduler,
    Role::KvCacheManager,
    Role::InputProcessor,
];

async fn engine(model: &Path) -> Engine {
    let engine = workload::engine_with(|config| {
        config.model = model.to_owned();
        config.dtype = Dtype::Float32;
        // Requests come as their pictures are ready, a few at a time. The usual cache has room for
        // twelve.
        config.num_gpu_blocks_override = Some(48);
    });
    engine.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_about_pictures_outlive_every_actor_on_their_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models/qwen2_5_vl");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let expected = workload::outputs_of(engine(&model).await).await;
    let busy = BusyEngine::open_expecting(engine(&model).await, expected).await;
    for role in ROLES {
        for how in [How::Panic, How::Kill] {
            busy.strike(role, 0, how).await;
        }
    }
    let strikes: Vec<(Role, How)> =
        ROLES.into_iter().zip([How::Panic, How::Kill].into_iter().cycle()).collect();
    busy.storm(&strikes, Duration::from_millis(100)).await;
    busy.close().await.shutdown().await;
}
