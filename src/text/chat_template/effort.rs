//! What a template may go through and make, besides its fuel. Fuel counts instructions, and to join
//! the letters of a long text, to double it, or to look at each of them, is one.

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, filters};

use super::costs::{
    formatted, joined, num_values, of_factors, of_format, of_indent, of_join, of_json, of_parts,
    of_replace, of_texts, of_values, replaced,
};
use super::weight::weight;

/// Values that a template may go through and make, in all, texts by their length: some seconds' worth,
/// and 256 MiB of text. A conversation takes some thousand.
const VALUES_MAX: u64 = 16_000_000;

/// Where their number is kept while a template is rendered.
const GONE_THROUGH: &str = "__gone_through";

/// The filter that takes an operator's operands, and gives them back as a list, the last one first.
pub(super) const OPERANDS: &str = "__operands";
/// The same for those of a multiplication.
pub(super) const FACTORS: &str = "__factors";

/// The filter that gives back what it is given.
pub(super) const SAME: &str = "__same";

/// Puts filters of the library under the limit, which keep their names.
macro_rules! limited {
    ($environment:ident, $cost:ident: $($name:ident)*) => {$({
        limited!($environment, $cost: stringify!($name) => filters::$name);
    })*};
    ($environment:ident, $cost:ident: $name:expr => $filter:expr) => {{
        let own_name = concat!("__", $name);
        $environment.add_filter(own_name, $filter);
        let limited = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            spend(state, $cost(&args))?;
            state.apply_filter(own_name, &args)
        };
        $environment.add_filter($name, limited);
    }};
}

/// Limits what goes through its arguments: operators, filters, and what is written.
pub(super) fn limit(environment: &mut Environment<'static>) {
    limited!(environment, of_values: chain dictsort groupby items list map max min reject rejectattr
        reverse select selectattr sort sum unique zip);
    limited!(environment, of_parts: batch slice);
    limited!(environment, of_texts: capitalize escape lines lower pprint split string title trim upper);
    limited!(environment, of_texts: "e" => filters::escape);
    limited!(environment, of_json: "tojson" => super::tojson::tojson);
    limited!(environment, of_format: format);
    limited!(environment, of_indent: indent);
    limited!(environment, of_join: join);
    limited!(environment, of_replace: replace);
    environment.add_filter(OPERANDS, |state: &mut State<'_, '_>, operands: Rest<Value>| {
        spend(state, of_texts(&operands))?;
        Ok::<_, Error>(reversed(&operands))
    });
    environment.add_filter(FACTORS, |state: &mut State<'_, '_>, factors: Rest<Value>| {
        spend(state, of_factors(&factors))?;
        Ok::<_, Error>(reversed(&factors))
    });
    environment.add_filter(SAME, |value: Value| value);
    environment.set_formatter(|out: &mut Output<'_>, state, value| {
        spend(state, weight(value))?;
        minijinja::escape_formatter(out, state, value)
    });
    // It writes all variables.
    environment.remove_global("debug");
}

fn reversed(values: &[Value]) -> Value {
    values.iter().rev().cloned().collect::<Vec<_>>().into()
}

/// Counts what a method goes through.
pub(super) fn spend_on_method(
    state: &mut State<'_, '_>,
    of: &Value,
    method: &str,
    args: &[Value],
) -> Result<(), Error> {
    let Some(text) = of.as_str() else {
        let looks_inside = !matches!(method, "get" | "items" | "keys" | "values");
        let inside = if looks_inside { weight(of) } else { num_values(of) };
        return spend(state, inside.saturating_add(of_texts(args)));
    };
    let made = match (method, args) {
        ("format", _) => formatted(text, args),
        ("join", [of, ..]) => joined(of, text.len()),
        ("replace", [old, new, ..]) => replaced(text, old, new),
        _ => 0,
    };
    spend(state, made.saturating_add(weight(of)).saturating_add(of_texts(args)))
}

fn spend(state: &mut State<'_, '_>, values: usize) -> Result<(), Error> {
    let before = state.get_temp(GONE_THROUGH).and_then(|n| u64::try_from(n).ok());
    let now = before.unwrap_or_default().saturating_add(values as u64);
    state.set_temp(GONE_THROUGH, Value::from(now));
    if now > VALUES_MAX {
        let detail = format!("it would go through more than {VALUES_MAX} values");
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    fn rendered(source: &str) -> Result<String, String> {
        super::super::rendered(source).map_err(|error| error.to_string())
    }

    #[test]
    fn filters_are_what_they_were() {
        for (source, expected) in [
            ("{{ [3, 1, 2] | sort(reverse=true) | join('-') }}", "3-2-1"),
            ("{{ 'abc' | list | map('upper') | join }}", "ABC"),
            ("{{ [{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list }}", "[{'a': 2}]"),
            ("{{ 'a.b' | replace('.', ', ') | title | trim('A') }}", ", B"),
            ("{{ ', '.join(['a', 'b']).replace('a', 'c').split(',') | length }}", "2"),
            ("{% filter upper %}a{% endfilter %}", "A"),
            (
                "{{ '%05.1f|%s' | format(3.14, 1e300 > 1) }} {{ '{:>4}'.format(1) }}",
                "003.1|True    1",
            ),
            (
                "{{ '%d of 99999999999999' | format(99999999999999) }}",
                "99999999999999 of 99999999999999",
            ),
            ("{{ '%(a)s' | format(a=99999999999999) }}", "99999999999999"),
            ("{{ '{} {{}}'.format(99999999999999) }}", "99999999999999 {}"),
            ("{{ [1, 2, 3] | batch(2, 0) | list }}", "[[1, 2], [3, 0]]"),
            ("{{ 'a\nb' | indent(2) }} {{ 'a' | indent(width=2, first=true) }}", "a\n  b   a"),
        ] {
            assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
        }
    }

    /// What operators, filters and captures make of texts that are long, or of lists that hold each
    /// other twice.
    #[test]
    fn what_doubles_is_refused() {
        let again = |start: &str, step: &str, end: &str| {
            format!("{{% set a = {start} %}}{}{end}", format!("{{% set a = {step} %}}").repeat(60))
        };
        let text = "'abcdefghijklmnopqrstuvwxyz'";
        let captured = "{% set a %}{{ a }}{{ a }}{% endset %}".repeat(60);
        for source in [
            again(text, "a ~ a", ""),
            again(text, "a + a", ""),
            again(text, "'' ~ a ~ a", ""),
            again("[1]", "a + a", "{{ a | length }}"),
            again("[1]", "[a, a]", "{{ a }}"),
            again("[1]", "[a, a]", "{{ a == [a] }}"),
            again("[1]", "[a, a]", "{{ 1 in a }}{{ a in [a, 1] }}"),
            again("[1]", "[a, a]", "{{ {a: 1} }}"),
            again("[1]", "[a, a]", "{{ a | tojson }}"),
            again("[1]", "[a, a]", "{{ a | string | length }}"),
            again("[1]", "[a, a]", "{{ ('' ~ a) | length }}"),
            again("[1]", "[a, a]", "{{ [a, a] | sort }}"),
            again("[1]", "[a, a]", "{{ [a].count(a) }}"),
            format!("{{% set a = {text} %}}{captured}"),
            "{{ ('a' * 90000000) | length }}{{ ('a' * 90000000) | length }}{{ 'a' * 90000000 }}"
                .into(),
            "{{ 'a' * 90000000 }}".repeat(3000),
            "{{ ([0] * 90000000) | length }}".into(),
            "{{ (90000000 * [0]) | length }}".into(),
            "{{ (['a' * 1000000] * 1000) | join | length }}".into(),
            "{{ ('{0}' * 100000).format('a' * 100000) | length }}".into(),
            "{{ [[1, 2], [3]] | tojson(indent=999999999) }}".into(),
            "{% set n = namespace(a=[]) %}{% set s = 'a' * 1000000 %}{% for i in range(9999) %}\
             {% set n.a = n.a + [s[1:]] %}{% endfor %}"
                .into(),
            format!(
                "{{% macro m() %}}{}{{% endmacro %}}{{% set n = namespace(a='') %}}\
                 {{% for i in range(99999) %}}{{% set x = m() %}}{{% endfor %}}",
                "x".repeat(30_000)
            ),
        ] {
            let message = rendered(&source).unwrap_err();
            let shown: String = source.chars().take(200).collect();
            assert!(message.contains("would go through more than"), "{shown}: {message}");
        }
    }

    /// A conversation of a million tokens, read as many models' templates read it.
    #[test]
    fn long_texts_are_no_effort() {
        let source = "{% set text = 'a' * 100000 %}{% for i in range(40) %}\
                      {% if text.startswith('<tool_response>') or '</think>' in text %}x{% endif %}\
                      {% set parts = text.split('</think>') %}{% set rest = parts[-1].lstrip('\n') %}\
                      {% set rest = rest.rstrip('\n').replace('b', 'a longer text than that was') %}\
                      {{ (rest | replace('<', '&lt;') | trim | length) == 100000 }}{% endfor %}";
        assert_eq!(rendered(source), Ok("True".repeat(40)));
    }

    /// Each makes a text longer again and again, or goes through a long one.
    #[test]
    fn what_would_take_for_ever_or_all_memory_is_refused() {
        let in_a_loop = |value: &str| {
            format!(
                "{{% set ns = namespace(a='abcdefghijklmnopqrstuvwxyz') %}}{{% for i in range(5000) %}}\
                 {{% set ns.a = {value} %}}{{% endfor %}}{{{{ ns.a | length }}}}"
            )
        };
        for value in [
            "ns.a | join(ns.a)",
            "ns.a | join(d=ns.a)",
            "ns.a | replace('a', ns.a)",
            "ns.a.replace('a', ns.a)",
            "ns.a.join(['b'] * (ns.a | length))",
            "(ns.a | join('12345678'))[:100000]",
            "ns.a if range(100000) | selectattr('x') else ns.a",
            "'%099999999999999995.2f' | format(3.14159)",
            "'%*d' | format(99999999999999995, 1)",
            "'{:>99999999999999999999999}'.format(1)",
            "'{:>{}}'.format(1, 99999999999999995)",
            "'{:>0{}}'.format(1, 99999999999999995)",
            "'a\nb' | indent(99999999999999995)",
            "'a\nb' | indent(width=99999999999999995)",
            "[1] | slice(99999999999999995) | list",
            "[1] | batch(99999999999999995, 0) | list",
        ] {
            let message = rendered(&in_a_loop(value)).unwrap_err();
            assert!(message.contains("would go through more than"), "{value}: {message}");
        }
    }
}
