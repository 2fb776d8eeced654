//! The port to the grammars that constrain outputs.

use crate::logic::request::structured_output::StructuredOutput;

/// Compiles the grammars that constrain outputs. The compiled form stays behind the port and
/// outlives every actor. Executors find it there by the same [`StructuredOutput`].
pub trait GrammarCompiler: Send + Sync + 'static {
    /// Does the work that all grammars share, so that the first one does not wait for it. This may
    /// block for seconds. By default, there is none.
    fn prepare(&self) {}

    /// Compiles the grammar of `output`, unless it is compiled already. This may block for seconds,
    /// so it is called on threads of its own.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar cannot be compiled. Its text tells the client the reason.
    fn compile(&self, output: &StructuredOutput) -> Result<(), GrammarError>;
}

/// The reason why an output cannot be constrained in this way. The client may see the whole text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The text is not a valid schema, expression or grammar, or it needs an unsupported feature.
    #[error("{0}")]
    Invalid(String),
    /// The grammar is larger, or takes longer to compile, than is allowed.
    #[error("{0}")]
    TooLarge(String),
    /// The system did not give what compiling takes. It says nothing about the grammar.
    #[error("{0}")]
    System(String),
}
