//! One role at a time: struck in each way alone, then in a storm.

use std::time::Duration;

use playhouse::api::{How, Role};

use crate::workload::{self, BusyEngine};

/// Strikes of a storm, and the time between two of them.
const STRIKES: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);

async fn dies(role: Role) {
    let busy = BusyEngine::open(workload::engine().await).await;
    for how in How::ALL {
        busy.strike(role, 0, how).await;
    }
    let strikes: Vec<_> =
        [How::Panic, How::Kill].into_iter().cycle().map(|how| (role, how)).take(STRIKES).collect();
    let deaths = busy.storm(&strikes, PAUSE).await;
    // On a busy machine, a strike may meet an actor that is dead already.
    assert!(deaths >= STRIKES as u64 / 2, "{deaths} deaths");
    busy.close().await.shutdown().await;
}

/// Makes a test for each role, named like it.
macro_rules! deaths {
    ($($role:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[allow(non_snake_case, reason = "it is a role's name")]
        async fn $role() {
            super::dies(Role::$role).await;
        })*
    };
}

mod death_of {
    use super::Role;

    playhouse::api::for_each_role!(deaths);
}
