//! Actor shells, one file an actor.
