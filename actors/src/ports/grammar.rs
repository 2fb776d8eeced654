//! The port to the grammars that constrain outputs.

use crate::logic::structured_output::StructuredOutput;

/// Compiles what constrains an output. The compiled form stays behind the port, where executors
/// find it by the same [`StructuredOutput`]: it outlives every actor.
pub trait GrammarCompiler: Send + Sync + 'static {
    /// Compiles it, or finds it compiled. Blocks, for seconds at worst: called on threads of its
    /// own.
    ///
    /// # Errors
    /// [`GrammarError`] tells the client what is wrong.
    fn compile(&self, output: &StructuredOutput) -> Result<(), GrammarError>;
}

/// Why an output cannot be constrained so. All of it is the client's to see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// It is no schema, expression or grammar, or one that needs what is not supported.
    #[error("{0}")]
    Invalid(String),
    /// It is larger, or takes longer to compile, than is allowed.
    #[error("{0}")]
    TooLarge(String),
}
