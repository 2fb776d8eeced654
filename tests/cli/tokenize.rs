//! `playhouse tokenize`.

use crate::process::playhouse;

#[test]
fn text_becomes_tokens_and_text_again() {
    let text = "Hello, wörld! 你好 🦜";
    let ids = playhouse(&["tokenize", text]).succeeds();
    assert!(ids.split_whitespace().count() > 3, "{ids}");
    let decoded = playhouse(&["tokenize", "--decode"]).input(&ids).succeeds();
    assert_eq!(decoded, format!("{text}\n"));
}

#[test]
fn json_has_the_servers_form() {
    let json = playhouse(&["tokenize", "--output", "json"]).input("one two").succeeds();
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    let tokens = answer["tokens"].as_array().unwrap().len();
    assert_eq!(answer["count"], tokens);
    assert_eq!(answer["token_strs"].as_array().unwrap().len(), tokens);
}

#[test]
fn a_text_that_is_no_token_id_is_rejected() {
    let stderr = playhouse(&["tokenize", "--decode", "1", "two"]).fails_with(2);
    assert!(stderr.starts_with("error: \"two\" is no token id"), "{stderr}");
}
