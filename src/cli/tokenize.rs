//! `playhouse tokenize`: a text's tokens, and the text of tokens. Loads no weights.

use clap::Args;
use serde_json::json;

use super::{
    CliError,
    engine::with_bar,
    output::{self, Format},
};
use crate::api::TextCodec;
use crate::{
    config::{EngineConfig, Key, Origin, layer::Entry},
    hub,
    text::HfTextCodec,
};

const EXAMPLES: &str = "\
Examples:
  playhouse tokenize \"Hello, world\"
  playhouse tokenize -m models/qwen3 --output json < story.txt
  playhouse tokenize --decode 9707 11 1879";

/// Show the tokens of a text, or the text of tokens.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenizeArgs {
    /// The text, or with --decode the token ids; without any, standard input
    #[arg(value_name = "TEXT")]
    input: Vec<String>,
    /// The input is token ids, separated by spaces or commas; show their text
    #[arg(long)]
    decode: bool,
    /// Leave out the tokens that the model expects around a text (for example BOS)
    #[arg(long, conflicts_with = "decode")]
    no_special_tokens: bool,
    /// Leave special tokens out of the text
    #[arg(long, requires = "decode")]
    skip_special_tokens: bool,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// Folder, GGUF file or name of the model whose tokenizer to use [default: the demo model]
    #[arg(long, short = 'm', value_name = "MODEL")]
    model: Option<String>,
}

impl TokenizeArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |model: &String| Entry {
            key: Key::new("engine", "model"),
            value: model.clone().into(),
            origin: Origin::Flag("--model".to_owned()),
        };
        self.model.iter().map(entry).collect()
    }
}

/// Tokenizes or detokenizes, and prints.
pub(crate) fn run(args: TokenizeArgs, config: EngineConfig) -> Result<(), CliError> {
    let config = with_bar(|progress| hub::with_tokenizer(config, progress))?;
    let codec = HfTextCodec::load(config.tokenizer_path())?;
    let input = match args.input.is_empty() {
        true => output::read_stdin(if args.decode { "token ids" } else { "text" })?,
        false => args.input.join(" "),
    };
    if args.decode {
        let tokens = token_ids(&input)?;
        let text = codec.decode(&tokens, args.skip_special_tokens)?;
        return match args.output {
            Format::Text => output::show(&format!("{text}\n")),
            Format::Json => output::show_json(&json!({ "prompt": text })),
        };
    }
    let tokens = codec.encode(&input, !args.no_special_tokens)?;
    match args.output {
        Format::Text => {
            let ids: Vec<_> = tokens.iter().map(u32::to_string).collect();
            output::show(&format!("{}\n", ids.join(" ")))
        }
        Format::Json => {
            let pieces: Vec<_> = tokens.iter().map(|&token| codec.token_piece(token)).collect();
            let count = tokens.len();
            let tokens = json!({ "count": count, "tokens": tokens, "token_strs": pieces });
            output::show_json(&tokens)
        }
    }
}

/// Parses numbers, separated by any characters that separate numbers in lists.
fn token_ids(input: &str) -> Result<Vec<u32>, CliError> {
    let words = input.split(|c: char| c.is_whitespace() || ",[]".contains(c));
    let parse = |word: &str| {
        let wanted = || CliError::Usage(format!("{word:?} is no token id: give whole numbers"));
        word.parse().map_err(|_| wanted())
    };
    words.filter(|word| !word.is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ids_are_read_from_any_list() {
        assert_eq!(token_ids("1 2\n3").unwrap(), [1, 2, 3]);
        assert_eq!(token_ids("[1, 2,3]").unwrap(), [1, 2, 3]);
        let message = token_ids("1 two").unwrap_err().to_string();
        assert_eq!(message, "\"two\" is no token id: give whole numbers");
    }
}
