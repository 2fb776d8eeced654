//! Formats of structured outputs: every format of a client is compiled or rejected in bounded time.
//! Each compiled format can be walked.
//!
//! An input is a byte that picks the format (`s`, `o`, `r`, `c`, `g`, `t`), a byte of options, and
//! the text of the format. Each line of the text is one choice of `c`.
#![no_main]

// The modules are included. A dependency on the crate would build and instrument its tensors
// without need.
#[allow(dead_code, unused_imports, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/grammar/mod.rs"]
mod grammar;

use std::{
    panic,
    sync::{Arc, LazyLock, Once},
    time::{Duration, Instant},
};

use grammar::GrammarStore;
use libfuzzer_sys::fuzz_target;
use playhouse_actors::{logic::request::structured_output::{OutputFormat, StructuredOutput}, ports::{ChatPrompt, DecodeOptions, GrammarError, IncrementalDecoder, TextCodec, TextError}};

const EOS: u32 = 256;
const VOCAB_SIZE: u32 = 260;
/// Tokens of one walk.
const STEPS: usize = 24;
/// Longest time for one input, instrumented and beside other processes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tokenizer with a token a byte, and one that ends outputs.
struct Bytes;

impl TextCodec for Bytes {
    fn vocab_size(&self) -> usize {
        257
    }

    fn encode(&self, text: &str, _add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32], _skip_special_tokens: bool) -> Result<String, TextError> {
        let bytes: Vec<u8> = tokens.iter().filter_map(|&token| token.try_into().ok()).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token_text(&self, token: u32) -> String {
        self.decode(&[token], false).unwrap_or_default()
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        u8::try_from(token).into_iter().collect()
    }

    fn token_piece(&self, token: u32) -> Option<String> {
        match token {
            EOS => Some("</s>".to_owned()),
            token => char::from_u32(token).filter(|_| token < EOS).map(String::from),
        }
    }

    fn eos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn bos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn is_special(&self, token: u32) -> bool {
        token == EOS
    }

    fn render_chat(&self, _chat: &ChatPrompt) -> Result<String, TextError> {
        Err(TextError::NoChatTemplate)
    }

    fn decoder(&self, _prompt: &[u32], _options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        unreachable!("grammars decode nothing")
    }
}

static STORE: LazyLock<GrammarStore> =
    LazyLock::new(|| GrammarStore::new(Arc::new(Bytes), VOCAB_SIZE, vec![EOS]));

/// Sets a hook that only prints. The fuzzer's own hook would end it at every panic, also at those
/// that the grammar library turns into errors. A panic that leaves our code still ends the fuzzer.
fn contain_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
}

fn output(kind: u8, options: u8, text: &str) -> Option<StructuredOutput> {
    let format = match kind {
        b's' => OutputFormat::JsonSchema(text.to_owned()),
        b'o' => OutputFormat::JsonObject,
        b'r' => OutputFormat::Regex(text.to_owned()),
        b'c' => OutputFormat::Choice(text.lines().map(str::to_owned).collect()),
        b'g' => OutputFormat::Grammar(text.to_owned()),
        b't' => OutputFormat::StructuralTag(text.to_owned()),
        _ => return None,
    };
    Some(StructuredOutput {
        disable_any_whitespace: Some(options & 1 != 0),
        disable_additional_properties: options & 2 != 0,
        format,
    })
}

/// Walks: takes one of the allowed tokens again and again, as `choices` says.
fn walk(output: &StructuredOutput, choices: &[u8]) -> Result<(), GrammarError> {
    let mut matcher = STORE.matcher(output)?;
    for choice in choices.iter().cycle().take(STEPS) {
        let mask = matcher.mask()?;
        let bit = |token: &u32| mask.words()[*token as usize / 32] >> (token % 32) & 1 == 1;
        let allowed: Vec<u32> = (0..VOCAB_SIZE).filter(bit).collect();
        assert!(!allowed.is_empty(), "no token may come");
        assert!(allowed.iter().all(|token| *token <= EOS), "a token without bytes may come");
        matcher.consume(&[allowed[*choice as usize % allowed.len()]])?;
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    contain_panics();
    let Some(([kind, options], text)) = data.split_first_chunk::<2>() else { return };
    let text = String::from_utf8_lossy(text);
    let Some(output) = output(*kind, *options, &text) else { return };
    let start = Instant::now();
    // A format may be rejected. It must not panic or run without end.
    let _ = walk(&output, data);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
});
