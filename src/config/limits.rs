//! The limits of one request.

use super::{
    check::{any, at_least, within},
    error::InvalidSetting,
    setting::Usage,
    table::settings,
};

settings! {
    /// Limits of one request. A request beyond a limit gets 400, which names field and limit.
    #[derive(Eq)]
    pub struct LimitSettings in limits {
        "Limits on a request":
        /// Limits of one request; a request beyond one of them is answered 400. Deepest nesting of
        /// its JSON.
        max_json_depth: usize = 100, count, within(1, 127),
            Usage::new("N", "Deepest nesting of its JSON");
        /// Prompts of one completion request.
        max_completion_prompts: usize = 1024, count, at_least(1),
            Usage::new("N", "Prompts of one completion request");
        /// Inputs of one pooling request.
        max_pooling_prompts: usize = 16384, count, at_least(1),
            Usage::new("N", "Inputs of one pooling request");
        /// Choices of one request: n times its prompts.
        max_n_sequences: usize = 1024, count, at_least(1),
            Usage::new("N", "Choices: n times its prompts");
        /// Stop strings.
        max_stop_strings: usize = 4, count, any,
            Usage::new("N", "Stop strings");
        /// Words in bad_words.
        max_num_bad_words: usize = 128, count, any,
            Usage::new("N", "Words in bad_words");
        /// Messages of a conversation.
        max_messages: usize = 4096, count, at_least(1),
            Usage::new("N", "Messages of a conversation");
        /// Tools on offer.
        max_tools: usize = 1024, count, any,
            Usage::new("N", "Tools on offer");
    }
}

impl LimitSettings {
    /// Rejects values that are out of range.
    ///
    /// # Errors
    /// The first rejected setting, with the values that would be accepted.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}
