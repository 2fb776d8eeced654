//! Formats of further families. The outputs are those of vLLM's tests of its parsers of the same
//! names, where it has some.

use super::{Whole, check_no_calls, check_tools, stopped_message};

/// Arguments of a call.
const WEATHER: &str = "{\"city\": \"Tokyo\"}";

#[test]
fn seed_oss() {
    check_tools(
        "seed_oss",
        &[
            ("This is a <test>", "This is a <test>", &[]),
            (
                "<seed:tool_call>\n<function=weather>\n<parameter=city>Dallas</parameter>\n\
                 <parameter=days>\n3\n</parameter>\n</function>\n</seed:tool_call>",
                "",
                &[("weather", "{\"city\": \"Dallas\", \"days\": 3}")],
            ),
            (
                "I look.\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>\n\
                 <seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
                "I look.\n",
                &[("now", "{}"), ("now", "{}")],
            ),
        ],
    );
    check_no_calls("seed_oss", &["<seed:tool_call>", "<tool_call>{}</tool_call>"]);
}

#[test]
fn muse() {
    let call = |name: &str, parameters: &str| {
        format!(
            "<|start|>assistant to={name}<|message|><atem:function_calls>\n<atem:invoke \
             name=\"{name}\">\n{parameters}</atem:invoke>\n</atem:function_calls><|eom|>"
        )
    };
    let parameter = |name: &str, value: &str| {
        format!("<atem:parameter name=\"{name}\">{value}</atem:parameter>\n")
    };
    // A text of a tool's schema stays text. Glimmer reads all values as JSON, if they are.
    let text = call("weather", &parameter("city", "7"));
    check_tools("muse", &[(&text, "", &[("weather", "{\"city\": \"7\"}")])]);
    check_tools("muse_glimmer", &[(&text, "", &[("weather", "{\"city\": 7}")])]);
    let two = call("now.now", "") + &call("f.g", &parameter("x", " a\n"));
    let calls: &[(&str, &str)] = &[("now", "{}"), ("f.g", "{\"x\": \" a\\n\"}")];
    for name in ["muse", "muse_glimmer"] {
        check_tools(name, &[(&two, "", calls)]);
        // The text beside calls in a message to a function.
        let beside = " to=now<|message|>So: <atem:invoke name=\"now\"></atem:invoke>Done.<|eom|>";
        let unwrapped = "So: <atem:invoke name=\"now\"></atem:invoke>Done.";
        check_tools(name, &[(beside, "So: Done.", &[("now", "{}")])]);
        // Without a header, tags are text.
        let tags = "<atem:invoke name=\"now\"></atem:invoke>";
        check_no_calls(name, &[tags, "to=now <|message", unwrapped]);
        assert!(super::tool_parser(name).needs_special_tokens());
    }
}

#[test]
fn lfm2() {
    let call = |calls: &str| format!("<|tool_call_start|>[{calls}]<|tool_call_end|>");
    let types = "register_user(name='John Doe', age=37, address={'city': 'San Francisco', \
                 'state': 'CA'}, role=None, passed_test=True, aliases=['John', 'Johnny'])";
    let dotted = "grocery.orderIngredients(ingredientList=[{'name': 'Lasagna noodles', 'amount': \
                  250, 'unit': 'g'}], deliveryAddress='845 Willow Lane, Springfield, IL 62704')";
    let lines = "exec(command='cat > f.py << EOF\nimport csv\nprint(1)\nEOF')";
    let (simple, types, dotted, lines) = (
        call("get_candidate_status(candidate_id='12345')") + "Checking the status.",
        call(types),
        call(dotted),
        call(lines),
    );
    let two = format!("So: {}", call("get_weather(), do_something_cool(additional_data={})"));
    let whole: &[Whole<'_>] = &[
        ("How can I help you today? [1]", "How can I help you today? [1]", &[]),
        (
            &simple,
            "Checking the status.",
            &[("get_candidate_status", "{\"candidate_id\": \"12345\"}")],
        ),
        (
            &types,
            "",
            &[(
                "register_user",
                "{\"name\": \"John Doe\", \"age\": 37, \"address\": {\"city\": \"San Francisco\", \
                 \"state\": \"CA\"}, \"role\": null, \"passed_test\": true, \"aliases\": \
                 [\"John\", \"Johnny\"]}",
            )],
        ),
        (
            &dotted,
            "",
            &[(
                "grocery.orderIngredients",
                "{\"ingredientList\": [{\"name\": \"Lasagna noodles\", \"amount\": 250, \"unit\": \
                 \"g\"}], \"deliveryAddress\": \"845 Willow Lane, Springfield, IL 62704\"}",
            )],
        ),
        (
            &lines,
            "",
            &[("exec", "{\"command\": \"cat > f.py << EOF\\nimport csv\\nprint(1)\\nEOF\"}")],
        ),
        (
            &two,
            "So: ",
            &[("get_weather", "{}"), ("do_something_cool", "{\"additional_data\": {}}")],
        ),
        // Without the closing tag.
        ("<|tool_call_start|> [now()]", "", &[("now", "{}")]),
    ];
    check_tools("lfm2", whole);
    check_no_calls(
        "lfm2",
        &[
            "<|tool_call_start|>",
            "<|tool_call_start|>now()<|tool_call_end|>",
            "<|tool_call_start|>[]<|tool_call_end|>",
            "[now()]",
        ],
    );
}

#[test]
fn olmo3() {
    check_tools(
        "olmo3",
        &[
            ("How can I help you today?", "How can I help you today?", &[]),
            (
                "<function_calls>get_weather(city='San Francisco', metric='celsius')\
                 </function_calls>",
                "",
                &[("get_weather", "{\"city\": \"San Francisco\", \"metric\": \"celsius\"}")],
            ),
            (
                r#"<function_calls>get_weather(city='Martha\'s Vineyard', metric='\"cool units\"')</function_calls>"#,
                "",
                &[("get_weather", r#"{"city": "Martha's Vineyard", "metric": "\"cool units\""}"#)],
            ),
            (
                "I call.\n<function_calls>\nf(role=null, passed_test=true)\ng()\n\
                 </function_calls>\nDone.",
                "I call.\n\nDone.",
                &[("f", "{\"role\": null, \"passed_test\": true}"), ("g", "{}")],
            ),
            ("<function_calls>f(), g()</function_calls>", "", &[("f", "{}"), ("g", "{}")]),
            ("<function_calls>f()\n", "", &[("f", "{}")]),
        ],
    );
    check_no_calls(
        "olmo3",
        &["<function_calls>", "<function_calls></function_calls>", "f(a=1)", "[f(a=1)]"],
    );
}

/// The format of the chat templates of Command R7B and Command A.
#[test]
fn cohere_command() {
    for name in ["cohere_command3", "cohere_command4"] {
        check_tools(
            name,
            &[
                ("It is <b>.", "It is <b>.", &[]),
                (
                    "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \
                     \"parameters\": {\"city\": \"Tokyo\"}},\n    {\"tool_call_id\": \"1\", \
                     \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
                    "",
                    &[("weather", WEATHER), ("now", "{}")],
                ),
                (
                    "I look. <|START_ACTION|>[{\"tool_name\": \"now\", \"parameters\": {}}]",
                    "I look. ",
                    &[("now", "{}")],
                ),
            ],
        );
        check_no_calls(
            name,
            &["<|START_ACTION|>", "<|START_ACTION|>[]<|END_ACTION|>", "{\"tool_name\": \"now\"}"],
        );
    }
}

#[test]
fn functiongemma() {
    check_tools(
        "functiongemma",
        &[
            ("Hello, how can I help you today?", "Hello, how can I help you today?", &[]),
            (
                "<start_function_call>call:get_weather{location:<escape>San Francisco<escape>,\
                 unit:<escape>celsius<escape>}<end_function_call>",
                "",
                &[("get_weather", "{\"location\": \"San Francisco\", \"unit\": \"celsius\"}")],
            ),
            (
                "Let me check. <start_function_call>call:get_weather{location:<escape>London\
                 <escape>}<end_function_call><start_function_call>call:get_time{timezone:<escape>\
                 UTC<escape>}<end_function_call>",
                "Let me check. ",
                &[
                    ("get_weather", "{\"location\": \"London\"}"),
                    ("get_time", "{\"timezone\": \"UTC\"}"),
                ],
            ),
            // As the model's template writes other types.
            (
                "<start_function_call>call:weather{at:{x:[1,-2.5]},city:<escape>a, {b}: \"c\"\
                 <escape>,days:3,exact:true}<end_function_call>",
                "",
                &[(
                    "weather",
                    "{\"at\": {\"x\": [1, -2.5]}, \"city\": \"a, {b}: \\\"c\\\"\", \"days\": 3, \
                     \"exact\": true}",
                )],
            ),
            // A text is a text where the tool says so, and JSON elsewhere.
            (
                "<start_function_call>call:weather{city:<escape>3<escape>,days:<escape>3<escape>,\
                 other:<escape>[1]<escape>,at:{x:<escape>3<escape>}}<end_function_call>",
                "",
                &[(
                    "weather",
                    "{\"city\": \"3\", \"days\": 3, \"other\": [1], \"at\": {\"x\": \"3\"}}",
                )],
            ),
            (
                "<start_function_call>call:now{}<end_function_call><start_function_response>",
                "<start_function_response>",
                &[("now", "{}")],
            ),
        ],
    );
    check_no_calls("functiongemma", &["<start_function_call>", "<start_function_call>now{}"]);
}

/// Outputs with one object in each block, by the text around the object.
#[test]
fn objects_between_markers() {
    let formats = [
        ("longcat", "<longcat_tool_call>", "</longcat_tool_call>", "arguments"),
        ("internlm", "<|action_start|><|plugin|>", "<|action_end|>", "parameters"),
        ("granite-20b-fc", "<function_call> ", "", "arguments"),
        ("gigachat3", "<|function_call|>", "", "arguments"),
        ("gigachat3", "<|message_sep|>\n\nfunction call<|role_sep|>\n", "", "arguments"),
        ("gigachat3", "function call<|role_sep|>\n", "", "arguments"),
        ("qwen3_json", "<tool_call>\n", "\n</tool_call>", "arguments"),
        ("ernie45", "<tool_call>\n", "\n</tool_call>\n", "arguments"),
    ];
    for (name, open, close, key) in formats {
        let object = |name: &str, arguments: &str| {
            format!("{open}{{\"name\": \"{name}\", \"{key}\": {arguments}}}{close}")
        };
        let types = "{\n  \"s\": \"He said \\\"hello\\\"\", \"n\": null, \"l\": [3.14, true], \"e\": \
                     {}\n}";
        let (one, two) = (object("f", types), object("refresh", "{}") + &object("f", WEATHER));
        let within = format!("Let me check.\n{}", object("f", WEATHER));
        check_tools(
            name,
            &[
                ("This is a response.", "This is a response.", &[]),
                (&one, "", &[("f", types)]),
                (&two, "", &[("refresh", "{}"), ("f", WEATHER)]),
                (&within, "Let me check.\n", &[("f", WEATHER)]),
            ],
        );
        let texts = [format!("{open}not json"), format!("{open}{{\"name\": 123}}")];
        texts.iter().for_each(|text| check_no_calls(name, &[text.trim_end()]));
    }
    check_no_calls(
        "internlm",
        &[
            "<|action_start|>{\"name\": \"func\"}",
            "<|action_start|><|plugin|>{\"name\": \"func\", \"parameters\": \"not a dict\"}\
             <|action_end|>",
        ],
    );
    check_no_calls("gigachat3", &["Hi<|message_sep|>\n\n"]);
    check_no_calls("granite-20b-fc", &["<function_call> [{\"name\": \"f\", \"arguments\": {}}]"]);
}

#[test]
fn jamba() {
    for name in ["jamba", "hunyuan_a13b"] {
        check_tools(
            name,
            &[
                ("This is a test", "This is a test", &[]),
                (
                    "I will call the tool now. <tool_calls>[\n    {\"name\": \"f\", \
                     \"arguments\": {\"city\": \"Tokyo\"}},\n    {\"name\": \"g\", \"arguments\": \
                     {\"l\": {\"l\": {\"v\": 123}}}}\n]</tool_calls>\nThank you!",
                    "I will call the tool now. \nThank you!",
                    &[("f", WEATHER), ("g", "{\"l\": {\"l\": {\"v\": 123}}}")],
                ),
            ],
        );
        check_no_calls(name, &["<tool_calls>", "<tool_calls>[]</tool_calls>", "<tool_calls>{}"]);
    }
}

#[test]
fn apertus() {
    check_tools(
        "apertus",
        &[
            ("Hello, how can I help you today?", "Hello, how can I help you today?", &[]),
            (
                "Let me check the weather. <|tools_prefix|>[{\"get_weather\": {\"location\": \
                 \"London\"}}, {\"get_time\": {\"list\": [\"a\", {\"b\": \"}]\"}]}}]\
                 <|tools_suffix|>",
                "Let me check the weather. ",
                &[
                    ("get_weather", "{\"location\": \"London\"}"),
                    ("get_time", "{\"list\": [\"a\", {\"b\": \"}]\"}]}"),
                ],
            ),
            (
                "<|tools_prefix|>[{\"f\\u00e9\": {}}]<|tools_suffix|> Done.",
                " Done.",
                &[("fé", "{}")],
            ),
            // Without the suffix, and cut off before the brackets.
            ("<|tools_prefix|>[{\"f\": {\"a\": 1}}]", "", &[("f", "{\"a\": 1}")]),
            ("<|tools_prefix|>[{\"f\": {\"a\": 1}", "", &[("f", "{\"a\": 1}")]),
        ],
    );
    check_no_calls(
        "apertus",
        &[
            "<|tools_prefix|>",
            "<|tools_prefix|>[]<|tools_suffix|>",
            "<|tools_prefix|>[{\"f\": 3}]<|tools_suffix|>",
            "<|tools_prefix|>[{\"\": {}}]<|tools_suffix|>",
        ],
    );
    assert!(stopped_message("apertus", "<|tools_prefix|>[{\"f\": {}}").calls[0].is_complete);
}
