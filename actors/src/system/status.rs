//! An engine process's report of itself.

use super::context::Context;
use crate::{link::frames::Status, message::Role};

/// Returns the state of an engine process.
pub(crate) fn status(context: &Context) -> Status {
    let (now, observers) = (context.now(), &context.observers);
    let is_of_core = |role: Role| role.supervisor() == Some(Role::Core);
    let slots = context.directory.slots().filter(|slot| is_of_core(slot.role()));
    let hangs = &observers.hangs;
    Status {
        actors: slots.map(|slot| slot.actor_stats(now)).collect(),
        edges: observers.edges.all().into_iter().map(|(_, count)| count).collect(),
        has_begun: observers.progress.has_begun(),
        num_steps: observers.progress.num_steps(),
        is_late: observers.progress.is_late(now),
        last_step: context.ground.last_step(),
        step_time: context.vault.step_time.lock().predict(1),
        hangs: [hangs.actors(), hangs.unordered(), hangs.steps()],
    }
}
