//! `playhouse eval perplexity`: how well a model predicts a text, and the loss of its format.
//!
//! The text's tokens are cut in windows. Each token except the first of its window is predicted
//! from the tokens before it in the window. Every request goes through the running engine, as a
//! client's would.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::score::{Distance, Prediction, Score};
use crate::api::{FinishReason, Prompt, RawRequest, SamplingParams, TokenId};
use crate::{
    cli::{
        CliError,
        bench::progress_bar,
        engine,
        flags::EngineFlags,
        interrupt::or_interrupt,
        output::{self, Format},
    },
    config::{ActivationQuantization, Dtype, EngineConfig, Quantization},
    engine::Engine,
    files,
    model::QuantizedWeights,
};

const EXAMPLES: &str = "\
Examples:
  playhouse eval perplexity book.txt -m models/qwen3
  playhouse eval perplexity book.txt -m models/qwen3 --quantization int8 --against bfloat16
  playhouse eval perplexity book.txt -m models/qwen3-gptq --activation-quantization int8 \\
    --against float-activations
  playhouse eval perplexity book.txt -m models/qwen3 --quantization int4 \\
    --quantization-group-size 128 --against float32 --output json";

/// Windows in flight: enough to fill a step.
const WINDOWS_IN_FLIGHT: usize = 16;
/// Tokens of a window, if the model accepts that many.
const CONTEXT: usize = 512;

/// Measure how well a model predicts a text.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PerplexityArgs {
    /// Text to predict
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Measure the same model in this format as well, and compare
    #[arg(long, value_enum, value_name = "FORMAT")]
    against: Option<Against>,
    /// Tokens of a window [default: 512, or the model's limit]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(super) engine: EngineFlags,
}

/// Formats to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    Float32,
    Bfloat16,
    Int8,
    Int4,
    /// The same weights, with float activations.
    FloatActivations,
}

impl Against {
    /// Returns the settings with this format.
    fn apply(self, config: EngineConfig) -> EngineConfig {
        let (none, auto) = (Quantization::None, ActivationQuantization::Auto);
        let (dtype, quantization, activation_quantization) = match self {
            Self::Float32 => (Dtype::Float32, none, auto),
            Self::Bfloat16 => (Dtype::Bfloat16, none, auto),
            Self::Int8 => (config.dtype, Quantization::Int8, config.activation_quantization),
            Self::Int4 => (config.dtype, Quantization::Int4, config.activation_quantization),
            Self::FloatActivations => {
                (config.dtype, config.quantization, ActivationQuantization::None)
            }
        };
        EngineConfig { dtype, quantization, activation_quantization, ..config }
    }
}

/// One way to run the model, and its score.
struct Measured {
    format: String,
    context: usize,
    predictions: Vec<Prediction>,
}

/// Measures and prints.
pub(super) fn run(args: &PerplexityArgs, config: EngineConfig) -> Result<(), CliError> {
    let read = files::read_stream(&args.file);
    let text = read.map_err(CliError::io(format!("cannot read {}", args.file.display())))?;
    engine::run(async {
        let measured = measure(config.clone(), &text, args.context).await?;
        let against = match args.against {
            Some(against) => Some(measure(against.apply(config), &text, args.context).await?),
            None => None,
        };
        match args.output {
            Format::Text => output::show(&table(&measured, against.as_ref())),
            Format::Json => output::show_json(&report(args, &measured, against.as_ref())),
        }
    })
}

/// Runs `text` through a new engine.
async fn measure(
    config: EngineConfig,
    text: &str,
    context: Option<usize>,
) -> Result<Measured, CliError> {
    let engine = or_interrupt(engine::start(config)).await?;
    let outcome = or_interrupt(predict(&engine, text, context)).await;
    engine.shutdown().await;
    outcome
}

async fn predict(
    engine: &Engine,
    text: &str,
    context: Option<usize>,
) -> Result<Measured, CliError> {
    // A request draws a token at the end, which takes a position.
    let longest = engine.model_info().max_model_len.saturating_sub(1);
    let context = context.unwrap_or(CONTEXT.min(longest));
    if !(2..=longest).contains(&context) {
        let wanted = format!("--context must be in 2..={longest}, got {context}");
        return Err(CliError::Usage(wanted));
    }
    let tokens = engine.codec().encode(text, true)?;
    if tokens.len() < 2 {
        let wanted = format!("the text has {} tokens: at least 2 are needed", tokens.len());
        return Err(CliError::Usage(wanted));
    }
    let windows: Vec<&[TokenId]> = tokens.chunks(context).filter(|w| w.len() > 1).collect();
    let bar = progress_bar(windows.len());
    bar.set_message(format_name(engine));
    let predictions = stream::iter(windows)
        .map(|window| predict_window(engine, window, &bar))
        .buffered(WINDOWS_IN_FLIGHT)
        .try_concat()
        .await;
    bar.finish_and_clear();
    Ok(Measured { format: format_name(engine), context, predictions: predictions? })
}

async fn predict_window(
    engine: &Engine,
    window: &[TokenId],
    bar: &ProgressBar,
) -> Result<Vec<Prediction>, CliError> {
    let params = SamplingParams { prompt_logprobs: Some(1), ..SamplingParams::default() };
    let prompt = Prompt::Tokens(window.to_vec());
    let request = RawRequest { params, max_tokens: Some(1), ..RawRequest::new(prompt) };
    let mut submission = engine.submit(request).await?;
    let mut predictions = Vec::with_capacity(window.len() - 1);
    while let Some(delta) = match submission.choices.first_mut() {
        Some(choice) => choice.next().await,
        None => None,
    } {
        predictions.extend(delta.prompt_logprobs.iter().filter_map(Prediction::new));
        if let Some(FinishReason::Error(failure)) = delta.finish {
            return Err(CliError::Ended(failure.to_string()));
        }
    }
    if predictions.len() + 1 != window.len() {
        let (got, wanted) = (predictions.len(), window.len() - 1);
        return Err(CliError::Ended(format!("{got} of {wanted} positions were predicted")));
    }
    bar.inc(1);
    Ok(predictions)
}

/// Returns the name of the model's format: that of its weights, and that of its activations if it
/// differs.
fn format_name(engine: &Engine) -> String {
    let loaded = engine.loaded();
    match &loaded.quantized_weights {
        None => format!("{:?}", loaded.dtype).to_lowercase(),
        Some(QuantizedWeights { format, activations }) => {
            format!("{format} by {}", activations.name())
        }
    }
}

fn table(measured: &Measured, against: Option<&Measured>) -> String {
    let (tokens, context) = (measured.predictions.len(), measured.context);
    let formats = [Some(measured), against].into_iter().flatten().map(|one| one.format.len());
    let width = formats.fold(14, usize::max);
    let mut lines = vec![
        format!("{tokens} tokens predicted, in windows of {context}"),
        format!("{:<width$} {:>24} {:>16}", "", "perplexity", "top-1 right"),
    ];
    for measured in [Some(measured), against].into_iter().flatten() {
        let score = Score::new(&measured.predictions);
        let perplexity = format!("{:.4} ± {:.4}", score.perplexity, score.perplexity_error);
        let right = format!("{:.2} %", 100.0 * score.top1_accuracy);
        lines.push(format!("{:<width$} {perplexity:>24} {right:>16}", measured.format));
    }
    if let Some(against) = against {
        let distance = Distance::new(&measured.predictions, &against.predictions);
        let agreement = 100.0 * distance.top1_agreement;
        lines.push(format!(
            "top-1 agreement {agreement:.2} %, log-probabilities differ by {:.4} on average",
            distance.mean_logprob_difference
        ));
    }
    lines.join("\n") + "\n"
}

fn report(args: &PerplexityArgs, measured: &Measured, against: Option<&Measured>) -> Value {
    let figures = |measured: &Measured| {
        let score = Score::new(&measured.predictions);
        json!({
            "format": measured.format,
            "perplexity": score.perplexity,
            "perplexity_error": score.perplexity_error,
            "top1_accuracy": score.top1_accuracy,
        })
    };
    let mut report = json!({
        "file": args.file,
        "tokens": measured.predictions.len(),
        "context": measured.context,
        "measured": figures(measured),
    });
    if let Some(against) = against {
        let distance = Distance::new(&measured.predictions, &against.predictions);
        report["against"] = figures(against);
        report["top1_agreement"] = distance.top1_agreement.into();
        report["mean_logprob_difference"] = distance.mean_logprob_difference.into();
    }
    report
}
