//! The ways over the link to the actors of the other process.

use std::sync::{Arc, Weak};

use super::{context::Context, engine_process::Line, status::status};
use crate::{
    link::frames::{Answer, Question, ToEngine, ToFront, parts},
    message::{
        KvCacheManagerMessage, LedgerMessage, Letter, SchedulerMessage, StructuredOutputMessage,
        WorkerMessage,
    },
    supervision::address::{Carrier, Unreachable},
};

/// The front's way to the actors of the core.
#[derive(Debug)]
pub(crate) struct ToCore {
    pub(crate) line: Arc<Line>,
    /// Weak, because the context has the carrier.
    pub(crate) context: Weak<Context>,
}

impl ToCore {
    fn send(&self, frame: &ToEngine) -> Result<(), Unreachable> {
        self.line.link.send(frame).map_err(|_| Unreachable)
    }

    fn ask(
        &self,
        question: Question,
        take: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), Unreachable> {
        self.line.ask(question, take).map_err(|_| Unreachable)
    }
}

impl Carrier<SchedulerMessage> for ToCore {
    fn carry(&self, message: SchedulerMessage) -> Result<(), Unreachable> {
        match message {
            SchedulerMessage::Order(stamp, order) => self.send(&ToEngine::Order(stamp, order)),
            SchedulerMessage::Given(stamp) => self.send(&ToEngine::Given(stamp)),
            SchedulerMessage::Recover { epoch, live, restriction } => {
                let num_live = live.len();
                for part in parts(live) {
                    self.send(&ToEngine::Live(epoch, part))?;
                }
                self.send(&ToEngine::Recover { epoch, num_live, restriction })
            }
            SchedulerMessage::PauseChanged => {
                let context = self.context.upgrade().ok_or(Unreachable)?;
                self.send(&ToEngine::Pause(context.ground.hold.in_force()))
            }
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply } => {
                self.ask(Question::ResetPrefixCache { reset_running_requests }, |answer| {
                    if let Answer::WasReset(done) = answer {
                        let _ = reply.send(done);
                    }
                })
            }
            SchedulerMessage::Stats(reply) => self.ask(Question::Stats, |answer| {
                if let Answer::Stats(stats) = answer {
                    let _ = reply.send(stats);
                }
            }),
            SchedulerMessage::View { most, reply } => self.ask(Question::View { most }, |answer| {
                if let Answer::View(view) = answer {
                    let _ = reply.send(view);
                }
            }),
            // Of the core's own actors, and of its watchdog.
            SchedulerMessage::StepDone(_)
            | SchedulerMessage::StepMissing { .. }
            | SchedulerMessage::GrammarsCompiled(_)
            | SchedulerMessage::AdapterLoaded
            | SchedulerMessage::Tick
            | SchedulerMessage::Ping => Ok(()),
        }
    }

    fn is_up(&self) -> bool {
        self.line.link.is_up()
    }
}

impl Carrier<KvCacheManagerMessage> for ToCore {
    fn carry(&self, message: KvCacheManagerMessage) -> Result<(), Unreachable> {
        match message {
            KvCacheManagerMessage::View(reply) => self.ask(Question::BlockMap, |answer| {
                if let Answer::BlockMap(map) = answer {
                    let _ = reply.send(map);
                }
            }),
            KvCacheManagerMessage::Execute(..) | KvCacheManagerMessage::Ping => Ok(()),
        }
    }

    fn is_up(&self) -> bool {
        self.line.link.is_up()
    }
}

/// The front has no messages for these actors but pings.
macro_rules! unused {
    ($($Message:ty),*) => {$(
        impl Carrier<$Message> for ToCore {
            fn carry(&self, message: $Message) -> Result<(), Unreachable> {
                if message.is_ping() { Ok(()) } else { Err(Unreachable) }
            }

            fn is_up(&self) -> bool {
                self.line.link.is_up()
            }
        }
    )*};
}
unused!(StructuredOutputMessage, WorkerMessage);

/// The core's way to the front's ledger.
#[derive(Debug)]
pub(crate) struct ToLedger(pub(crate) Weak<Context>);

impl Carrier<LedgerMessage> for ToLedger {
    fn carry(&self, message: LedgerMessage) -> Result<(), Unreachable> {
        let context = self.0.upgrade().ok_or(Unreachable)?;
        let uplink = context.part.engine().ok_or(Unreachable)?;
        let frame = match message {
            LedgerMessage::Report(stamp, report) => ToFront::Report(stamp, report),
            LedgerMessage::Reported(stamp) => ToFront::Reported(stamp),
            LedgerMessage::Lost { epoch, what } => ToFront::Lost { epoch, what },
            LedgerMessage::StepFailed { epoch, requests, failure } => {
                ToFront::StepFailed { epoch, requests, failure }
            }
            LedgerMessage::CoreStarted => ToFront::CoreStarted(status(&context)),
            // Of the front's own actors, and of its watchdog.
            LedgerMessage::Accept { .. }
            | LedgerMessage::Abort(_)
            | LedgerMessage::EndAt { .. }
            | LedgerMessage::AttachEgress { .. }
            | LedgerMessage::Delivered { .. }
            | LedgerMessage::ProbeFailed(_)
            | LedgerMessage::Tick
            | LedgerMessage::Ping => return Ok(()),
        };
        uplink.send(&frame).map_err(|_| Unreachable)
    }

    fn is_up(&self) -> bool {
        self.0
            .upgrade()
            .is_some_and(|context| context.part.engine().is_some_and(|uplink| uplink.is_up()))
    }
}
