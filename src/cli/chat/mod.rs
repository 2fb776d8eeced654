//! `playhouse chat`: a conversation on the terminal, in a pipe, or one question.
#![allow(clippy::print_stderr, reason = "hints and errors of a conversation go beside its text")]

mod command;
mod conversation;
mod input;

use std::io::IsTerminal;

use clap::Args;

use self::{
    command::{Command, HELP},
    conversation::{Answer, Conversation},
    input::{Input, Line},
};
use super::{
    CliError, engine,
    flags::{EngineFlags, SamplingFlags},
    interrupt::or_interrupt,
    output,
};
use crate::{config::EngineConfig, engine::Engine};

const EXAMPLES: &str = "\
Examples:
  playhouse chat                                   Talk to the demo model
  playhouse chat -m models/qwen3 --system-prompt \"Answer in one sentence.\"
  playhouse chat -q \"Who are you?\"                 Ask once and print the answer
  printf 'Hello\\nWho are you?\\n' | playhouse chat  A question a line

In a conversation: /system TEXT, /clear, /exit, /help. Ctrl-C stops an answer, Ctrl-D ends.";

/// Talk to a model.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChatArgs {
    /// Ask this, print the answer, and end
    #[arg(short = 'q', long, value_name = "PROMPT")]
    quick: Option<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Runs the conversation.
pub(crate) fn run(args: ChatArgs, config: EngineConfig) -> Result<(), CliError> {
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let conversation = Conversation::new(engine.clone(), args.sampling, args.system_prompt);
        let outcome = match &args.quick {
            Some(prompt) => ask_once(conversation, prompt).await,
            None => converse(conversation, &engine).await,
        };
        engine.shutdown().await;
        outcome
    })
}

async fn ask_once(mut conversation: Conversation, prompt: &str) -> Result<(), CliError> {
    match conversation.ask(prompt).await? {
        Answer::Complete => output::show("\n"),
        Answer::Stopped => Err(CliError::Interrupted),
    }
}

async fn converse(mut conversation: Conversation, engine: &Engine) -> Result<(), CliError> {
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        let name = engine.served_model_names().first().map_or("the model", String::as_str);
        eprintln!("Talking to {name}. /help shows what else can be typed.");
    }
    let mut input = if is_terminal { Input::terminal()? } else { Input::piped() };
    loop {
        match input.next().await? {
            Line::End => return Ok(()),
            Line::Interrupted => eprintln!("(Ctrl-D or /exit ends)"),
            Line::Text(line) => match Command::parse(&line) {
                Command::Nothing => {}
                Command::Exit => return Ok(()),
                Command::Help => eprintln!("{HELP}"),
                Command::Clear => conversation.clear(),
                Command::System(None) => eprintln!("{}", conversation.system().unwrap_or("(none)")),
                Command::System(Some(text)) => conversation.set_system(text),
                Command::Unknown(name) => eprintln!("unknown command {name}; {HELP}"),
                Command::Say(text) => say(&mut conversation, &text).await?,
            },
        }
    }
}

/// Asks and shows the answer. What goes wrong with one question does not end the conversation.
async fn say(conversation: &mut Conversation, text: &str) -> Result<(), CliError> {
    match conversation.ask(text).await {
        Ok(Answer::Complete) => output::show("\n"),
        Ok(Answer::Stopped) => output::show(" [stopped]\n"),
        Err(error @ (CliError::Request(_) | CliError::Ended(_))) => {
            error.report();
            Ok(())
        }
        Err(error) => Err(error),
    }
}
