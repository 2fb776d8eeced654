//! The simulator's grammars: which tokens a format allows where, how long compiling it takes, and
//! what comes of it. All of it a function of the format.

use std::{collections::BTreeSet, time::Duration};

use parking_lot::Mutex;

use super::{rng::mix, vocabulary::EOS_TOKENS};
use crate::{
    logic::{
        grammar_jobs::takes_too_long,
        request::{
            failure::Failure,
            ids::TokenId,
            structured_output::{OutputFormat, StructuredOutput},
        },
    },
    ports::{GrammarCompiler, GrammarError},
};

/// How long compiling a grammar may take: longer than any takes that does not hang.
pub const GRAMMAR_TIMEOUT: Duration = Duration::from_millis(200);

/// What compiling a hanging grammar takes: far too long, but not for ever. Otherwise an actor that
/// dies again and again over it would at last find no thread for anybody, as it should.
const HANG: Duration = Duration::from_secs(1);
/// What is said of a bad grammar, of one that cannot go on, and when the compiler panics.
const INVALID: &str = "planned: this is no grammar";
const BREAKS_OFF: &str = "planned: nothing may come";
const PANIC: &str = "planned: the compiler panics";

/// What comes of compiling a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It compiles.
    Good,
    /// It is none.
    Bad,
    /// The compiler panics over it.
    Panics,
    /// The compiler does not come back in time.
    Hangs,
}

impl Nature {
    /// A format of this nature; those of different numbers differ.
    #[must_use]
    pub fn format(self, number: u64) -> StructuredOutput {
        match self {
            Self::Good => OutputFormat::Grammar(number.to_string()),
            Self::Bad => OutputFormat::JsonSchema(number.to_string()),
            Self::Panics => OutputFormat::Regex(number.to_string()),
            Self::Hangs => OutputFormat::StructuralTag(number.to_string()),
        }
        .into()
    }

    /// The nature of a format that has one.
    #[must_use]
    pub fn of(output: &StructuredOutput) -> Self {
        match output.format {
            OutputFormat::JsonSchema(_) => Self::Bad,
            OutputFormat::Regex(_) => Self::Panics,
            OutputFormat::StructuralTag(_) => Self::Hangs,
            _ => Self::Good,
        }
    }
}

/// How a request ends that asks for a format.
#[must_use]
pub fn failure(output: &StructuredOutput) -> Option<Failure> {
    match Nature::of(output) {
        Nature::Good => None,
        Nature::Bad => Some(Failure::InvalidGrammar(INVALID.to_owned())),
        Nature::Panics => Some(Failure::GrammarCompiler(PANIC.to_owned())),
        Nature::Hangs => Some(takes_too_long(GRAMMAR_TIMEOUT)),
    }
}

/// What compiling a format takes.
#[must_use]
pub fn delay(output: &StructuredOutput) -> Duration {
    match Nature::of(output) {
        Nature::Hangs => HANG,
        _ => Duration::from_millis([0, 0, 1, 7, 60][digest(output) as usize % 5]),
    }
}

/// Whether a format allows `token` as output number `num_outputs` + 1 after `last`. A few tokens
/// long, it then allows nothing but the end.
#[must_use]
pub fn allows(
    output: &StructuredOutput,
    token: TokenId,
    num_outputs: usize,
    last: Option<TokenId>,
) -> bool {
    let digest = digest(output);
    if num_outputs as u64 > digest % 12 {
        return token == EOS_TOKENS[0];
    }
    let place = mix(digest ^ mix(num_outputs as u64) ^ u64::from(last.unwrap_or_default()));
    !EOS_TOKENS.contains(&token) && (place % 3 + u64::from(token)).is_multiple_of(3)
}

/// What a format says that allows nothing more, not even the end, as output number `num_outputs` + 1
/// after `last`. Some formats may come to that.
#[must_use]
pub fn break_off(
    output: &StructuredOutput,
    num_outputs: usize,
    last: Option<TokenId>,
) -> Option<String> {
    let digest = digest(output);
    let place = mix(digest ^ mix(num_outputs as u64) ^ u64::from(last?)) / 3;
    (digest.is_multiple_of(2) && place.is_multiple_of(4)).then(|| BREAKS_OFF.to_owned())
}

fn digest(output: &StructuredOutput) -> u64 {
    let text = match &output.format {
        OutputFormat::Grammar(text) => text.as_str(),
        _ => "",
    };
    text.bytes().fold(mix(7), |digest, byte| mix(digest ^ u64::from(byte)))
}

/// Compiles formats after their nature.
#[derive(Debug, Default)]
pub struct Compiler {
    compiled: Mutex<BTreeSet<StructuredOutput>>,
}

impl Compiler {
    /// Whether an executor finds it.
    pub fn has(&self, output: &StructuredOutput) -> bool {
        self.compiled.lock().contains(output)
    }
}

impl GrammarCompiler for Compiler {
    fn compile(&self, output: &StructuredOutput) -> Result<(), GrammarError> {
        match Nature::of(output) {
            Nature::Bad => return Err(GrammarError::Invalid(INVALID.to_owned())),
            Nature::Panics => std::panic::resume_unwind(Box::new(PANIC.to_owned())),
            Nature::Good | Nature::Hangs => {}
        }
        self.compiled.lock().insert(output.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_formats_that_compile_break_off() {
        let may_break_off = |number: u64| {
            let format = Nature::Good.format(number);
            (1..20).any(|num_outputs| break_off(&format, num_outputs, Some(7)).is_some())
        };
        // The workload's formats.
        let count = (0..4).filter(|&number| may_break_off(number)).count();
        assert!((1..4).contains(&count), "{count} of 4");
    }
}
