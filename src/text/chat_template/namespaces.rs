//! Values that templates keep in a namespace. Namespaces are Jinja's only mutable values, so only
//! they can hold themselves, or become deeper with each round of a loop. The library prints and
//! compares values by recursion, which would overflow any stack on these values.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// The filter that every kept value passes through.
pub(super) const FILTER: &str = "__kept_in_a_namespace";

/// Largest depth of nested lists and mappings.
const DEPTH_MAX: usize = 128;

/// Values that this filter may look through for one template, in total: some seconds of work.
const LOOKED_AT_MAX: i64 = 10_000_000;

/// The name of the counter of those values while a template is rendered.
const LOOKED_AT: &str = "__looked_at";

/// Returns the value if it may be kept. A value that is computed only when it is read, for example
/// the sum of two lists, is kept as a list: the library also follows sums of sums by recursion.
pub(super) fn kept(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let mut looked_at = state.get_temp(LOOKED_AT).and_then(|n| n.as_i64()).unwrap_or_default();
    let plain = plain(&value, 0, &mut looked_at)?;
    state.set_temp(LOOKED_AT, Value::from(looked_at));
    Ok(plain.unwrap_or(value))
}

/// Returns the value with lists in place of iterators, or `None` if it has no iterators.
fn plain(value: &Value, depth: usize, looked_at: &mut i64) -> Result<Option<Value>, Error> {
    *looked_at += 1;
    if value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace")) {
        return Err(refused("a namespace"));
    }
    if depth > DEPTH_MAX {
        return Err(refused("a value that is nested so deep"));
    }
    if *looked_at > LOOKED_AT_MAX {
        return Err(refused("that many values"));
    }
    let mut has_changed = value.kind() == ValueKind::Iterable;
    let mut look = |value: Value| {
        let plain = plain(&value, depth + 1, looked_at)?;
        has_changed |= plain.is_some();
        Ok::<_, Error>(plain.unwrap_or(value))
    };
    let rebuilt = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(&mut look).collect::<Result<Vec<_>, _>>()?.into()
        }
        ValueKind::Map => value
            .try_iter()?
            .map(|key| Ok((key.clone(), look(value.get_item(&key)?)?)))
            .collect::<Result<Vec<_>, Error>>()?
            .into_iter()
            .collect(),
        _ => return Ok(None),
    };
    Ok(has_changed.then_some(rebuilt))
}

fn refused(what: &str) -> Error {
    let detail = format!("{what} cannot be kept in a namespace");
    Error::new(ErrorKind::InvalidOperation, detail)
}

#[cfg(test)]
mod tests {
    fn rendered(source: &str) -> Result<String, String> {
        super::super::rendered(source).map_err(|error| error.to_string())
    }

    #[test]
    fn templates_mean_what_they_meant() {
        for (source, expected) in [
            ("{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}", "2"),
            (
                "{% set ns = namespace() %}{% set ns.a = 1 if false else [1, {'b': 2}] %}{{ ns.a }}",
                "[1, {'b': 2}]",
            ),
            ("{% set ns = namespace() %}{% set ns.a, b = 1, 'ü' %}{{ ns.a }}{{ b }}", "1ü"),
            (
                "{% set ns = namespace(a=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + [i] %}\
              {% endfor %}{{ ns.a|length }}",
                "3",
            ),
        ] {
            assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn stack_overflows_are_rejected() {
        let in_a_loop = |value: &str| {
            format!(
                "{{% set ns = namespace(a=1) %}}{{% for i in range(1000) %}}{{% for j in range(1000) %}}\
                 {{% set ns.a = {value} %}}{{% endfor %}}{{% endfor %}}{{{{ ns.a }}}}"
            )
        };
        for source in [
            "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".to_owned(),
            "{% set ns = namespace() %}{% set ns.a, b = [{'c': ns}], 1 %}{{ ns == ns }}".to_owned(),
            in_a_loop("[ns.a]"),
            in_a_loop("{'b': ns.a}"),
            in_a_loop("(ns.a,)"),
            in_a_loop("[ns.a]|reverse|list"),
            in_a_loop("range(100000)"),
        ] {
            let message = rendered(&source).unwrap_err();
            assert!(message.contains("cannot be kept in a namespace"), "{source}: {message}");
        }
    }
}
