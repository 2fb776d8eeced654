//! Straight loops in f64.
