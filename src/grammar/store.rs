//! Compiled grammars, kept for the requests that use them.

use std::{
    collections::VecDeque,
    hash::Hash,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, OnceLock},
    thread,
};

use indexmap::IndexMap;
use llguidance::{
    Logger, ParserFactory, TokenParser,
    api::{GrammarInit, ParserLimits, TopLevelGrammar},
    toktrie::InferenceCapabilities,
};
use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::{ids::TokenId, structured_output::StructuredOutput},
    ports::{GrammarCompiler, GrammarError, TextCodec},
};

use super::{compile, matcher::Matcher, vocabulary::Vocabulary};

/// Most grammars that are kept.
const MAX_GRAMMARS: usize = 256;
/// Most bytes of all kept grammars, including the states of their lexers.
const MAX_BYTES: usize = 512 << 20;
/// A lexer's states take up to 2 kB each, and are shared by all outputs of a grammar.
const MAX_LEXER_STATES: usize = 50_000;
/// Rules may refer to one another in long chains, which the compiler follows by recursion.
const STACK_BYTES: usize = 256 << 20;

/// Compiles grammars for one model, and keeps those used last.
pub(crate) struct GrammarStore {
    codec: Arc<dyn TextCodec>,
    vocab_size: u32,
    eos_token_ids: Vec<TokenId>,
    /// The default for formats that do not say.
    disable_any_whitespace: bool,
    /// Whether schemas are closed where their parts can be read alone.
    disable_additional_properties: bool,
    /// Built for the first grammar, because most servers see none and it walks over a large
    /// vocabulary.
    compiler: OnceLock<Result<Compiler, GrammarError>>,
    /// The most recently used comes last.
    compiled: Mutex<IndexMap<StructuredOutput, TokenParser>>,
}

struct Compiler {
    vocabulary: Vocabulary,
    factory: ParserFactory,
}

impl GrammarStore {
    /// Returns an empty store. `vocab_size` is the model's number of logits, and `eos_token_ids`
    /// are the tokens that end its outputs.
    pub(crate) fn new(
        codec: Arc<dyn TextCodec>,
        vocab_size: u32,
        eos_token_ids: Vec<TokenId>,
    ) -> Self {
        Self {
            codec,
            vocab_size,
            eos_token_ids,
            disable_any_whitespace: true,
            disable_additional_properties: false,
            compiler: OnceLock::new(),
            compiled: Mutex::default(),
        }
    }

    /// Sets whether JSON is compact if a format does not say. The default is compact.
    #[must_use]
    pub(crate) fn with_any_whitespace_disabled(self, is_disabled: bool) -> Self {
        Self { disable_any_whitespace: is_disabled, ..self }
    }

    /// Sets whether objects have only the properties of their schema, where its parts can be read
    /// alone. The default is that they may have others.
    #[must_use]
    pub(crate) fn with_additional_properties_disabled(self, is_disabled: bool) -> Self {
        Self { disable_additional_properties: is_disabled, ..self }
    }

    /// Returns a matcher at the beginning of an output. The grammar is compiled unless it is kept.
    ///
    /// # Errors
    /// As [`GrammarCompiler::compile`].
    pub(crate) fn matcher(&self, output: &StructuredOutput) -> Result<Matcher, GrammarError> {
        let mut compiled = self.compiled.lock();
        let found = compiled.shift_remove_entry(output);
        if let Some((output, parser)) = found {
            let matcher = Matcher::new(parser.clone());
            compiled.insert(output, parser);
            return Ok(matcher);
        }
        drop(compiled);
        let parser = self.compile_anew(output)?;
        let matcher = Matcher::new(parser.clone());
        let mut compiled = self.compiled.lock();
        compiled.shift_remove(output);
        compiled.insert(output.clone(), parser);
        evict(&mut compiled, num_bytes);
        Ok(matcher)
    }

    /// Returns a matcher from a newly compiled grammar, and forgets the kept one. All matchers of a
    /// grammar share the states of its lexer. So the others may have caused a matcher's failure.
    /// The new grammar is not kept, because it may fail too.
    ///
    /// # Errors
    /// As [`GrammarCompiler::compile`].
    pub(crate) fn fresh_matcher(&self, output: &StructuredOutput) -> Result<Matcher, GrammarError> {
        self.compiled.lock().shift_remove(output);
        self.compile_anew(output).map(Matcher::new)
    }

    /// Returns guesses of the next tokens, because the grammar leaves no choice about their text.
    /// The model may write the same text with other tokens.
    pub(crate) fn forced_tokens(&self, matcher: &Matcher) -> Vec<TokenId> {
        let forced = matcher.forced_bytes();
        let Some(Ok(Compiler { vocabulary, .. })) = self.compiler.get() else { return Vec::new() };
        if forced.is_empty() {
            return Vec::new();
        }
        // As the tokenizer writes it, unless it adds to a text that begins within another.
        let text = std::str::from_utf8(&forced).ok();
        let encoded = text.and_then(|text| self.codec.encode(text, false).ok());
        let is_exact = |tokens: &Vec<TokenId>| {
            let bytes = tokens.iter().flat_map(|&token| self.codec.token_bytes(token));
            bytes.eq(forced.iter().copied())
        };
        encoded
            .filter(is_exact)
            .unwrap_or_else(|| vocabulary.tokens.tok_trie().greedy_tokenize(&forced))
    }

    fn compile_anew(&self, output: &StructuredOutput) -> Result<TokenParser, GrammarError> {
        let whitespace = output.disable_any_whitespace.unwrap_or(self.disable_any_whitespace);
        let output =
            &StructuredOutput { disable_any_whitespace: Some(whitespace), ..output.clone() };
        let compile = || {
            let made = self.compiler.get_or_init(|| self.compiler());
            let Compiler { vocabulary, factory } = made.as_ref().map_err(Clone::clone)?;
            let closes = self.disable_additional_properties;
            compiled(factory, compile::grammar(output, closes, vocabulary)?)
        };
        on_thread(STACK_BYTES, compile)
    }

    fn compiler(&self) -> Result<Compiler, GrammarError> {
        let vocabulary = Vocabulary::new(&*self.codec, self.vocab_size, &self.eos_token_ids)?;
        let mut factory = ParserFactory::new_simple(&vocabulary.tokens)
            .map_err(|error| GrammarError::Invalid(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_lexer_states: MAX_LEXER_STATES,
            // An output's text is private, so it must not stand in the log.
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Compiler { vocabulary, factory })
    }

    #[cfg(test)]
    pub(super) fn num_compiled(&self) -> usize {
        self.compiled.lock().len()
    }
}

impl GrammarCompiler for GrammarStore {
    fn prepare(&self) {
        // Its error is that of the first grammar.
        let _ = on_thread(STACK_BYTES, || {
            let _ = self.compiler.get_or_init(|| self.compiler());
            Ok(())
        });
    }

    fn compile(&self, output: &StructuredOutput) -> Result<(), GrammarError> {
        self.matcher(output).map(drop)
    }
}

impl std::fmt::Debug for GrammarStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarStore").finish_non_exhaustive()
    }
}

/// Runs `compile` on a thread with a stack of `stack_bytes`.
fn on_thread<T: Send>(
    stack_bytes: usize,
    compile: impl FnOnce() -> Result<T, GrammarError> + Send,
) -> Result<T, GrammarError> {
    thread::scope(|scope| {
        let name = "playhouse-grammar".to_owned();
        let deep = thread::Builder::new().name(name).stack_size(stack_bytes);
        let thread = deep.spawn_scoped(scope, compile).map_err(|error| {
            GrammarError::System(format!("the system gives no thread to compile on: {error}"))
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(GrammarError::Invalid("the grammar cannot be compiled".to_owned()))
        })
    })
}

fn compiled(
    factory: &ParserFactory,
    grammar: TopLevelGrammar,
) -> Result<TokenParser, GrammarError> {
    let init = GrammarInit::Serialized(grammar);
    let (capabilities, limits) = (InferenceCapabilities::default(), factory.limits().clone());
    let parser = factory
        .create_parser_from_init_ext(init, Logger::new(0, 0), capabilities, limits)
        .map_err(|error| compile::refusal(&error.to_string()))?;
    Ok(parser)
}

/// Returns the bytes that a grammar takes. `None` if it cannot be used, because a panic has left
/// its lexer locked.
fn num_bytes(parser: &TokenParser) -> Option<usize> {
    panic::catch_unwind(AssertUnwindSafe(|| parser.parser.lexer_stats().num_bytes)).ok()
}

/// Removes grammars that cannot be used, then those that were unused for longest.
fn evict<K: Hash + Eq, V>(compiled: &mut IndexMap<K, V>, num_bytes: impl Fn(&V) -> Option<usize>) {
    // Each size is read once, because lexers grow while others use them.
    let mut sizes: VecDeque<usize> = VecDeque::with_capacity(compiled.len());
    compiled.retain(|_, entry| {
        let size = num_bytes(entry);
        sizes.extend(size);
        size.is_some()
    });
    let mut total = sizes.iter().copied().fold(0, usize::saturating_add);
    while compiled.len() > MAX_GRAMMARS || (total > MAX_BYTES && compiled.len() > 1) {
        compiled.shift_remove_index(0);
        total = total.saturating_sub(sizes.pop_front().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sizes: &[Option<usize>]) -> Vec<usize> {
        let mut compiled: IndexMap<usize, Option<usize>> =
            sizes.iter().copied().enumerate().collect();
        evict(&mut compiled, |size| *size);
        compiled.into_keys().collect()
    }

    #[test]
    fn recently_used_grammars_are_kept_within_the_limits() {
        let half = Some(MAX_BYTES / 2);
        assert_eq!(kept(&[half, half]), [0, 1]);
        assert_eq!(kept(&[half, half, Some(1)]), [1, 2]);
        assert_eq!(kept(&[Some(1), Some(usize::MAX)]), [1], "one, however large");
        let many = [Some(1); MAX_GRAMMARS + 2];
        assert_eq!(kept(&many)[..2], [2, 3]);
    }

    #[test]
    fn a_thread_that_the_system_refuses_is_no_fault_of_the_grammar() {
        // More than an address space has.
        let refused = on_thread(1 << 50, || Ok(()));
        assert!(matches!(refused, Err(GrammarError::System(_))), "{refused:?}");
        assert_eq!(on_thread(1 << 20, || Ok(7)), Ok(7));
    }

    #[test]
    fn failed_grammars_are_not_kept() {
        assert_eq!(kept(&[None, Some(1), None]), [1]);
        assert_eq!(kept(&[None]), [0; 0]);
    }

    #[test]
    fn a_fresh_grammar_replaces_the_kept_one() {
        let store = crate::grammar::tests::store();
        let output = StructuredOutput::from(
            playhouse_actors::logic::request::structured_output::OutputFormat::JsonObject,
        );
        store.matcher(&output).unwrap();
        assert_eq!(store.num_compiled(), 1);
        store.fresh_matcher(&output).unwrap();
        assert_eq!(store.num_compiled(), 0);
    }
}
