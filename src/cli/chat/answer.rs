//! One answer: its thoughts and text, its end, and its cost.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use crate::api::FinishReason;

/// An answer, complete or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) reasoning: String,
    pub(super) content: String,
    /// The reason for its end. `None` if Ctrl-C stopped it.
    pub(super) finish: Option<FinishReason>,
    pub(super) cost: Cost,
}

/// The cost of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) prompt_tokens: usize,
    /// Prompt tokens that were in the prefix cache.
    pub(super) cached_tokens: usize,
    pub(super) output_tokens: usize,
    /// From the question until the first token.
    pub(super) first_token: Duration,
    /// From the question until the last token.
    pub(super) total: Duration,
}

impl Answer {
    /// Returns the message that later questions include.
    pub(super) fn message(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.content });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.clone().into();
        }
        message
    }

    /// Returns the answer as JSON.
    pub(super) fn to_json(&self) -> Value {
        let reasoning = (!self.reasoning.is_empty()).then_some(&self.reasoning);
        let Cost { prompt_tokens, output_tokens, .. } = self.cost;
        json!({
            "content": self.content,
            "reasoning": reasoning,
            "finish_reason": self.finish.as_ref().map(FinishReason::as_str),
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": output_tokens,
                "total_tokens": prompt_tokens + output_tokens,
            },
        })
    }
}

impl Cost {
    /// Returns the tokens a second after the first one.
    fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.total.saturating_sub(self.first_token).as_secs_f64();
        let tokens = self.output_tokens.saturating_sub(1);
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt_tokens, cached_tokens, output_tokens, first_token, total } = self;
        let milliseconds = first_token.as_secs_f64() * 1e3;
        write!(f, "answer     {output_tokens} tokens in {:.2} s", total.as_secs_f64())?;
        if let Some(rate) = self.tokens_per_second() {
            write!(f, ", {rate:.1} a second after the first")?;
        }
        writeln!(f, "; the first came after {milliseconds:.0} ms")?;
        write!(f, "prompt     {prompt_tokens} tokens, {cached_tokens} of them cached")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_an_answer_is_shown() {
        let cost = Cost {
            prompt_tokens: 40,
            cached_tokens: 32,
            output_tokens: 11,
            first_token: Duration::from_millis(20),
            total: Duration::from_millis(220),
        };
        let expected = "answer     11 tokens in 0.22 s, 50.0 a second after the first; the first \
                        came after 20 ms\nprompt     40 tokens, 32 of them cached";
        assert_eq!(cost.to_string(), expected);
        assert_eq!(Cost::default().tokens_per_second(), None);
    }

    #[test]
    fn thoughts_are_separate_from_the_answer() {
        let answer = Answer { content: "4".into(), reasoning: "2 + 2".into(), ..Answer::default() };
        let expected = json!({"role": "assistant", "content": "4", "reasoning_content": "2 + 2"});
        assert_eq!(answer.message(), expected);
        assert_eq!(answer.to_json()["reasoning"], "2 + 2");
        let answer = Answer { reasoning: String::new(), ..answer };
        assert_eq!(answer.message(), json!({"role": "assistant", "content": "4"}));
        assert_eq!(answer.to_json()["reasoning"], Value::Null);
    }
}
