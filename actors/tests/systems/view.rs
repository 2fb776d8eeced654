//! The view of a running system from outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{collect, expected_text, request, spawn};
use playhouse_actors::{
    error::ActorError,
    fault::How,
    logic::{
        observe::{BlockState, StepKind},
        scheduler::PauseState,
    },
    message::Role,
    system::{System, SystemView},
};
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until `shows` holds, and returns that view.
async fn look_until(system: &System, shows: impl Fn(&SystemView) -> bool) -> SystemView {
    let looks = async {
        loop {
            let view = system.look().await;
            if shows(&view) {
                return view;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, looks).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_seen_in_the_queue_in_the_cache_and_in_its_steps() {
    let (system, faults) = spawn(64).await;
    // The request runs for eight seconds, so it is seen, however slow this machine is.
    faults.step_ms.store(20, Ordering::Relaxed);
    system.set_watched(true);
    system.set_pause(PauseState::PausedAll);
    let (prompt, raw) = request(1, 40, 400);
    let mut submission = system.submit(raw).await.unwrap();
    let id = submission.choices[0].request();
    let waits = look_until(&system, |view| {
        view.cores[0].scheduler.as_ref().is_ok_and(|scheduler| !scheduler.waiting.is_empty())
    });
    let scheduler = waits.await.cores.remove(0).scheduler.unwrap();
    let seen = &scheduler.waiting[0];
    assert_eq!((seen.id, seen.num_prompt_tokens, seen.num_output_tokens), (id, 40, 0));
    assert!(seen.waits_for.is_some() && scheduler.running.is_empty());

    system.set_pause(PauseState::Unpaused);
    let runs = look_until(&system, |view| {
        let runs = view.cores[0].scheduler.as_ref().is_ok_and(|scheduler| {
            scheduler.running.first().is_some_and(|request| request.num_output_tokens > 15)
        });
        let holds = view.cores[0].kv_cache.as_ref().is_ok_and(|kv_cache| {
            let mut runs = kv_cache.iter().flat_map(|map| &map.runs);
            runs.any(|run| run.state == BlockState::Used && run.owner == Some(id))
        });
        runs && holds && view.totals.output_tokens > 15
    });
    let view = runs.await;
    let core = &view.cores[0];
    let seen = &core.scheduler.as_ref().unwrap().running[0];
    assert_eq!((seen.id, seen.waits_for, seen.max_tokens), (id, None, 400));
    let (_, timeline) = core.timelines.requests().find(|(request, _)| *request == id).unwrap();
    let kinds: Vec<StepKind> = timeline.segments.iter().map(|segment| segment.kind).collect();
    assert_eq!(kinds.first(), Some(&StepKind::Prefill));
    assert_eq!(kinds.last(), Some(&StepKind::Decode));
    let prefill: u64 = timeline
        .segments
        .iter()
        .filter(|segment| segment.kind == StepKind::Prefill)
        .map(|segment| segment.num_steps * segment.num_tokens as u64)
        .sum();
    assert_eq!(prefill, 40);
    let sent = |edge: &str| view.edges.iter().find(|(e, _)| e.as_str() == edge).unwrap().1;
    assert!(sent("scheduler->worker") > 5 && sent("device->worker") > 5);
    assert_eq!(view.totals.time_to_first_token.count(), 1);
    faults.step_ms.store(0, Ordering::Relaxed);

    assert_eq!(collect(submission.choices.remove(0)).await.0, expected_text(&prompt, 400));
    let ended = look_until(&system, |view| {
        view.totals.finished_requests == 1
            && view.cores[0].timelines.requests().any(|(_, t)| t.has_ended)
    });
    let totals = ended.await.totals;
    assert_eq!((totals.output_tokens, totals.prompt_tokens), (400, 40));
    assert_eq!(totals.inter_token_latency.count(), 399);

    system.set_watched(false);
    assert!(
        system.look().await.cores[0].timelines.requests().next().is_none(),
        "timelines are forgotten when no client watches"
    );
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_hangs_is_missing_in_the_view_and_the_look_does_not_wait() {
    let (system, _) = spawn(64).await;
    let seen = async {
        loop {
            let struck = system.chaos().strike(Role::Scheduler, 0, How::Hang).unwrap();
            // The scheduler hangs at its next message, which is this call or one before it.
            let before = Instant::now();
            let view = system.look().await;
            let is_soon = before.elapsed() < Duration::from_secs(2);
            // The call times out, or is dropped with the scheduler that was replaced meanwhile.
            let core = &view.cores[0];
            let missing = matches!(
                core.scheduler,
                Err(ActorError::CallTimeout { .. } | ActorError::Gone { .. })
            );
            let replaced = look_until(&system, |later| {
                later.cores[0].scheduler.is_ok() && later.epoch.0 > struck.epoch.0
            });
            replaced.await;
            // On a loaded machine the look may come after the hang, or the others may be late.
            if is_soon && missing && core.kv_cache.is_ok() {
                break;
            }
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_actor_has_the_supervisor_that_the_directory_names() {
    let (system, _) = spawn(64).await;
    let view = system.look().await;
    for actor in &view.actors {
        let slot = system.directory().supervisor_of(actor.role, actor.index);
        let supervisor = slot.map(|slot| slot.stats(0).role);
        assert_eq!(supervisor, actor.role.supervisor(), "{:?}", actor.role);
    }
    assert_eq!(view.actors.iter().filter(|actor| actor.role.supervisor().is_none()).count(), 1);
    system.shutdown().await;
}
