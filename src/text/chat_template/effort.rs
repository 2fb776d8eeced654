//! What a template's filters and methods may go through. Fuel counts instructions, and to join the
//! letters of a long text, or to look at each of them, is one.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

/// Values that filters may go through while a template is rendered, in all: some seconds' worth. A
/// conversation takes some thousand.
const VALUES_MAX: u64 = 10_000_000;

/// Bytes of text that are gone through, or written, as fast as a value.
const BYTES_A_VALUE: usize = 16;

/// Where their number is kept while a template is rendered.
const GONE_THROUGH: &str = "__gone_through";

/// Puts filters of the library under the limit, which keep their names.
macro_rules! limited {
    ($environment:ident, $cost:ident: $($name:ident)*) => {$({
        const OWN_NAME: &str = concat!("__", stringify!($name));
        $environment.add_filter(OWN_NAME, filters::$name);
        let limited = |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            spend(state, $cost(&args))?;
            state.apply_filter(OWN_NAME, &args)
        };
        $environment.add_filter(stringify!($name), limited);
    })*};
}

/// Limits the filters that go through what they are given.
pub(super) fn limit_filters(environment: &mut Environment<'static>) {
    limited!(environment, of_values: chain dictsort groupby items list map max min reject rejectattr
        reverse select selectattr sort sum unique zip);
    limited!(environment, of_parts: batch slice);
    limited!(environment, of_texts: capitalize escape lines lower pprint split string title trim upper);
    limited!(environment, of_format: format);
    limited!(environment, of_indent: indent);
    limited!(environment, of_join: join);
    limited!(environment, of_replace: replace);
}

/// Counts what a method of a text goes through.
pub(super) fn spend_on_method(
    state: &mut State<'_, '_>,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<(), Error> {
    let made = match (method, args) {
        ("format", _) => widths(text, args),
        ("join", [of, ..]) => joined(of, text.len()),
        ("replace", [old, new, ..]) => replaced(text, old, new),
        _ => 0,
    };
    spend(state, made.saturating_add(text.len() / BYTES_A_VALUE).saturating_add(of_texts(args)))
}

/// Each item, and each letter of a text, becomes a value.
fn of_values(args: &[Value]) -> usize {
    args.iter().map(num_values).fold(1, usize::saturating_add)
}

fn of_texts(args: &[Value]) -> usize {
    args.iter().map(num_bytes).fold(0, usize::saturating_add) / BYTES_A_VALUE + 1
}

/// As many parts as are asked for, or as long ones.
fn of_parts(args: &[Value]) -> usize {
    args.iter().map(number).fold(of_values(args), usize::saturating_add)
}

/// So much comes before every line.
fn of_indent(args: &[Value]) -> usize {
    let text = args.first().and_then(Value::as_str).unwrap_or_default();
    let width = args.iter().map(number).max().unwrap_or_default();
    let lines = text.matches('\n').count() + 1;
    of_texts(args).saturating_add(width.saturating_mul(lines) / BYTES_A_VALUE)
}

/// A format says how wide a field is, or that an argument does.
fn of_format(args: &[Value]) -> usize {
    let format = args.first().and_then(Value::as_str).unwrap_or_default();
    of_texts(args).saturating_add(widths(format, args))
}

fn widths(format: &str, args: &[Value]) -> usize {
    let is_of_printf = |c: char| c.is_ascii_digit() || "#- +.*".contains(c);
    let printf = format.split('%').skip(1).map(|field| {
        let field = field.strip_prefix('(').and_then(|f| f.split_once(')')).map_or(field, |f| f.1);
        &field[..field.find(|c| !is_of_printf(c)).unwrap_or(field.len())]
    });
    let fields = || printf.clone().chain(format.split('{').skip(1).map(up_to_brace));
    let digits = fields().flat_map(|field| field.split(|c: char| !c.is_ascii_digit()));
    let numbers = digits.filter(|digits| !digits.is_empty());
    let in_format = numbers.map(|digits| digits.parse().unwrap_or(usize::MAX));
    let is_nested = |field: &str| field.contains(':') && !field.contains('}');
    let takes_arguments =
        printf.clone().any(|field| field.contains('*')) || format.split('{').skip(1).any(is_nested);
    let in_args = args.iter().filter(|_| takes_arguments).map(number);
    in_format.chain(in_args).fold(0, usize::saturating_add) / BYTES_A_VALUE
}

fn up_to_brace(field: &str) -> &str {
    field.split('}').next().unwrap_or_default()
}

fn of_join(args: &[Value]) -> usize {
    let Some((of, with)) = args.split_first() else { return 0 };
    joined(of, with.iter().map(num_bytes).max().unwrap_or_default())
}

/// Between any two values a text of so many bytes comes.
fn joined(of: &Value, bytes: usize) -> usize {
    num_values(of).saturating_add(num_values(of).saturating_mul(bytes) / BYTES_A_VALUE)
}

fn of_replace(args: &[Value]) -> usize {
    let [text, old, new, ..] = args else { return 0 };
    of_texts(args).saturating_add(replaced(text.as_str().unwrap_or_default(), old, new))
}

/// What comes into the text.
fn replaced(text: &str, old: &Value, new: &Value) -> usize {
    let count = old.as_str().map_or(0, |old| text.matches(old).count());
    count.saturating_mul(num_bytes(new)) / BYTES_A_VALUE
}

fn number(value: &Value) -> usize {
    let named = |kwargs: Kwargs| {
        let values = kwargs.args().filter_map(|name| kwargs.peek::<Value>(name).ok());
        values.map(|value| number(&value)).max()
    };
    match value.kind() {
        ValueKind::Number if value.is_integer() => {
            value.as_i64().map_or(usize::MAX, |n| n.unsigned_abs() as usize)
        }
        _ if value.is_kwargs() => Kwargs::try_from(value.clone()).ok().and_then(named).unwrap_or(0),
        _ => 0,
    }
}

/// What a filter that loops finds.
fn num_values(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => num_bytes(value),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or_default(),
        _ => 0,
    }
}

/// Of a text, or of the longest of arguments with names.
fn num_bytes(value: &Value) -> usize {
    let named = |kwargs: Kwargs| {
        let values = kwargs.args().filter_map(|name| kwargs.peek::<Value>(name).ok());
        values.filter_map(|value| value.as_str().map(str::len)).max()
    };
    match value.as_str() {
        Some(text) => text.len(),
        None if value.is_kwargs() => {
            Kwargs::try_from(value.clone()).ok().and_then(named).unwrap_or(0)
        }
        None => 0,
    }
}

fn spend(state: &mut State<'_, '_>, values: usize) -> Result<(), Error> {
    let before = state.get_temp(GONE_THROUGH).and_then(|n| u64::try_from(n).ok());
    let now = before.unwrap_or_default().saturating_add(values as u64);
    state.set_temp(GONE_THROUGH, Value::from(now));
    if now > VALUES_MAX {
        let detail = format!("filters would go through more than {VALUES_MAX} values");
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::text::chat_template::environment;

    fn rendered(source: &str) -> Result<String, String> {
        environment::new().render_str(source, ()).map_err(|error| error.to_string())
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
