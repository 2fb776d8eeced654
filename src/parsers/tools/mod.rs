//! Tool calls: the parsers, a format a file, and their shared parts.

mod block;
mod call_object;
mod calls;
mod constraint;
mod deepseek_v3;
mod forced;
mod gemma4;
mod glm45;
mod granite;
mod hermes;
mod json;
mod json_block;
mod kimi_k2;
mod llama3_json;
mod mistral;
mod openai;
mod parser;
mod phi4_mini_json;
mod pythonic;
mod qwen3_coder;
mod required;
mod schema;
mod section;
mod strict;
mod tagged_values;

pub use constraint::{ConstraintError, ForcedCall, constraint_schema};
pub use forced::NamedCallParser;
pub use parser::{CallIdFormat, ToolParser};
pub use required::required_call_parser;
pub use schema::Tools;

pub(super) use deepseek_v3::{deepseek_v3, deepseek_v31};
pub(super) use gemma4::gemma4;
pub(super) use glm45::glm45;
pub(super) use granite::granite;
pub(super) use hermes::hermes;
pub(super) use json::json;
pub(super) use kimi_k2::kimi_k2;
pub(super) use llama3_json::llama3_json;
pub(super) use mistral::mistral;
pub(super) use openai::openai;
pub(super) use phi4_mini_json::phi4_mini_json;
pub(super) use pythonic::pythonic;
pub(super) use qwen3_coder::qwen3_coder;
