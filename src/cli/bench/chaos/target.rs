//! The parts of the system that are struck.

use super::ChaosArgs;
#[cfg(unix)]
use crate::{api::EngineIndex, engine::ProcessStrike};
use crate::{
    api::{How, Role},
    cli::CliError,
    engine::Engine,
};

/// The roles that are struck by default.
pub(super) const ROLES: [Role; 11] = [
    Role::Scheduler,
    Role::KvCacheManager,
    Role::StructuredOutput,
    Role::EncoderCacheManager,
    Role::Worker,
    Role::EncoderWorker,
    Role::Ledger,
    Role::Detokenizer,
    Role::OutputStreamer,
    Role::InputProcessor,
    Role::Core,
];
/// The kinds of strike by default, in turns.
const WAYS: [How; 2] = [How::Panic, How::Kill];
/// The same for a process.
#[cfg(unix)]
const PROCESS_WAYS: [ProcessStrike; 3] = [
    ProcessStrike::Signal("SIGKILL"),
    ProcessStrike::Signal("SIGSEGV"),
    ProcessStrike::Signal("SIGSTOP"),
];

/// A part that is struck again and again, in several ways by turns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// The actors of a role.
    Actors(Role, &'a [How]),
    /// The engine processes.
    #[cfg(unix)]
    Processes(&'a [ProcessStrike]),
}

/// One strike's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Struck {
    /// An actor.
    Actor,
    /// The process with this number.
    #[cfg(unix)]
    Process(u32),
}

/// Returns the parts that are struck, one after the other.
pub(super) fn targets(args: &ChaosArgs) -> Vec<Target<'_>> {
    #[cfg(unix)]
    if args.process {
        let ways = &args.process_how[..];
        return vec![Target::Processes(if ways.is_empty() { &PROCESS_WAYS } else { ways })];
    }
    let ways = ways(args);
    roles(args).iter().map(|&role| Target::Actors(role, ways)).collect()
}

/// Returns the roles that are struck.
pub(super) fn roles(args: &ChaosArgs) -> &[Role] {
    if args.role.is_empty() { &ROLES } else { &args.role }
}

/// Returns the kinds of strike on actors, in turns.
pub(super) fn ways(args: &ChaosArgs) -> &[How] {
    if args.how.is_empty() { &WAYS } else { &args.how }
}

impl Target<'_> {
    /// Returns the name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Actors(role, _) => role.as_str(),
            #[cfg(unix)]
            Self::Processes(_) => "process",
        }
    }

    /// Returns the names of the ways.
    pub(super) fn ways(self) -> Vec<&'static str> {
        match self {
            Self::Actors(_, ways) => ways.iter().map(|how| how.as_str()).collect(),
            #[cfg(unix)]
            Self::Processes(ways) => ways.iter().map(|how| how.as_str()).collect(),
        }
    }

    /// Strikes one of the parts: each in turn, and each in every way.
    ///
    /// # Errors
    /// If there is no such part now.
    pub(super) async fn strike(self, engine: &Engine, turn: usize) -> Result<Struck, CliError> {
        match self {
            Self::Actors(role, ways) => {
                let actors = engine.actors();
                let count = actors.iter().filter(|actor| actor.role == role).count();
                let (index, how) = ((turn / ways.len()) % count.max(1), ways[turn % ways.len()]);
                let struck = engine.chaos().strike(role, index, how);
                struck.map(|_| Struck::Actor).map_err(|error| CliError::Ended(error.to_string()))
            }
            #[cfg(unix)]
            Self::Processes(ways) => {
                let count = engine.engines().len().max(1);
                let (index, how) = ((turn / ways.len()) % count, ways[turn % ways.len()]);
                let struck = engine.strike_process(EngineIndex(index), how).await;
                struck.map(Struck::Process).ok_or_else(|| {
                    CliError::Ended(format!("engine {index} has no process that can be struck"))
                })
            }
        }
    }

    /// Returns whether the struck part has been replaced.
    pub(super) fn is_back(self, engine: &Engine, struck: Struck) -> bool {
        match (self, struck) {
            (Self::Actors(role, _), _) => {
                let actors = engine.actors();
                actors.iter().filter(|actor| actor.role == role).all(|actor| actor.is_alive)
            }
            #[cfg(unix)]
            (Self::Processes(_), struck) => {
                let pids = engine.engines().into_iter().map(|engine| engine.process.pid);
                let is_new = |pid: u32| struck != Struck::Process(pid);
                pids.into_iter().all(|pid| pid.is_some_and(is_new))
            }
        }
    }
}
