//! Text: a Hugging Face tokenizer and its chat template behind the engine's `TextCodec` port.
//!
//! `codec` is the adapter. `tokenizer_files` reads the files beside `tokenizer.json`. `tekken`
//! reads Mistral's file in its place, and `class_tokenizer` the files of a class, for example a
//! model of `sentencepiece`. `decoder` turns tokens into text one at a time. `chat_template`
//! renders conversations. `cuts` finds places where a long text may be cut.
//! `languages` finds the tokens of languages.
mod bert_class;
mod chat_template;
mod chunks;
mod class_rules;
mod class_tokenizer;
mod codec;
mod cuts;
mod decoder;
mod error;
mod gguf_tokenizer;
mod languages;
mod sentencepiece;
mod special_tokens;
mod tekken;
mod tokenizer_files;

pub use chat_template::ContentFormat;
pub use codec::HfTextCodec;
pub use error::TextLoadError;
