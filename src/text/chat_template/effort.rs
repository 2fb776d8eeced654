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
    limited!(environment, of_values: batch chain dictsort groupby items list map max min reject
        rejectattr reverse select selectattr slice sort sum unique zip);
    limited!(environment, of_texts: capitalize escape format indent lines lower pprint split string
        title trim upper);
    limited!(environment, of_join: join);
    limited!(environment, of_replace: replace);
}

/// Counts what a method of a text goes through.
pub(super) fn spend_on_method(
    state: &mut State<'_, '_>,
    text: &str,
    args: &[Value],
) -> Result<(), Error> {
    let of_args = args.iter().map(num_values).fold(0, usize::saturating_add);
    spend(state, of_args.saturating_add(product(text.len(), args)))
}

/// Each item, and each letter of a text, becomes a value.
fn of_values(args: &[Value]) -> usize {
    args.iter().map(num_values).fold(1, usize::saturating_add)
}

fn of_texts(args: &[Value]) -> usize {
    args.iter().map(num_bytes).fold(0, usize::saturating_add) / BYTES_A_VALUE + 1
}

/// Between any two values something comes.
fn of_join(args: &[Value]) -> usize {
    let Some((of, with)) = args.split_first() else { return 0 };
    num_values(of).saturating_add(product(num_values(of), with))
}

/// In the place of any letter something longer may come.
fn of_replace(args: &[Value]) -> usize {
    args.split_first().map_or(0, |(of, with)| product(num_bytes(of), with))
}

/// What text becomes that repeats one of `with` so often.
fn product(times: usize, with: &[Value]) -> usize {
    let longest = with.iter().map(|of| num_bytes(of).max(num_values(of))).max();
    times.saturating_mul(longest.unwrap_or_default().max(1)) / BYTES_A_VALUE + 1
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
        ] {
            assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
        }
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
        ] {
            let message = rendered(&in_a_loop(value)).unwrap_err();
            assert!(message.contains("would go through more than"), "{value}: {message}");
        }
    }
}
