//! Chat templates: Jinja, rendered as transformers' `apply_chat_template` renders them.

mod comparison;
mod content_format;
mod continuation;
mod costs;
mod effort;
mod environment;
mod generation_tags;
#[cfg(test)]
mod media_tests;
mod messages;
mod metered;
mod namespaces;
mod strings;
#[cfg(test)]
mod tests;
mod tojson;
mod weight;

use std::{collections::BTreeMap, thread};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, Value, machinery};
use playhouse_actors::ports::{ChatPrompt, MediaProcessor, TextError};

use super::tokenizer_files::TokenizerFiles;
pub use content_format::ContentFormat;
use continuation::Continuation;
use environment::Raised;
use messages::Accepts;
use metered::Metered;
use strings::StringRoles;

/// The name of the template that is used unless a request or its tools ask for another.
const DEFAULT: &str = "default";
/// The name of the template for conversations with tools, where a model has one.
const TOOL_USE: &str = "tool_use";

/// Longest prompt that a template may write.
const PROMPT_BYTES_MAX: usize = 64 << 20;
/// Longest template of a request. The longest templates of models have a third of it.
const OWN_TEMPLATE_BYTES_MAX: usize = 64 << 10;
/// Longest template of a model.
const MODEL_TEMPLATE_BYTES_MAX: usize = 256 << 10;
/// Stack for the recursion over a byte of a template, which may be nested as deep as it is long.
/// The system takes memory only for the part of the stack that is used.
const STACK_BYTES_A_BYTE: usize = 4 << 10;
/// Stack for the recursion of a template's own work, and for reading the smallest template.
const STACK_BYTES_MIN: usize = 16 << 20;

/// A model's chat templates, compiled.
pub(super) struct ChatTemplates {
    environment: Environment<'static>,
    templates: BTreeMap<String, Template>,
    /// `bos_token` and the like, which templates may name.
    special_tokens: BTreeMap<String, String>,
}

/// A template's properties besides its code.
struct Template {
    source: String,
    content_format: ContentFormat,
    /// The roles that keep strings where the format is a list of parts.
    strings: StringRoles,
    /// Why it does not compile.
    broken: Option<TextError>,
}

impl ChatTemplates {
    pub(super) fn new(files: &TokenizerFiles) -> Self {
        let mut environment = environment::new();
        let mut templates = BTreeMap::new();
        for (name, source) in &files.chat_templates {
            let source = generation_tags::neutralise(source);
            let compile = || {
                let unfolded = metered::unfolded(&source);
                let compiled = environment.add_template_owned(name.clone(), unfolded);
                compiled.map_err(|error| template_error(&error))?;
                let content_format = ContentFormat::of(&source);
                let template = environment.get_template(name);
                let template = template.map_err(|error| template_error(&error))?;
                let tokens = &files.named_tokens;
                Ok((content_format, strings(&environment, &template, content_format, tokens)))
            };
            let compiled =
                check_length("the model's chat template", &source, MODEL_TEMPLATE_BYTES_MAX)
                    .and_then(|()| on_deep_stack(source.len(), compile));
            let ((content_format, strings), broken) = match compiled {
                Ok(found) => (found, None),
                Err(error) => ((ContentFormat::String, StringRoles::default()), Some(error)),
            };
            if let Some(error) = &broken {
                tracing::warn!(template = name, %error, "chat template does not compile");
            }
            templates.insert(name.clone(), Template { source, content_format, strings, broken });
        }
        Self { environment, templates, special_tokens: files.named_tokens.clone() }
    }

    /// Returns how the template without tools takes message content.
    pub(super) fn content_format(&self) -> ContentFormat {
        self.templates.get(DEFAULT).map_or(ContentFormat::String, |found| found.content_format)
    }

    /// Returns the sources of all templates: the default one first, then the others by name.
    pub(super) fn sources(&self) -> Vec<String> {
        let default = self.templates.get(DEFAULT).into_iter();
        let others = self.templates.iter().filter(|(name, _)| *name != DEFAULT);
        default.chain(others.map(|(_, found)| found)).map(|found| found.source.clone()).collect()
    }

    /// Returns templates with `source` as the only one.
    pub(super) fn replaced_by(&self, source: String) -> Self {
        let chat_templates = [(DEFAULT.to_owned(), source)].into_iter().collect();
        let named_tokens = self.special_tokens.clone();
        Self::new(&TokenizerFiles { chat_templates, named_tokens, ..TokenizerFiles::default() })
    }

    /// Returns the prompt of a conversation, whose images and sounds `media` makes ready.
    pub(super) fn render_with_media(
        &self,
        chat: &ChatPrompt,
        media: Option<&dyn MediaProcessor>,
    ) -> Result<String, TextError> {
        let Some(name) = self.choose(chat)? else {
            return self.render_own(chat.chat_template.as_deref().unwrap_or_default(), chat, media);
        };
        let Some(found) = self.templates.get(name) else { return Err(TextError::NoChatTemplate) };
        if let Some(error) = &found.broken {
            return Err(error.clone());
        }
        on_deep_stack(found.source.len(), || {
            let template = self.environment.get_template(name);
            let template = template.map_err(|error| template_error(&error))?;
            let accepts = Accepts::of(&found.source, found.content_format, found.strings);
            let accepts = accepts.with_media(media);
            self.render_with(&template, &found.source, accepts, chat)
        })
    }

    /// Returns the prompt of a conversation of text.
    #[cfg(test)]
    fn render(&self, chat: &ChatPrompt) -> Result<String, TextError> {
        self.render_with_media(chat, None)
    }

    /// Returns the prompt by the request's own template.
    fn render_own(
        &self,
        source: &str,
        chat: &ChatPrompt,
        media: Option<&dyn MediaProcessor>,
    ) -> Result<String, TextError> {
        check_length("chat_template", source, OWN_TEMPLATE_BYTES_MAX)?;
        on_deep_stack(source.len(), || {
            let source = generation_tags::neutralise(source);
            let unfolded = metered::unfolded(&source);
            let compiled = self.environment.template_from_str(&unfolded);
            let template = compiled.map_err(|error| template_error(&error))?;
            let format = ContentFormat::of(&source);
            let strings = strings(&self.environment, &template, format, &self.special_tokens);
            let accepts = Accepts::of(&source, format, strings).with_media(media);
            self.render_with(&template, &source, accepts, chat)
        })
    }

    /// Returns the name of the template to use, or `None` where the request brings its own.
    fn choose<'a>(&'a self, chat: &'a ChatPrompt) -> Result<Option<&'a str>, TextError> {
        if let Some(template) = chat.chat_template.as_deref() {
            return Ok(self.templates.contains_key(template).then_some(template));
        }
        if chat.tools.is_some() && self.templates.contains_key(TOOL_USE) {
            Ok(Some(TOOL_USE))
        } else if self.templates.contains_key(DEFAULT) {
            Ok(Some(DEFAULT))
        } else if self.templates.is_empty() {
            Err(TextError::NoChatTemplate)
        } else {
            Err(TextError::NoDefaultTemplate {
                available: self.templates.keys().cloned().collect(),
            })
        }
    }

    fn render_with(
        &self,
        template: &minijinja::Template<'_, '_>,
        source: &str,
        accepts: Accepts<'_>,
        chat: &ChatPrompt,
    ) -> Result<String, TextError> {
        let mut messages = messages::prepare(&chat.messages, accepts.for_chat(chat))?;
        let continuation = if chat.continue_final_message {
            if chat.add_generation_prompt {
                return Err(TextError::ContinueFinalMessage(
                    "not together with add_generation_prompt: either the last message goes on, \
                     or a new one begins"
                        .to_owned(),
                ));
            }
            Some(Continuation::open(&mut messages, source)?)
        } else {
            None
        };
        // Later names win, because a client must not replace a template's own variables.
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, token) in &self.special_tokens {
            context.insert(name, Value::from(token.as_str()));
        }
        for (name, value) in &chat.chat_template_kwargs {
            context.insert(name, Value::from(Serde(value)));
        }
        context.insert("messages", Value::from(Serde(&messages)));
        context.insert("tools", Value::from(Serde(&chat.tools)));
        // Clients of vLLM give documents in either place.
        if chat.documents.is_some() || !context.contains_key("documents") {
            context.insert("documents", Value::from(Serde(&chat.documents)));
        }
        context.insert("add_generation_prompt", Value::from(chat.add_generation_prompt));
        let rendered = run(&self.environment, template, Value::from(context))?;
        match continuation {
            Some(continuation) => continuation.cut(rendered),
            None => Ok(rendered),
        }
    }
}

/// Returns the roles that keep strings in `template`, whose messages have the format `format`.
fn strings<'env>(
    environment: &'env Environment<'env>,
    template: &minijinja::Template<'env, 'env>,
    format: ContentFormat,
    special_tokens: &BTreeMap<String, String>,
) -> StringRoles {
    if format == ContentFormat::String {
        return StringRoles::default();
    }
    StringRoles::of(|messages| {
        let tokens = special_tokens.iter();
        let mut context: BTreeMap<&str, Value> =
            tokens.map(|(name, token)| (name.as_str(), Value::from(token.as_str()))).collect();
        context.insert("messages", Value::from(Serde(messages)));
        context.insert("add_generation_prompt", Value::from(false));
        run(environment, template, Value::from(context))
    })
}

/// Returns the output of a template.
fn run<'env>(
    environment: &'env Environment<'env>,
    template: &minijinja::Template<'env, 'env>,
    context: Value,
) -> Result<String, TextError> {
    let failed = |error: Error| template_error(&error);
    let Metered { instructions, blocks } =
        Metered::new(machinery::get_compiled_template(template)).map_err(failed)?;
    let mut written = String::new();
    let mut output = machinery::make_string_output(&mut written);
    machinery::eval(environment, &instructions, context, &blocks, &mut output, AutoEscape::None)
        .map_err(failed)?;
    if written.len() > PROMPT_BYTES_MAX {
        let why = format!("chat template: it writes more than {PROMPT_BYTES_MAX} bytes");
        return Err(TextError::Template(why));
    }
    Ok(written)
}

/// Returns the output of a template without variables.
#[cfg(test)]
fn rendered(source: &str) -> Result<String, TextError> {
    let environment = environment::new();
    on_deep_stack(source.len(), || {
        let unfolded = metered::unfolded(source);
        let template = environment.template_from_str(&unfolded);
        run(&environment, &template.map_err(|error| template_error(&error))?, ().into())
    })
}

fn check_length(what: &str, source: &str, bytes_max: usize) -> Result<(), TextError> {
    if source.len() <= bytes_max {
        return Ok(());
    }
    let bytes = source.len();
    let why = format!("{what} has {bytes} bytes; at most {bytes_max} are allowed");
    Err(TextError::Template(why))
}

/// Runs `work` on a stack that is deep enough for a template of `template_bytes`. The library
/// follows nested parts by recursion, and a stack overflow would end the process. A panic of the
/// library, for example at `""[::-1]`, ends only the work.
fn on_deep_stack<T: Send>(
    template_bytes: usize,
    work: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    let stack_bytes = STACK_BYTES_MIN.max(template_bytes * STACK_BYTES_A_BYTE);
    let failed = |why: String| TextError::Template(format!("chat template: {why}"));
    thread::scope(|scope| {
        let deep = thread::Builder::new().name("playhouse-template".to_owned());
        let thread = deep.stack_size(stack_bytes).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| failed(format!("no thread for it: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("it cannot be rendered".to_owned())))
    })
}

/// Returns the error with the message of `raise_exception`, word for word. For any other error,
/// says what went wrong and where.
fn template_error(error: &Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return TextError::Template(message.clone());
        }
        cause = error.source();
    }
    TextError::Template(format!("chat template: {error}"))
}
