//! The files beside `tokenizer.json`: special tokens, added tokens, chat templates.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::bert_class::BertClass;
use super::class_rules::ClassRules;
use super::error::TextLoadError;
use crate::model_files;

pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";
/// The field of `tokenizer_config.json` with tokens by their ids.
const ADDED_TOKENS_DECODER: &str = "added_tokens_decoder";
const CHAT_TEMPLATE: &str = "chat_template.jinja";
/// The folder of further templates. Each file has the name of its template.
const MORE_TEMPLATES: &str = "additional_chat_templates";
const TEMPLATE_END: &str = ".jinja";
/// The template of a multimodal processor, as transformers 4 writes it.
const PROCESSOR_TEMPLATE: &str = "chat_template.json";
/// The files of a multimodal processor. The first one may have a template, too.
const PROCESSOR_FILES: [&str; 2] = ["processor_config.json", "preprocessor_config.json"];
/// The field of `tokenizer_config.json` with the class of a multimodal processor.
const PROCESSOR_CLASS: &str = "processor_class";
/// The name of the only template of a file.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The fields that name one special token each, as Hugging Face tokenizers have them.
const NAMED_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// The fields that list further special tokens: transformers 4's name and 5's.
const LISTED_TOKENS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// A token that a file declares, with its id there.
#[derive(Debug)]
pub(super) struct DeclaredToken {
    pub(super) id: u32,
    pub(super) token: AddedToken,
    /// Whether the file has the flags of the token, and not its text alone.
    pub(super) has_flags: bool,
    /// The file that declares it.
    pub(super) path: PathBuf,
}

/// The optional files of a tokenizer, read and checked.
#[derive(Debug, Default)]
pub(super) struct TokenizerFiles {
    /// `eos_token` → `<|im_end|>`, and so on.
    pub(super) named_tokens: BTreeMap<String, String>,
    /// Whether the token of a role takes the white space before it, where its object says so.
    pub(super) takes_before: BTreeMap<String, bool>,
    /// Special tokens without a role.
    pub(super) extra_special_tokens: Vec<String>,
    /// Declared tokens, in the order of their declared ids.
    pub(super) declared_tokens: Vec<DeclaredToken>,
    /// Chat templates by name. A single one has the name `default`.
    pub(super) chat_templates: BTreeMap<String, String>,
    /// Whether texts become lower case before they are tokenized.
    pub(super) lowers_case: bool,
    /// Whether the model reads no types of tokens.
    pub(super) omits_types: bool,
    /// The settings of a tokenizer with BERT's normalizer.
    pub(super) bert: Option<BertClass>,
    /// The settings of the class of another tokenizer.
    pub(super) rules: Option<ClassRules>,
}

/// Returns whether the tokenizer leaves out the types of tokens, as in transformers:
/// `model_input_names` decides. Without it, the classes of a few models and those of no model have
/// none.
fn omits_types(config: &Map<String, Value>) -> bool {
    if let Some(names) = config.get("model_input_names").and_then(Value::as_array) {
        return !names.iter().any(|name| name == "token_type_ids");
    }
    let class = config.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    matches!(
        class,
        "PreTrainedTokenizer" | "TokenizersBackend" | "DistilBertTokenizer" | "MPNetTokenizer"
    )
}

impl TokenizerFiles {
    /// Reads the files that exist in `dir`. Files of templates win over all templates in the
    /// config. The template of a multimodal processor wins over both, except with tools. Without
    /// a processor it counts if there is no other.
    ///
    /// As in transformers, `tokenizer_config.json` wins over `special_tokens_map.json` if it
    /// declares tokens with their ids. In older folders it does not, and the map wins.
    pub(super) fn read(dir: &Path) -> Result<Self, TextLoadError> {
        let mut files = Self::default();
        let config_path = dir.join(TOKENIZER_CONFIG);
        let config = read_object(&config_path)?;
        if let Some(config) = &config {
            files.take_added_tokens_decoder(&config_path, config)?;
            files.chat_templates = chat_templates(&config_path, config)?;
            files.omits_types = omits_types(config);
        }
        // The model's loader reports the faults of this file.
        let model = read_object(&dir.join("config.json")).ok().flatten().unwrap_or_default();
        let of_class = config.clone().unwrap_or_default();
        files.bert = BertClass::read(&config_path, &of_class, &model)?;
        files.rules = ClassRules::read(&config_path, &of_class, &model)?;
        let map_path = dir.join(SPECIAL_TOKENS_MAP);
        let map = read_object(&map_path)?;
        let is_older =
            config.as_ref().is_none_or(|config| !config.contains_key(ADDED_TOKENS_DECODER));
        let mut roles = [(&config_path, &config), (&map_path, &map)];
        if is_older {
            roles.reverse();
        }
        for (path, object) in roles {
            if let Some(object) = object {
                files.take_special_tokens(path, object)?;
            }
        }
        let added_path = dir.join(ADDED_TOKENS);
        if let Some(added) = read_object(&added_path)? {
            files.take_added_tokens(&added_path, &added)?;
        }
        let of_files = template_files(dir)?;
        if !of_files.is_empty() {
            files.chat_templates = of_files;
        }
        files.take_processor_template(dir, config.as_ref())?;
        for name in model_files::SENTENCE_CONFIGS {
            if let Some(config) = read_object(&dir.join(name))? {
                files.lowers_case |= config.get("do_lower_case") == Some(&Value::Bool(true));
            }
        }
        files.declared_tokens.sort_by_key(|declared| declared.id);
        Ok(files)
    }

    /// Takes the template of a multimodal processor. As in vLLM, conversations with tools keep that
    /// of the tokenizer.
    fn take_processor_template(
        &mut self,
        dir: &Path,
        config: Option<&Map<String, Value>>,
    ) -> Result<(), TextLoadError> {
        let [whole_path, _] = PROCESSOR_FILES.map(|file| dir.join(file));
        // The reader of the processor reports the faults of this file.
        let whole = read_object(&whole_path).ok().flatten().unwrap_or_default();
        let mut of_processor = chat_templates(&whole_path, &whole)?;
        let path = dir.join(PROCESSOR_TEMPLATE);
        if of_processor.is_empty()
            && let Some(processor) = read_object(&path)?
        {
            of_processor = chat_templates(&path, &processor)?;
        }
        let has_processor = PROCESSOR_FILES.iter().any(|file| model_files::exists(&dir.join(file)))
            || config.is_some_and(|config| config.contains_key(PROCESSOR_CLASS));
        if self.chat_templates.is_empty() {
            self.chat_templates = of_processor;
        } else if has_processor && let Some(template) = of_processor.remove(DEFAULT) {
            let own = self.chat_templates.insert(DEFAULT.to_owned(), template);
            let other = own.filter(|own| Some(own) != self.chat_templates.get(DEFAULT));
            if let Some(own) = other {
                self.chat_templates.entry(TOOL_USE.to_owned()).or_insert(own);
            }
        }
        Ok(())
    }

    fn take_special_tokens(
        &mut self,
        path: &Path,
        object: &Map<String, Value>,
    ) -> Result<(), TextLoadError> {
        for field in NAMED_TOKENS {
            let value = object.get(field);
            if let Some(content) = token_content(path, field, value)?
                && !self.named_tokens.contains_key(field)
            {
                self.named_tokens.insert(field.to_owned(), content);
                let takes_before = value.and_then(|value| value.get("lstrip"));
                if let Some(takes_before) = takes_before.and_then(Value::as_bool) {
                    self.takes_before.insert(field.to_owned(), takes_before);
                }
            }
        }
        for field in LISTED_TOKENS {
            let Some(Value::Array(tokens)) = object.get(field) else { continue };
            for token in tokens {
                self.extra_special_tokens.extend(token_content(path, field, Some(token))?);
            }
        }
        Ok(())
    }

    /// Takes `{"128": {"content": "<pad>", "special": true, …}}`.
    fn take_added_tokens_decoder(
        &mut self,
        path: &Path,
        config: &Map<String, Value>,
    ) -> Result<(), TextLoadError> {
        let Some(Value::Object(decoder)) = config.get(ADDED_TOKENS_DECODER) else {
            return Ok(());
        };
        for (key, entry) in decoder {
            let field = format!("{ADDED_TOKENS_DECODER}.{key}");
            let Ok(id) = key.parse() else {
                return Err(field_error(path, &field, entry, "a token id as its name"));
            };
            let Some(content) = token_content(path, &field, Some(entry))? else { continue };
            let flag = |name| entry.get(name).and_then(Value::as_bool);
            let special = flag("special").unwrap_or(false);
            let token = AddedToken::from(content, special)
                .single_word(flag("single_word").unwrap_or(false))
                .lstrip(flag("lstrip").unwrap_or(false))
                .rstrip(flag("rstrip").unwrap_or(false))
                .normalized(flag("normalized").unwrap_or(!special));
            let path = path.to_owned();
            self.declared_tokens.push(DeclaredToken { id, token, has_flags: true, path });
        }
        Ok(())
    }

    /// Takes `{"<pad>": 128}`.
    fn take_added_tokens(
        &mut self,
        path: &Path,
        added: &Map<String, Value>,
    ) -> Result<(), TextLoadError> {
        for (content, value) in added {
            let Some(id) = value.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                return Err(field_error(path, content, value, "a token id"));
            };
            // If the config has the token as well, its entry says more.
            if self.declared_tokens.iter().all(|declared| declared.id != id) {
                let token = AddedToken::from(content.clone(), false);
                let path = path.to_owned();
                self.declared_tokens.push(DeclaredToken { id, token, has_flags: false, path });
            }
        }
        Ok(())
    }
}

/// Reads the templates that have files of their own, by name.
fn template_files(dir: &Path) -> Result<BTreeMap<String, String>, TextLoadError> {
    let mut templates = BTreeMap::new();
    if let Some(template) = read_if_there(&dir.join(CHAT_TEMPLATE))? {
        templates.insert(DEFAULT.to_owned(), template);
    }
    let folder = dir.join(MORE_TEMPLATES);
    if !folder.is_dir() {
        return Ok(templates);
    }
    let failed = |source| TextLoadError::Read { path: folder.clone(), source };
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name();
        let name = file.to_str().and_then(|name| name.strip_suffix(TEMPLATE_END));
        let Some(name) = name else { continue };
        if let Some(template) = read_if_there(&folder.join(&file))? {
            templates.insert(name.to_owned(), template);
        }
    }
    Ok(templates)
}

/// Reads `chat_template`: one template, a list of `{name, template}`, or an object by name.
fn chat_templates(
    path: &Path,
    config: &Map<String, Value>,
) -> Result<BTreeMap<String, String>, TextLoadError> {
    const EXPECTED: &str = "a template, or a list of {\"name\", \"template\"}";
    let (field, mut templates) = ("chat_template", BTreeMap::new());
    match config.get(field) {
        None | Some(Value::Null) => {}
        Some(Value::String(template)) => {
            templates.insert(DEFAULT.to_owned(), template.clone());
        }
        Some(Value::Array(list)) => {
            for entry in list {
                let text = |key| entry.get(key).and_then(Value::as_str);
                let (Some(name), Some(template)) = (text("name"), text("template")) else {
                    return Err(field_error(path, field, entry, EXPECTED));
                };
                templates.insert(name.to_owned(), template.to_owned());
            }
        }
        Some(Value::Object(by_name)) => {
            for (name, template) in by_name {
                let Some(template) = template.as_str() else {
                    return Err(field_error(path, field, template, EXPECTED));
                };
                templates.insert(name.clone(), template.to_owned());
            }
        }
        Some(other) => return Err(field_error(path, field, other, EXPECTED)),
    }
    Ok(templates)
}

/// Returns the text of a token, which is a string or an object with the string as `content`.
fn token_content(
    path: &Path,
    field: &str,
    value: Option<&Value>,
) -> Result<Option<String>, TextLoadError> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let content = value.as_str().or_else(|| value.get("content").and_then(Value::as_str));
    match content {
        Some(content) => Ok(Some(content.to_owned())),
        None => Err(field_error(path, field, value, "a token or an object with its `content`")),
    }
}

pub(super) fn field_error(
    path: &Path,
    field: &str,
    found: &Value,
    expected: &'static str,
) -> TextLoadError {
    let found = found.to_string().chars().take(80).collect();
    TextLoadError::Field { path: path.to_owned(), field: field.to_owned(), found, expected }
}

/// Reads an object of JSON, if the file exists.
pub(super) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TextLoadError> {
    let Some(text) = read_if_there(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|source| TextLoadError::Json { path: path.to_owned(), source })
}

fn read_if_there(path: &Path) -> Result<Option<String>, TextLoadError> {
    let text = model_files::read(path).and_then(|bytes| {
        String::from_utf8(bytes.into_owned()).map_err(|error| io::Error::other(error.utf8_error()))
    });
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextLoadError::Read { path: path.to_owned(), source }),
    }
}
