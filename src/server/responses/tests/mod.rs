//! Items in, messages out; what the model does in, events out.

mod conversation;
mod output;
mod run;
