//! The Jinja environment that transformers gives a chat template, in minijinja.

use std::fmt::Write as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use thiserror::Error;

use super::{effort, namespaces};

/// Instructions that a template may run, counted after [`super::metered`] has added its own. A long
/// conversation takes some hundred thousand.
const FUEL: u64 = 40_000_000;

/// The message of a template's `raise_exception`.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Returns an environment without templates: Python's string methods, loop controls, `tojson`,
/// `raise_exception`, `strftime_now`, trimmed blocks, and a limit on what a template can do.
pub(super) fn new() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python_method);
    effort::limit(&mut environment);
    environment.add_filter(namespaces::FILTER, namespaces::kept);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment
}

/// Returns the syntax of chat templates, with blocks trimmed as transformers has them.
pub(super) fn syntax() -> SyntaxConfig {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    // Only delimiters can be invalid, and these are the standard ones.
    syntax.build().unwrap_or_default()
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let mut now = String::new();
    write!(now, "{}", chrono::Local::now().format(format)).map_err(|_| {
        let detail = format!("strftime_now: {format:?} is no strftime format");
        Error::new(ErrorKind::InvalidOperation, detail)
    })?;
    Ok(now)
}

/// Returns the result of Jinja's test: true for values with a length and an index, so for strings
/// and mappings too.
fn is_sequence(value: &Value) -> bool {
    value.is_undefined()
        || matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

/// Returns the result of Jinja's test: true for values that a loop accepts. An undefined value is
/// an empty sequence, and `none` is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && (value.kind() == ValueKind::String || value.try_iter().is_ok())
}

/// Calls a method of Python's types: minijinja's own set, and further ones that templates use.
fn python_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    effort::spend_on_method(state, value, method, args)?;
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, method, args);
    };
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = minijinja::value::from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = minijinja::value::from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = minijinja::value::from_args(args)?;
            let parts =
                text.split_once(separator).map(|(before, after)| [before, separator, after]);
            Ok(triple(parts.unwrap_or([text, "", ""])))
        }
        "rpartition" => {
            let (separator,): (&str,) = minijinja::value::from_args(args)?;
            let parts =
                text.rsplit_once(separator).map(|(before, after)| [before, separator, after]);
            Ok(triple(parts.unwrap_or(["", "", text])))
        }
        "rsplit" => rsplit(text, args),
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn triple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}

/// Returns `str.rsplit(sep, maxsplit)`. The separator is required, because templates give one.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, Rest(limit)): (&str, Rest<i64>) = minijinja::value::from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "rsplit: empty separator"));
    }
    let mut parts: Vec<&str> = match limit.first().map(|&limit| usize::try_from(limit)) {
        Some(Ok(limit)) => text.rsplitn(limit.saturating_add(1), separator).collect(),
        _ => text.rsplit(separator).collect(),
    };
    parts.reverse();
    Ok(Value::from_iter(parts))
}
