//! The requests: prompts of generated or recorded text, and the number of tokens to generate.

mod prefix_repetition;
mod random;
mod sharegpt;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rand::{Rng, RngExt as _, rngs::StdRng};

use crate::api::{TextCodec, TextError};
use crate::{cli::CliError, files};

/// One request to send.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli::bench) struct SampleRequest {
    pub(in crate::cli::bench) prompt: String,
    /// Its tokens, as this client's tokenizer counts them.
    pub(in crate::cli::bench) prompt_len: usize,
    /// Tokens to generate.
    pub(in crate::cli::bench) output_len: usize,
}

/// The sources of prompts. Names are vLLM's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum DatasetName {
    /// Random tokens, in the given numbers.
    #[default]
    Random,
    /// A file of conversations in ShareGPT's format.
    Sharegpt,
    /// Prompts that share some prefixes.
    #[value(name = "prefix_repetition", alias = "prefix-repetition")]
    PrefixRepetition,
}

/// Flags about the prompts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Dataset")]
pub(super) struct DatasetArgs {
    /// Source of the prompts
    #[arg(long, value_enum, default_value_t)]
    pub(super) dataset_name: DatasetName,
    /// File of the dataset, for sharegpt
    #[arg(long, value_name = "FILE")]
    pub(super) dataset_path: Option<PathBuf>,
    /// Requests to send
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(super) num_prompts: usize,
    /// Seed of prompts and times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Tokens of a prompt, whatever the dataset
    #[arg(long, value_name = "N")]
    pub(super) input_len: Option<usize>,
    /// Tokens of an output, whatever the dataset
    #[arg(long, value_name = "N")]
    pub(super) output_len: Option<usize>,
    /// Tokens of a random prompt
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) random_input_len: usize,
    /// Tokens of a random prompt's output
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) random_output_len: usize,
    /// Range of both lengths: from len · (1 - R) to len · (1 + R), R below 1
    #[arg(long, value_name = "R", default_value_t = 0.0)]
    pub(super) random_range_ratio: f64,
    /// Tokens before them that all random prompts share
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) random_prefix_len: usize,
    /// Tokens of an output, in place of the recorded one's
    #[arg(long, value_name = "N")]
    pub(super) sharegpt_output_len: Option<usize>,
    /// Tokens of a repeated prefix
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) prefix_repetition_prefix_len: usize,
    /// Tokens that follow it and are not shared
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) prefix_repetition_suffix_len: usize,
    /// Number of prefixes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) prefix_repetition_num_prefixes: usize,
    /// Tokens of the output
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) prefix_repetition_output_len: usize,
}

impl DatasetArgs {
    /// Returns whether outputs have their full length even if the model ends them earlier, unless a
    /// flag says otherwise.
    pub(super) fn ignores_eos(&self) -> bool {
        self.dataset_name == DatasetName::Random
    }

    /// Returns the requests.
    pub(super) fn load(
        &self,
        codec: &dyn TextCodec,
        rng: &mut StdRng,
    ) -> Result<Vec<SampleRequest>, CliError> {
        match self.dataset_name {
            DatasetName::Random => random::requests(self, codec, rng),
            DatasetName::PrefixRepetition => prefix_repetition::requests(self, codec, rng),
            DatasetName::Sharegpt => {
                let path = self.dataset_path.as_ref();
                let path = path.ok_or_else(|| usage("sharegpt needs --dataset-path FILE"))?;
                let read = files::read_stream(path);
                let text = read.map_err(CliError::io(format!("cannot read {}", path.display())))?;
                sharegpt::requests(&text, self, codec, rng)
            }
        }
    }
}

fn usage(message: impl Into<String>) -> CliError {
    CliError::Usage(message.into())
}

/// Tokens for generated prompts: those that are whole characters and not special. Parts of
/// characters would become other tokens when their text is tokenized again.
struct Vocabulary {
    tokens: Vec<u32>,
}

impl Vocabulary {
    fn of(codec: &dyn TextCodec) -> Self {
        let ids = 0..u32::try_from(codec.vocab_size()).unwrap_or(u32::MAX);
        let usable = |&id: &u32| {
            let text = codec.token_text(id);
            !codec.is_special(id) && !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER)
        };
        Self { tokens: ids.filter(usable).collect() }
    }

    fn draw(&self, rng: &mut impl Rng) -> u32 {
        self.tokens.get(rng.random_range(0..self.tokens.len().max(1))).copied().unwrap_or(0)
    }

    fn draw_many(&self, count: usize, rng: &mut impl Rng) -> Vec<u32> {
        (0..count).map(|_| self.draw(rng)).collect()
    }
}

/// Most corrections of a text that has too many or too few tokens.
const MENDS_MAX: usize = 10;

/// Returns a text of as many tokens as `tokens`, and its number of tokens. A tokenizer often splits
/// the text into more or fewer tokens, so the text is cut or extended until it fits.
fn text_of(
    mut tokens: Vec<u32>,
    vocabulary: &Vocabulary,
    codec: &dyn TextCodec,
    rng: &mut impl Rng,
) -> Result<(String, usize), TextError> {
    let wanted = tokens.len();
    for _ in 0..MENDS_MAX {
        let text = codec.decode(&tokens, false)?;
        tokens = codec.encode(&text, false)?;
        if tokens.len() == wanted {
            return Ok((text, wanted));
        }
        tokens.truncate(wanted);
        let missing = wanted - tokens.len();
        tokens.extend(vocabulary.draw_many(missing, rng));
    }
    let text = codec.decode(&tokens, false)?;
    let count = codec.encode(&text, false)?.len();
    Ok((text, count))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use clap::{Command, FromArgMatches as _};
    use rand::SeedableRng as _;

    use super::*;
    use crate::text::HfTextCodec;

    pub(super) fn codec() -> HfTextCodec {
        HfTextCodec::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model")))
            .unwrap()
    }

    pub(super) fn rng(seed: u64) -> StdRng {
        StdRng::seed_from_u64(seed)
    }

    pub(super) fn args(typed: &[&str]) -> DatasetArgs {
        let command = DatasetArgs::augment_args(Command::new("test"));
        let typed = std::iter::once("test").chain(typed.iter().copied());
        DatasetArgs::from_arg_matches(&command.get_matches_from(typed)).unwrap()
    }

    #[test]
    fn a_file_is_needed_where_prompts_are_recorded() {
        let error = args(&["--dataset-name", "sharegpt"]).load(&codec(), &mut rng(0));
        assert!(error.unwrap_err().to_string().contains("--dataset-path"));
    }

    #[test]
    fn made_up_texts_have_no_special_tokens() {
        let codec = codec();
        let vocabulary = Vocabulary::of(&codec);
        assert!(vocabulary.tokens.len() > 100);
        assert!(vocabulary.tokens.iter().all(|&token| !codec.is_special(token)));
    }
}
