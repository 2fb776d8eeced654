//! Who there is.

/// The roles of an actor system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The ground state.
    Ledger,
    /// Makes requests out of text.
    InputProcessor,
    /// Knows the blocks.
    KvCacheManager,
    /// Compiles grammars.
    StructuredOutput,
    /// Knows the policy.
    Scheduler,
    /// Owns the device thread.
    Worker,
    /// Makes text out of tokens.
    Detokenizer,
    /// Hands text to clients.
    OutputStreamer,
    /// Supervises the input processors.
    Ingress,
    /// Supervises KV cache manager, structured output, scheduler and worker.
    Core,
    /// Supervises detokenizers and streamers.
    Egress,
    /// Supervises the supervisors.
    Root,
}

impl Role {
    /// The name in logs, metrics and the chaos surface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::InputProcessor => "input",
            Self::KvCacheManager => "kv_cache",
            Self::StructuredOutput => "structured_output",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Detokenizer => "detokenizer",
            Self::OutputStreamer => "streamer",
            Self::Ingress => "ingress",
            Self::Core => "core",
            Self::Egress => "egress",
            Self::Root => "root",
        }
    }

    /// The supervisor's role; the root has none.
    #[must_use]
    pub const fn supervisor(self) -> Option<Self> {
        match self {
            Self::Root => None,
            Self::Ledger | Self::Core | Self::Egress | Self::Ingress => Some(Self::Root),
            Self::KvCacheManager | Self::StructuredOutput | Self::Scheduler | Self::Worker => {
                Some(Self::Core)
            }
            Self::Detokenizer | Self::OutputStreamer => Some(Self::Egress),
            Self::InputProcessor => Some(Self::Ingress),
        }
    }

    /// All roles, leaves first.
    pub const ALL: [Self; 12] = [
        Self::Ledger,
        Self::InputProcessor,
        Self::KvCacheManager,
        Self::StructuredOutput,
        Self::Scheduler,
        Self::Worker,
        Self::Detokenizer,
        Self::OutputStreamer,
        Self::Ingress,
        Self::Core,
        Self::Egress,
        Self::Root,
    ];
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        let named = Self::ALL.into_iter().find(|role| role.as_str() == name);
        named.ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// No actor has that role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}; a role is named like \"scheduler\"")]
pub struct UnknownRole(pub String);
