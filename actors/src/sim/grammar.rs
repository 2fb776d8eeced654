//! The simulator's grammars: the tokens that a format allows, the time to compile it, and the
//! result. All of this is a function of the format.

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

/// Limit of the time to compile a grammar. Only a hanging grammar takes longer.
pub const GRAMMAR_TIMEOUT: Duration = Duration::from_millis(200);

/// Time to compile a hanging grammar: far above the limit, but finite. Otherwise an actor that dies
/// over it again and again would use up all threads.
const HANG: Duration = Duration::from_secs(1);
/// Texts for a bad grammar, for a grammar that breaks off, and for a panic of the compiler.
const INVALID: &str = "planned: this is no grammar";
const BREAKS_OFF: &str = "planned: nothing may come";
const PANIC: &str = "planned: the compiler panics";

/// The result of compiling a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It compiles.
    Good,
    /// It is invalid.
    Bad,
    /// The compiler panics.
    Panics,
    /// The compiler does not end in time.
    Hangs,
}

impl Nature {
    /// Returns a format of this nature. Different numbers give different formats.
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

    /// Returns the nature of a format.
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

/// Returns the failure of a request that asks for a format, if it fails.
#[must_use]
pub fn failure(output: &StructuredOutput) -> Option<Failure> {
    match Nature::of(output) {
        Nature::Good => None,
        Nature::Bad => Some(Failure::InvalidGrammar(INVALID.to_owned())),
        Nature::Panics => Some(Failure::GrammarCompiler(PANIC.to_owned())),
        Nature::Hangs => Some(takes_too_long(GRAMMAR_TIMEOUT)),
    }
}

/// Returns the time to compile a format.
#[must_use]
pub fn delay(output: &StructuredOutput) -> Duration {
    match Nature::of(output) {
        Nature::Hangs => HANG,
        _ => Duration::from_millis([0, 0, 1, 7, 60][digest(output) as usize % 5]),
    }
}

/// Returns whether a format allows `token` as output number `num_outputs` + 1 after `last`. After a
/// few tokens a format allows only the end.
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

/// Returns the message of a format that allows no token as output number `num_outputs` + 1 after
/// `last`, not even the end. Only some formats ever break off.
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

/// A compiler that treats each format by its nature.
#[derive(Debug, Default)]
pub struct Compiler {
    compiled: Mutex<BTreeSet<StructuredOutput>>,
}

impl Compiler {
    /// Returns whether the format is compiled, so that an executor finds it.
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
        // These are the workload's formats.
        let count = (0..4).filter(|&number| may_break_off(number)).count();
        assert!((1..4).contains(&count), "{count} of 4");
    }
}
