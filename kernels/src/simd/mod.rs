//! Vectors of sixteen f32 lanes on whatever the processor has.
