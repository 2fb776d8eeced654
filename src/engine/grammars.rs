//! What compiles grammars: here, nothing does.

use playhouse_actors::{
    logic::structured_output::StructuredOutput,
    ports::{GrammarCompiler, GrammarError},
};

/// Refuses every grammar.
#[derive(Debug)]
pub(super) struct NoGrammars;

impl GrammarCompiler for NoGrammars {
    fn compile(&self, _: &StructuredOutput) -> Result<(), GrammarError> {
        let why = "structured outputs are not supported by this build";
        Err(GrammarError::Invalid(why.to_owned()))
    }
}
