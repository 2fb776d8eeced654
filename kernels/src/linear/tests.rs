//! Against the reference.
