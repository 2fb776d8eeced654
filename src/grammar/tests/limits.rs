//! Grammars that are rejected, and grammars that are large but compile.

use playhouse_actors::logic::request::structured_output::OutputFormat::{
    Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag,
};
use serde_json::json;

use super::*;

fn invalid(output: OutputFormat, names: &str) {
    let error = refusal(output.clone());
    assert!(matches!(error, GrammarError::Invalid(_)), "{output:?}: {error:?}");
    assert!(error.to_string().contains(names), "{output:?}: {error} does not name {names:?}");
}

fn too_large(output: OutputFormat, names: &str) {
    let error = refusal(output);
    assert!(matches!(error, GrammarError::TooLarge(_)), "{error:?}");
    assert!(error.to_string().contains(names), "{error} does not name {names:?}");
}

#[test]
fn an_error_names_the_problem() {
    invalid(JsonSchema("{not json".to_owned()), "valid JSON");
    invalid(schema(json!(["a"])), "must be an object");
    invalid(schema(json!(false)), "allows no value");
    invalid(schema(json!({"type": "strung"})), "strung");
    invalid(schema(json!({"not": {"type": "null"}})), "not");
    invalid(schema(json!({"type": "array", "uniqueItems": true})), "uniqueItems");
    invalid(schema(json!({"oneOf": [{"type": "string"}, {"minLength": 2}]})), "oneOf");
    invalid(schema(json!({"type": "integer", "minimum": 3, "maximum": 2})), "minimum");
    invalid(schema(json!({"$ref": "#/$defs/missing"})), "missing");
    invalid(schema(json!({"$ref": "https://example.com/schema"})), "example.com");
    invalid(schema(json!({"type": "string", "pattern": "[a-"})), "[a-");
    invalid(Regex("[a-".to_owned()), "[a-");
    invalid(Regex("(?=a)b".to_owned()), "(?=a)b");
    invalid(Choice(Vec::new()), "at least one");
    invalid(Grammar(" \n".to_owned()), "empty");
    invalid(Grammar("root ::= nothing".to_owned()), "`nothing`");
    invalid(Grammar("other ::= \"a\"".to_owned()), "`root`");
    invalid(Grammar("root ::= \"a\"\nroot ::= \"b\"".to_owned()), "two rules `root`");
    invalid(Grammar("root ::= (\"a\"".to_owned()), "line 1");
    invalid(Grammar("root ::= \"a\"\n\nb ::= [z-a]".to_owned()), "line 3");
    invalid(Grammar("start: WORD".to_owned()), "WORD");
    invalid(Grammar("word: /a/".to_owned()), "start");
    invalid(Grammar("start: %json {\"type\": \"object\"}".to_owned()), "%json");
    invalid(Grammar("start: %lark { start: \"a\" }".to_owned()), "%lark");
    let substring = "start: A\nA: %regex {\"substring_chars\": \"abc\"}";
    invalid(Grammar(substring.to_owned()), "%regex");
    let cat = json!({"type": "object", "properties": {"kind": {"const": "cat"}}});
    let same = json!({"$defs": {"cat": cat}, "oneOf": vec![json!({"$ref": "#/$defs/cat"}); 2]});
    invalid(schema(same), "oneOf");
    let tag = |tag: serde_json::Value| StructuralTag(tag.to_string());
    invalid(tag(json!({"triggers": []})), "structures");
    invalid(tag(json!({"structures": [], "triggers": ["<"]})), "at least one");
    let structure = json!({"begin": "<a>", "schema": {}, "end": "</a>"});
    invalid(tag(json!({"structures": [structure], "triggers": ["["]})), "<a>");
    invalid(tag(json!({"format": {"type": "qwen_xml_parameter"}})), "qwen_xml_parameter");
    let text = json!({"type": "any_text"});
    let twice = json!({"format": {"type": "sequence", "elements": [text, text]}});
    invalid(tag(twice), "any_text");
}

#[test]
fn too_large_grammars_are_rejected_at_once() {
    let nested = |depth: usize| JsonSchema("{\"items\":".repeat(depth) + "{}" + &"}".repeat(depth));
    too_large(nested(64), "65 levels");
    assert!(store().matcher(&nested(63).into()).is_ok());
    too_large(Regex("a".repeat(70_000)), "32768 bytes, not 70000");
    too_large(Grammar("x".repeat(2_000_000)), "2000000 bytes");
    too_large(Choice(vec!["a".to_owned(); 20_000]), "20000 choices");
    let text = |len: usize| {
        let text = json!({"type": "const_string", "value": "<".repeat(len)});
        StructuralTag(json!({ "format": text }).to_string())
    };
    too_large(text(70_000), "70000 bytes; at most 65536");
    assert!(store().matcher(&text(10_000).into()).is_ok());
}

/// They would take all memory.
#[test]
fn too_large_expansions_are_rejected_at_once() {
    let (names, literal) = (" B".repeat(240_000), "x".repeat(500_000));
    let lark = |rule: &str| Grammar(format!("start: A\n{rule}{names}\nB: \"{literal}\"\nA: B"));
    let limit = "1048576 bytes in one terminal";
    too_large(Grammar(format!("start: A\nA:{names}\nB: \"{literal}\"")), limit);
    too_large(lark("a[stop=\"!\"]:"), limit);
    too_large(lark("%ignore"), limit);
    let names = names.to_lowercase();
    too_large(Grammar(format!("root ::= a\na ::={names}\nb ::= \"{literal}\"")), limit);
}

#[test]
fn multiples_that_cannot_be_counted_are_refused() {
    let multiple = |of: serde_json::Value| schema(json!({"type": "number", "multipleOf": of}));
    too_large(multiple(json!(500_000_000)), "multipleOf");
    too_large(multiple(json!(0.000_000_001)), "multipleOf");
    let both = [json!({"multipleOf": 30_000}), json!({"multipleOf": 20_000})];
    too_large(schema(json!({"type": "integer", "allOf": both})), "multipleOf");
    check(multiple(json!(0.01)), &["1.25", "-3", "0.5"], &["1.255"]);
    check(multiple(json!(30_000)), &["60000", "0"], &["30001"]);
}

#[test]
fn the_parts_of_a_structural_tag_are_measured_together() {
    let sequence = |part: serde_json::Value| {
        let parts = json!({"type": "sequence", "elements": vec![part; 6]});
        StructuralTag(json!({ "format": parts }).to_string())
    };
    let values: Vec<_> = (0..4_000).collect();
    let schema = json!({"type": "json_schema", "json_schema": {"enum": values}});
    too_large(sequence(schema), "20000 enum values");
    let literals = Vec::from_iter((0..2_000).map(|i| format!("\"{i}\"")));
    let grammar = format!("start: A\nA: {}", literals.join(" | "));
    too_large(sequence(json!({"type": "grammar", "grammar": grammar})), "10000 different literals");
    let stars = "[a-z]*".repeat(1_000);
    let regexes = (0..6).map(|i| json!({"type": "regex", "pattern": format!("{stars}{i}")}));
    let regexes = json!({"type": "or", "elements": Vec::from_iter(regexes)});
    too_large(sequence(regexes), "32768 bytes of regular expressions");
}

/// They would compile for minutes, and leave their threads behind. The messages are of the checks
/// before that.
#[test]
fn what_would_compile_for_too_long_is_refused_at_once() {
    let leaf = || json!({"type": "integer"});
    let object = |count: usize, required: bool| {
        let names = (0..count).map(|i| format!("p{i}"));
        let properties: serde_json::Map<_, _> = names.map(|name| (name, leaf())).collect();
        let required: Vec<&String> = properties.keys().filter(|_| required).collect();
        schema(json!({"type": "object", "properties": properties, "required": required}))
    };
    let rule = |count: usize| {
        let literals = Vec::from_iter((0..count).map(|i| format!("\"{i}\"")));
        Grammar(format!("start: a\na: {}", literals.join(" | ")))
    };
    let alternatives: Vec<_> = (0..6_000).map(|i| json!({"const": i})).collect();
    let values: Vec<_> = (0..30_000).collect();
    too_large(object(5_000, false), "1000 optional properties");
    too_large(object(6_000, true), "5000 properties and alternatives");
    too_large(schema(json!({ "anyOf": alternatives })), "2000 alternatives");
    too_large(schema(json!({ "enum": values })), "20000 enum values");
    let patterns = (0..40).map(|i| (format!("^a{i}$"), leaf()));
    let patterns: serde_json::Map<_, _> = patterns.collect();
    too_large(schema(json!({ "patternProperties": patterns })), "32 `patternProperties`");
    let half = |prefix: &str| {
        let names = (0..600).map(|i| format!("{prefix}{i}"));
        let properties: serde_json::Map<_, _> = names.map(|name| (name, leaf())).collect();
        json!({"type": "object", "properties": properties})
    };
    let parts = [json!({"$ref": "#/$defs/a"}), json!({"anyOf": [{"$ref": "#/$defs/b"}, {}]})];
    let definitions = json!({"a": half("a"), "b": half("b")});
    let merged = json!({"allOf": parts, "$defs": definitions});
    too_large(schema(merged), "1000 optional properties");
    too_large(rule(100_000), "10000 different literals");
    let same =
        |count: usize| Grammar(format!("start: a\na: {}", ["\"x\""].repeat(count).join("|")));
    too_large(same(150_000), "5000 alternatives in one rule");
    let stars = "[a-z]*".repeat(6_000);
    too_large(Grammar(format!("start: /{stars}/")), "32768 bytes of regular expressions");
    let lines = stars.replacen('*', "*\n\"", 1);
    too_large(Grammar(format!("start: /{lines}/")), "32768 bytes of regular expressions");
    too_large(schema(json!({"type": "string", "pattern": stars})), "32768 bytes of patterns");
    let tag = |content: serde_json::Value| {
        let tag = json!({"type": "tag", "begin": "<a>", "content": content, "end": "</a>"});
        StructuralTag(json!({ "format": tag }).to_string())
    };
    let Grammar(many) = rule(20_000) else { panic!("a grammar") };
    too_large(tag(json!({"type": "grammar", "grammar": many})), "10000 different literals");
    for fine in [object(300, false), object(1_000, true), rule(2_000)] {
        assert!(store().matcher(&fine.into()).is_ok());
    }
}

#[test]
fn without_an_end_of_sequence_there_is_no_structure() {
    let store = GrammarStore::new(Arc::new(Bytes), VOCAB_SIZE, vec![]);
    let error = store.matcher(&JsonObject.into()).err().unwrap();
    assert!(error.to_string().contains("end-of-sequence"), "{error}");
}

/// They would overflow a thread's usual stack.
#[test]
fn long_chains_of_rules_compile() {
    let links = |line: &dyn Fn(usize) -> String| Vec::from_iter((0..20_000).map(line)).join("\n");
    let gbnf = links(&|i| format!("a{i} ::= \"x\" a{} | \"y\" root", i + 1));
    let gbnf = format!("root ::= a0\n{gbnf}\na20000 ::= \"z\"");
    let lark = links(&|i| format!("a{i}: \"x\" a{}", i + 1));
    let lark = format!("start: a0\n{lark}\na20000: \"z\"");
    for grammar in [gbnf, lark] {
        let mut matcher = store().matcher(&Grammar(grammar).into()).unwrap();
        assert!(matcher.mask().unwrap().allows(u32::from(b'x')));
    }
}

#[test]
fn the_store_keeps_what_was_used_last() {
    let store = store();
    let choice = |i: usize| StructuredOutput::from(Choice(vec![i.to_string()]));
    for i in 0..300 {
        store.matcher(&choice(i)).unwrap();
        store.matcher(&choice(0)).unwrap();
    }
    assert_eq!(store.num_compiled(), 256);
    assert!(accepts(&mut store.matcher(&choice(7)).unwrap(), "7"), "compiled once more");
}

#[test]
fn tokens_after_the_end_change_nothing() {
    let mut matcher = store().matcher(&Choice(vec!["a".to_owned()]).into()).unwrap();
    matcher.consume(&[u32::from(b'a'), EOS, EOS, 5]).unwrap();
    let mask = matcher.mask().unwrap();
    let allowed: Vec<u32> = (0..VOCAB_SIZE).filter(|&token| mask.allows(token)).collect();
    assert_eq!(allowed, [EOS]);
}

#[test]
fn a_token_that_may_not_come_fails_its_matcher_alone() {
    let store = store();
    let output = Regex("a+".to_owned()).into();
    let mut failing = store.matcher(&output).unwrap();
    assert!(failing.consume(&[u32::from(b'b')]).is_err());
    assert!(failing.mask().is_err());
    assert!(accepts(&mut store.matcher(&output).unwrap(), "aa"));
}
