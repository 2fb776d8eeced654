//! The output streamer's shell: puts text into the clients' sinks and confirms it to the ledger.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    logic::{request::ids::RequestId, text::text_stream::TextEntry},
    message::{LedgerMessage, OutputStreamerMessage},
    system::{context::Context, sink::Offer},
};

/// The output streamer actor of one egress shard. It has no state: each sink knows its position.
#[derive(Debug)]
pub struct OutputStreamerActor {
    context: Arc<Context>,
    shard: usize,
}

impl OutputStreamerActor {
    /// Returns the streamer of `shard`.
    pub fn new(context: Arc<Context>, shard: usize) -> Self {
        Self { context, shard }
    }

    /// Gives an entry to its client. Returns the request if it has ended, and whether tokens before
    /// the entry are missing.
    fn deliver(&self, entry: TextEntry) -> (Option<RequestId>, Offer) {
        let (request, ends, now) = (entry.request, entry.end.is_some(), self.context.now());
        let offer = self
            .context
            .clients
            .sinks
            .get(request)
            .map_or(Offer::Taken, |sink| sink.offer(entry, now));
        ((ends && offer == Offer::Taken).then_some(request), offer)
    }
}

impl Actor for OutputStreamerActor {
    type Msg = OutputStreamerMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<OutputStreamerMessage>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_start(
        &self,
        _myself: ActorRef<OutputStreamerMessage>,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        self.context.directory.ledger.cast(LedgerMessage::AttachEgress { shard: self.shard });
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<OutputStreamerMessage>,
        message: OutputStreamerMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let OutputStreamerMessage::Batch(batch) = message else { return Ok(()) };
        let mut ended = Vec::new();
        let mut gap = false;
        for entry in batch.entries {
            let (end, offer) = self.deliver(entry);
            ended.extend(end);
            gap |= offer == Offer::Gap;
        }
        let (shard, batch) = (self.shard, batch.id);
        let ledger = &self.context.directory.ledger;
        ledger.cast(LedgerMessage::Delivered { batch, ended });
        if gap {
            tracing::warn!(shard, "tokens are missing on the way out: the shard starts over");
            ledger.cast(LedgerMessage::AttachEgress { shard });
        }
        Ok(())
    }
}
