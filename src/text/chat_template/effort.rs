//! A limit on the values that a template may read and make, besides its fuel. Fuel counts
//! instructions. A single instruction may join the letters of a long text, double the text, or look
//! at each letter.

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, Value, filters, functions, tests as library_tests,
};

use super::comparison::compared;
use super::costs::{
    formatted, joined, num_values, of_each, of_factors, of_format, of_indent, of_join, of_json,
    of_key, of_length, of_parts, of_replace, of_sorted, of_sum, of_texts, of_values, replaced,
};
use super::weight::weight;

/// Largest number of values that a template may read and make. Texts are counted by their length.
/// The limit allows some seconds of work, and 256 MiB of text. A conversation takes some thousand
/// values.
const VALUES_MAX: u64 = 16_000_000;

/// The name of the counter of values while a template is rendered.
const GONE_THROUGH: &str = "__gone_through";

/// The filter that counts an operator's operands and returns them as a list, the last one first.
pub(super) const OPERANDS: &str = "__operands";
/// The same for the operands of a multiplication.
pub(super) const FACTORS: &str = "__factors";
/// The same for the operands of `==` and `!=`.
pub(super) const COMPARED: &str = "__compared";
/// The filter that counts a key and returns it.
pub(super) const KEY: &str = "__key";

/// The filter that returns its value unchanged.
pub(super) const SAME: &str = "__same";

/// Wraps filters, tests or functions of the library so that they spend the limit. A wrapper has the
/// name of the original. The original has no name, because a template could call it by that.
macro_rules! limited {
    ($environment:ident.$add:ident, $cost:ident: $($module:ident::{$($name:ident)*})*) => {$($(
        limited!($environment.$add, $cost: [stringify!($name)] => $module::$name);
    )*)*};
    ($environment:ident.$add:ident, $cost:ident: [$($name:expr),*] => $own:expr) => {$({
        let own = Value::from_function($own);
        let limited = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            spend(state, $cost(&args))?;
            own.call(state, &args)
        };
        $environment.$add($name, limited);
    })*};
}

/// Limits everything that reads its arguments: operators, filters, tests, and output.
pub(super) fn limit(environment: &mut Environment<'static>) {
    limited!(environment.add_filter, of_values: filters::{chain items list reverse});
    limited!(environment.add_filter, of_values: ["zip"] => zipped);
    limited!(environment.add_filter, of_each: filters::{map reject rejectattr select selectattr});
    limited!(environment.add_filter, of_sorted: filters::{dictsort groupby max min sort unique});
    limited!(environment.add_filter, of_sum: filters::{sum});
    limited!(environment.add_filter, of_parts: filters::{batch slice});
    limited!(environment.add_filter, of_texts: filters::{capitalize lines lower pprint safe split
        string title trim upper});
    limited!(environment.add_filter, of_texts: ["escape", "e"] => filters::escape);
    limited!(environment.add_filter, of_length: ["length", "count"] => filters::length);
    limited!(environment.add_filter, of_length: filters::{float int last});
    limited!(environment.add_filter, of_key: filters::{attr});
    limited!(environment.add_filter, of_json: ["tojson"] => super::tojson::tojson);
    limited!(environment.add_filter, of_format: filters::{format});
    limited!(environment.add_filter, of_indent: filters::{indent});
    limited!(environment.add_filter, of_join: filters::{join});
    limited!(environment.add_filter, of_replace: filters::{replace});
    limited!(environment.add_test, compared: ["eq", "equalto", "=="] => library_tests::is_eq);
    limited!(environment.add_test, compared: ["ne", "!="] => library_tests::is_ne);
    limited!(environment.add_test, compared: ["sameas"] => library_tests::is_sameas);
    limited!(environment.add_test, of_texts: ["lt", "lessthan", "<"] => library_tests::is_lt);
    limited!(environment.add_test, of_texts: ["le", "<="] => library_tests::is_le);
    limited!(environment.add_test, of_texts: ["gt", "greaterthan", ">"] => library_tests::is_gt);
    limited!(environment.add_test, of_texts: ["ge", ">="] => library_tests::is_ge);
    limited!(environment.add_test, of_texts: ["in"] => library_tests::is_in);
    limited!(environment.add_test, of_texts: ["startingwith"] => library_tests::is_startingwith);
    limited!(environment.add_test, of_texts: ["endingwith"] => library_tests::is_endingwith);
    limited!(environment.add_test, of_texts: ["lower"] => library_tests::is_lower);
    limited!(environment.add_test, of_texts: ["upper"] => library_tests::is_upper);
    limited!(environment.add_function, of_texts: functions::{dict});
    limited!(environment.add_function, of_values: functions::{namespace});
    operands(environment, OPERANDS, of_texts);
    operands(environment, COMPARED, compared);
    operands(environment, FACTORS, of_factors);
    environment.add_filter(SAME, |value: Value| value);
    environment.add_filter(KEY, |state: &mut State<'_, '_>, key: Value| {
        spend(state, weight(&key))?;
        Ok::<_, Error>(key)
    });
    environment.set_formatter(|out: &mut Output<'_>, state, value| {
        spend(state, weight(value))?;
        minijinja::escape_formatter(out, state, value)
    });
    // `debug` writes all variables, and no cost counts them.
    environment.remove_global("debug");
}

/// Returns the rows of the library's filter, computed once. The library computes the rows, and the
/// rows within them, again at each access. No cost counts that work.
fn zipped(state: &State<'_, '_>, value: Value, others: Rest<Value>) -> Result<Value, Error> {
    Ok(filters::zip(state, value, others)?.try_iter()?.collect())
}

/// Adds a filter that counts operands by `cost` and returns them as a list, the last one first.
fn operands(
    environment: &mut Environment<'static>,
    name: &'static str,
    cost: fn(&[Value]) -> usize,
) {
    environment.add_filter(
        name,
        move |state: &mut State<'_, '_>, operands: Rest<ValueOrKwargs>| {
            let operands = operands.into_values();
            spend(state, cost(&operands))?;
            Ok::<_, Error>(reversed(&operands))
        },
    );
}

fn reversed(values: &[Value]) -> Value {
    values.iter().rev().cloned().collect::<Vec<_>>().into()
}

/// Spends the cost of a method.
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
    fn limited_filters_give_the_same_results() {
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
            ("{{ [1, 2] | zip(['a', 'b', 'c']) }}", "[(1, 'a'), (2, 'b')]"),
            ("{{ 'a\nb' | indent(2) }} {{ 'a' | indent(width=2, first=true) }}", "a\n  b   a"),
        ] {
            assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
        }
    }

    /// Operators, filters and captures may make long texts, or lists that hold the list before
    /// twice.
    #[test]
    fn doubling_is_rejected() {
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
            again("[1]", "[a, a]", "{{ {1: 1}[a] }}"),
            again("[1]", "[a, a]", "{{ {1: 1} | attr(a) }}"),
            again("[1]", "[a, a]", "{{ a | safe }}"),
            again("[1]", "[a, a]", "{% for i in [1, 2] %}{{ loop.changed(a) }}{% endfor %}"),
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

    #[test]
    fn rows_are_made_once() {
        let rows = "[1, 2] | zip([3, 4])";
        // Rows that are computed again at each access are no sequence.
        assert_eq!(rendered(&format!("{{{{ ({rows}) is sequence }}}}")).as_deref(), Ok("True"));
        let nested = "{% set a = a | zip(a) %}".repeat(500);
        let source = format!(
            "{{% set a = range(100) | list %}}{nested}{{% for i in range(1000) %}}\
             {{% for row in a %}}{{% endfor %}}{{% endfor %}}"
        );
        assert_eq!(rendered(&source).as_deref(), Ok(""));
    }

    /// Each case compares two lists of 2⁶⁰ values.
    #[test]
    fn costly_comparisons_are_rejected() {
        let twice = "{% set a = [a, a] %}{% set b = [b, b] %}".repeat(60);
        for end in [
            "{{ a == b }}",
            "{{ a != b }}",
            "{{ a is eq b }}",
            "{{ a is ne(*[b]) }}",
            "{{ a is in [b] }}",
            "{{ a is lt b }}",
            "{{ [a] | select('equalto', b) | list | length }}",
            "{{ [a] | reject('eq', b) | list | length }}",
            "{{ [{'c': a}] | selectattr('c', '==', b) | list | length }}",
            "{{ [a, b] | sort | length }}",
            "{{ [a, b] | unique | length }}",
            "{{ [a, b] | min | length }}",
            "{{ [a, b] | max | length }}",
            "{{ [{'c': a}, {'c': b}] | groupby('c') | length }}",
            "{{ {1: a, 2: b} | dictsort(by='value') | length }}",
        ] {
            let source = format!("{{% set a = [1] %}}{{% set b = [1] %}}{twice}{end}");
            let message = rendered(&source).unwrap_err();
            assert!(message.contains("would go through more than"), "{end}: {message}");
        }
    }

    #[test]
    fn limited_functions_have_no_other_name() {
        for filter in ["indent(1000000000000000)", "replace('a', 'b')", "join('a')", "e"] {
            let message = rendered(&format!("{{{{ 'a\nb' | __{filter} }}}}")).unwrap_err();
            assert!(message.contains("unknown filter"), "{filter}: {message}");
        }
    }

    /// Mistral's templates compare each message with the last one, and all may be long.
    #[test]
    fn a_comparison_costs_the_weight_of_the_smaller_value() {
        let source = "{% set long = {'content': 'a' * 1000000} %}{% set short = {'content': 'b'} %}\
                      {% for i in range(10000) %}{% if long == short or short is eq long %}x{% endif %}\
                      {% endfor %}{{ long == {'content': 'a' * 1000000} }}";
        assert_eq!(rendered(source).as_deref(), Ok("True"));
    }

    /// A conversation of a million tokens, read in the way of many models' templates.
    #[test]
    fn long_texts_stay_below_the_limit() {
        let source = "{% set text = 'a' * 100000 %}{% for i in range(40) %}\
                      {% if text.startswith('<tool_response>') or '</think>' in text %}x{% endif %}\
                      {% set parts = text.split('</think>') %}{% set rest = parts[-1].lstrip('\n') %}\
                      {% set rest = rest.rstrip('\n').replace('b', 'a longer text than that was') %}\
                      {{ (rest | replace('<', '&lt;') | trim | length) == 100000 }}{% endfor %}";
        assert_eq!(rendered(source), Ok("True".repeat(40)));
    }

    /// Each case makes a text longer again and again, or reads a long one.
    #[test]
    fn endless_or_huge_work_is_rejected() {
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
            "([ns.a] * 10000) | sum(start='')",
            "ns.a if (ns.a * 10000) | length else ns.a",
            "[ns.a * 1000] | map('count') | join ~ ns.a",
            "[1] | batch(99999999999999995, 0) | list",
        ] {
            let message = rendered(&in_a_loop(value)).unwrap_err();
            assert!(message.contains("would go through more than"), "{value}: {message}");
        }
    }
}
