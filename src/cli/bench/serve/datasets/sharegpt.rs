//! Recorded conversations in the format of ShareGPT: a JSON list of
//! `{"conversations": [{"from": …, "value": …}, …]}`. The first two turns are prompt and output.

use rand::{rngs::StdRng, seq::SliceRandom as _};
use serde::Deserialize;

use super::{DatasetArgs, SampleRequest, usage};
use crate::api::TextCodec;
use crate::cli::CliError;

#[derive(Deserialize)]
struct Entry {
    #[serde(default, alias = "conversation")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

/// Returns whether vLLM's client keeps these lengths. It leaves out prompts and outputs under 4
/// tokens, prompts over 1,024, and both together over 2,048.
fn is_usable(prompt_len: usize, output_len: usize, is_recorded: bool) -> bool {
    prompt_len >= 4
        && (output_len >= 4 || !is_recorded)
        && prompt_len <= 1024
        && prompt_len + output_len <= 2048
}

pub(super) fn requests(
    text: &str,
    args: &DatasetArgs,
    codec: &dyn TextCodec,
    rng: &mut StdRng,
) -> Result<Vec<SampleRequest>, CliError> {
    let wanted = args.output_len.or(args.sharegpt_output_len);
    let mut entries: Vec<Entry> = serde_json::from_str(text)
        .map_err(|error| usage(format!("the dataset is not in ShareGPT's format: {error}")))?;
    entries.shuffle(rng);
    let mut requests = Vec::new();
    for entry in entries {
        let mut turns = entry.conversations.into_iter().map(|turn| turn.value);
        let (Some(prompt), Some(output)) = (turns.next(), turns.next()) else { continue };
        if requests.len() == args.num_prompts {
            break;
        }
        let prompt_len = codec.encode(&prompt, true)?.len();
        let output_len = match wanted {
            Some(len) => len,
            None => codec.encode(&output, false)?.len(),
        };
        if is_usable(prompt_len, output_len, wanted.is_none()) {
            requests.push(SampleRequest { prompt, prompt_len, output_len });
        }
    }
    if requests.is_empty() {
        return Err(usage("the dataset has no conversation of two turns and usable length"));
    }
    // If there are too few, they are repeated in the same order.
    let missing = args.num_prompts.saturating_sub(requests.len());
    let again: Vec<_> = requests.iter().cycle().take(missing).cloned().collect();
    requests.extend(again);
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{args, codec, rng};
    use super::*;

    fn turn(value: &str) -> serde_json::Value {
        json!({"from": "human", "value": value})
    }

    #[test]
    fn conversations_become_requests() {
        let (long, answer) = ("many words ".repeat(600), "An answer that is long enough.");
        let file = json!([
            {"id": "a", "conversations": [turn("Tell me about the sea, please."), turn(answer)]},
            {"id": "b", "conversations": [turn("No answer to this one")]},
            {"id": "c", "conversations": [turn(&long), turn(answer)]},
            {"id": "d", "conversations": [turn(""), turn(answer)]},
            {"id": "e"},
        ]);
        let codec = codec();
        let requests = |typed: &[&str]| {
            requests(&file.to_string(), &args(typed), &codec, &mut rng(0)).unwrap()
        };
        let recorded = requests(&["--num-prompts=3"]);
        assert_eq!(recorded.len(), 3, "requests are repeated");
        let expected = codec.encode(answer, false).unwrap().len();
        assert!(recorded.iter().all(|request| request.output_len == expected));
        assert!(recorded.iter().all(|request| request.prompt.starts_with("Tell me")));
        assert_eq!(requests(&["--num-prompts=1", "--sharegpt-output-len=2"])[0].output_len, 2);
    }

    #[test]
    fn other_files_are_refused() {
        for (text, says) in [("{}", "ShareGPT's format"), ("[]", "no conversation")] {
            let error = requests(text, &args(&[]), &codec(), &mut rng(0)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
