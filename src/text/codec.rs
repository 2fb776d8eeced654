//! [`HfTextCodec`]: a model folder's tokenizer and chat template as the engine's `TextCodec`.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_actors::logic::input::{
    encoder_text::EncoderText, fit::TruncationSide, languages::Languages,
};
use playhouse_actors::logic::request::ids::TokenId;
use playhouse_actors::ports::{
    ChatPrompt, DecodeOptions, IncrementalDecoder, MediaProcessor, TextCodec, TextError,
    TokenizedChunks, TokenizedPair,
};
use tokenizers::{
    Encoding, NormalizerWrapper, OffsetType, PostProcessor, PostProcessorWrapper, Tokenizer,
    TruncationParams, truncate_encodings,
};

use super::chat_template::{ChatTemplates, ContentFormat};
use super::chunks;
use super::class_tokenizer::{ClassFolder, PieceTokenizer};
use super::cuts::{self, Cuts};
use super::decoder::{self, Family};
use super::error::TextLoadError;
use super::languages;
use super::tokenizer_files::TokenizerFiles;
use super::{gguf_tokenizer, special_tokens, tekken};
use crate::gguf::{GgufFile, is_gguf};
use crate::{model_files, module_list};

/// The tokenizer of a Hugging Face model folder or of a GGUF file. Cheap to clone.
#[derive(Clone)]
pub struct HfTextCodec {
    tokenizer: Arc<Tokenizer>,
    /// Cuts texts in the place of the tokenizer's own model, if that only looks tokens up.
    pieces: Option<Arc<PieceTokenizer>>,
    family: Family,
    /// Places where long texts may be cut, if there are any.
    cuts: Option<Arc<Cuts>>,
    chat_templates: Arc<ChatTemplates>,
    bos_token: Option<(String, TokenId)>,
    eos_token: Option<(String, TokenId)>,
    pad_token: Option<TokenId>,
    /// The token with the largest id.
    last_token: Option<(String, TokenId)>,
    /// The same among the tokens that were not added to the vocabulary.
    last_own_token: Option<(String, TokenId)>,
    max_token_bytes: usize,
    /// Whether texts become lower case before they are tokenized: `do_lower_case` of
    /// sentence-transformers.
    lowers_case: bool,
    /// Whether the model reads no types of tokens.
    omits_types: bool,
    /// The processor of the model's images and sounds, if the model takes some.
    media: Option<Arc<dyn MediaProcessor>>,
    /// The facts about the model's encoder, if prompts are its texts.
    encoder_text: Option<Arc<EncoderText>>,
}

impl HfTextCodec {
    /// Reads the tokenizer in the GGUF file `model`, or `tokenizer.json` in the folder `model`.
    /// Without that file, Mistral's `tekken.json` or the files of a class. In a folder, it also
    /// reads `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and
    /// `chat_template.jinja` where they exist.
    ///
    /// Of a `StaticEmbedding` of sentence-transformers, it is the `tokenizer.json` beside the table
    /// alone, and no special tokens are added.
    ///
    /// Truncation and padding set in `tokenizer.json` do not apply, because the engine limits
    /// lengths.
    ///
    /// # Errors
    /// A missing `tokenizer.json`, a kind of tokenizer that is not read from GGUF files, and every
    /// fault in these files, with the file's name. A chat template that does not compile is an
    /// error only of the requests that need it.
    pub fn load(model: &Path) -> Result<Self, TextLoadError> {
        if is_gguf(model) {
            let (tokenizer, pieces, files) = gguf_tokenizer::read(&GgufFile::open(model)?)?;
            return Self::assemble(tokenizer, pieces, &files, model);
        }
        if let Some(folder) = module_list::static_embedding(model) {
            let path = folder.join("tokenizer.json");
            let mut tokenizer = read_tokenizer(&path)?;
            tokenizer.with_post_processor(None::<PostProcessorWrapper>);
            return Self::assemble(tokenizer, None, &TokenizerFiles::default(), &path);
        }
        let (path, tekken) = (model.join("tokenizer.json"), model.join(tekken::FILE));
        if !model_files::exists(&path) && model_files::exists(&tekken) {
            let mut files = TokenizerFiles::read(model)?;
            let tokenizer = tekken::read(model, &mut files)?;
            return Self::assemble(tokenizer, None, &files, &tekken);
        }
        if !model_files::exists(&path)
            && let Some(class) = ClassFolder::find(model)?
        {
            let mut files = TokenizerFiles::read(model)?;
            let (tokenizer, pieces) = class.read(&mut files)?;
            return Self::assemble(tokenizer, pieces, &files, model);
        }
        Self::assemble(read_tokenizer(&path)?, None, &TokenizerFiles::read(model)?, &path)
    }

    /// Returns whether the folder `model` has the file of a tokenizer.
    #[must_use]
    pub fn is_in(model: &Path) -> bool {
        let exists = |file: &&str| model_files::exists(&model.join(file));
        let of_class =
            || ClassFolder::find(model).ok().flatten().is_some_and(|it| it.is_complete());
        let of_table = || module_list::static_embedding(model).is_some();
        ["tokenizer.json", tekken::FILE].iter().any(exists) || of_class() || of_table()
    }

    fn assemble(
        mut tokenizer: Tokenizer,
        pieces: Option<PieceTokenizer>,
        files: &TokenizerFiles,
        path: &Path,
    ) -> Result<Self, TextLoadError> {
        if let Some(bert) = files.bert {
            bert.apply(&mut tokenizer, path)?;
        }
        if let Some(rules) = files.rules {
            rules.apply(&mut tokenizer, path)?;
        }
        special_tokens::apply(&mut tokenizer, files, path)?;
        let named = |name: &str| {
            let content = files.named_tokens.get(name)?;
            Some((content.clone(), tokenizer.token_to_id(content)?))
        };
        let vocab = tokenizer.get_vocab(true);
        Ok(Self {
            // The vocabulary's spelling of a token is at least as long as its text.
            max_token_bytes: vocab.keys().map(String::len).max().unwrap_or(0),
            bos_token: named("bos_token"),
            eos_token: named("eos_token"),
            pad_token: named("pad_token").map(|(_, id)| id),
            last_token: vocab.into_iter().max_by_key(|&(_, id)| id),
            last_own_token: tokenizer.get_vocab(false).into_iter().max_by_key(|&(_, id)| id),
            family: Family::of(&tokenizer),
            cuts: if pieces.is_some() { None } else { Cuts::read(&tokenizer).map(Arc::new) },
            pieces: pieces.map(Arc::new),
            chat_templates: Arc::new(ChatTemplates::new(files)),
            lowers_case: files.lowers_case,
            omits_types: files.omits_types,
            media: None,
            encoder_text: None,
            tokenizer: Arc::new(tokenizer),
        })
    }

    /// Returns the same codec with `source` as its only chat template.
    #[must_use]
    pub fn with_chat_template(mut self, source: String) -> Self {
        self.chat_templates = Arc::new(self.chat_templates.replaced_by(source));
        self
    }

    /// Returns the same codec with the processor of the model's images and sounds.
    #[must_use]
    pub fn with_media(mut self, media: Arc<dyn MediaProcessor>) -> Self {
        self.media = Some(media);
        self
    }

    /// Returns the same codec of a model whose encoder takes the prompts.
    #[must_use]
    pub fn with_encoder_text(mut self, text: EncoderText) -> Self {
        self.encoder_text = Some(Arc::new(text));
        self
    }

    /// Returns the languages of texts and outputs whose tokens are below `vocab_size`, if there are
    /// tokens of languages.
    #[must_use]
    pub fn languages(&self, vocab_size: u32) -> Option<Languages> {
        languages::find(self, self.tokenizer.get_vocab(true), vocab_size)
    }

    /// Returns the same codec, and without the processor unless the model `encodes` what it makes.
    #[must_use]
    pub fn with_media_if(mut self, encodes: bool) -> Self {
        self.media = self.media.filter(|_| encodes);
        self
    }

    /// Returns the sources of the chat templates: the default one first, then the others by name.
    #[must_use]
    pub fn chat_templates(&self) -> Vec<String> {
        self.chat_templates.sources()
    }

    /// Compares the tokenizer with the model that it is for, whose embedding has `model_vocab_size`
    /// rows. More rows than tokens are usual. Added tokens may lack rows, for example that of
    /// images in Gemma 3 1B. A prompt with one of them is rejected.
    ///
    /// # Errors
    /// [`TextLoadError::VocabTooLarge`] when a token that was not added has an id without a row.
    pub fn check_vocab(&self, model_vocab_size: usize) -> Result<(), TextLoadError> {
        let lacks_row = |(_, id): &&(String, TokenId)| *id as usize >= model_vocab_size;
        if let Some((token, id)) = self.last_own_token.as_ref().filter(lacks_row) {
            let (token, id) = (token.clone(), *id);
            return Err(TextLoadError::VocabTooLarge { token, id, model_vocab_size });
        }
        if let Some((token, id)) = self.last_token.as_ref().filter(lacks_row) {
            tracing::warn!(
                token,
                id,
                model_vocab_size,
                "the tokenizer has an added token that the model has no embedding for"
            );
        }
        Ok(())
    }

    /// Returns a text in the case in which it is tokenized.
    fn cased<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.lowers_case {
            true => Cow::Owned(text.to_lowercase()),
            false => Cow::Borrowed(text),
        }
    }

    /// Returns the tokens of a text with their places.
    fn encoding(&self, text: &str, add_special_tokens: bool) -> tokenizers::Result<Encoding> {
        let Some(pieces) = &self.pieces else {
            return self.tokenizer.encode(text, add_special_tokens);
        };
        let added = self.tokenizer.get_added_vocabulary();
        let mut parts = added.extract_and_normalize::<NormalizerWrapper>(None, text);
        parts.tokenize(|part| Ok(pieces.tokens(part.get())))?;
        let encoding = parts.into_encoding(None, 0, OffsetType::Byte)?;
        self.tokenizer.post_process(encoding, None, add_special_tokens)
    }

    /// Returns the tokens of a text, and their places only if that costs nothing.
    fn encoding_fast(&self, text: &str, add_special_tokens: bool) -> tokenizers::Result<Encoding> {
        match self.pieces {
            Some(_) => self.encoding(text, add_special_tokens),
            None => self.tokenizer.encode_fast(text, add_special_tokens),
        }
    }

    /// Returns whether the model's chat template takes message content as text or as a list of
    /// parts. [`TextCodec::render_chat`] converts either form.
    #[must_use]
    pub fn content_format(&self) -> ContentFormat {
        self.chat_templates.content_format()
    }
}

impl TextCodec for HfTextCodec {
    fn media(&self) -> Option<&Arc<dyn MediaProcessor>> {
        self.media.as_ref()
    }

    fn encoder_text(&self) -> Option<&Arc<EncoderText>> {
        self.encoder_text.as_ref()
    }

    fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError> {
        let encoding = self.encoding_fast(&self.cased(text), add_special_tokens);
        encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(tokenizer_error)
    }

    fn encode_pair(
        &self,
        first: &str,
        second: &str,
        add_special_tokens: bool,
        most_tokens: Option<usize>,
    ) -> Result<TokenizedPair, TextError> {
        let encode =
            |text: &str| self.encoding_fast(&self.cased(text), false).map_err(tokenizer_error);
        let (first, second) = (encode(first)?, Some(encode(second)?));
        let (first, second) = match most_tokens {
            None => (first, second),
            Some(most_tokens) => {
                let added =
                    self.tokenizer.get_post_processor().map_or(0, |it| it.added_tokens(true));
                let added = if add_special_tokens { added } else { 0 };
                let max_length = most_tokens.saturating_sub(added);
                let params = TruncationParams { max_length, ..TruncationParams::default() };
                truncate_encodings(first, second, &params).map_err(tokenizer_error)?
            }
        };
        let joined = self.tokenizer.post_process(first, second, add_special_tokens);
        let joined = joined.map_err(tokenizer_error)?;
        let mut types = joined.get_type_ids().iter();
        let second_text_at = types.position(|kind| *kind > 0).filter(|_| !self.omits_types);
        Ok(TokenizedPair { tokens: joined.get_ids().to_vec(), second_text_at })
    }

    fn encode_chunks(
        &self,
        texts: &[String],
        add_special_tokens: bool,
    ) -> Result<TokenizedChunks, TextError> {
        let (mut whole, mut text_ends) = (String::new(), Vec::with_capacity(texts.len()));
        for text in texts {
            whole.push_str(&self.cased(text));
            text_ends.push(whole.len());
        }
        let encoding = self.encoding(&whole, add_special_tokens).map_err(tokenizer_error)?;
        let is_added = encoding.get_special_tokens_mask().iter().map(|mask| *mask > 0);
        let token_ends = encoding.get_offsets().iter().map(|(_, end)| *end);
        let own = is_added.zip(token_ends).map(|(is_added, end)| (!is_added).then_some(end));
        let ends = chunks::ends(own, &text_ends);
        Ok(TokenizedChunks { tokens: encoding.get_ids().to_vec(), ends })
    }

    fn first_tokens(&self, text: &str, most_tokens: usize) -> Result<String, TextError> {
        let text = self.cased(text);
        let encoding = self.encoding(&text, false).map_err(tokenizer_error)?;
        let end = match encoding.get_offsets() {
            offsets if offsets.len() <= most_tokens => text.len(),
            offsets => offsets[..most_tokens].last().map_or(0, |(_, end)| *end),
        };
        Ok(text.get(..end).unwrap_or(&text).to_owned())
    }

    fn next_piece(
        &self,
        text: &str,
        rest: Range<usize>,
        dropped: TruncationSide,
    ) -> Result<Range<usize>, TextError> {
        cuts::next_piece(self.cuts.as_deref(), text, rest, dropped)
    }

    fn encode_piece(&self, text: &str, piece: Range<usize>) -> Result<Vec<TokenId>, TextError> {
        let begin = self.cuts.as_ref().map_or(piece.start, |cuts| cuts.begin_of(piece.start));
        self.encode(text.get(begin..piece.end).unwrap_or_default(), false)
    }

    fn surround(&self) -> (Vec<TokenId>, Vec<TokenId>) {
        let surround = self.cuts.as_ref().map(|cuts| cuts.surround.clone()).unwrap_or_default();
        (surround.before, surround.after)
    }

    fn max_token_bytes(&self) -> Option<usize> {
        // A sentencepiece model drops spaces, and reads any unknown text as one token.
        self.pieces.is_none().then_some(self.max_token_bytes)
    }

    fn decode(&self, tokens: &[TokenId], skip_special_tokens: bool) -> Result<String, TextError> {
        decoder::decode(&self.tokenizer, tokens, skip_special_tokens).map_err(tokenizer_error)
    }

    fn token_text(&self, token: TokenId) -> String {
        decoder::decode(&self.tokenizer, &[token], false)
            .unwrap_or_else(|_| self.token_piece(token).unwrap_or_default())
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        self.family.token_bytes(&self.tokenizer, token)
    }

    fn token_piece(&self, token: TokenId) -> Option<String> {
        self.tokenizer.id_to_token(token)
    }

    fn eos_token(&self) -> Option<(String, TokenId)> {
        self.eos_token.clone()
    }

    fn bos_token(&self) -> Option<(String, TokenId)> {
        self.bos_token.clone()
    }

    fn pad_token(&self) -> Option<TokenId> {
        self.pad_token
    }

    fn is_special(&self, token: TokenId) -> bool {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&token);
        added.is_some_and(|added| added.special)
    }

    fn render_chat(&self, chat: &ChatPrompt) -> Result<String, TextError> {
        self.chat_templates.render_with_media(chat, self.media.as_deref())
    }

    fn decoder(&self, prompt: &[TokenId], options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        decoder::incremental(&self.tokenizer, &self.family, prompt, options)
    }
}

fn tokenizer_error(error: tokenizers::Error) -> TextError {
    TextError::Tokenizer(error.to_string())
}

fn read_tokenizer(path: &Path) -> Result<Tokenizer, TextLoadError> {
    let path_buf = || PathBuf::from(path);
    let bytes = model_files::read(path)
        .map_err(|source| TextLoadError::Read { path: path_buf(), source })?;
    let mut tokenizer = match Tokenizer::from_bytes(&bytes) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return Err(why_no_tokenizer(path, &bytes, &error)),
    };
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| TextLoadError::Tokenizer {
        path: path_buf(),
        reason: error.to_string(),
    })?;
    Ok(tokenizer)
}

/// Returns the reason why a tokenizer was not read. The library's message does not separate bad
/// JSON from a missing model, so the file is parsed once more.
fn why_no_tokenizer(path: &Path, bytes: &[u8], error: &tokenizers::Error) -> TextLoadError {
    let path = path.to_owned();
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Err(source) => TextLoadError::Json { path, source },
        Ok(value) if !value.get("model").is_some_and(serde_json::Value::is_object) => {
            TextLoadError::NoModel { path }
        }
        Ok(_) => TextLoadError::Tokenizer { path, reason: error.to_string() },
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
