//! Parsers of a model's thoughts before its answer, a format a file.

mod append_think;
mod cohere_command;
mod deepseek_r1;
mod deepseek_v3;
mod ernie45;
mod framed;
mod gemma4;
mod glm45;
mod granite;
mod hunyuan_a13b;
mod kimi_k2;
mod mistral;
mod openai_gptoss;
mod parser;
mod qwen3;
mod seed_oss;
mod tagged;

pub use parser::{ReasoningMarkers, ReasoningParser, ReasoningStart};

pub(super) use append_think::minimax_m2_append_think;
pub(super) use cohere_command::cohere_command;
pub(super) use deepseek_r1::deepseek_r1;
pub(super) use deepseek_v3::deepseek_v3;
pub(super) use ernie45::ernie45;
pub(super) use gemma4::gemma4;
pub(super) use glm45::glm45;
pub(super) use granite::granite;
pub(super) use hunyuan_a13b::hunyuan_a13b;
pub(super) use kimi_k2::kimi_k2;
pub(super) use mistral::mistral;
pub(super) use openai_gptoss::openai_gptoss;
pub(super) use qwen3::qwen3;
pub(super) use seed_oss::seed_oss;
