//! `late_chunking` as in Jina's API: the inputs of a request are read as one text, and each gets
//! the mean of its own tokens.

use super::input::Inputs;
use crate::{
    api::{Pooled, PoolingParams, Prompt, TokenId},
    server::http::error::ApiError,
};

/// Returns the inputs as one prompt, and the parameters for it.
pub(super) fn join(
    inputs: Inputs,
    params: PoolingParams,
) -> Result<(Inputs, PoolingParams), ApiError> {
    let Inputs { prompts, adds_special_tokens, .. } = inputs;
    let (mut texts, mut tokens, mut chunk_ends) = (Vec::new(), Vec::<TokenId>::new(), Vec::new());
    for prompt in prompts {
        match prompt {
            Prompt::Text(text) => texts.push(text),
            Prompt::Tokens(mut ids) => {
                tokens.append(&mut ids);
                chunk_ends.push(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
            }
            Prompt::Expanded(_) | Prompt::Chat(_) | Prompt::Pair(..) | Prompt::Chunks(_) => {
                let message = "late_chunking takes texts or token ids, not conversations";
                return Err(ApiError::invalid("late_chunking", message));
            }
        }
    }
    let prompt = match texts.is_empty() {
        true => Prompt::Tokens(tokens),
        false => Prompt::Chunks(texts.into()),
    };
    let inputs = Inputs::of_texts(vec![prompt], adds_special_tokens);
    Ok((inputs, PoolingParams { chunk_ends, in_pieces: false, ..params }))
}

/// Returns the vectors of the inputs, which are the rows of one result.
pub(super) fn split(results: &[Pooled]) -> Vec<Pooled> {
    let row = |row: &[f32]| Pooled { values: row.into(), width: row.len() };
    results.iter().flat_map(Pooled::rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ChatPrompt, PoolingTask};

    fn joined(prompts: Vec<Prompt>) -> Option<(String, Vec<u32>)> {
        let inputs = Inputs::of_texts(prompts, true);
        let params = PoolingParams::new(PoolingTask::Embed);
        let (inputs, params) = join(inputs, params).ok()?;
        Some((format!("{:?}", inputs.prompts), params.chunk_ends))
    }

    #[test]
    fn inputs_become_one_prompt() {
        let texts = ["a", "b"].map(|text| Prompt::Text(text.to_owned()));
        assert_eq!(joined(texts.into()), Some(("[Chunks([\"a\", \"b\"])]".to_owned(), vec![])));
        let tokens = [vec![1, 2], vec![3]].map(Prompt::Tokens);
        assert_eq!(joined(tokens.into()), Some(("[Tokens([1, 2, 3])]".to_owned(), vec![2, 3])));
        assert_eq!(joined(vec![Prompt::Chat(ChatPrompt::default().into())]), None);
    }

    #[test]
    fn rows_become_results() {
        let pooled = Pooled { values: [1.0, 2.0, 3.0, 4.0].as_slice().into(), width: 2 };
        let rows = split(&[pooled]);
        let values: Vec<_> = rows.iter().map(|row| (row.values.to_vec(), row.width)).collect();
        assert_eq!(values, [(vec![1.0, 2.0], 2), (vec![3.0, 4.0], 2)]);
    }
}
