//! Blocks of codes and scales outlive the actors that wrote them, as blocks of plain numbers do.

use std::time::Duration;

use playhouse::{
    api::{How, Role},
    config::KvCacheDtype,
};

use crate::workload::{self, BusyEngine};

const DTYPE: KvCacheDtype = KvCacheDtype::Int8PerTokenHead;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_and_the_kv_cache_manager_die_over_int8_blocks() {
    let expected = workload::fault_free(DTYPE).await;
    assert!(expected != workload::expected().await, "the format changes nothing");
    let engine = workload::engine_with(|config| config.kv_cache_dtype = DTYPE).await;
    let busy = BusyEngine::open_expecting(engine, expected).await;
    for how in How::ALL {
        busy.strike(Role::Worker, 0, how).await;
        busy.strike(Role::KvCacheManager, 0, how).await;
    }
    let strikes = [(Role::Worker, How::Panic), (Role::Worker, How::Kill)];
    busy.storm(&strikes.repeat(5), Duration::from_millis(50)).await;
    busy.close().await.shutdown().await;
}
