//! `playhouse generate`: continue texts.

use std::{io::IsTerminal, path::PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    CliError,
    bench::progress_bar,
    engine,
    flags::{EngineFlags, SamplingFlags},
    interrupt::or_interrupt,
    output::{self, Format},
    streams::read_ahead,
    style::harmless,
};
use crate::api::{
    FinishReason, OutputDelta, Prompt, RawRequest, RequestLanguages, StopReason, Submission,
};
use crate::{config::EngineConfig, engine::Engine, files};

const EXAMPLES: &str = "\
Examples:
  playhouse generate \"Once upon a time\"
  playhouse generate -m models/qwen3 --max-tokens 64 --temperature 0 \"2 + 2 =\" \"3 + 3 =\"
  playhouse generate -f story.txt --stop \"The end\"
  cat story.txt | playhouse generate --output json

Several prompts run as one batch; their outputs come in the order of the prompts.";

/// Most tokens by default. A text alone seldom has an end that a model predicts.
const MAX_TOKENS: u32 = 256;

/// Continue one or several texts.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Texts to continue; without any, and without -f, standard input is one
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    /// File whose content is a further prompt; may be repeated
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Vec<PathBuf>,
    /// text streams; json writes one line for each prompt when it is complete
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// Outputs for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    n: u32,
    /// Language of the texts, for a model that translates: en_XX, eng_Latn or en
    #[arg(long, value_name = "CODE")]
    source_lang: Option<String>,
    /// Language of the outputs
    #[arg(long, value_name = "CODE")]
    target_lang: Option<String>,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Generates and prints.
pub(crate) fn run(args: GenerateArgs, config: EngineConfig) -> Result<(), CliError> {
    let prompts = prompts(&args)?;
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let outcome = or_interrupt(generate(&engine, &args, prompts)).await;
        engine.shutdown().await;
        outcome
    })
}

fn prompts(args: &GenerateArgs) -> Result<Vec<String>, CliError> {
    let mut prompts = args.prompts.clone();
    for path in &args.file {
        let read = files::read_stream(path);
        prompts.push(read.map_err(CliError::io(format!("cannot read {}", path.display())))?);
    }
    if prompts.is_empty() {
        prompts.push(output::read_stdin("prompt")?);
    }
    Ok(prompts)
}

async fn generate(
    engine: &Engine,
    args: &GenerateArgs,
    prompts: Vec<String>,
) -> Result<(), CliError> {
    let mut submissions = Vec::new();
    for prompt in prompts {
        let mut request = RawRequest::new(Prompt::Text(prompt.clone()));
        args.sampling.apply(engine.default_sampling(), &mut request);
        request.params.n = args.n;
        let (source, target) = (args.source_lang.clone(), args.target_lang.clone());
        request.languages = RequestLanguages { source, target };
        request.max_tokens.get_or_insert(MAX_TOKENS);
        submissions.push((prompt, engine.submit(request).await?));
    }
    match args.output {
        Format::Text => write_text(submissions).await,
        Format::Json => write_json(submissions).await,
    }
}

/// Streams the outputs one after the other, separated by an empty line. All are computed meanwhile.
async fn write_text(submissions: Vec<(String, Submission)>) -> Result<(), CliError> {
    let is_terminal = std::io::stdout().is_terminal();
    let choices = submissions.into_iter().flat_map(|(_, submission)| submission.choices);
    let choices: Vec<_> = choices.map(read_ahead).collect();
    for (i, mut choice) in choices.into_iter().enumerate() {
        if i > 0 {
            output::show("\n")?;
        }
        while let Some(delta) = choice.recv().await {
            match is_terminal {
                true => output::show(&harmless(&delta.text))?,
                false => output::show(&delta.text)?,
            }
            if let Some(FinishReason::Error(failure)) = delta.finish {
                return Err(CliError::Ended(failure.to_string()));
            }
        }
        output::show("\n")?;
    }
    Ok(())
}

async fn write_json(submissions: Vec<(String, Submission)>) -> Result<(), CliError> {
    let total = submissions.iter().map(|(_, submission)| submission.choices.len()).sum();
    let bar = progress_bar(total);
    bar.set_message("outputs");
    let read = |(prompt, submission): (String, Submission)| {
        let num_input_tokens = submission.num_input_tokens();
        let choices: Vec<_> = submission.choices.into_iter().map(read_ahead).collect();
        (prompt, num_input_tokens, choices)
    };
    let submissions: Vec<_> = submissions.into_iter().map(read).collect();
    for (prompt, prompt_tokens, streams) in submissions {
        let (mut choices, mut completion_tokens) = (Vec::new(), 0);
        for (index, choice) in streams.into_iter().enumerate() {
            let output = collect(choice).await?;
            bar.inc(1);
            completion_tokens += output.token_ids.len();
            choices.push(output.to_json(index));
        }
        let line = json!({
            "prompt": prompt,
            "choices": choices,
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        });
        bar.suspend(|| output::show_json(&line))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// One complete output.
struct Output {
    text: String,
    token_ids: Vec<u32>,
    finish: FinishReason,
}

async fn collect(mut choice: UnboundedReceiver<OutputDelta>) -> Result<Output, CliError> {
    let (mut text, mut token_ids) = (String::new(), Vec::new());
    while let Some(delta) = choice.recv().await {
        text.push_str(&delta.text);
        token_ids.extend(delta.tokens.iter().map(|token| token.token_id));
        match delta.finish {
            Some(FinishReason::Error(failure)) => {
                return Err(CliError::Ended(failure.to_string()));
            }
            Some(finish) => return Ok(Output { text, token_ids, finish }),
            None => {}
        }
    }
    Err(CliError::Ended("its stream ended without a reason".to_owned()))
}

impl Output {
    fn to_json(&self, index: usize) -> Value {
        let stop_reason = match &self.finish {
            FinishReason::Stop(Some(StopReason::Token(token))) => json!(token),
            FinishReason::Stop(Some(StopReason::String(text))) => json!(text),
            _ => Value::Null,
        };
        json!({
            "index": index,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish.as_str(),
            "stop_reason": stop_reason,
        })
    }
}
