//! Planted bugs. The simulator must find each of them, which tests the simulator. The module stands
//! below all other logic, so that each part of it can name its own bugs.

/// A mistake that the code makes on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Numbered messages and commits of past epochs are accepted.
    NoEpochFence,
    /// Numbered messages and commits are accepted twice.
    NoDedup,
    /// Numbered messages and commits are accepted though one before them is missing.
    NoGapCheck,
    /// The blocks of an aborted request are not freed.
    LeakOnAbort,
    /// Blocks that several requests share are freed twice.
    DoubleFree,
    /// Blocks survive a crash though the step that fills them was only planned.
    SealTooEarly,
    /// The block directory does not learn that a block gets new content.
    ForgetEviction,
    /// A prefix hit may take the last token too, whose logits are wanted.
    HitLastToken,
    /// Requests with different cache salts share blocks.
    IgnoreSalt,
    /// A preempted request treats its blocks as still registered.
    KeepRegistered,
    /// New requests wait until something else happens.
    LostWakeup,
    /// A request is planned again while a step that computes it still runs.
    NeverSettle,
    /// Requests in a running step may be preempted.
    PreemptInFlight,
    /// The scheduler accepts the results of any step as those that it awaits.
    AnyStep,
    /// Worker and device compute steps of past epochs.
    KeepStaleStep,
    /// The sampler draws from a generator that counts its draws.
    StatefulGenerator,
    /// A new egress shard gets no tokens from before.
    SkipReplay,
    /// A detokenizer processes a batch twice.
    RepeatBatch,
    /// Sinks accept all tokens, including those that they already have.
    NoPosition,
    /// A stop string is found only within a single token.
    StopWithinToken,
    /// A delivered end leaves its entry in the ledger.
    NeverForget,
    /// Blocks count as cached though their memory was lost with a thread that hangs.
    KeepLostContent,
    /// The reservation of a request is not released at its end.
    LeakQuota,
    /// Requests begin although their deadline has passed.
    IgnoreDeadline,
    /// A served canary does not close the breaker.
    DeafToCanary,
    /// A step that ran out of memory is retried unchanged.
    SameStepAgain,
    /// A constrained request does not wait for its grammar.
    SkipGrammar,
    /// A request that waits for a grammar asks for it only once.
    AskForGrammarOnce,
    /// The time to compile a grammar has no limit.
    KeepHungCompiler,
    /// A tail counts though the step in which its request was to catch up never ended.
    TrustOpenTail,
    /// A request gets the tail of another.
    SwapTails,
    /// The block directory keeps the tail of a request whose blocks were freed.
    ForgetFreedTail,
    /// A tail waits for its request though its block was allocated for another.
    KeepHandedOutTail,
    /// A group frees a block that its window still reaches.
    PassTooMuch,
    /// A hit needs no state of the token before it.
    SkipState,
    /// A request with a state keeps a tail, though each step writes over it.
    KeepTailOfState,
    /// Blocks of a request with non-finite logits are hits if a window or a state has passed them.
    KeepPassedGarbage,
    /// A pooling that needs all tokens uses blocks that others computed.
    PoolOverHits,
    /// A pooled result is committed without the end of its request.
    PoolWithoutEnd,
    /// A new adapter takes the slot of one that live requests use.
    ReuseAdapterSlot,
    /// Requests with different adapters share blocks.
    IgnoreAdapter,
    /// A request does not wait for its adapter.
    SkipAdapter,
    /// An item that no request needs keeps its place in the encoder cache.
    LeakPin,
    /// A step does not wait until its images are encoded.
    SkipEncoder,
    /// Images that fail to encode keep their place in the encoder cache.
    KeepFailedItem,
    /// A step computes a part of an image whose tokens attend to each other.
    CutImage,
    /// Requests with different images share blocks.
    IgnoreMedia,
    /// A guess is accepted though the draw at its place is another token.
    AcceptAnyDraft,
    /// The next step begins after wrong guesses, so their KV stays in the request's blocks.
    KeepRejectedKv,
    /// Right guesses count as computed in a model with states, which keeps none.
    CountGuessesOfState,
    /// A frame from the link is read though its checksum does not match.
    AcceptDamagedFrame,
    /// A commit is accepted from an engine that no longer has the request.
    CommitOfFormerEngine,
    /// An engine does not learn that requests of another one go on in it.
    MoveSilently,
    /// A block that gets new content stays in the directory that outlives the process.
    KeepEvictedBlock,
    /// A process adopts the KV cache of one that may still write there.
    AdoptFromLiving,
    /// A process that gives no sign of life is not ended.
    DeafToSilence,
    /// The requests of a process that was killed from outside are suspected.
    BlameOutsider,
    /// The requests of a process that died of a step are not suspected.
    BlameNothing,
    /// Messages go on to a process that was replaced.
    KeepOldLine,
    /// A process that missed the change of a pause does not learn of it.
    TellPauseOnce,
    /// A record of the journal is read though its checksum does not match.
    AcceptDamagedRecord,
    /// The journal forgets which ids its requests have had.
    ReuseRequestIds,
    /// All choices of a journaled prompt get the seed of the first.
    ForgetChoiceSeeds,
    /// A new segment of the journal lacks the requests of earlier processes.
    CompactRequests,
    /// A journal is removed before its content is durable in the next one.
    RemoveBeforeDurable,
    /// The journal says that an acceptance is durable before it is.
    EarlyDurable,
    /// The journal forgets that a request ended.
    LoseEnd,
    /// After a failed write, the journal goes on in the same segment.
    AppendAfterFault,
}

impl Bug {
    /// The bugs that the simulator of a whole system must find.
    pub const ALL: [Self; 65] = [
        Self::AcceptDamagedRecord,
        Self::ReuseRequestIds,
        Self::ForgetChoiceSeeds,
        Self::CompactRequests,
        Self::RemoveBeforeDurable,
        Self::AcceptDamagedFrame,
        Self::CommitOfFormerEngine,
        Self::MoveSilently,
        Self::KeepEvictedBlock,
        Self::AdoptFromLiving,
        Self::DeafToSilence,
        Self::BlameOutsider,
        Self::BlameNothing,
        Self::KeepOldLine,
        Self::TellPauseOnce,
        Self::LeakPin,
        Self::SkipEncoder,
        Self::KeepFailedItem,
        Self::CutImage,
        Self::IgnoreMedia,
        Self::NoEpochFence,
        Self::NoDedup,
        Self::NoGapCheck,
        Self::LeakOnAbort,
        Self::DoubleFree,
        Self::SealTooEarly,
        Self::NeverSettle,
        Self::PreemptInFlight,
        Self::ForgetEviction,
        Self::HitLastToken,
        Self::IgnoreSalt,
        Self::KeepRegistered,
        Self::LostWakeup,
        Self::AnyStep,
        Self::KeepStaleStep,
        Self::StatefulGenerator,
        Self::SkipReplay,
        Self::RepeatBatch,
        Self::NoPosition,
        Self::StopWithinToken,
        Self::NeverForget,
        Self::KeepLostContent,
        Self::LeakQuota,
        Self::IgnoreDeadline,
        Self::DeafToCanary,
        Self::SameStepAgain,
        Self::SkipGrammar,
        Self::AskForGrammarOnce,
        Self::KeepHungCompiler,
        Self::TrustOpenTail,
        Self::SwapTails,
        Self::ForgetFreedTail,
        Self::KeepHandedOutTail,
        Self::PassTooMuch,
        Self::SkipState,
        Self::KeepTailOfState,
        Self::KeepPassedGarbage,
        Self::PoolOverHits,
        Self::PoolWithoutEnd,
        Self::ReuseAdapterSlot,
        Self::IgnoreAdapter,
        Self::SkipAdapter,
        Self::AcceptAnyDraft,
        Self::KeepRejectedKv,
        Self::CountGuessesOfState,
    ];

    /// The bugs of the journal, which its own simulation must find.
    pub const OF_THE_JOURNAL: [Self; 3] =
        [Self::EarlyDurable, Self::LoseEnd, Self::AppendAfterFault];
}

/// Returns whether the code makes this mistake.
#[cfg(not(feature = "sim"))]
#[inline]
#[must_use]
pub const fn planted(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "sim")]
pub use self::on::{plant, planted};

#[cfg(feature = "sim")]
mod on {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants the bug in this thread's code, or removes it.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Returns whether the code makes this mistake.
    #[inline]
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
