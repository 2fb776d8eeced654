//! Random walks: whatever a model prefers, its output matches the requested format.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns the next number of splitmix64, which is random enough to choose tokens.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// Returns an output of a model that chooses at random, or prefers white space. `None` if the
/// output does not end.
fn walk(matcher: &mut Matcher, seed: u64, likes_space: bool) -> Option<String> {
    let (mut state, mut tokens) = (seed, Vec::new());
    for _ in 0..4_000 {
        let mask = matcher.mask().unwrap();
        let allowed: Vec<u32> = (0..VOCAB_SIZE).filter(|&token| mask.allows(token)).collect();
        assert!(allowed.iter().all(|&token| token < 259 + WORDS.len() as u32), "padding");
        // Strings and lists end only by chance, so their ends are made likelier.
        let ends = |token: &u32| is_end(*token) || b"\"]}".contains(&(*token as u8));
        let quotes = text_of(&tokens).replace("\\\\", "").replace("\\\"", "").matches('"').count();
        // White space within a string is unbounded, so there it is not preferred.
        let space =
            |token: &u32| quotes.is_multiple_of(2) && [0x20, 0x0a, 264, 265].contains(token);
        let preferred: Vec<u32> = match next(&mut state) % 4 {
            _ if likes_space && allowed.iter().any(space) => {
                allowed.iter().copied().filter(space).collect()
            }
            0 if allowed.iter().any(ends) => allowed.iter().copied().filter(ends).collect(),
            _ => allowed,
        };
        let token = preferred[(next(&mut state) % preferred.len() as u64) as usize];
        if is_end(token) {
            return Some(text_of(&tokens));
        }
        matcher.consume(&[token]).unwrap();
        tokens.push(token);
    }
    None
}

/// A schema, and whether a value is one of its own.
type Schema = (Value, fn(&Value) -> bool);

fn schemas() -> Vec<Schema> {
    vec![
        (json!({"type": "object"}), Value::is_object),
        (json!({"type": "array", "maxItems": 3}), |v| v.as_array().is_some_and(|a| a.len() <= 3)),
        (json!({"type": "integer", "minimum": -3, "maximum": 20}), |v| {
            // -0 is an integer too.
            v.as_f64().is_some_and(|n| n.fract() == 0.0 && (-3.0..=20.0).contains(&n))
        }),
        (json!({"enum": ["a", 1, null, [2]]}), |v| {
            [json!("a"), json!(1), json!(null), json!([2])].contains(v)
        }),
        (json!({"type": "string", "minLength": 2, "maxLength": 4}), |v| {
            v.as_str().is_some_and(|s| (2..=4).contains(&s.chars().count()))
        }),
        (json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), |v| {
            v.is_boolean() || v.is_null()
        }),
        (
            json!({"$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}},
                    "additionalProperties": false}}, "$ref": "#/$defs/t"}),
            |v| {
                let mut tree = v;
                while let Some(next) = tree.get("next") {
                    tree = next;
                }
                tree.as_object().is_some_and(serde_json::Map::is_empty)
            },
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn all_outputs_match_the_requested_format(seed: u64, likes_space: bool, compact: bool) {
        let store = store();
        for (schema, holds) in schemas() {
            let format = OutputFormat::JsonSchema(schema.to_string());
            let output = StructuredOutput { disable_any_whitespace: Some(compact), ..format.into() };
            let mut matcher = store.matcher(&output).unwrap();
            // It may be a long string, but never endless white space.
            let Some(text) = walk(&mut matcher, seed, likes_space) else {
                prop_assert!(!likes_space, "{} does not end", schema);
                continue;
            };
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // 1e999 is JSON, although it is no float.
                Err(error) if error.to_string().contains("out of range") => continue,
                Err(error) => panic!("{schema}: {text:?}: {error}"),
            };
            prop_assert!(holds(&value), "{} {:?}", schema, text);
        }
    }

    /// Matchers of one grammar share the states of its lexer. That must not change masks.
    #[test]
    fn masks_depend_on_the_tokens_alone(seed: u64) {
        let output = StructuredOutput::from(OutputFormat::JsonObject);
        let (shared, fresh) = (store(), store());
        let mut other = shared.matcher(&output).unwrap();
        walk(&mut other, seed ^ 1, false);
        let (mut warm, mut cold) = (shared.matcher(&output).unwrap(), fresh.matcher(&output).unwrap());
        let mut state = seed;
        for _ in 0..60 {
            let mask = warm.mask().unwrap();
            prop_assert_eq!(&mask, &cold.mask().unwrap());
            let allowed: Vec<u32> = (0..VOCAB_SIZE).filter(|&token| mask.allows(token)).collect();
            let token = allowed[(next(&mut state) % allowed.len() as u64) as usize];
            if is_end(token) {
                break;
            }
            warm.consume(&[token]).unwrap();
            cold.consume(&[token]).unwrap();
        }
    }
}
