//! Runs with a journal: the whole system dies, and the next one starts from the journal's disk.
//! Each life has a runtime of its own. Its end ends every task at once, as SIGKILL does.
//!
//! Accepted answers go on, and their tokens are those of a run without deaths. They begin with the
//! tokens that their clients had before. A disk that lies or decays may lose an answer, whose
//! client then asks again. It never changes one.

mod books;
mod client;

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{
    books::Books,
    client::{LifeContext, resume, visit},
};
use super::{
    faults::FaultPlan,
    record::Record,
    rng::Rng,
    run::{self, Options, Outcome},
    workload::{LivesPlan, Workload},
};
use crate::{
    logic::journal::Fingerprint,
    system::{Journal, JournalConfig, journal::fault_disk::FaultDisk},
};

/// Number of attempts to open the journal. Each fault of a disk fails one.
const NUM_ATTEMPTS: usize = 4;

/// The parts of a run that outlive its systems.
struct Run<'a> {
    seed: u64,
    options: Options,
    record: &'a Arc<Record>,
    workload: Arc<Workload>,
    plan: FaultPlan,
    lives: LivesPlan,
    disk: FaultDisk,
    books: Arc<Books>,
}

/// Runs all lives of a seed.
pub(super) fn live(
    seed: u64,
    options: Options,
    record: &Arc<Record>,
    (workload, plan): (Arc<Workload>, FaultPlan),
    lives: &LivesPlan,
    outcome: &mut Outcome,
) {
    let books = Arc::new(Books::new(workload.clients.len()));
    let (disk, lives) = (FaultDisk::default(), lives.clone());
    let run = Run { seed, options, record, workload, plan, lives, disk, books };
    let deaths = run.lives.deaths.iter().filter(|_| !options.without_faults).copied();
    for (life, death) in deaths.map(Some).chain([None]).enumerate() {
        run::with_runtime(record, async {
            record.note("life", &[life as u64]);
            match death {
                Some(at) => {
                    // Otherwise all clients were served before.
                    if timeout(at, run.life(life, outcome)).await.is_err() {
                        record.explain(|| "everything dies".to_owned());
                    }
                }
                None => run.life(life, outcome).await,
            }
        });
        if death.is_some() {
            outcome.num_faults += 1;
            record.trouble();
            run.crash(life);
        }
        if record.violation().is_some() {
            return;
        }
    }
    if let Some(client) = run.books.waiting() {
        record.violate(|| format!("client {client} has no whole answer after all lives"));
    }
}

impl Run<'_> {
    /// Lives once, until all clients have their answers.
    async fn life(&self, life: usize, outcome: &mut Outcome) {
        let Some(journal) = self.open(life) else {
            return self.record.violate(|| "there is no journal".to_owned());
        };
        let (parts, faults) = ((Arc::clone(&self.workload), self.plan.clone()), &self.lives.faults);
        let journaled = Some(Arc::clone(&journal));
        let begun = run::begin(self.options, self.record, parts, journaled).await;
        let Some(context) = begun else { return };
        let context = Arc::new(LifeContext {
            run: context,
            journal: Arc::clone(&journal),
            books: Arc::clone(&self.books),
            life,
            is_deceived: self.lives.deceives(),
        });
        let mut clients = JoinSet::new();
        let mut left: Vec<usize> = (0..self.workload.clients.len()).collect();
        for answer in journal.take_restored() {
            let client = context.books.owner(&answer.name);
            left.retain(|index| Some(*index) != client);
            clients.spawn(resume(Arc::clone(&context), answer));
        }
        for index in left {
            context.check_survival(index);
            clients.spawn(visit(Arc::clone(&context), index));
        }
        for &(of_life, at, fault) in faults {
            let disk = self.disk.clone();
            if of_life == life && !self.options.without_faults {
                let record = Arc::clone(self.record);
                clients.spawn(async move {
                    sleep(at).await;
                    record.trouble();
                    record.explain(|| format!("the disk: {fault:?}"));
                    disk.inject(Some(fault));
                });
            }
        }
        run::serve(&context.run, &self.plan, clients).await;
        // The last faults of the disk must not delay the end.
        self.disk.inject(None);
        let run = Arc::clone(&context.run);
        drop((context, journal));
        run::finish(run, outcome).await;
    }

    /// Opens the journal. A fault of the disk fails an attempt.
    fn open(&self, life: usize) -> Option<Arc<Journal>> {
        let fault = self.lives.fault_at_start.filter(|(at, _)| *at == life);
        if let Some((_, fault)) = fault.filter(|_| !self.options.without_faults) {
            self.disk.inject(Some(fault));
        }
        let left = self.disk.leave();
        for attempt in 0..NUM_ATTEMPTS {
            let config = JournalConfig {
                fingerprint: Fingerprint::default(),
                max_bytes: 1 << 20,
                refuses_on_fault: true,
                model_name: "model".to_owned(),
                engine: "0".to_owned(),
            };
            let mut rng = Rng::new(self.lives.seed).fork(life as u64);
            let longest = self.lives.write_time.as_micros() as u64;
            let write_time = move || Duration::from_micros(rng.below(longest + 1));
            let of_left = left.iter().map(FaultDisk::to_left).collect();
            let disk = Box::new(self.disk.clone());
            let zero = self.record.now();
            match Journal::start_in_simulated_time(disk, of_left, config, zero, write_time) {
                Ok(journal) => return Some(Arc::new(journal)),
                Err(error) => {
                    self.record.explain(|| format!("attempt {attempt}: {error}"));
                    // The new journal may have begun before the error.
                    drop(self.disk.leave());
                }
            }
        }
        None
    }

    /// Loses what the disk had not made durable, and perhaps more.
    fn crash(&self, life: usize) {
        let mut rng = Rng::new(self.lives.seed).fork(100 + life as u64);
        self.disk.crash(|unsynced| rng.within(0, unsynced));
        if self.lives.decays {
            let (place, is_cut) = (rng.next_u64() as usize, rng.percent(30));
            self.record.explain(|| format!("the disk decays: cut {is_cut}"));
            self.disk.damage(|segment| {
                let place = place % (8 * segment.len().max(1));
                match segment.get_mut(place / 8) {
                    Some(_) if is_cut => segment.truncate(place / 8),
                    Some(byte) => *byte ^= 1 << (place % 8),
                    None => {}
                }
            });
        }
        self.record.note("death", &[life as u64, self.seed]);
    }
}
