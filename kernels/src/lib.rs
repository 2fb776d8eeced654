//! Hot operations of the engine.
