//! Compared with the output of transformers (`testdata/make_goldens.py`); and the limits that
//! transformers does not have.

use std::collections::BTreeMap;

use playhouse_actors::ports::{ChatPrompt, TextError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ChatTemplates;
use crate::text::tokenizer_files::TokenizerFiles;

const TEMPLATES: [(&str, &str); 8] = [
    ("chatml_think", include_str!("testdata/chatml_think.jinja")),
    ("generation", include_str!("testdata/generation.jinja")),
    ("header_ids", include_str!("testdata/header_ids.jinja")),
    ("inst", include_str!("testdata/inst.jinja")),
    ("mixed", include_str!("testdata/mixed.jinja")),
    ("parts", include_str!("testdata/parts.jinja")),
    ("python", include_str!("testdata/python.jinja")),
    ("tool_signatures", include_str!("testdata/tool_signatures.jinja")),
];

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Golden {
    Text(String),
    Error(String),
    Refused(bool),
}

fn templates<'a>(named: impl IntoIterator<Item = (&'a str, &'a str)>) -> ChatTemplates {
    let owned = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    ChatTemplates::new(&TokenizerFiles {
        named_tokens: [("bos_token", "<s>"), ("eos_token", "</s>")].map(owned).into(),
        chat_templates: named.into_iter().map(owned).collect(),
        ..TokenizerFiles::default()
    })
}

fn user(text: &str) -> ChatPrompt {
    let messages = vec![json!({"role": "user", "content": text})];
    ChatPrompt { messages, ..ChatPrompt::default() }
}

fn with_template(template: &str) -> ChatPrompt {
    ChatPrompt { chat_template: Some(template.to_owned()), ..user("hi") }
}

#[test]
fn renders_as_transformers_does() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("testdata/cases.json")).unwrap();
    let goldens: BTreeMap<String, Golden> =
        serde_json::from_str(include_str!("testdata/goldens.json")).unwrap();
    assert_eq!(cases.len(), goldens.len());
    let templates = templates(TEMPLATES);
    let mut differing = Vec::new();
    for case in cases {
        let rendered = templates.render(&ChatPrompt {
            messages: case.messages,
            tools: case.tools,
            add_generation_prompt: case.add_generation_prompt,
            continue_final_message: case.continue_final_message,
            chat_template: Some(case.template),
            chat_template_kwargs: case.chat_template_kwargs,
            ..ChatPrompt::default()
        });
        let outcome = match rendered {
            Ok(text) => Golden::Text(text),
            Err(TextError::Template(message)) => Golden::Error(message),
            Err(TextError::ContinueFinalMessage(_)) => Golden::Refused(true),
            Err(other) => panic!("{}: {other}", case.name),
        };
        let golden = &goldens[&case.name];
        if outcome != *golden {
            differing.push(case.name.clone());
            println!("{}\n--- ours\n{outcome:?}\n--- transformers\n{golden:?}\n", case.name);
        }
    }
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn the_template_is_chosen_by_name_by_tools_or_by_default() {
    let named = templates([("default", "plain"), ("tool_use", "tools"), ("rag", "documents")]);
    let tools = Some(vec![json!({"type": "function"})]);
    assert_eq!(named.render(&user("hi")).unwrap(), "plain");
    assert_eq!(named.render(&ChatPrompt { tools, ..user("hi") }).unwrap(), "tools");
    assert_eq!(named.render(&with_template("rag")).unwrap(), "documents");
    assert_eq!(named.render(&with_template("own {{ messages[0].content }}")).unwrap(), "own hi");
    assert_eq!(templates([]).render(&user("hi")), Err(TextError::NoChatTemplate));
    assert_eq!(
        templates([("rag", "")]).render(&user("hi")),
        Err(TextError::NoDefaultTemplate { available: vec!["rag".to_owned()] })
    );
}

#[test]
fn documents_and_kwargs_reach_the_template_but_cannot_replace_the_messages() {
    let mut chat = with_template("{{ documents[0].title }} {{ mood }} {{ messages[0].content }}");
    chat.documents = Some(vec![json!({"title": "T"})]);
    chat.chat_template_kwargs = json!({"mood": "m", "messages": []}).as_object().unwrap().clone();
    assert_eq!(templates([]).render(&chat).unwrap(), "T m hi");
}

/// Clients send results of tools in parts, too. vLLM joins them.
#[test]
fn a_result_of_a_tool_in_parts_is_text_where_a_template_prints_it() {
    let parts = "{% for part in m.content %}({{ part.text }}){% endfor %}";
    let looping = format!("{{% for m in messages %}}{parts}{{% endfor %}}");
    let printing = format!(
        "{{% for m in messages %}}{{% if m.role == 'user' %}}{parts}{{% else %}}\
         [{{{{ m.content }}}}]{{% endif %}}{{% endfor %}}"
    );
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = json!({"role": "tool", "content": [text("a"), text(""), text("b")]});
    let rendered = |template: &str| {
        let messages = vec![json!({"role": "user", "content": "hi"}), result.clone()];
        templates([("default", template)]).render(&ChatPrompt { messages, ..user("") }).unwrap()
    };
    assert_eq!(rendered(&printing), "(hi)[a\nb]");
    assert_eq!(rendered(&looping), "(hi)(a)()(b)");
}

#[test]
fn a_template_cannot_run_for_ever() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let recursive = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}";
    for template in [endless, recursive] {
        let outcome = templates([]).render(&with_template(template));
        assert!(matches!(outcome, Err(TextError::Template(_))), "{outcome:?}");
    }
}

#[test]
fn a_panic_of_the_library_refuses_the_request_alone() {
    let nothing_backwards = "{% for message in messages[1:][::-1] %}{{ message }}{% endfor %}";
    let some = templates([("default", nothing_backwards), ("good", "good")]);
    for chat in [user("hi"), with_template(nothing_backwards)] {
        let error = some.render(&chat).unwrap_err();
        assert_eq!(error.to_string(), "chat template: it cannot be rendered");
    }
    assert_eq!(some.render(&with_template("good")).unwrap(), "good");
}

#[test]
fn a_template_that_does_not_compile_fails_alone() {
    let some = templates([("default", "{% if %}"), ("good", "good")]);
    let error = some.render(&user("hi")).unwrap_err();
    assert!(error.to_string().starts_with("chat template: syntax error"), "{error}");
    assert_eq!(some.render(&with_template("good")).unwrap(), "good");
}

#[test]
fn messages_that_no_template_could_take() {
    let render = |messages: Value| {
        let messages = messages.as_array().unwrap().clone();
        let chat = ChatPrompt { messages, ..with_template("{{ messages[0].content }}") };
        templates([]).render(&chat).unwrap_err().to_string()
    };
    assert_eq!(
        render(json!([])),
        "messages[0]: missing: a conversation needs at least one message"
    );
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]);
    let expected = "messages[0]: content[0]: parts of type \"image_url\" are not supported";
    assert!(render(image).starts_with(expected));
    let number = json!([{"role": "user", "content": 5}]);
    assert!(render(number).starts_with("messages[0]: content: expected a string"));
}

#[test]
fn arguments_of_calls_are_objects() {
    // As `_postprocess_messages` of vLLM 0.33 has it.
    let source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
    let render = |arguments: Value| {
        let call = json!({"function": {"name": "f", "arguments": arguments}});
        let messages = vec![json!({"role": "assistant", "tool_calls": [call]})];
        let chat = ChatPrompt { messages, ..with_template(source) };
        templates([]).render(&chat).unwrap()
    };
    for object in [json!("{\"a\": 1}"), json!({"a": 1})] {
        assert_eq!(render(object.clone()), "{\"a\": 1}", "{object}");
    }
    for none in [json!("{\"a\": "), json!("[1]"), json!("5"), json!(""), json!(null)] {
        assert_eq!(render(none.clone()), "{}", "{none}");
    }
}

#[test]
fn the_date_is_today_s() {
    let now = templates([]).render(&with_template("{{ strftime_now('%Y') }}")).unwrap();
    let year: i32 = now.parse().unwrap();
    assert!((2024..2200).contains(&year));
    let wrong = templates([]).render(&with_template("{{ strftime_now('%Q%') }}"));
    assert!(matches!(wrong, Err(TextError::Template(_))));
}

#[test]
fn developers_are_the_system_of_templates_that_do_not_know_them() {
    let roles = "{% for m in messages %}{{ m.role }} {% endfor %}";
    let knowing =
        "{% for m in messages %}{% if m.role == 'developer' %}dev {% endif %}{% endfor %}";
    let rendered = |template: &str| {
        let mut chat = with_template(template);
        chat.messages.insert(0, json!({"role": "developer", "content": "be brief"}));
        templates(TEMPLATES).render(&chat).unwrap()
    };
    assert_eq!(rendered(roles), "system user ");
    assert_eq!(rendered(knowing), "dev ");
    assert_eq!(rendered(&format!("{{# developers #}}{roles}")), "system user ");

    // As `_consolidate_system_messages` of vLLM 0.33 has it.
    let shown = "{% for m in messages %}{{ m.role }}: {{ m.content }}|{% endfor %}";
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let rendered = |messages: Vec<Value>| {
        let chat = ChatPrompt { messages, ..with_template(shown) };
        templates(TEMPLATES).render(&chat).unwrap()
    };
    let [system, user] = [message("system", "a"), message("user", "b")];
    let developer = json!({"role": "developer", "content": [
        {"type": "text", "text": "c"}, {"type": "text", "text": "d"},
    ]});
    let all = vec![system.clone(), user.clone(), developer, message("developer", "")];
    assert_eq!(rendered(all), "system: a\n\nc\nd|user: b|");
    assert_eq!(rendered(vec![user, system]), "user: b|system: a|", "without developers");
}

/// Returns templates of so many bytes that are nested as deep as they can. Each would overflow a
/// thread's usual stack and end the process.
fn nested(bytes: usize) -> Vec<String> {
    let long = |part: &str| part.repeat((bytes - 100) / part.len());
    let around = |open: &str, close: &str| {
        let depth = (bytes - 100) / (open.len() + close.len());
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    vec![
        format!("{{{{ {}1 }}}}", long("not ")),
        format!("{{{{ {}1 }}}}", long("-")),
        format!("{{{{ 1{} }}}}", long("|abs")),
        format!("{{{{ 1{} }}}}", long("+1")),
        format!("{{{{ 1{} }}}}", long("**1")),
        format!("{{{{ 1{} }}}}", long(" is odd")),
        format!("{{{{ 1{} }}}}", long(" if 1 else 1")),
        format!("{{{{ messages{} }}}}", long("[0]")),
        format!("{{{{ messages{} }}}}", long(".a")),
        format!("{{{{ {} }}}}", around("(", ")")),
        format!("{{{{ {} }}}}", around("[", "]")),
        format!("{{% if 0 %}}{}{{% endif %}}", long("{% elif 0 %}")),
        around("{% if 1 %}", "{% endif %}"),
        around("{% for a in [1] %}", "{% endfor %}"),
        long("{% set a = [a] %}") + "{{ a }}",
    ]
}

fn is_rendered_or_refused(templates: &ChatTemplates, chat: &ChatPrompt) {
    match templates.render(chat) {
        Ok(_) | Err(TextError::Template(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_template_of_a_request_may_be_nested_as_deep_as_it_is_long() {
    for template in nested(65_000) {
        is_rendered_or_refused(&templates([]), &with_template(&template));
    }
    let too_long = templates([]).render(&with_template(&"x".repeat(65_537)));
    let message = too_long.unwrap_err().to_string();
    assert!(message.contains("65537 bytes; at most 65536"), "{message}");
}

/// Ten thousand levels and more, as a single template and as one of a list.
#[test]
fn a_template_of_a_model_may_be_nested_as_deep_as_it_is_long() {
    for template in nested(200_000) {
        let some =
            templates([("default", template.as_str()), ("tool_use", &template), ("good", "good")]);
        is_rendered_or_refused(&some, &user("hi"));
        is_rendered_or_refused(&some, &ChatPrompt { tools: Some(vec![]), ..user("hi") });
        assert_eq!(some.render(&with_template("good")).unwrap(), "good");
    }
    let too_long = "x".repeat(262_145);
    let error = templates([("default", too_long.as_str())]).render(&user("hi")).unwrap_err();
    assert!(error.to_string().contains("262145 bytes; at most 262144"), "{error}");
}

/// A model's own template has limits as well, and cannot load another template.
#[test]
fn a_template_of_a_model_cannot_take_all_memory() {
    let doubling = "{% set ns = namespace(a='abcdefgh') %}{% for i in range(60) %}\
                    {% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}";
    let nesting = "{% set ns = namespace(a=1) %}{% for i in range(9999) %}{% for j in range(99) %}\
                   {% set ns.a = [ns.a] %}{% endfor %}{% endfor %}";
    let writing = "{% for i in range(99999) %}{{ messages[0].content * 99 }}{% endfor %}";
    for (template, reason) in [
        (doubling, "would go through more than 16000000 values"),
        (nesting, "cannot be kept in a namespace"),
        (writing, "would go through more than 16000000 values"),
        ("{% include 'good' %}", "cannot load another template"),
        ("{% extends 'good' %}", "cannot load another template"),
        ("{% from 'good' import a %}", "cannot load another template"),
    ] {
        let some = templates([("default", template), ("good", "good")]);
        let asked = user(&"x".repeat(1000));
        let own = ChatPrompt { chat_template: Some(template.to_owned()), ..asked.clone() };
        for chat in [asked, own] {
            let error = some.render(&chat).unwrap_err().to_string();
            assert!(error.contains(reason), "{template}: {error}");
        }
    }
    let long = "{{ messages[0].content }}{{ messages[0].content }}{{ messages[0].content }}";
    let error = templates([("default", long)]).render(&user(&"x".repeat(30 << 20))).unwrap_err();
    assert!(error.to_string().contains("writes more than 67108864 bytes"), "{error}");
}
