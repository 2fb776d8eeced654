//! The roles of an actor system. A role names one actor, or each of a pool of equal actors.

/// Makes [`Role`] of a table with one line for each actor: its role, its name, its supervisor. The
/// root has no supervisor and is not in the table.
macro_rules! roles {
    ($d:tt $($(#[$doc:meta])* $role:ident = $name:literal, under $supervisor:ident;)*) => {
        /// The roles of an actor system.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Role {
            $($(#[$doc])* $role,)*
            /// Supervises the supervisors.
            Root,
        }

        impl Role {
            /// All roles, leaves first.
            pub const ALL: [Self; Self::Root as usize + 1] = [$(Self::$role,)* Self::Root];

            /// Returns the name in logs, metrics and the chaos surface.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$role => $name,)*
                    Self::Root => "root",
                }
            }

            /// Returns the supervisor's role. The root has none.
            #[must_use]
            pub const fn supervisor(self) -> Option<Self> {
                match self {
                    $(Self::$role => Some(Self::$supervisor),)*
                    Self::Root => None,
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
    Ledger = "ledger", under Root;
    /// Turns text into requests.
    InputProcessor = "input", under Ingress;
    /// Allocates the blocks of the KV cache.
    KvCacheManager = "kv_cache", under Core;
    /// Compiles grammars.
    StructuredOutput = "structured_output", under Core;
    /// Chooses the requests of each step.
    Scheduler = "scheduler", under Core;
    /// Owns the device thread.
    Worker = "worker", under Core;
    /// Turns tokens into text.
    Detokenizer = "detokenizer", under Egress;
    /// Hands text to clients.
    OutputStreamer = "streamer", under Egress;
    /// Supervises the input processors.
    Ingress = "ingress", under Root;
    /// Supervises KV cache manager, structured output, scheduler and worker.
    Core = "core", under Root;
    /// Supervises detokenizers and streamers.
    Egress = "egress", under Root;
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        let named = Self::ALL.into_iter().find(|role| role.as_str() == name);
        named.ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// The error for a name that no role has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}; a role is named like \"scheduler\"")]
pub struct UnknownRole(pub String);
