//! The pure rules of the engine: values in, values out; no clock, no I/O, no unordered map.
pub mod ids;
pub mod stop;
