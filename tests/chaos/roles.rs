//! One role at a time: struck in each way alone, then in a storm.

use std::time::Duration;

use playhouse::actors::{fault::How, shell::Role};

use crate::workload::{self, House};

/// Strikes of a storm, and the time between two of them.
const STRIKES: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);

async fn dies(role: Role) {
    let house = House::open(workload::engine().await).await;
    for how in How::ALL {
        house.strike(role, 0, how).await;
    }
    let strikes: Vec<_> =
        [How::Panic, How::Kill].into_iter().cycle().map(|how| (role, how)).take(STRIKES).collect();
    let deaths = house.storm(&strikes, PAUSE).await;
    // On a machine that is busy with something else, a strike may meet one that is dead already.
    assert!(deaths >= STRIKES as u64 / 2, "{deaths} deaths");
    house.close().await.shutdown().await;
}

macro_rules! roles {
    ($($test:ident: $role:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            dies(Role::$role).await;
        })*
    };
}

roles! {
    the_ledger_dies: Ledger,
    an_input_processor_dies: InputProcessor,
    the_kv_cache_manager_dies: KvCacheManager,
    structured_output_dies: StructuredOutput,
    the_scheduler_dies: Scheduler,
    the_worker_dies: Worker,
    a_detokenizer_dies: Detokenizer,
    a_streamer_dies: OutputStreamer,
    the_core_dies: Core,
    egress_dies: Egress,
    ingress_dies: Ingress,
}
