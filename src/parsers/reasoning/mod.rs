//! Parsers of a model's thoughts before its answer, a format a file.

mod deepseek_r1;
mod gemma4;
mod glm45;
mod granite;
mod mistral;
mod openai_gptoss;
mod parser;
mod qwen3;
mod tagged;

pub use parser::{ReasoningMarkers, ReasoningParser, ReasoningStart};

pub(super) use deepseek_r1::deepseek_r1;
pub(super) use gemma4::gemma4;
pub(super) use glm45::glm45;
pub(super) use granite::granite;
pub(super) use mistral::mistral;
pub(super) use openai_gptoss::openai_gptoss;
pub(super) use qwen3::qwen3;
