//! The roles of an actor system. A role names one actor, or each of a pool of equal actors.

use serde::{Deserialize, Serialize};

use crate::logic::recovery::restart::Intensity;

/// Defines [`Role`] by a table with one line for each actor: its role, its name, its supervisor,
/// and the number of deaths that its supervisor tolerates in a number of seconds. The root has no
/// supervisor and is not in the table.
macro_rules! roles {
    ($d:tt $(
        $(#[$doc:meta])*
        $role:ident = $name:literal, under $supervisor:ident, $deaths:literal in $seconds:literal;
    )*) => {
        /// The roles of an actor system, and of the parties outside its actors.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Role {
            $($(#[$doc])* $role,)*
            /// Supervises the supervisors.
            Root,
            /// Clients and operators at the engine's door. It is no actor.
            Door,
            /// The worker's device thread. It is no actor.
            Device,
            /// A thread that compiles grammars. It is no actor.
            Compiler,
            /// Timers, the watchdog, and observers outside the engine. It is no actor.
            Timer,
        }

        impl Role {
            /// The roles of all actors, leaves first.
            pub const ACTORS: [Self; Self::Root as usize + 1] = [$(Self::$role,)* Self::Root];

            /// Returns the name in logs, metrics and the chaos interface.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$role => $name,)*
                    Self::Root => "root",
                    Self::Door => "door",
                    Self::Device => "device",
                    Self::Compiler => "compiler",
                    Self::Timer => "timer",
                }
            }

            /// Returns the supervisor's role. The root has none.
            #[must_use]
            pub const fn supervisor(self) -> Option<Self> {
                match self {
                    $(Self::$role => Some(Self::$supervisor),)*
                    Self::Root | Self::Door | Self::Device | Self::Compiler | Self::Timer => None,
                }
            }

            /// Returns how often the actor may die before its supervisor gives up, unless the
            /// settings say otherwise. The root has no supervisor, so it may not die at all.
            #[must_use]
            pub const fn intensity(self) -> Intensity {
                match self {
                    $(Self::$role => Intensity::new($deaths, $seconds),)*
                    Self::Root | Self::Door | Self::Device | Self::Compiler | Self::Timer => {
                        Intensity::new(0, 0)
                    }
                }
            }
        }

        /// Calls the macro `$then` with the roles of all actors that may be struck: all except the
        /// root. Tests that are written once for each actor use it.
        #[macro_export]
        macro_rules! for_each_role {
            ($d then:ident) => {
                $d then! { $($role,)* }
            };
        }
    };
}

roles! { $
    /// Keeps the ground state.
    Ledger = "ledger", under Root, 3 in 60;
    /// Turns text into requests.
    InputProcessor = "input", under Ingress, 20 in 10;
    /// Allocates the blocks of the KV cache.
    KvCacheManager = "kv_cache", under Core, 5 in 30;
    /// Compiles grammars.
    StructuredOutput = "structured_output", under Core, 5 in 30;
    /// Keeps the embeddings of images and sounds.
    EncoderCacheManager = "encoder_cache", under Core, 5 in 30;
    /// Chooses the requests of each step.
    Scheduler = "scheduler", under Core, 5 in 30;
    /// Owns the device thread.
    Worker = "worker", under Core, 3 in 60;
    /// Owns the device thread that encodes images and sounds.
    EncoderWorker = "encoder_worker", under Core, 5 in 30;
    /// Turns tokens into text.
    Detokenizer = "detokenizer", under Egress, 20 in 10;
    /// Hands text to clients.
    OutputStreamer = "streamer", under Egress, 20 in 10;
    /// Supervises the input processors.
    Ingress = "ingress", under Root, 3 in 60;
    /// Supervises KV cache manager, structured output, encoder cache manager, scheduler, worker
    /// and encoder worker.
    Core = "core", under Root, 3 in 60;
    /// Supervises detokenizers and streamers.
    Egress = "egress", under Root, 3 in 60;
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        let named = Self::ACTORS.into_iter().find(|role| role.as_str() == name);
        named.ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// The error for a name that no actor's role has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}; a role is named like \"scheduler\"")]
pub struct UnknownRole(pub String);
