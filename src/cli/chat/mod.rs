//! `playhouse chat`: a conversation on the terminal, in a pipe, or one question.

mod answer;
mod command;
mod conversation;
mod display;
mod entry;
mod history;
mod input;
mod markdown;
mod remote;
mod transcript;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};

use self::{
    command::{Command, HELP},
    conversation::{Conversation, Model},
    display::Display,
    history::History,
    input::{Input, Line},
    remote::Remote,
};
use super::{
    CliError, engine,
    flags::{EngineFlags, SamplingFlags},
    interrupt::or_interrupt,
    output::{self, Format},
    style::Style,
};
use crate::api::FinishReason;
use crate::config::{EngineConfig, Key, Origin, layer::Entry};

const EXAMPLES: &str = "\
Examples:
  playhouse chat                                   Talk to the demo model
  playhouse chat Qwen/Qwen3-0.6B                   Talk to a model by name; it is fetched once
  playhouse chat models/qwen3 --system-prompt \"Answer in one sentence.\"
  playhouse chat --url http://127.0.0.1:8000       Talk to the model of a running server
  playhouse chat --load talk.json                  Go on from a conversation that was saved
  playhouse chat -q \"Who are you?\"                 Ask once and print the answer
  playhouse chat -q \"Who are you?\" --output json   The same, for programs
  printf 'Hello\\nWho are you?\\n' | playhouse chat  A question a line

In a conversation: /help shows the commands, Ctrl-C stops an answer, Ctrl-D ends. Entries on a
terminal are kept in ~/.local/state/playhouse/chat_history ($XDG_STATE_HOME). Only their user can
read them.";

/// Talk to a model.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChatArgs {
    /// Folder of a Hugging Face model, a GGUF file, or a name (org/name); the same as --model
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    folder: Option<String>,
    /// Ask this, print the answer, and end
    #[arg(short = 'q', long, value_name = "PROMPT")]
    quick: Option<String>,
    /// Talk to a running server of OpenAI's API, and load no model; OPENAI_API_KEY is its key
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Instructions to the model before the conversation
    #[arg(long, visible_alias = "system", value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Go on from the conversation in this file, as /save writes it
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Whether the model thinks before it answers, if it can [default: as its template has it]
    #[arg(long, value_name = "WORD", value_enum)]
    thinking: Option<Switch>,
    /// Format of the answer to -q; in json it comes complete, with its thoughts and token counts
    #[arg(long, value_enum, default_value_t, requires = "quick")]
    output: Format,
    /// Do not keep entries
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    engine: EngineFlags,
}

impl ChatArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut all = self.engine.entries();
        all.extend(self.folder.iter().map(|folder| Entry {
            key: Key::new("engine", "model"),
            value: folder.clone().into(),
            origin: Origin::Flag("MODEL".to_owned()),
        }));
        all
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the conversation.
pub(crate) fn run(args: ChatArgs, config: EngineConfig) -> Result<(), CliError> {
    engine::run(async {
        if let Some(url) = &args.url {
            let chosen = (config.model != EngineConfig::default().model).then_some(config.model);
            let chosen = chosen.map(|model| model.to_string_lossy().into_owned());
            let remote = or_interrupt(Remote::open(url, chosen)).await?;
            return talk(Model::There(Box::new(remote)), args).await;
        }
        let engine = or_interrupt(engine::start(config)).await?;
        let outcome = talk(Model::of_engine(engine.clone()), args).await;
        engine.shutdown().await;
        outcome
    })
}

async fn talk(model: Model, args: ChatArgs) -> Result<(), CliError> {
    let thinking = args.thinking.map(|switch| switch == Switch::On);
    let mut conversation =
        Conversation::new(model, args.sampling, args.system_prompt.clone(), thinking);
    if let Some(path) = &args.load {
        conversation.load(path)?;
        if let Some(system) = args.system_prompt {
            conversation.set_system(system);
        }
    }
    match &args.quick {
        Some(prompt) => ask_once(conversation, prompt, args.output).await,
        None => converse(conversation, !args.no_history).await,
    }
}

async fn ask_once(
    mut conversation: Conversation,
    prompt: &str,
    format: Format,
) -> Result<(), CliError> {
    let mut display = match format {
        Format::Text => Display::new(),
        Format::Json => Display::silent(),
    };
    let answer = conversation.ask(prompt, &mut display).await?;
    match (&answer.finish, format) {
        (None, _) => Err(CliError::Interrupted),
        (Some(_), Format::Text) => output::show("\n"),
        (Some(_), Format::Json) => output::show_json(&answer.to_json()),
    }
}

async fn converse(mut conversation: Conversation, keeps_history: bool) -> Result<(), CliError> {
    let is_terminal = std::io::stdin().is_terminal();
    let mut input = match is_terminal {
        true => {
            let name = conversation.model_name();
            output::tell(format_args!("Talking to {name}. /help shows the commands, Ctrl-D ends."));
            let history = keeps_history.then(History::of_user).flatten();
            Input::terminal(history)?
        }
        false => Input::piped()?,
    };
    loop {
        match input.next().await? {
            Line::End => return Ok(()),
            Line::Interrupted => hint("(Ctrl-D or /exit ends)"),
            Line::Text(entry) => match Command::parse(&entry) {
                Command::Exit => return Ok(()),
                command => survive(obey(&mut conversation, command).await)?,
            },
        }
    }
}

/// Runs a command.
async fn obey(conversation: &mut Conversation, command: Command) -> Result<(), CliError> {
    match command {
        Command::Nothing | Command::Exit => {}
        Command::Help => output::tell(HELP),
        Command::Clear => conversation.clear(),
        Command::Stats => output::tell(conversation.stats()),
        Command::System(None) => output::tell(conversation.system().unwrap_or("(none)")),
        Command::System(Some(text)) => conversation.set_system(text),
        Command::Think(thinking) => conversation.set_thinking(thinking),
        Command::Set(None) => output::tell(conversation.sampling()),
        Command::Set(Some((name, value))) => {
            conversation.sampling().set(&name, &value).map_err(CliError::Entry)?;
        }
        Command::Save(path) => {
            conversation.save(&file(&path))?;
            hint(&format!("(saved to {path}; /load {path} goes on from it)"));
        }
        Command::Load(path) => {
            conversation.load(&file(&path))?;
            hint(&format!("(loaded {path})"));
        }
        Command::Incomplete(usage) => {
            return Err(CliError::Entry(format!("something is missing: {usage}")));
        }
        Command::Unknown(name) => output::tell(format_args!("unknown command {name}\n{HELP}")),
        Command::Retry => match conversation.take_back() {
            Some(question) => say(conversation, &question).await?,
            None => hint("(there is no question to answer again)"),
        },
        Command::Say(text) => say(conversation, &text).await?,
    }
    Ok(())
}

/// Returns the path that was typed, with `~/` replaced as in shells.
fn file(typed: &str) -> PathBuf {
    match (typed.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(typed),
    }
}

/// Sends a message and shows the answer.
async fn say(conversation: &mut Conversation, text: &str) -> Result<(), CliError> {
    let answer = conversation.ask(text, &mut Display::new()).await?;
    output::show(if answer.finish.is_some() { "\n" } else { " [stopped]\n" })?;
    if answer.finish == Some(FinishReason::Length) && std::io::stdin().is_terminal() {
        hint("(cut off: max_tokens, or the context's end; /stats, /set max_tokens N, /clear)");
    }
    Ok(())
}

/// Shows an error that is about one entry, because it does not end the conversation. Returns other
/// errors.
fn survive(outcome: Result<(), CliError>) -> Result<(), CliError> {
    match outcome {
        Err(error) if error.is_about_one_entry() => {
            error.report();
            Ok(())
        }
        outcome => outcome,
    }
}

/// Shows a text that is not part of the conversation.
fn hint(text: &str) {
    output::tell(Style::of(&std::io::stderr()).dim(text));
}
