//! `playhouse chat`, on the demo model.

use serde_json::Value;

use crate::{
    process::{Run, full_device, playhouse},
    terminal::{Terminal, can_make_terminals},
};

fn chat(arguments: &[&str]) -> Run {
    let small = ["chat", "--max-model-len", "1024", "--max-num-seqs", "4"];
    let greedy = ["--temperature", "0", "--max-tokens", "8", "--ignore-eos"];
    playhouse(&[&small[..], &greedy, arguments].concat())
}

#[test]
fn one_question_has_one_answer() {
    let answer = chat(&["-q", "Who are you?"]).succeeds();
    assert!(answer.trim().chars().count() > 3, "{answer:?}");
    assert_eq!(chat(&["-q", "Who are you?"]).succeeds(), answer);
    let json = chat(&["-q", "Who are you?", "--output", "json"]).succeeds();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(format!("{}\n", json["content"].as_str().unwrap()), answer);
    assert_eq!(json["usage"]["completion_tokens"], 8);
    assert_eq!(json["finish_reason"], "length");
}

#[test]
fn the_model_needs_no_flag() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
    let answer = chat(&["-q", "Who are you?"]).succeeds();
    assert_eq!(chat(&[folder, "-q", "Who are you?"]).succeeds(), answer);
    let stderr = chat(&[folder, "-m", folder, "-q", "Hi"]).fails_with(2);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

#[test]
fn a_running_server_answers_as_the_model_here_does() {
    let server = crate::server::Server::start(&[]);
    let url = format!("http://{}", server.address);
    let answer = chat(&["-q", "Who are you?"]).succeeds();
    assert_eq!(chat(&["--url", &url, "-q", "Who are you?"]).succeeds(), answer);
    let json = chat(&["--url", &url, "-q", "Who are you?", "--output", "json"]).succeeds();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["usage"]["completion_tokens"], &json["finish_reason"]),
        (&8.into(), &"length".into())
    );
    let stderr = chat(&["--url", &url, "-m", "other", "-q", "Hi"]).fails_with(1);
    assert!(stderr.contains("there is no model other; there is demo-model"), "{stderr}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let stderr = chat(&["--url", &url, "-q", "Hi"]).fails_with(1);
    assert!(stderr.contains(&url), "{stderr}");
}

#[test]
fn a_server_with_keys_is_told_one_or_says_where_it_belongs() {
    let server = crate::server::Server::start(&["--api-key", "secret"]);
    let url = format!("http://{}", server.address);
    let stderr = chat(&["--url", &url, "-q", "Hi"]).fails_with(1);
    assert!(stderr.contains("401 Unauthorized: Unauthorized; set OPENAI_API_KEY"), "{stderr}");
    chat(&["--url", &url, "-q", "Hi"]).env("OPENAI_API_KEY", "secret").succeeds();
}

#[test]
fn a_conversation_goes_on_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.json");
    let path = path.to_str().unwrap();
    let saved = chat(&[]).input(&format!("Hello\n/save {path}\nWho are you?\n")).succeeds();
    let loaded = chat(&["--load", path, "-q", "Who are you?"]).succeeds();
    assert!(saved.ends_with(&loaded), "{saved} {loaded}");
}

#[test]
fn a_pipe_is_a_question_a_line() {
    let answer = chat(&["-q", "Hello"]).succeeds();
    let cleared = chat(&[]).input("Hello\n\n/clear\nHello\n/exit\nHello\n").succeeds();
    assert_eq!(cleared, answer.repeat(2), "a cleared conversation begins anew, and /exit ends it");
    assert_eq!(chat(&[]).input("Hello\n/retry\n").succeeds(), answer.repeat(2));
}

/// Returns the number of tokens of each question's prompt, read from the answers to `/stats`.
fn prompt_tokens(input: &str) -> Vec<usize> {
    let (code, _, stderr) = chat(&[]).input(input).finish();
    assert_eq!(code, Some(0), "{stderr}");
    let lines = stderr.lines().filter_map(|line| line.strip_prefix("prompt "));
    lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_question_comes_with_the_conversation_before_it() {
    let counts = prompt_tokens("Hi\n/stats\nHi\n/stats\n/clear\nHi\n/stats\n");
    assert_eq!(counts.len(), 3, "{counts:?}");
    assert!(counts[1] > counts[0] + 8, "two questions and an answer: {counts:?}");
    assert_eq!(counts[2], counts[0]);
}

#[test]
fn a_question_may_have_several_lines() {
    let answer = chat(&["-q", "One\ntwo"]).succeeds();
    assert_eq!(chat(&[]).input("One\\\ntwo\n").succeeds(), answer);
    assert_eq!(chat(&[]).input("\"\"\"\nOne\ntwo\n\"\"\"\n").succeeds(), answer);
}

#[test]
fn the_system_prompt_counts() {
    let with = chat(&["--system-prompt", "Be brief.", "-q", "Hello"]).succeeds();
    assert_eq!(chat(&[]).input("/system Be brief.\nHello\n").succeeds(), with);
    let without = prompt_tokens("Hello\n/stats\n");
    assert!(prompt_tokens("/system Be brief.\nHello\n/stats\n") > without);
}

#[test]
fn a_question_that_fails_does_not_end_the_conversation() {
    let answer = chat(&["-q", "Hello"]).succeeds();
    let long = "word ".repeat(2000);
    let (code, stdout, stderr) = chat(&[]).input(&format!("{long}\nHello\n")).finish();
    assert_eq!((code, stdout), (Some(0), answer));
    assert!(stderr.contains("error: the request was refused: "), "{stderr}");
    assert!(stderr.contains("/clear forgets what was said"), "{stderr}");
}

#[test]
fn answers_that_cannot_be_written_do_not_pass_for_a_success() {
    let Some(full) = full_device() else { return };
    let (code, _, stderr) = chat(&[]).input("Hello\n").stdout(full).finish();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to standard output"), "{stderr}");
}

#[test]
fn a_conversation_is_saved_and_gone_on_with() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("talk.json");
    let path = path.to_str().unwrap();
    let whole = chat(&[]).input("/system Be brief.\nOne\nTwo\n").succeeds();
    let saved = format!("/system Be brief.\nOne\n/save {path}\n/save {path}\n");
    let (code, first, stderr) = chat(&[]).input(&saved).finish();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(&format!("error: cannot write {path}: File exists")), "{stderr}");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let roles: Vec<_> = file["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    let home = folder.path().to_str().unwrap();
    let second = chat(&[]).input("/load ~/talk.json\nTwo\n").env("HOME", home).succeeds();
    assert_eq!([first, second].concat(), whole);
}

#[test]
fn the_cost_of_an_answer_is_shown_and_parameters_are_set() {
    let input = "/stats\n/set max_tokens 5\n/set heat 1\n/set\nHello\n/stats\n/wave\n";
    let (code, _, stderr) = chat(&[]).input(input).finish();
    assert_eq!(code, Some(0), "{stderr}");
    for expected in [
        "no question was answered yet",
        "error: there is no parameter heat: set one of max_tokens, ",
        "max_tokens 5, temperature 0; all else by default",
        "answer     5 tokens in ",
        "of 1024 tokens, questions so far: 1",
        "unknown command /wave",
    ] {
        assert!(stderr.contains(expected), "no {expected:?} in {stderr}");
    }
}

#[test]
fn on_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_ends() {
    if !can_make_terminals() {
        return;
    }
    let home = tempfile::TempDir::new().unwrap();
    let home = [("XDG_STATE_HOME", home.path().to_str().unwrap())];
    let flags = "chat --temperature 0 --ignore-eos --max-model-len 4096";
    let mut terminal = Terminal::new(flags, &home);
    terminal.shows("> ");
    terminal.types("Hello\r");
    // Waits for the echo of the question, and then for the first part of the answer.
    terminal.shows("Hello");
    terminal.shows("\n");
    terminal.shows(" ");
    terminal.types("\x03");
    terminal.shows("[stopped]");
    terminal.shows("> ");
    terminal.types("/set max_tokens 4\r");
    terminal.shows("> ");
    terminal.types("one \\\rtwo\r");
    terminal.shows("cut off: max_tokens");
    terminal.shows("> ");
    terminal.types("/stats\r");
    terminal.shows("answer     4 tokens in ");
    terminal.shows("questions so far: 2");
    terminal.types("\x04");
    let (code, rest) = terminal.ends();
    assert_eq!(code, Some(0), "{rest}");

    let mut later = Terminal::new(flags, &home);
    later.shows("> ");
    later.types("\x1b[A\x1b[A");
    later.shows("two");
    later.types("\x03");
    later.shows("(Ctrl-D or /exit ends)");
    later.types("\x04");
    assert_eq!(later.ends().0, Some(0));
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let (_, _, piped) = chat(&[]).input("/save\n").finish();
    assert!(piped.contains("error: something is missing") && !piped.contains('\x1b'), "{piped:?}");
    if !can_make_terminals() {
        return;
    }
    let error = |variables: &[(&str, &str)]| {
        let (code, shown) = Terminal::new("generate -m /nowhere x", variables).ends();
        assert_eq!(code, Some(1), "{shown}");
        shown
    };
    assert!(error(&[]).contains("\x1b[1;31merror:\x1b[0m the engine did not start"));
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let plain = error(&variables);
        assert!(plain.contains("error: the engine did not start"), "{plain:?}");
        assert!(!plain.contains("\x1b["), "{plain:?}");
    }
}

/// The chat template decides how thoughts are shown. The template here says that answers begin with
/// thoughts, and the demo model does not know the marker that ends them.
#[test]
fn thoughts_are_apart_from_the_answer() {
    let folder = tempfile::TempDir::new().unwrap();
    let template = folder.path().join("template.jinja");
    let text = "{% for message in messages %}{{ message.content }}{% endfor %}[THINK]";
    std::fs::write(&template, text).unwrap();
    let template = template.to_str().unwrap();
    let flags = "--temperature 0 --ignore-eos --max-tokens 8 --max-model-len 1024";
    let command = format!("chat -q Hello {flags} --chat-template {template}");
    let words: Vec<_> = command.split(' ').collect();
    let json = playhouse(&[&words[..], &["--output", "json"]].concat()).succeeds();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["reasoning"].as_str().is_some_and(|text| !text.is_empty()), "{json}");
    assert_eq!(json["content"], "");
    assert_eq!(playhouse(&words).succeeds().trim(), "", "in a pipe there is the answer alone");
    if can_make_terminals() {
        let run = |variables: &[(&str, &str)]| Terminal::new(&command, variables).ends().1;
        assert!(run(&[]).contains("\x1b[2m"));
        assert!(run(&[("NO_COLOR", "1")]).contains("(thinking) "));
    }
}
