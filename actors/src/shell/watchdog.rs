//! The watchdog: looks at every actor's pulse from a thread of its own, outside the runtime whose
//! tasks it watches. An actor that does not come back from a message is killed; one that a kill
//! does not reach, because its handler blocks a thread, is abandoned and replaced.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use ractor::ActorId;

use super::{config::DeviceMode, context::Context, role::Role, slot::AnySlot};
use crate::{logic::ids::Micros, message::SupervisorMessage};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a killed actor has to end.
const KILL_GRACE: Micros = 1_000_000;

/// Whom it has killed, and when.
#[derive(Debug, Default)]
struct Watchdog {
    killed: BTreeMap<ActorId, Micros>,
}

/// Starts it. It ends with the system.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(context: &Arc<Context>) -> std::io::Result<()> {
    let watched = Arc::downgrade(context);
    match context.config.device {
        DeviceMode::Thread => {
            let watch = move || {
                let mut watchdog = Watchdog::default();
                while watchdog.look(&watched) {
                    #[allow(clippy::disallowed_methods, reason = "the thread is its own")]
                    std::thread::sleep(PERIOD);
                }
            };
            std::thread::Builder::new().name("playhouse-watchdog".to_owned()).spawn(watch)?;
        }
        DeviceMode::Task { .. } => drop(tokio::spawn(async move {
            let mut watchdog = Watchdog::default();
            while watchdog.look(&watched) {
                tokio::time::sleep(PERIOD).await;
            }
        })),
    }
    Ok(())
}

impl Watchdog {
    /// Returns whether there is still something to watch.
    fn look(&mut self, context: &Weak<Context>) -> bool {
        let Some(context) = context.upgrade() else { return false };
        if context.is_stopped.load(Ordering::Acquire) {
            return false;
        }
        let now = context.now();
        // Those that ended meanwhile need not be remembered.
        self.killed.retain(|_, at| now.saturating_sub(*at) < 60 * KILL_GRACE);
        for slot in context.directory.slots() {
            slot.ping();
            self.check(&context, slot, now);
        }
        true
    }

    fn check(&mut self, context: &Context, slot: &dyn AnySlot, now: Micros) {
        let Some((actor, pulse)) = slot.occupant() else { return };
        let limit = match slot.role() {
            Role::InputProcessor => context.config.input_timeout,
            // A supervisor waits for children to stop.
            Role::Root | Role::Core | Role::Egress | Role::Ingress => {
                3 * context.config.hang_timeout
            }
            _ => context.config.hang_timeout,
        };
        let is_hung = pulse.busy_for(now).is_some_and(|busy| busy >= limit.as_micros() as u64);
        if !is_hung {
            return;
        }
        let role = slot.role().as_str();
        match self.killed.get(&actor.get_id()) {
            None => {
                tracing::warn!(role, "an actor hangs and is killed");
                self.killed.insert(actor.get_id(), now);
                actor.kill();
            }
            Some(&at) if now.saturating_sub(at) >= KILL_GRACE => {
                tracing::error!(role, "an actor blocks its thread and is abandoned");
                self.killed.insert(actor.get_id(), now);
                if let Some(supervisor) = context.directory.supervisor_of(slot.role()) {
                    supervisor.cast(SupervisorMessage::Abandon(actor.get_id()));
                }
            }
            Some(_) => {}
        }
    }
}
