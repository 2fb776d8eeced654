//! The supervisor's specification: which children it starts, stops and replaces, in which order,
//! and when it gives up.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::common::{
    FakeCodec, FakeFactory, FakeGrammars, collect, expected_text, request, spawn_with,
};
use parking_lot::Mutex;
use playhouse_actors::{
    fault::How,
    logic::{
        recovery::restart::{Intensity, REBUILD_BACK_OFF, Strategy},
        scheduler::SchedulerConfig,
    },
    message::{Role, SupervisorMessage},
    supervision::supervisor::{Child, ChildSpec, Parent, SpawnChild, Supervisor, SupervisorSpec},
    system::{DeviceMode, Health, System, SystemConfig, context::Context},
};
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorStatus};

/// Events in order: `+a` when `a` starts, `-a` when its state is dropped. The state of a killed
/// child is dropped when its supervisor learns of the death.
type Log = Arc<Mutex<Vec<String>>>;

struct TestChild {
    name: &'static str,
    log: Log,
}

struct TestState(&'static str, Log);

impl Drop for TestState {
    fn drop(&mut self) {
        self.1.lock().push(format!("-{}", self.0));
    }
}

/// A command to a test actor.
#[derive(Debug)]
enum Command {
    Fail,
    Panic,
}

impl Actor for TestChild {
    type Msg = Command;
    type State = TestState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<Command>,
        (): (),
    ) -> Result<TestState, ActorProcessingErr> {
        self.log.lock().push(format!("+{}", self.name));
        Ok(TestState(self.name, Arc::clone(&self.log)))
    }

    async fn handle(
        &self,
        _: ActorRef<Command>,
        command: Command,
        _: &mut TestState,
    ) -> Result<(), ActorProcessingErr> {
        match command {
            Command::Fail => Err("as commanded".into()),
            Command::Panic => std::panic::resume_unwind(Box::new("as commanded")),
        }
    }
}

/// The current address of each child.
type Addresses = Arc<Mutex<BTreeMap<&'static str, ActorRef<Command>>>>;

/// A supervisor of `a`, `b` and `c`.
struct Harness {
    supervisor: ActorRef<SupervisorMessage>,
    addresses: Addresses,
    log: Log,
}

fn context() -> Arc<Context> {
    let config = SystemConfig::new(SchedulerConfig::default());
    let (factory, codec) = (Arc::new(FakeFactory::small()), Arc::new(FakeCodec::default()));
    Arc::new(Context::new(config, factory, codec, Arc::new(FakeGrammars::default())))
}

impl Harness {
    async fn open(strategy: Strategy, intensity: Intensity) -> Self {
        let (log, addresses) = (Log::default(), Addresses::default());
        let child = |name: &'static str| {
            let (log, addresses) = (Arc::clone(&log), Arc::clone(&addresses));
            let spawn: SpawnChild = Arc::new(move |supervisor: Parent| {
                let child_actor = TestChild { name, log: Arc::clone(&log) };
                let addresses = Arc::clone(&addresses);
                Box::pin(async move {
                    let (address, _) =
                        Actor::spawn_linked(None, child_actor, (), supervisor.actor).await?;
                    addresses.lock().insert(name, address.clone());
                    Ok(Child::Actor(address.get_cell()))
                })
            });
            ChildSpec { role: Role::Worker, intensity, spawn }
        };
        let children = ["a", "b", "c"].map(child).to_vec();
        let spec = SupervisorSpec {
            role: Role::Core,
            strategy,
            children,
            after_start: None,
            last_resort: None,
        };
        let supervisor = Supervisor::new(context(), spec);
        let (supervisor, _) = Actor::spawn(None, supervisor, ()).await.unwrap();
        Self { supervisor, addresses, log }
    }

    fn command(&self, name: &str, command: Command) {
        self.addresses.lock()[name].cast(command).unwrap();
    }

    /// Waits for `count` events and returns all events.
    async fn happened(&self, count: usize) -> String {
        let wait = async {
            while self.log.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(60), wait).await;
        self.log.lock().join(" ")
    }
}

impl Harness {
    /// Waits for `count` events and returns the starts.
    async fn started(&self, count: usize) -> String {
        let happened = self.happened(count).await;
        happened.split(' ').filter(|event| event.starts_with('+')).collect::<Vec<_>>().join(" ")
    }
}

const OFTEN: Intensity = Intensity::new(100, 1);

#[tokio::test]
async fn children_start_in_order_and_stop_in_reverse() {
    let harness = Harness::open(Strategy::OneForOne, OFTEN).await;
    assert_eq!(harness.happened(3).await, "+a +b +c");
    harness.supervisor.call(SupervisorMessage::Shutdown, None).await.unwrap();
    assert_eq!(harness.happened(6).await, "+a +b +c -c -b -a");
}

#[tokio::test]
async fn one_for_one_replaces_the_dead_alone_however_it_died() {
    let harness = Harness::open(Strategy::OneForOne, OFTEN).await;
    harness.command("b", Command::Fail);
    assert_eq!(harness.happened(5).await, "+a +b +c -b +b");
    harness.command("b", Command::Panic);
    assert_eq!(harness.happened(7).await, "+a +b +c -b +b -b +b");
    harness.addresses.lock()["a"].kill();
    assert_eq!(harness.started(9).await, "+a +b +c +b +b +a");
    harness.addresses.lock()["c"].stop(None);
    assert_eq!(harness.started(11).await, "+a +b +c +b +b +a +c");
}

#[tokio::test]
async fn rest_for_one_replaces_the_dead_and_all_after_it() {
    let harness = Harness::open(Strategy::RestForOne, OFTEN).await;
    harness.command("b", Command::Fail);
    assert_eq!(harness.started(7).await, "+a +b +c +b +c");
    harness.command("c", Command::Fail);
    assert_eq!(harness.started(9).await, "+a +b +c +b +c +c");
}

#[tokio::test(start_paused = true)]
async fn restarts_wait_longer_each_time() {
    let harness = Harness::open(Strategy::OneForOne, Intensity::new(100, 60)).await;
    let mut took = Vec::new();
    for round in 1..=4 {
        let began = tokio::time::Instant::now();
        harness.command("a", Command::Fail);
        harness.happened(3 + 2 * round).await;
        took.push(began.elapsed().as_millis());
    }
    assert!(took[0] < 5, "{took:?}");
    for (took, least) in took[1..].iter().zip([10, 100, 1_000]) {
        assert!((least..least + 10).contains(took), "{took} ms");
    }
}

#[tokio::test]
async fn too_many_deaths_in_the_window_end_the_supervisor_and_its_children() {
    let harness = Harness::open(Strategy::OneForOne, Intensity::new(2, 60)).await;
    for round in 1..=2 {
        harness.command("b", Command::Fail);
        harness.happened(3 + 2 * round).await;
    }
    harness.command("b", Command::Fail);
    harness.supervisor.wait(Some(Duration::from_secs(60))).await.unwrap();
    assert_eq!(harness.supervisor.get_status(), ActorStatus::Stopped);
    let log = harness.happened(10).await;
    assert!(log.starts_with("+a +b +c -b +b -b +b -b"), "{log}");
    assert!(log.ends_with("-a -c") || log.ends_with("-c -a"), "no child is left: {log}");
}

#[tokio::test]
async fn an_abandoned_child_is_replaced_without_its_help() {
    let harness = Harness::open(Strategy::OneForOne, OFTEN).await;
    let old = harness.addresses.lock()["b"].clone();
    harness.supervisor.cast(SupervisorMessage::Abandon(old.get_id())).unwrap();
    assert_eq!(harness.happened(4).await, "+a +b +c +b", "the old one may still run");
    old.kill();
    assert_eq!(
        harness.happened(5).await,
        "+a +b +c +b -b",
        "its end is not a death of the current child"
    );
    harness.command("b", Command::Fail);
    assert_eq!(harness.happened(7).await, "+a +b +c +b -b -b +b");
}

/// Streams of a system with the default intensities, slow enough to run for seconds.
struct Streams(Vec<(String, tokio::task::JoinHandle<(String, String)>)>);

impl Streams {
    async fn open(system: &System) -> Self {
        let mut streams = Vec::new();
        for salt in 0..6 {
            let (prompt, raw) = request(salt, 40, 300);
            let stream = system.submit(raw).await.unwrap().choices.remove(0);
            streams.push((expected_text(&prompt, 300), tokio::spawn(collect(stream))));
        }
        Self(streams)
    }

    async fn are_right(self) {
        for (expected, stream) in self.0 {
            let (text, finish) =
                tokio::time::timeout(Duration::from_secs(60), stream).await.unwrap().unwrap();
            assert_eq!((text, finish.as_str()), (expected, "length"));
        }
    }
}

async fn slow_system() -> System {
    let slow = |config: &mut SystemConfig| {
        config.device = DeviceMode::Task { step_time: Duration::from_millis(10) };
        config.tick = Duration::from_millis(20);
    };
    spawn_with(128, slow).await.0
}

async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

/// Kills a role `times` times, each time as soon as it runs again. A kill of an actor that was
/// killed and has not ended yet would not count.
async fn kill(system: &System, role: Role, times: usize) {
    let slot = system.directory().find(role, 0).unwrap();
    let stats = || slot.actor_stats(0);
    for _ in 0..times {
        until(|| stats().is_alive).await;
        let before = stats().restarts;
        system.chaos().strike(role, 0, How::Kill).unwrap();
        until(|| !stats().is_alive || stats().restarts > before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_killed_five_times_in_a_second_costs_no_stream() {
    let system = slow_system().await;
    let streams = Streams::open(&system).await;
    kill(&system, Role::Ledger, 5).await;
    // The breaker opens when the death is noticed, and is open for at least a second.
    until(|| system.health() == Health::Recovering && system.breaker_reason().is_some()).await;
    streams.are_right().await;
    assert_ne!(system.health(), Health::Dead);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisors_killed_six_times_cost_no_stream() {
    let system = slow_system().await;
    for role in [Role::Core, Role::Egress, Role::Ingress] {
        let streams = Streams::open(&system).await;
        kill(&system, role, 6).await;
        streams.are_right().await;
        until(|| system.health() == Health::Ready).await;
    }
    system.shutdown().await;
}

/// It blocks its thread while it replaces its children, so a kill does not reach it. When it goes
/// on, its next children would take the slots of its successor's, and be killed with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_supervisor_that_goes_on_late_registers_no_child() {
    let (system, faults) = spawn_with(128, |_| {}).await;
    faults.step_ms.store(10, Ordering::Relaxed);
    let streams = Streams::open(&system).await;
    let occupant = |role| system.directory().find(role, 0).unwrap().occupant().unwrap().0;
    let late = occupant(Role::Core);
    faults.block_encoder_look.store(true, Ordering::SeqCst);
    occupant(Role::EncoderCacheManager).kill();
    until(|| faults.is_encoder_look_blocked.load(Ordering::SeqCst)).await;
    // As the watchdog does, after some time.
    late.kill();
    system.directory().root.cast(SupervisorMessage::Abandon(late.get_id()));
    until(|| system.directory().core.supervisor.restarts() == 1).await;
    let core = [
        Role::KvCacheManager,
        Role::StructuredOutput,
        Role::EncoderCacheManager,
        Role::Scheduler,
        Role::Worker,
        Role::EncoderWorker,
    ];
    let children = core.map(|role| occupant(role).get_id());
    assert_ne!(late.get_status(), ActorStatus::Stopped);
    faults.is_encoder_look_blocked.store(false, Ordering::SeqCst);
    late.wait(Some(Duration::from_secs(60))).await.unwrap();
    assert_eq!(core.map(|role| occupant(role).get_id()), children);
    assert_eq!(system.breaker_reason(), None, "its failed start is none of its successor's");
    streams.are_right().await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_whose_rebuilds_are_fruitless_gives_up() {
    let (system, _) = spawn_with(128, |config| config.supervision.fruitless_rebuilds = 2).await;
    let began = std::time::Instant::now();
    let dead = async {
        while system.health() != Health::Dead {
            let _ = system.chaos().strike(Role::Ledger, 0, How::Kill);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), dead).await.unwrap();
    let waited = Duration::from_micros(REBUILD_BACK_OFF[0] + REBUILD_BACK_OFF[1]);
    assert!(began.elapsed() >= waited, "{:?}", began.elapsed());
}
