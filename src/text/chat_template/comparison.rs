//! The cost of comparing two values.

use minijinja::Value;
use minijinja::value::ValueKind::{Iterable, Map, Seq};

use super::weight::{BYTES_A_VALUE, DEPTH_MAX, WEIGHT_MAX, count};

/// Returns the cost of comparing `values`: the parts that both have, and the keys of mappings,
/// which are hashed whole. Apart from keys, it is no more than the cost of the smaller value.
pub(super) fn compared(values: &[Value]) -> usize {
    let [a, b, ..] = values else { return 1 };
    let mut left = WEIGHT_MAX;
    walk(a, b, DEPTH_MAX, &mut left);
    WEIGHT_MAX - left
}

fn walk(a: &Value, b: &Value, depth: usize, left: &mut usize) {
    let texts = a.as_str().zip(b.as_str());
    let bytes = texts.map_or(0, |(a, b)| a.len().min(b.len()));
    *left = left.saturating_sub(1 + bytes / BYTES_A_VALUE);
    let (Ok(items_of_a), Ok(items_of_b)) = (a.try_iter(), b.try_iter()) else { return };
    match (a.kind(), b.kind()) {
        (Map | Seq | Iterable, Map | Seq | Iterable) if depth == 0 => *left = 0,
        (Map, Map) => {
            if a.len().zip(b.len()).is_some_and(|(a, b)| a != b) {
                return;
            }
            for key in items_of_a {
                count(&key, depth - 1, left);
                if *left == 0 {
                    return;
                }
                let [of_a, of_b] = [a, b].map(|map| map.get_item(&key).unwrap_or_default());
                walk(&of_a, &of_b, depth - 1, left);
            }
        }
        (Seq | Iterable, Seq | Iterable) => {
            for (of_a, of_b) in items_of_a.zip(items_of_b) {
                if *left == 0 {
                    return;
                }
                walk(&of_a, &of_b, depth - 1, left);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_smaller_value_and_its_keys_count() {
        let text = Value::from("a".repeat(160));
        let long = Value::from("a".repeat(160_000));
        let list = Value::from(vec![long.clone(), long.clone()]);
        let map = |key: &Value, value: &Value| {
            Value::from(BTreeMap::from([(key.clone(), value.clone())]))
        };
        for (a, b, cost) in [
            (Value::from(1), list.clone(), 1),
            (text.clone(), long.clone(), 11),
            (Value::from(vec![text.clone()]), list.clone(), 12),
            (list.clone(), list, 20_003),
            (map(&text, &long), map(&text, &text), 23),
            (map(&long, &text), map(&text, &text), 10_003),
        ] {
            assert_eq!(compared(&[a.clone(), b.clone()]), cost, "{} {}", a.kind(), b.kind());
        }
        let doubled = |value: Value, _| Value::from(vec![value.clone(), value]);
        let huge = (0..100).fold(Value::from(1), doubled);
        let as_huge = (0..100).fold(Value::from(1), doubled);
        assert_eq!(compared(&[huge.clone(), as_huge]), WEIGHT_MAX);
        assert_eq!(compared(&[huge, Value::from(1)]), 1);
        let deep = (0..2000).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert_eq!(compared(&[deep.clone(), deep]), WEIGHT_MAX);
    }
}
