//! Input items become messages, and the model's output becomes events.

mod conversation;
mod output;
mod run;
