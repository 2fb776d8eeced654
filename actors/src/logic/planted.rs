//! Bugs on purpose. The simulator must find each of them: that tests the tester.

/// A mistake that the code can be told to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Numbered messages and commits of past epochs are taken.
    NoEpochFence,
    /// Numbered messages and commits are taken again.
    NoDedup,
    /// Numbered messages and commits are taken though one before them is missing.
    NoGapCheck,
    /// The blocks of an aborted request are not given back.
    LeakOnAbort,
    /// Blocks that several requests share are given back twice.
    DoubleFree,
    /// Blocks survive a crash though the step that fills them was only planned.
    SealTooEarly,
    /// The block directory is not told that a block gets new content.
    ForgetEviction,
    /// A prefix hit may take the last token too, whose logits are wanted.
    HitLastToken,
    /// Requests with different cache salts share blocks.
    IgnoreSalt,
    /// A preempted request believes that its blocks are registered still.
    KeepRegistered,
    /// New requests wait until something else happens.
    LostWakeup,
    /// What is computed again is planned while a step that has it is still under way.
    NeverSettle,
    /// Whoever is computed may have to give way.
    PreemptInFlight,
    /// The scheduler takes the results of any step for those that it awaits.
    AnyStep,
    /// Worker and device compute steps of past epochs.
    KeepStaleStep,
    /// The sampler draws from a generator that counts its draws.
    StatefulGenerator,
    /// A new egress shard is not told what the old one was.
    SkipReplay,
    /// A detokenizer takes a batch again.
    RepeatBatch,
    /// Sinks take whatever they are given.
    NoPosition,
    /// A stop string is only found within a single token.
    StopWithinToken,
    /// An end that was delivered leaves its entry in the ledger.
    NeverForget,
    /// Blocks are believed in whose memory was left behind with a thread that hangs.
    KeepLostContent,
    /// What was reserved for a request is not given back at its end.
    LeakQuota,
    /// Requests begin although their deadline has passed.
    IgnoreDeadline,
    /// A canary that was served does not close the breaker.
    DeafToCanary,
    /// A step that ran out of memory is tried again as it was.
    SameStepAgain,
    /// A constrained request does not wait for its grammar.
    SkipGrammar,
    /// Who waits for a grammar asks once.
    AskForGrammarOnce,
    /// A grammar may take as long to compile as it likes.
    KeepHungCompiler,
    /// A tail counts though the step in which its request was to catch up never ended.
    TrustOpenTail,
    /// A request gets the tail of another.
    SwapTails,
    /// The block directory keeps the tail of a request that let go of its blocks.
    ForgetFreedTail,
    /// A tail waits for its request though its block is handed out for something else.
    KeepHandedOutTail,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 33] = [
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
    ];
}

/// Whether the code is to make this mistake.
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

    /// Makes this thread's code commit the mistake, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether the code is to make this mistake.
    #[inline]
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
