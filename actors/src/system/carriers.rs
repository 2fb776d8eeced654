//! The ways over the link to the actors of the other process.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use serde::Serialize;

use super::{context::Context, engine_process::Line, status::status};
use crate::{
    codec::payload_len,
    link::{
        frames::{Answer, Question, ToEngine, ToFront},
        outgoing::NotSent,
        parts::{ENVELOPE_LEN, PART_LEN, Parts},
    },
    logic::{
        ledger::Restriction,
        recovery::message_numbers::Stamp,
        request::{
            EngineRequest, FinishReason,
            failure::Failure,
            ids::{Epoch, RequestId},
            outputs::{Commit, Produced, StepReport},
        },
        scheduler::RecoveredRequest,
    },
    message::{
        EncoderCacheManagerMessage, EncoderWorkerMessage, KvCacheManagerMessage, LedgerMessage,
        Letter, SchedulerMessage, SchedulerOrder, StructuredOutputMessage, WorkerMessage,
    },
    supervision::{
        address::{Carrier, Unreachable},
        watched::Long,
    },
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

    /// Sends an order. One that adds too much for a frame goes in parts.
    fn order(&self, stamp: Stamp, order: SchedulerOrder) -> Result<(), Unreachable> {
        let context = self.context.upgrade().ok_or(Unreachable)?;
        let whole_max = PART_LEN.min(context.config.max_message_bytes);
        let frame = ToEngine::Order(stamp, order);
        let sent = self.line.link.send_within(whole_max, &frame);
        match frame {
            ToEngine::Order(_, SchedulerOrder::Add(requests)) if sent == Err(NotSent::TooLong) => {
                let part = |part| ToEngine::Added(stamp, part);
                let id = |request: &Arc<EngineRequest>| request.id;
                let num_requests = self.send_parts(&context, requests, id, part)?;
                self.send(&ToEngine::Add { stamp, num_requests })
            }
            // A list of ids, which a frame has room for.
            frame if sent == Err(NotSent::TooLong) => self.send(&frame),
            _ => sent.map_err(|_| Unreachable),
        }
    }

    fn recover(
        &self,
        epoch: Epoch,
        live: Vec<RecoveredRequest>,
        newcomers: BTreeSet<RequestId>,
        restriction: Restriction,
    ) -> Result<(), Unreachable> {
        let context = self.context.upgrade().ok_or(Unreachable)?;
        let (id, part) =
            (|live: &RecoveredRequest| live.request.id, |part| ToEngine::Live(epoch, part));
        let num_live = self.send_parts(&context, live, id, part)?;
        self.send(&ToEngine::Recover { epoch, num_live, newcomers, restriction })
    }

    /// Sends a list in parts. Returns the number of its items. Those that no frame can have are
    /// left out, and the ledger ends them.
    fn send_parts<T: Serialize>(
        &self,
        context: &Context,
        items: Vec<T>,
        id: impl Fn(&T) -> RequestId,
        frame: impl Fn(Vec<T>) -> ToEngine,
    ) -> Result<usize, Unreachable> {
        // Gigabytes take a while.
        let _long = Long::begin();
        let cut = Parts::of(items, context.config.max_message_bytes);
        let num_items = cut.num_items();
        if !cut.too_long.is_empty() {
            let too_large = cut.too_long.iter().map(id).collect();
            context.directory.ledger.receive(LedgerMessage::TooLarge(too_large));
        }
        for part in cut.parts {
            self.send(&frame(part))?;
        }
        Ok(num_items)
    }
}

impl Carrier<SchedulerMessage> for ToCore {
    fn carry(&self, message: SchedulerMessage) -> Result<(), Unreachable> {
        match message {
            SchedulerMessage::Order(stamp, order) => self.order(stamp, order),
            SchedulerMessage::Given(stamp) => self.send(&ToEngine::Given(stamp)),
            SchedulerMessage::Recover { epoch, live, newcomers, restriction } => {
                self.recover(epoch, live, newcomers, restriction)
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
            | SchedulerMessage::Encoded(_)
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

impl Carrier<EncoderCacheManagerMessage> for ToCore {
    fn carry(&self, message: EncoderCacheManagerMessage) -> Result<(), Unreachable> {
        match message {
            EncoderCacheManagerMessage::View(reply) => self.ask(Question::EncoderCache, |answer| {
                if let Answer::EncoderCache(view) = answer {
                    let _ = reply.send(view);
                }
            }),
            EncoderCacheManagerMessage::Reset(reply) => {
                self.ask(Question::ResetEncoderCache, |answer| {
                    if let Answer::EncoderCacheWasReset = answer {
                        let _ = reply.send(());
                    }
                })
            }
            EncoderCacheManagerMessage::Needs(_)
            | EncoderCacheManagerMessage::Encoded { .. }
            | EncoderCacheManagerMessage::Tick
            | EncoderCacheManagerMessage::Ping => Ok(()),
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
unused!(StructuredOutputMessage, WorkerMessage, EncoderWorkerMessage);

/// The core's way to the front's ledger.
#[derive(Debug)]
pub(crate) struct ToLedger(pub(crate) Weak<Context>);

impl Carrier<LedgerMessage> for ToLedger {
    fn carry(&self, message: LedgerMessage) -> Result<(), Unreachable> {
        let context = self.0.upgrade().ok_or(Unreachable)?;
        let uplink = context.part.engine().ok_or(Unreachable)?;
        let frame = match message {
            LedgerMessage::Report(stamp, report) => return report_to(&context, stamp, report),
            LedgerMessage::Reported(stamp) => ToFront::Reported(stamp),
            LedgerMessage::Lost { epoch, what } => ToFront::Lost { epoch, what },
            LedgerMessage::StepFailed { epoch, requests, failure } => {
                ToFront::StepFailed { epoch, requests, failure }
            }
            LedgerMessage::CoreStarted => ToFront::CoreStarted(status(&context)),
            // Of the front's own actors, and of its watchdog.
            LedgerMessage::Accept { .. }
            | LedgerMessage::Abort(_)
            | LedgerMessage::TooLarge(_)
            | LedgerMessage::EndAt { .. }
            | LedgerMessage::AttachEgress { .. }
            | LedgerMessage::Delivered { .. }
            | LedgerMessage::ProbeFailed(_)
            | LedgerMessage::CoreEnded
            | LedgerMessage::EnginesChanged
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

/// Sends a report. One with too much for a frame goes in parts.
fn report_to(context: &Context, stamp: Stamp, report: StepReport) -> Result<(), Unreachable> {
    let uplink = context.part.engine().ok_or(Unreachable)?;
    let max_len = context.config.max_message_bytes;
    let frame = ToFront::Report(stamp, report);
    let sent = uplink.send_within(PART_LEN.min(max_len), &frame);
    let ToFront::Report(_, mut report) = frame else { return Ok(()) };
    if sent != Err(NotSent::TooLong) {
        return sent.map_err(|_| Unreachable);
    }
    let _long = Long::begin();
    let commits = std::mem::take(&mut report.commits).into_iter();
    let cut = Parts::of(commits.map(|commit| that_fits(commit, max_len)), max_len);
    let num_commits = cut.num_items();
    for part in cut.parts {
        uplink.send(&ToFront::Commits(stamp, part)).map_err(|_| Unreachable)?;
    }
    let report = ToFront::ReportOf { stamp, report, num_commits };
    uplink.send(&report).map_err(|_| Unreachable)
}

/// Returns the commit, or in the place of one that no frame can have, the end of its request.
fn that_fits(commit: Commit, max_len: usize) -> Commit {
    if payload_len(&commit) <= max_len.saturating_sub(ENVELOPE_LEN) {
        return commit;
    }
    Commit {
        produced: Produced::default(),
        prompt_logprobs: None,
        finish: Some(FinishReason::Error(Failure::MessageTooLarge)),
        ..commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::outputs::Pooled;

    #[test]
    fn a_result_that_no_frame_can_have_ends_its_request() {
        let commit = |len: usize| Commit {
            request: RequestId(7),
            position: 0,
            produced: Produced::Pooled(Pooled { values: vec![0.5; len].into(), width: 1 }),
            prompt_logprobs: None,
            finish: Some(FinishReason::Stop(None)),
        };
        assert_eq!(that_fits(commit(20), 300), commit(20));
        let end = that_fits(commit(100), 300);
        assert_eq!(end.finish, Some(FinishReason::Error(Failure::MessageTooLarge)));
        assert_eq!((end.request, end.produced), (RequestId(7), Produced::default()));
    }
}
