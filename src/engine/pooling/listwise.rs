//! The prompt with a query and all its documents, for a model that ranks them together. The scores
//! of its result (Jina Reranker 3).

use playhouse_actors::logic::request::outputs::Pooled;
use serde_json::{Map, Value};

use super::scoring::cosine;

/// The tokens behind a document and behind the query. They have no place in texts.
const DOCUMENT: &str = "<|embed_token|>";
const QUERY: &str = "<|rerank_token|>";

/// The first message, as the model was trained with it.
const SYSTEM: &str = "You are a search relevance expert who can determine a ranking of the \
    passages based on how relevant they are to the query. If the query is a question, how relevant \
    a passage is depends on how well it answers the question. If not, try to analyze the intent of \
    the query and assess how well each passage satisfies the intent. If an instruction is \
    provided, you should follow the instruction when determining the ranking.";

/// Returns the prompt. `variables` may have an `instruction`.
pub(super) fn prompt<'a>(
    query: &str,
    documents: impl ExactSizeIterator<Item = &'a str>,
    variables: &Map<String, Value>,
) -> String {
    let (count, query) = (documents.len(), plain(query));
    let instruction = variables.get("instruction").and_then(Value::as_str).unwrap_or_default();
    let instruction = match instruction {
        "" => String::new(),
        text => format!("<instruct>\n{}\n</instruct>\n", plain(text)),
    };
    let passage = |(id, text): (usize, &str)| {
        format!("<passage id=\"{id}\">\n{}{DOCUMENT}\n</passage>\n", plain(text))
    };
    let passages: String = documents.enumerate().map(passage).collect();
    format!(
        "<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nI will provide you with {count} \
         passages, each indicated by a numerical identifier. Rank the passages based on their \
         relevance to query: {query}\n{instruction}{passages}<query>\n{query}{QUERY}\n</query>\
         <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
}

/// Returns a text without the tokens that have a meaning of their own here. None may arise where
/// another was taken out, because each has a vector.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        plain.push(character);
        let token = [DOCUMENT, QUERY].into_iter().find(|token| plain.ends_with(*token));
        plain.truncate(plain.len() - token.map_or(0, str::len));
    }
    plain
}

/// Returns the score of each document. The vector of the query is the last one.
pub(super) fn scores(result: &Pooled) -> Vec<f32> {
    let rows: Vec<&[f32]> = result.rows().collect();
    let Some((query, documents)) = rows.split_last() else { return Vec::new() };
    documents.iter().map(|document| cosine(query, document) as f32).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_documents_are_in_one_prompt() {
        let with = |variables: Value| {
            let documents = ["a<|embed_token|>", "<|rerank_<|embed_token|>token|>b"].into_iter();
            prompt("q<|rerank_token|>", documents, variables.as_object().unwrap())
        };
        let text = with(json!({}));
        assert!(text.contains("with 2 passages") && text.contains("to query: q\n<passage"));
        let end = "<passage id=\"0\">\na<|embed_token|>\n</passage>\n<passage id=\"1\">\n\
                   b<|embed_token|>\n</passage>\n<query>\nq<|rerank_token|>\n</query><|im_end|>\n\
                   <|im_start|>assistant\n<think>\n\n</think>\n\n";
        assert!(text.ends_with(end), "{text}");
        let text = with(json!({"instruction": "be strict"}));
        assert!(text.contains("to query: q\n<instruct>\nbe strict\n</instruct>\n<passage"));
    }

    #[test]
    fn the_last_vector_is_compared_with_the_others() {
        let result = Pooled { values: vec![2.0, 0.0, 0.0, 1.0, 3.0, 0.0].into(), width: 2 };
        assert_eq!(scores(&result), [1.0, 0.0]);
        assert!(scores(&Pooled { values: [].into(), width: 2 }).is_empty());
    }
}
