//! The weight of a value: how much it holds.

use minijinja::Value;
use minijinja::value::ValueKind;

/// Bytes of text that take as long to read or write as one value.
pub(super) const BYTES_A_VALUE: usize = 16;

/// Counting ends here: no template may read as much.
pub(super) const WEIGHT_MAX: usize = 1 << 24;
/// Depth of nested lists that is counted. A deeper value has the largest weight.
pub(super) const DEPTH_MAX: usize = 1000;

/// Returns the number of values in a value, itself included, with texts counted by their length. A
/// value that is in it twice counts twice, because it is written and compared twice.
pub(super) fn weight(value: &Value) -> usize {
    let mut left = WEIGHT_MAX;
    count(value, DEPTH_MAX, &mut left);
    WEIGHT_MAX - left
}

/// Returns the weight of a list's items or of a mapping's pairs, and the weight of the heaviest
/// one.
pub(super) fn weight_of_items(list: &Value) -> (usize, usize) {
    let (mut left, mut heaviest) = (WEIGHT_MAX, 0);
    let Ok(items) = list.try_iter() else { return (0, 0) };
    for item in items {
        let before = left;
        count(&item, DEPTH_MAX, &mut left);
        if list.kind() == ValueKind::Map {
            count(&list.get_item(&item).unwrap_or_default(), DEPTH_MAX, &mut left);
        }
        heaviest = heaviest.max(before - left);
        if left == 0 {
            break;
        }
    }
    (WEIGHT_MAX - left, heaviest)
}

/// Subtracts the weight from `left`.
pub(super) fn count(value: &Value, depth: usize, left: &mut usize) {
    let text_bytes = value.as_str().map_or(0, str::len);
    *left = left.saturating_sub(1 + text_bytes / BYTES_A_VALUE);
    let is_nested = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable);
    if !is_nested || *left == 0 {
        return;
    }
    if depth == 0 {
        *left = 0;
        return;
    }
    let Ok(items) = value.try_iter() else { return };
    for item in items {
        if *left == 0 {
            return;
        }
        if value.kind() == ValueKind::Map {
            let of_key = value.get_item(&item).unwrap_or_default();
            count(&of_key, depth - 1, left);
        }
        count(&item, depth - 1, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_count_each_time() {
        assert_eq!(weight(&Value::from(1)), 1);
        assert_eq!(weight(&Value::from("a".repeat(160))), 11);
        let list = Value::from(vec![1, 2, 3]);
        assert_eq!(weight(&list), 4);
        assert_eq!(weight(&Value::from(vec![list.clone(), list])), 9);
        let map = std::collections::BTreeMap::from([("a", 1), ("b", 2)]);
        assert_eq!(weight(&Value::from(map)), 5);
        let doubled = |value: Value| Value::from(vec![value.clone(), value]);
        let huge = (0..100).fold(Value::from(1), |value, _| doubled(value));
        assert_eq!(weight(&huge), WEIGHT_MAX);
        assert_eq!(weight_of_items(&huge), (WEIGHT_MAX, WEIGHT_MAX));
        let many = Value::from(vec![huge; 1_000_000]);
        assert_eq!(weight_of_items(&many), (WEIGHT_MAX, WEIGHT_MAX));
        let deep = (0..2000).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert_eq!(weight(&deep), WEIGHT_MAX);
    }
}
