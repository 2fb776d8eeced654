//! Outputs that each format allows.

use playhouse_actors::logic::request::structured_output::{
    OutputFormat::{Choice, Grammar, JsonObject, Regex, StructuralTag},
    StructuredOutput,
};
use serde_json::json;

use super::{
    super::{lark::spelled, vocabulary::Vocabulary},
    *,
};

fn compact(format: OutputFormat) -> StructuredOutput {
    StructuredOutput { disable_any_whitespace: Some(true), ..format.into() }
}

fn flexible(format: OutputFormat) -> StructuredOutput {
    StructuredOutput { disable_any_whitespace: Some(false), ..format.into() }
}

#[test]
fn a_choice_is_one_of_its_strings() {
    let choices = ["yes", "yes, but", "a\"b\\c\n\u{7f}", "é", ""].map(str::to_owned);
    let bad = ["y", "yes,", "no", "yesyes", " yes"];
    check(Choice(choices.to_vec()), &["yes", "yes, but", "a\"b\\c\n\u{7f}", "é", ""], &bad);
}

#[test]
fn a_regex_matches_from_end_to_end() {
    check(Regex("[a-c]{3}-[0-9]{2}".to_owned()), &["abc-12", "ccc-00"], &["abc-1", "xabc-12"]);
    check(Regex("(yes|no)!".to_owned()), &["yes!", "no!"], &["yes", "maybe!"]);
    check(Regex("^a/b+$".to_owned()), &["a/b", "a/bbb"], &["a/", "^a/b$"]);
    check(Regex(r"a\$".to_owned()), &["a$"], &["a", r"a\"]);
    check(Regex(String::new()), &[""], &["a"]);
    check(Regex(r"\d+\.\d+".to_owned()), &["1.5"], &["1", "1."]);
}

#[test]
fn gbnf_is_read_as_it_stands() {
    let yes_or_no = "root ::= \"yes\" | \"no\"";
    check(Grammar(yes_or_no.to_owned()), &["yes", "no"], &["", "y", "yesno"]);
    // Recursion, comments, alternatives on lines of their own, and parts that could be cut wrongly.
    let sums = r#"
        # sums of numbers
        root ::= term (("+" | "-") term)*
        term ::= number
          | "(" root ")"
        number ::= [0-9] [0-9]{0,2} ("." digits)?
        digits ::= [0-9]+ [0-9]
    "#;
    let good = ["1", "123", "1.23", "(1+2)-3", "((1))"];
    check(Grammar(sums.to_owned()), &good, &["", "1+", "1234", "1.2", "(1", "+1", "1 + 1"]);
    let escapes = r#"root ::= "\n\t\"\\\x41\u00e9" [^\]a-c-] . ( "" | "z" )"#;
    check(
        Grammar(escapes.to_owned()),
        &["\n\t\"\\Aéxy", "\n\t\"\\Aéd\nz"],
        &["\n\t\"\\Aéay", "\n\t\"\\Aé-y", "\n\t\"\\Aé]y", "\n\t\"\\Aéx"],
    );
    let nullable = r#"
        root ::= "{" ws (pair ("," ws pair)*)? ws "}"
        pair ::= word ":" ws (root | word) ws
        word ::= [a-z]+
        ws ::= [ ]*
    "#;
    let good = ["{}", "{  }", "{a:b}", "{ a: {b:c , d:e } }"];
    check(Grammar(nullable.to_owned()), &good, &["{a}", "{a:}", "{a:b,}", "{ "]);
    check(Grammar("root ::= \"a\"{2} \"b\"{,2} \"c\"{1,}".to_owned()), &["aac", "aabbcc"], &["ac"]);
    let spaced = "root ::= a + (\"b\" | \"c\") # two\n {2} \"d\" ?\na ::= [a] {1}\n";
    check(Grammar(spaced.to_owned()), &["abc", "aaccd"], &["bb", "ab", "abbb", "abbdd"]);
}

#[test]
fn lark_is_llguidances() {
    let lark = "start: WORD (\",\" WORD)*\nWORD: /[a-z]+/\n%ignore / /";
    check(Grammar(lark.to_owned()), &["a", "a,bc", "a , b"], &["", "a,", "A"]);
}

#[test]
fn json_is_compact_unless_any_white_space_is_asked_for() {
    let compact_json = ["{}", r#"{"a":[1,2]}"#, r#"{"a": [1, {"b": null}], "c":true}"#];
    let spaced = ["{ }", r#"{ "a":1}"#, r#"{"a":1 }"#, r#"{"a" :1}"#, "{\n  \"a\": true\n}"];
    let unbounded = ["[]", "1", "{  }", "{\n\n}", r#"{"a":  1}"#, " {}", "{\"a\":\t1}"];
    let good = [&compact_json[..], &spaced].concat();
    check(flexible(JsonObject), &good, &unbounded);
    let bad = [&spaced[..], &unbounded].concat();
    check(JsonObject, &compact_json, &bad);
    check(compact(JsonObject), &compact_json, &bad);
}

#[test]
fn the_setting_holds_where_a_format_says_nothing() {
    for is_compact in [true, false] {
        let store = store().with_any_whitespace_disabled(is_compact);
        let accepts = |output: StructuredOutput| {
            accepts(&mut store.matcher(&output).unwrap(), "{\n  \"a\": 1\n}")
        };
        assert_eq!(accepts(JsonObject.into()), !is_compact);
        let tag = json!({"type": "structural_tag",
                         "format": {"type": "json_schema", "json_schema": {"type": "object"}}});
        assert_eq!(accepts(StructuralTag(tag.to_string()).into()), !is_compact);
        assert!(accepts(flexible(JsonObject)) && !accepts(compact(JsonObject)));
    }
}

/// As vLLM's default compiler, xgrammar in its strict mode.
#[test]
fn the_setting_closes_schemas_whose_parts_can_be_read_alone() {
    let accepts = |value: &serde_json::Value, text: &str| {
        let store = store().with_additional_properties_disabled(true);
        let output: StructuredOutput = schema(value.clone()).into();
        accepts(&mut store.matcher(&output).unwrap(), text)
    };
    let point = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let mut person = json!({
        "type": "object",
        "properties": {"at": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}},
        "$defs": {"Point": point},
    });
    assert!(accepts(&person, r#"{"at": {"x": 1}}"#) && accepts(&person, r#"{"at": null}"#));
    assert!(!accepts(&person, r#"{"at": null, "y": 1}"#), "closed");
    assert!(!accepts(&person, r#"{"at": {"x": 1, "y": 1}}"#), "closed within");
    person["additionalProperties"] = json!(true);
    assert!(accepts(&person, r#"{"at": null, "y": 1}"#), "the schema decides");
    assert!(accepts(&json!({"type": "object"}), r#"{"a": 1}"#), "it names none");
    let other = json!({"type": "object", "properties": {"y": {"const": 1}}, "required": ["x"]});
    assert!(accepts(&other, r#"{"x": 1}"#), "it requires one that it does not name");
    let names = json!({"type": "object", "properties": {"if": {"const": 1}, "not": {}}});
    assert!(!accepts(&names, r#"{"x": 1}"#), "a property may have the name of a keyword");
    let both = json!({"allOf": [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"const": 2}}, "required": ["b"]},
    ]});
    assert!(accepts(&both, r#"{"a": 1, "b": 2}"#), "one part names what the other does not");
}

#[test]
fn outputs_match_their_schema() {
    let person = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer"}},
        "required": ["name"],
    });
    let good = [r#"{"name":"é"}"#, r#"{"name": "bob", "age": 7}"#, r#"{"name":"a","x":[]}"#];
    let bad = [r#"{"age":7}"#, r#"{"name":"abcd"}"#, r#"{"name":"a","age":"7"}"#, "{}"];
    check(schema(person.clone()), &good, &bad);
    let closed = StructuredOutput { disable_additional_properties: true, ..schema(person).into() };
    check(closed, &good[..2], &[good[2]]);
    // The client's own rules for white space do not apply.
    let guided = json!({"type": "array", "x-guidance": {"whitespace_pattern": "z+"}});
    check(flexible(schema(guided)), &["[]", "[ ]"], &["[z]", "[  ]"]);
    check(schema(json!(true)), &["1", "[]", "\"a\""], &["", "x"]);
}

#[test]
fn alternatives_that_exclude_each_other_may_be_references() {
    let animals = json!({
        "$defs": {
            "cat": {"type": "object", "properties": {"kind": {"const": "cat"}},
                    "required": ["kind"], "additionalProperties": false},
            "dog": {"type": "object", "properties": {"kind": {"const": "dog"}},
                    "required": ["kind"], "additionalProperties": false},
        },
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind"},
    });
    check(schema(animals), &[r#"{"kind":"cat"}"#, r#"{"kind":"dog"}"#], &[r#"{"kind":"cow"}"#]);
}

#[test]
fn unions_of_references_may_recur_and_lie_in_one_another() {
    let expression = json!({
        "discriminator": {"propertyName": "kind"},
        "oneOf": [{"$ref": "#/$defs/number"}, {"$ref": "#/$defs/sum"}],
    });
    let kind = |name: &str| json!({"const": name, "title": "Kind", "type": "string"});
    let root = json!({
        "$defs": {
            "number": {
                "type": "object",
                "properties": {"kind": kind("number"), "at": {"type": "string", "format": "time"}},
                "required": ["kind", "at"],
            },
            "sum": {
                "type": "object",
                "properties": {"kind": kind("sum"), "left": expression, "right": expression},
                "required": ["kind", "left", "right"],
            },
        },
        "type": "object",
        "properties": {"is": expression},
        "required": ["is"],
    });
    let output = StructuredOutput { disable_additional_properties: true, ..compact(schema(root)) };
    let number = r#"{"kind":"number","at":"23:59:59Z"}"#;
    let sum = format!(r#"{{"kind":"sum","left":{number},"right":{number}}}"#);
    let deep = format!(r#"{{"kind":"sum","left":{sum},"right":{number}}}"#);
    let is = |expression: &str| format!(r#"{{"is":{expression}}}"#);
    let leap = number.replace(":59Z", ":60Z");
    let open = number.replace('}', r#","x":1}"#);
    let good = [number, sum.as_str(), deep.as_str()].map(is);
    let bad = [leap.as_str(), open.as_str(), r#"{"kind":"number"}"#, r#"{"kind":"no"}"#].map(is);
    check(output, &good.each_ref().map(String::as_str), &bad.each_ref().map(String::as_str));
}

#[test]
fn alternatives_of_other_types_exclude_each_other_and_others_stay_beside_them() {
    let word_or_list = json!({
        "$defs": {"word": {"type": "string"}, "list": {"type": "array", "maxItems": 0}},
        "oneOf": [{"$ref": "#/$defs/word"}, {"$ref": "#/$defs/list"}],
        "anyOf": [{"maxLength": 1}, {"const": "yes"}],
    });
    check(schema(word_or_list), &["\"a\"", "\"yes\"", "[]"], &["\"ab\"", "[1]", "1"]);
}

#[test]
fn a_minute_has_sixty_seconds() {
    let time = json!({"type": "string", "format": "time"});
    check(schema(time), &["\"23:59:59Z\"", "\"01:02:03.5+04:05\""], &["\"23:59:60Z\""]);
    let date_time = json!({"type": "string", "format": "date-time", "minLength": 3});
    let good = ["\"2024-02-29T23:59:59Z\"", "\"2000-01-01t00:00:00-01:30\""];
    check(schema(date_time), &good, &["\"2024-02-29T23:59:60Z\"", "\"2024-02-29\""]);
}

#[test]
fn structures_come_after_their_triggers() {
    let tag = json!({
        "structures": [
            {"begin": "<fn=a>", "schema": {"type": "integer"}, "end": "</fn>"},
            {"begin": "<fn=b>", "schema": {"type": "boolean"}, "end": "</fn>"},
        ],
        "triggers": ["<fn="],
    });
    let good = ["", "free text", "x<fn=a>12</fn>y", "<fn=a>1</fn><fn=b>true</fn>", "<fn"];
    let bad = ["<fn=", "<fn=c>", "<fn=a>true</fn>", "<fn=a>1", "text <fn=b>1</fn>"];
    check(StructuralTag(tag.to_string()), &good, &bad);
}

#[test]
fn formats_nest() {
    let tag = |begin: &str, content: serde_json::Value| json!({"type": "tag", "begin": begin, "content": content, "end": "</t>"});
    let integer = json!({"type": "json_schema", "json_schema": {"type": "integer"}});
    let text = json!({"type": "any_text"});
    let format = |format: serde_json::Value| {
        StructuralTag(json!({"type": "structural_tag", "format": format}).to_string())
    };
    let sequence = json!({"type": "sequence", "elements": [
        {"type": "const_string", "value": "a\"b"},
        {"type": "or", "elements": [tag("<i>", integer.clone()), tag("<t>", text.clone())]},
        {"type": "regex", "pattern": "[xy]"},
        {"type": "grammar", "grammar": "root ::= \"!\"+"},
    ]});
    let good = ["a\"b<i>5</t>x!", "a\"b<t>any < text</t>y!!"];
    check(format(sequence), &good, &["a\"b<i>a</t>x!", "a\"b<t>z</t>", "<i>5</t>x!"]);
    let list = |at_least_one: bool, stop_after_first: bool| {
        format(json!({"type": "tags_with_separator", "tags": [tag("<i>", integer.clone())],
                      "separator": ";", "at_least_one": at_least_one,
                      "stop_after_first": stop_after_first}))
    };
    check(list(false, false), &["", "<i>1</t>", "<i>1</t>;<i>2</t>"], &[";", "<i>1</t>;"]);
    check(list(true, true), &["<i>1</t>"], &["", "<i>1</t>;<i>2</t>"]);
    let triggered = |at_least_one: bool, stop_after_first: bool| {
        format(
            json!({"type": "triggered_tags", "triggers": ["<"], "tags": [tag("<i>", text.clone())],
                      "at_least_one": at_least_one, "stop_after_first": stop_after_first}),
        )
    };
    check(triggered(false, false), &["", "a", "a<i>b</t>c<i></t>"], &["<", "<i>a"]);
    check(triggered(true, false), &["a<i>b</t>c", "<i></t><i></t>"], &["", "a"]);
    check(triggered(true, true), &["a<i>b</t>"], &["", "a<i>b</t>c"]);
    check(triggered(false, true), &["", "a", "a<i>b</t>"], &["a<i>b</t>c"]);
}

#[test]
fn special_tokens_are_told_from_text_that_begins_like_them() {
    let vocabulary = Vocabulary::new(&Bytes, VOCAB_SIZE, &[EOS, END_OF_TURN]).unwrap();
    let spelled = |text: &str| spelled(text, &vocabulary);
    assert_eq!(spelled("a<tool><too<tool>é</s"), "\"a\" <[258]> \"<too\" <[258]> \"é</s\"");
    assert_eq!(spelled("<|end|></s>"), "<[257]> <[256]>");
    assert_eq!(spelled("<<"), "\"<<\"");
    assert_eq!(spelled(""), "\"\"");
}

#[test]
fn a_special_token_is_no_text() {
    let tag = json!({
        "structures": [{"begin": "<tool>{", "schema": {"type": "null"}, "end": "}<tool>"}],
        "triggers": ["<tool>"],
    });
    let (store, output) = (store(), StructuralTag(tag.to_string()).into());
    let bytes = |text: &str| Vec::from_iter(text.bytes().map(u32::from));
    let whole = [bytes("a<t"), vec![TOOL], bytes("{null}"), vec![TOOL], bytes("b")].concat();
    assert!(accepts_tokens(&mut store.matcher(&output).unwrap(), &whole));
    assert!(!accepts_tokens(&mut store.matcher(&output).unwrap(), &[TOOL]));
    let any = store.matcher(&Regex("(?s:.*)".to_owned()).into()).unwrap().mask().unwrap();
    let allowed = (0..VOCAB_SIZE).filter(|&token| any.allows(token));
    let special: Vec<u32> = allowed.filter(|&token| (256..259).contains(&token)).collect();
    assert_eq!(special, [EOS, END_OF_TURN], "the end alone is no text");
}
