//! Against the formula.
