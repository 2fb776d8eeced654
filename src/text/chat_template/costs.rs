//! The cost of filters, methods and operators, by their arguments: values that they read and make.

use minijinja::Value;
use minijinja::value::{Kwargs, ValueKind};

use super::weight::{BYTES_A_VALUE, WEIGHT_MAX, weight, weight_of_items};

/// Returns the cost of a multiplication: a list or a text, repeated as often as a number says.
pub(super) fn of_factors(factors: &[Value]) -> usize {
    let [a, b] = factors else { return 1 };
    let times = |of: &Value, times: &Value| match of.kind() {
        ValueKind::String => num_bytes(of).saturating_mul(number(times)) / BYTES_A_VALUE,
        _ => num_values(of).saturating_mul(number(times)),
    };
    times(a, b).saturating_add(times(b, a)).saturating_add(1)
}

/// Returns the cost where each item, and each byte of a text, becomes a value.
pub(super) fn of_values(args: &[Value]) -> usize {
    args.iter().map(num_values).fold(1, usize::saturating_add)
}

/// Returns the cost of a length. A text is read to its end. A list is read only if its items are
/// still to be computed.
pub(super) fn of_length(args: &[Value]) -> usize {
    args.iter().fold(1, |sum: usize, value| match value.kind() {
        ValueKind::String => sum.saturating_add(weight(value)),
        ValueKind::Iterable => sum.saturating_add(num_values(value)),
        _ => sum,
    })
}

/// Returns the cost of hashing a key.
pub(super) fn of_key(args: &[Value]) -> usize {
    args.get(1).map_or(1, weight)
}

/// Returns the cost of a filter over items. It parses the path to an attribute again for each item.
/// Tests and filters that it calls count their own cost.
pub(super) fn of_each(args: &[Value]) -> usize {
    let Some((of, with)) = args.split_first() else { return 0 };
    let path = with.first().map_or(0, weight).saturating_add(with.len());
    num_values(of).saturating_add(1).saturating_mul(path.saturating_add(1))
}

/// Returns the cost of sorting. A merge sort reads all items at each level, and the heaviest item
/// may be compared with each. Comparisons copy texts.
pub(super) fn of_sorted(args: &[Value]) -> usize {
    let Some(of) = args.first() else { return 0 };
    let (items, heaviest) = weight_of_items(of);
    let count = num_values(of);
    let levels = count.checked_ilog2().unwrap_or_default() as usize + 1;
    let compared = items.saturating_mul(levels);
    compared.saturating_add(count.saturating_mul(heaviest)).saturating_add(of_each(args))
}

/// Returns the cost of a sum. A sum of texts or lists is copied for each item.
pub(super) fn of_sum(args: &[Value]) -> usize {
    let named = args.last().filter(|last| last.is_kwargs()).cloned();
    let named = named.and_then(|kwargs| Kwargs::try_from(kwargs).ok());
    let named = named.and_then(|kwargs| kwargs.peek::<Value>("start").ok());
    let is_of_numbers = |start: &Value| start.kind() == ValueKind::Number;
    match args.get(2).filter(|start| !start.is_kwargs()).or(named.as_ref()) {
        Some(start) if !is_of_numbers(start) => {
            let count = args.first().map_or(0, num_values).saturating_add(1);
            of_texts(args).saturating_mul(count)
        }
        _ => of_each(args),
    }
}

/// Returns the weight of all arguments.
pub(super) fn of_texts(args: &[Value]) -> usize {
    args.iter().map(weight).fold(0, usize::saturating_add)
}

/// Returns the cost of writing JSON, where each value may stand on an indented line of its own.
pub(super) fn of_json(args: &[Value]) -> usize {
    let indent = |value: &Value| number(value).max(num_bytes(value));
    let indents = args.iter().skip(1).map(indent).max().unwrap_or_default();
    of_texts(args).saturating_mul(indents.saturating_add(1))
}

/// Returns the cost of a filter that makes as many parts as a number says, or parts of that length.
pub(super) fn of_parts(args: &[Value]) -> usize {
    args.iter().map(number).fold(of_values(args), usize::saturating_add)
}

/// Returns the cost of an indentation before every line.
pub(super) fn of_indent(args: &[Value]) -> usize {
    let text = args.first().and_then(Value::as_str).unwrap_or_default();
    let width = args.iter().map(number).max().unwrap_or_default();
    let lines = text.matches('\n').count() + 1;
    of_texts(args).saturating_add(width.saturating_mul(lines) / BYTES_A_VALUE)
}

/// Returns the cost of a format. The width of a field stands in the format or in an argument.
pub(super) fn of_format(args: &[Value]) -> usize {
    let format = args.first().and_then(Value::as_str).unwrap_or_default();
    of_texts(args).saturating_add(formatted(format, args))
}

/// Returns the cost of the fields of a format. Each field may write the longest argument.
pub(super) fn formatted(format: &str, args: &[Value]) -> usize {
    let fields = format.matches(['%', '{']).count();
    let longest = args.iter().map(weight).max().unwrap_or_default();
    // As many fields as arguments write each argument once, which is already counted.
    let repeated = fields.saturating_sub(args.len()).saturating_mul(longest);
    widths(format, args).saturating_add(repeated)
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

pub(super) fn of_join(args: &[Value]) -> usize {
    let Some((of, with)) = args.split_first() else { return 0 };
    joined(of, with.iter().map(num_bytes).max().unwrap_or_default())
}

/// Returns the cost of joining the values `of` with a separator of `bytes`.
pub(super) fn joined(of: &Value, bytes: usize) -> usize {
    weight(of).saturating_add(num_values(of).saturating_mul(bytes) / BYTES_A_VALUE)
}

pub(super) fn of_replace(args: &[Value]) -> usize {
    let [text, old, new, ..] = args else { return 0 };
    of_texts(args).saturating_add(replaced(text.as_str().unwrap_or_default(), old, new))
}

/// Returns the cost of the new texts in the result.
pub(super) fn replaced(text: &str, old: &Value, new: &Value) -> usize {
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

/// Returns the number of values that a filter loops over.
pub(super) fn num_values(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => num_bytes(value),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value
            .len()
            .unwrap_or_else(|| value.try_iter().map_or(0, |items| items.take(WEIGHT_MAX).count())),
        _ => 0,
    }
}

/// Returns the length of a text, or of the longest text among named arguments.
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
