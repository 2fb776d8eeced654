//! The call of a named `tool_choice`: only its arguments.

use super::{super::NamedCallParser, all_cuts, message_of, pieces, tool_events_of};

#[test]
fn the_text_is_the_arguments() {
    let events = |parts: &[&str]| tool_events_of(Box::new(NamedCallParser::new("weather")), parts);
    let table = [
        (" {\"city\": \"a}\nb\"}\n", Some("{\"city\": \"a}\\nb\"}"), ""),
        ("{}", Some("{}"), ""),
        ("42", Some("42"), ""),
        ("{} and more", Some("{}"), " and more"),
        ("{\"city\": \"cut o", Some("{\"city\": \"cut o"), ""),
        ("{\"city\": 1,}", Some("{\"city\": 1,"), "}"),
        ("no json", Some("n"), "o json"),
        ("", None, ""),
    ];
    for (text, arguments, content) in table {
        let whole = events(&[text]);
        let message = message_of(whole.clone());
        let found = message.calls.first().map(|call| (&*call.name, &*call.arguments));
        assert_eq!(found, arguments.map(|arguments| ("weather", arguments)), "{text}");
        assert_eq!(message.content.trim_start(), content.trim_start(), "{text}");
        for cuts in all_cuts(text) {
            assert_eq!(events(&pieces(text, &cuts)), whole, "{text}");
        }
    }
}
