//! Tests of formats whose arguments are not JSON.

use super::{super::ToolEvent, check_no_calls, check_tools, stopped_message, tool_parser};

#[test]
fn qwen3_coder() {
    let table: &[super::Whole<'_>] = &[
        ("This is a <test>", "This is a <test>", &[]),
        (
            "<tool_call>\n<function=weather>\n<parameter=city>\nDallas \"TX\"\n</parameter>\n\
             <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            "",
            &[("weather", r#"{"city": "Dallas \"TX\"", "days": 3}"#)],
        ),
        // Values over several lines, layout within them, and markup.
        (
            "Sure!<tool_call>\n<function=weather>\n<parameter=city>\n  a\n\n<b>\\n</b>\n\n\
             </parameter>\n</function>\n</tool_call>\nDone.",
            "Sure!\nDone.",
            &[("weather", "{\"city\": \"  a\\n\\n<b>\\\\n</b>\\n\"}")],
        ),
        // Every type, and values that do not fit their type.
        (
            "<tool_call><function=weather><parameter=factor>1.50</parameter><parameter=exact>True\
             </parameter><parameter=note>null</parameter><parameter=at>{'x': [1, None]}</parameter>\
             <parameter=days>many</parameter><parameter=other>7</parameter></function></tool_call>",
            "",
            &[(
                "weather",
                "{\"factor\": 1.50, \"exact\": true, \"note\": null, \"at\": {\"x\": [1, null]}, \
                 \"days\": \"many\", \"other\": \"7\"}",
            )],
        ),
        // No arguments, empty ones, an unknown function, several calls.
        (
            "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=other>\n\
             <parameter=x>\n\n</parameter>\n</function>\n</tool_call>",
            "",
            &[("now", "{}"), ("other", "{\"x\": \"\"}")],
        ),
        // Without the outer tag, and without closing tags.
        (
            "<function=weather>\n<parameter=city>\nKöln\n<parameter=days>\n2\n</function>",
            "",
            &[("weather", "{\"city\": \"Köln\", \"days\": 2}")],
        ),
        (
            "<function=now></function>\n<function=now>\n</function>\n</tool_call>",
            "",
            &[("now", "{}"), ("now", "{}")],
        ),
        // Only the functions' closing tags are missing.
        (
            "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</tool_call>\n\
             <tool_call>\n<function=now>\n</tool_call>",
            "",
            &[("weather", "{\"city\": \"Ulm\"}"), ("now", "{}")],
        ),
        // The next function ends one without a closing tag, as in vLLM 0.33.
        (
            "<tool_call>\n<function=now>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n\
             <function=now>\n</function>\n</tool_call>",
            "",
            &[("now", "{}"), ("weather", "{\"days\": 3}"), ("now", "{}")],
        ),
        (
            "<tool_call>\n<tool_call>\n<function=now></function></tool_call>",
            "<tool_call>\n",
            &[("now", "{}")],
        ),
    ];
    let none = &[
        "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "<tool_call><function=>\n</function></tool_call>",
        "<function=weather> is a function",
        "<function=weather",
        "<function=a\nb>",
        "<tool_call>",
    ];
    for name in ["qwen3_coder", "qwen3_xml"] {
        check_tools(name, table);
        check_no_calls(name, none);
    }
}

/// The format of vLLM's `MinimaxM2ToolParser`.
#[test]
fn minimax_m2() {
    check_tools(
        "minimax_m2",
        &[
            ("This is a <test>", "This is a <test>", &[]),
            (
                "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Dallas \
                 \"TX\"</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n\
                 </minimax:tool_call>",
                "",
                &[("weather", r#"{"city": "Dallas \"TX\"", "days": 3}"#)],
            ),
            // Several calls in one block, no arguments, other quotes, and content around it.
            (
                "Sure!<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n\
                 <invoke name='other'>\n<parameter name='x'>7</parameter>\n</invoke>\n\
                 </minimax:tool_call>\nDone.",
                "Sure!\nDone.",
                &[("now", "{}"), ("other", "{\"x\": \"7\"}")],
            ),
            // White space belongs to a text.
            (
                "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"city\">\n a\n\n\
                 </parameter><parameter name=\"days\">\n3\n</parameter></invoke>\
                 </minimax:tool_call>",
                "",
                &[("weather", r#"{"city": "\n a\n\n", "days": 3}"#)],
            ),
            // Every type.
            (
                "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"factor\">1.50\
                 </parameter><parameter name=\"exact\">True</parameter>\
                 <parameter name=\"note\">null</parameter>\
                 <parameter name=\"at\">{\"x\": [1, null]}</parameter></invoke>\
                 </minimax:tool_call>",
                "",
                &[(
                    "weather",
                    "{\"factor\": 1.50, \"exact\": true, \"note\": null, \"at\": {\"x\": [1, \
                     null]}}",
                )],
            ),
            // Closing tags are missing.
            (
                "<minimax:tool_call><invoke name=\"weather\"><parameter name=\"days\">2</invoke>\
                 <invoke name=\"now\"></minimax:tool_call>",
                "",
                &[("weather", "{\"days\": 2}"), ("now", "{}")],
            ),
        ],
    );
    check_no_calls(
        "minimax_m2",
        &[
            "<invoke name=\"now\">\n</invoke>",
            "<minimax:tool_call>\n{\"name\": \"f\"}\n</minimax:tool_call>",
            "<minimax:tool_call><invoke name=\"\"></invoke></minimax:tool_call>",
            "<minimax:tool_call><invoke name=\"a\nb\">",
            "<minimax:tool_call>",
        ],
    );
}

#[test]
fn a_call_without_closing_tags_is_complete() {
    let start = "<tool_call>\n<function=weather>\n<parameter=days>\n3\n";
    for name in ["qwen3_coder", "qwen3_xml"] {
        for end in ["</parameter>", "</parameter>\n", "</parameter>\n</function"] {
            let message = stopped_message(name, &format!("{start}{end}"));
            let call = &message.calls[0];
            assert_eq!((&*call.name, &*call.arguments), ("weather", "{\"days\": 3}"), "{end}");
            assert_eq!((message.calls.len(), &*message.content), (1, ""), "{end}");
        }
        let cut = stopped_message(name, start);
        assert_eq!((&*cut.calls[0].arguments, cut.calls[0].is_complete), ("{\"days\": ", false));
        for text in ["<tool_call>\n<function=weather>\n", "<function=weather>\n<param"] {
            let message = stopped_message(name, text);
            assert_eq!((message.calls.len(), &*message.content), (0, text));
        }
    }
}

#[test]
fn strings_are_streamed_while_they_are_written() {
    let mut parser = tool_parser("qwen3_coder");
    let arguments = |text: &str| ToolEvent::CallArguments { index: 0, delta: text.to_owned() };
    let start = ToolEvent::CallStart { index: 0, name: "weather".to_owned(), id: None };
    assert_eq!(parser.push("<tool_call>\n<function=weather>\n"), []);
    assert_eq!(parser.push("<parameter="), [start, arguments("{")]);
    assert_eq!(parser.push("city>\nSan"), [arguments("\"city\": \"San")]);
    assert_eq!(parser.push(" Jo\n"), [arguments(" Jo")]);
    assert_eq!(parser.push("se\n</par"), [arguments("\\nse")]);
    assert_eq!(parser.push("ameter>\n"), [arguments("\"")]);
    assert_eq!(parser.push("<parameter=days>4"), [arguments(", \"days\": ")]);
    assert_eq!(parser.push("2</parameter>"), [arguments("42")]);
    assert_eq!(parser.push("</function>"), [arguments("}"), ToolEvent::CallEnd { index: 0 }]);
    assert_eq!(parser.push("</tool_call>"), []);
    assert_eq!(parser.finish(), []);
}

#[test]
fn glm45() {
    check_tools(
        "glm45",
        &[
            ("This is a test", "This is a test", &[]),
            (
                "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Dal\"las\n</arg_value>\n\
                 <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
                "",
                &[("weather", r#"{"city": "Dal\"las\n", "days": 3}"#)],
            ),
            // Without line breaks, as GLM 4.7 writes it. No arguments. Content before and after.
            (
                "I help. <tool_call>now</tool_call><tool_call>weather<arg_key>city</arg_key>\
                 <arg_value>北京</arg_value></tool_call> So.",
                "I help.  So.",
                &[("now", "{}"), ("weather", "{\"city\": \"北京\"}")],
            ),
            ("<tool_call>now\n</tool_call>", "", &[("now", "{}")]),
            // Types follow from the values if the tool does not give them.
            (
                "<tool_call>other<arg_key>a</arg_key><arg_value>[1, \"x\"]</arg_value>\
                 <arg_key>b</arg_key><arg_value>true</arg_value><arg_key>c</arg_key>\
                 <arg_value>1 < 2 </arg</arg_value><arg_key>d</arg_key><arg_value></arg_value>\
                 </tool_call>",
                "",
                &[(
                    "other",
                    "{\"a\": [1, \"x\"], \"b\": true, \"c\": \"1 < 2 </arg\", \"d\": \"\"}",
                )],
            ),
            // A call begins where another one should end.
            (
                "<tool_call>weather<tool_call>now</tool_call>",
                "<tool_call>weather",
                &[("now", "{}")],
            ),
        ],
    );
    check_no_calls(
        "glm45",
        &[
            "<tool_call></tool_call>",
            "<tool_call>{\"name\": \"f\"}</tool_call>",
            "<tool_call>two words\nand a line</tool_call>",
        ],
    );
}

#[test]
fn pythonic() {
    check_tools(
        "pythonic",
        &[
            ("How can I [help] you?", "How can I [help] you?", &[]),
            (
                "[get_weather(city='San Francisco', metric='celsius')]",
                "",
                &[("get_weather", r#"{"city": "San Francisco", "metric": "celsius"}"#)],
            ),
            (
                "[register(name='J', age=37, address={'city': 'SF', 'n': -1.5}, role=None, \
                 ok = True, aliases=['a', \"b\"])]",
                "",
                &[(
                    "register",
                    "{\"name\": \"J\", \"age\": 37, \"address\": {\"city\": \"SF\", \"n\": -1.5}, \
                     \"role\": null, \"ok\": true, \"aliases\": [\"a\", \"b\"]}",
                )],
            ),
            (
                " [a(), b(x={}), c(y=[]),\n d.e(z=1)]\n",
                "",
                &[("a", "{}"), ("b", "{\"x\": {}}"), ("c", "{\"y\": []}"), ("d.e", "{\"z\": 1}")],
            ),
            (
                r"[f(city='Martha\'s Vineyard', metric='\'cool)]\'', é='ü\n')]",
                "",
                &[("f", r#"{"city": "Martha's Vineyard", "metric": "'cool)]'", "é": "ü\n"}"#)],
            ),
            ("[f(x=1)] And so on.", " And so on.", &[("f", "{\"x\": 1}")]),
            ("[f(x=1)", "", &[("f", "{\"x\": 1}")]),
            ("[f(x=1,),]", "", &[("f", "{\"x\": 1}")]),
        ],
    );
    check_no_calls(
        "pythonic",
        &[
            "[]",
            "[1, 2]",
            "[text](http://x)",
            "[f(1)]",
            "[f(x==1)]",
            "[f(a b=1)]",
            "[foo",
            "Call [f(x=1)]",
        ],
    );
}
