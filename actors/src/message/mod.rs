//! Messages, one file a receiver.
