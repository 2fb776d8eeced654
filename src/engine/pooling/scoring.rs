//! Scores of pairs of texts: the prompts that are pooled for them, and the scores of the results.

use std::sync::Arc;

use playhouse_actors::{
    error::RequestError,
    logic::request::{ids::TokenId, outputs::Pooled, pooling_params::PoolingTask},
    message::input_processor::Prompt,
    ports::ChatPrompt,
};
use serde_json::{Map, Value};

use super::{
    PoolError, listwise,
    side::{PairSide, PromptWithMedia, message, written},
};
use crate::engine::media::CONTENT_ALONE;

/// The pairs of one request.
#[derive(Debug)]
pub(crate) struct Scoring {
    task: PoolingTask,
    form: PairForm,
    /// Indices of a query and a document.
    pairs: Vec<(usize, usize)>,
    num_queries: usize,
    /// Tokens of documents that have no part in a comparison of vectors of tokens.
    skipped: Vec<TokenId>,
    /// The token behind each prompt.
    end_token: Option<TokenId>,
}

/// How a classifier takes a pair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum PairForm {
    /// Two texts, which the tokenizer joins.
    #[default]
    Pair,
    /// One text: the query, then the document.
    Text,
    /// A conversation for the operator's chat template, with the roles `query` and `document`.
    Template,
    /// The same for the model's own template, which writes the special tokens, too.
    Conversation,
    /// One text: the document, then the query, each behind its kind.
    DocumentFirst,
    /// A text with a query and all its documents, for a model with a vector for each of them.
    List,
    /// This text, with both in its places, and with the special tokens.
    Prompt(String),
}

/// The template of [`PairForm::DocumentFirst`]: `get_score_template` of vLLM's class.
const DOCUMENT_FIRST: &str = "**Document**:\n{{ messages[1]['content'] }}\n\
                              **Query**:\n{{ messages[0]['content'] }}";

impl Scoring {
    /// Returns the pairs of two lists, with the prompts to pool. The list of one text is compared
    /// with each text of the other list. Prompts of a classifier are pairs, and share their texts.
    /// `variables` are those of a template that writes a pair.
    ///
    /// # Errors
    /// [`PoolError::Lengths`] if the lists do not fit together.
    pub(super) fn new(
        task: PoolingTask,
        form: PairForm,
        queries: Vec<PairSide>,
        documents: Vec<PairSide>,
        variables: &Map<String, Value>,
    ) -> Result<(Self, Vec<PromptWithMedia>), PoolError> {
        let num_queries = queries.len();
        let pairs = pairs(num_queries, documents.len())?;
        let prompts: Vec<PromptWithMedia> = match task {
            _ if form == PairForm::List => lists(&queries, &documents, variables)?,
            PoolingTask::Embed | PoolingTask::TokenEmbed => {
                queries.into_iter().chain(documents).map(PairSide::alone).collect()
            }
            PoolingTask::Classify | PoolingTask::TokenClassify => {
                let prompt = |&(query, document): &(usize, usize)| {
                    let (query, document) = (&queries[query], &documents[document]);
                    let prompt = form.prompt(query, document, variables)?;
                    // In the order of their places.
                    let media = match form {
                        PairForm::DocumentFirst => document.media_with(query),
                        _ => query.media_with(document),
                    };
                    Ok::<_, PoolError>((prompt, media))
                };
                pairs.iter().map(prompt).collect::<Result<_, PoolError>>()?
            }
        };
        let (skipped, end_token) = (Vec::new(), None);
        Ok((Self { task, form, pairs, num_queries, skipped, end_token }, prompts))
    }

    /// Returns whether the tokenizer adds special tokens around the prompts.
    pub(crate) fn adds_special_tokens(&self) -> bool {
        !matches!(self.form, PairForm::Conversation | PairForm::Prompt(_))
    }

    /// Returns whether a prompt has all documents of a query. Then no token may be cut off.
    pub(crate) fn is_listwise(&self) -> bool {
        self.form == PairForm::List
    }

    /// Returns the same pairs, of which these tokens of documents have no part in a comparison.
    pub(super) fn skipping(self, tokens: &[TokenId]) -> Self {
        Self { skipped: tokens.to_vec(), ..self }
    }

    /// Returns the same pairs, with a token behind each prompt.
    pub(super) fn ending_with(self, end_token: Option<TokenId>) -> Self {
        Self { end_token, ..self }
    }

    /// Returns the token behind each prompt, if the model expects one.
    pub(crate) fn end_token(&self) -> Option<TokenId> {
        self.end_token
    }

    /// Returns the score of each pair, given the tokens and the results of all prompts in their
    /// order.
    pub(crate) fn scores<'a>(
        &self,
        results: impl Iterator<Item = (&'a [TokenId], &'a Pooled)>,
    ) -> Vec<f32> {
        if self.is_listwise() {
            return results.flat_map(|(_, result)| listwise::scores(result)).collect();
        }
        match self.task {
            PoolingTask::Classify | PoolingTask::TokenClassify => {
                results.filter_map(|(_, row)| row.values.first().copied()).collect()
            }
            PoolingTask::Embed | PoolingTask::TokenEmbed => {
                let results: Vec<_> = results.collect();
                let (queries, documents) = results.split_at(self.num_queries.min(results.len()));
                let score = |&(query, document): &(usize, usize)| {
                    let ((_, query), (tokens, document)) =
                        (queries.get(query)?, documents.get(document)?);
                    Some(similarity(self.task, query, document, |at| {
                        !tokens.get(at).is_some_and(|token| self.skipped.contains(token))
                    }))
                };
                self.pairs.iter().filter_map(score).collect()
            }
        }
    }
}

impl PairForm {
    /// Returns the bytes of the copies that pairs have of a side alone.
    pub(super) fn copied_bytes(self, queries: &[PairSide], documents: &[PairSide]) -> usize {
        match (self, queries, documents) {
            (Self::Pair, ..) => 0,
            (_, [alone], others) | (_, others, [alone]) => {
                alone.bytes().saturating_mul(others.len())
            }
            _ => 0,
        }
    }

    /// Returns the prompt of a pair.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if the tokenizer joins texts, and a side has images.
    fn prompt(
        &self,
        query: &PairSide,
        document: &PairSide,
        variables: &Map<String, Value>,
    ) -> Result<Prompt, RequestError> {
        let messages =
            || vec![message("query", query.content()), message("document", document.content())];
        Ok(match (self, query, document) {
            (Self::Pair, PairSide::Text(query), PairSide::Text(document)) => {
                Prompt::Pair(Arc::clone(query), Arc::clone(document))
            }
            (Self::Pair, ..) => {
                let accepted = "texts, because the model's tokenizer joins a pair; a chat template \
                                for pairs (--chat-template) takes images";
                return Err(RequestError::invalid("documents", "a content of parts", accepted));
            }
            (Self::Text, PairSide::Text(query), PairSide::Text(document)) => {
                Prompt::Text(format!("{query}{document}"))
            }
            (Self::Text, ..) => written(CONTENT_ALONE, messages()),
            (Self::DocumentFirst, ..) => written(DOCUMENT_FIRST, messages()),
            (Self::List, ..) => Prompt::Text(listwise::prompt(
                query.text()?,
                std::iter::once(document.text()?),
                variables,
            )),
            (Self::Prompt(prompt), ..) => {
                Prompt::Text(filled(prompt, query.text()?, document.text()?))
            }
            (Self::Template | Self::Conversation, ..) => Prompt::Chat(Arc::new(ChatPrompt {
                messages: messages(),
                chat_template_kwargs: variables.clone(),
                joins_placeholders: true,
                ..ChatPrompt::default()
            })),
        })
    }
}

/// Returns a prompt for each query: one with all documents, or each with its own.
///
/// # Errors
/// [`RequestError::InvalidParameter`] if a side has images.
fn lists(
    queries: &[PairSide],
    documents: &[PairSide],
    variables: &Map<String, Value>,
) -> Result<Vec<PromptWithMedia>, PoolError> {
    let prompt = |query: &PairSide, documents: &[PairSide]| {
        let texts: Vec<&str> = documents.iter().map(PairSide::text).collect::<Result<_, _>>()?;
        let text = listwise::prompt(query.text()?, texts.into_iter(), variables);
        Ok((Prompt::Text(text), [].into()))
    };
    match queries {
        [query] => Ok(vec![prompt(query, documents)?]),
        _ => {
            let pairs = queries.iter().zip(documents);
            pairs.map(|(query, document)| prompt(query, std::slice::from_ref(document))).collect()
        }
    }
}

/// Returns `prompt` with the texts of a pair in its places. A place within a text is one of the
/// text.
fn filled(prompt: &str, query: &str, document: &str) -> String {
    let parts = prompt.split("{query}").map(|part| part.replace("{document}", document));
    parts.collect::<Vec<_>>().join(query)
}

/// Returns the indices of scores, the best one first. Equal ones keep their order.
pub(super) fn best_first(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
}

/// Returns the pairs of indices to compare: one with each, or each with its own.
fn pairs(queries: usize, documents: usize) -> Result<Vec<(usize, usize)>, PoolError> {
    match (queries, documents) {
        (0, _) | (_, 0) => Err(PoolError::Lengths),
        (1, count) => Ok((0..count).map(|document| (0, document)).collect()),
        (queries, documents) if queries == documents => {
            Ok((0..queries).map(|index| (index, index)).collect())
        }
        _ => Err(PoolError::Lengths),
    }
}

/// Returns the similarity of two results of a task. Of vectors of tokens, those of the document
/// count that `counts` returns true for.
fn similarity(
    task: PoolingTask,
    query: &Pooled,
    document: &Pooled,
    counts: impl Fn(usize) -> bool,
) -> f32 {
    if !task.is_by_token() {
        return cosine(&query.values, &document.values) as f32;
    }
    let rows: Vec<&[f32]> =
        document.rows().enumerate().filter(|(at, _)| counts(*at)).map(|(_, row)| row).collect();
    if rows.is_empty() {
        return 0.0;
    }
    let best =
        |row: &[f32]| rows.iter().map(|other| dot(row, other)).fold(f64::NEG_INFINITY, f64::max);
    query.rows().map(best).sum::<f64>() as f32
}

pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    // torch's `cosine_similarity` bounds each length from below.
    let length = |x: &[f32]| dot(x, x).sqrt().max(1e-8);
    dot(a, b) / (length(a) * length(b))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[cfg(test)]
mod tests {
    use playhouse_actors::{
        logic::request::media::Modality,
        ports::{MediaSource, RawMedia},
    };
    use serde_json::json;

    use super::*;

    fn pooled(values: &[f32], width: usize) -> Pooled {
        Pooled { values: values.into(), width }
    }

    fn texts(texts: &[&str]) -> Vec<PairSide> {
        texts.iter().map(|text| PairSide::from((*text).to_owned())).collect()
    }

    fn picture() -> PairSide {
        let media = RawMedia {
            modality: Modality::Image,
            source: MediaSource::Named,
            uuid: Some("a".into()),
            kwargs: Map::new(),
        };
        PairSide::Parts { parts: vec![json!({"type": "image"})], media: [media].into() }
    }

    #[test]
    fn lists_are_compared_one_with_each_or_each_with_its_own() {
        assert_eq!(pairs(1, 2), Ok(vec![(0, 0), (0, 1)]));
        assert_eq!(pairs(2, 2), Ok(vec![(0, 0), (1, 1)]));
        for (queries, documents) in [(2, 1), (2, 3), (0, 1), (1, 0)] {
            assert_eq!(pairs(queries, documents), Err(PoolError::Lengths));
        }
    }

    #[test]
    fn vectors_are_compared_by_angle_and_tokens_by_their_best_match() {
        let (a, b) = (pooled(&[3.0, 4.0], 2), pooled(&[0.0, 2.0], 2));
        assert_eq!(similarity(PoolingTask::Embed, &a, &b, |_| true), 0.8);
        let query = pooled(&[1.0, 0.0, 0.0, 1.0], 2);
        let document = pooled(&[0.5, 0.0, 0.0, 0.25, 0.25, 0.0], 2);
        let compared = |counts: fn(usize) -> bool| {
            similarity(PoolingTask::TokenEmbed, &query, &document, counts)
        };
        assert_eq!(compared(|_| true), 0.75);
        assert_eq!(compared(|at| at == 2), 0.25);
        assert_eq!(compared(|_| false), 0.0);
        let nothing = pooled(&[0.0, 0.0], 2);
        let alone = similarity(PoolingTask::Embed, &nothing, &a, |_| true);
        assert_eq!(alone, 0.0, "no division by zero");
    }

    #[test]
    fn vectors_are_pooled_once_a_text_and_classes_once_a_pair() {
        let of = |task, form| {
            Scoring::new(task, form, texts(&["q"]), texts(&["a", "b"]), &Map::new()).unwrap()
        };
        let (scoring, prompts) = of(PoolingTask::Embed, PairForm::Pair);
        assert_eq!(prompts.len(), 3);
        let vectors = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]].map(|vector| pooled(&vector, 2));
        let none: &[TokenId] = &[];
        assert_eq!(scoring.scores(vectors.iter().map(|it| (none, it))), [0.0, 1.0]);
        let (scoring, prompts) = of(PoolingTask::Classify, PairForm::Text);
        assert!(matches!(&prompts[1].0, Prompt::Text(text) if text == "qb"), "{prompts:?}");
        let classes = [pooled(&[0.25], 1), pooled(&[0.5], 1)];
        assert_eq!(scoring.scores(classes.iter().map(|it| (none, it))), [0.25, 0.5]);
    }

    #[test]
    fn a_list_is_one_prompt_of_a_query() {
        let of = |queries: &[&str], documents: &[&str]| {
            let (queries, documents) = (texts(queries), texts(documents));
            let task = PoolingTask::TokenEmbed;
            Scoring::new(task, PairForm::List, queries, documents, &Map::new()).unwrap()
        };
        let (scoring, prompts) = of(&["q"], &["a", "b"]);
        assert_eq!((prompts.len(), scoring.is_listwise()), (1, true));
        let result = pooled(&[2.0, 0.0, 0.0, 1.0, 3.0, 0.0], 2);
        let none: &[TokenId] = &[];
        assert_eq!(scoring.scores([(none, &result)].into_iter()), [1.0, 0.0]);
        assert_eq!(of(&["q", "r"], &["a", "b"]).1.len(), 2);
    }

    #[test]
    fn a_pair_fills_the_places_of_a_prompt() {
        let text = filled("<q>{query}<d>{document}<e>{query}", "{document}?", "{query}!");
        assert_eq!(text, "<q>{document}?<d>{query}!<e>{document}?");
        let (queries, documents) = (texts(&["q"]), texts(&["d"]));
        let form = PairForm::Prompt("{query} {document}".to_owned());
        let made = Scoring::new(PoolingTask::Classify, form, queries, documents, &Map::new());
        let (scoring, prompts) = made.unwrap();
        assert!(matches!(&prompts[0].0, Prompt::Text(text) if text == "q d"), "{prompts:?}");
        assert!(!scoring.adds_special_tokens());
    }

    #[test]
    fn a_template_gets_the_variables_of_the_request() {
        let variables = Map::from_iter([("instruction".to_owned(), json!("find"))]);
        let [query, document] = ["q", "a"].map(|text| PairSide::from(text.to_owned()));
        for form in [PairForm::Template, PairForm::Conversation] {
            let prompt = form.prompt(&query, &document, &variables).unwrap();
            let Prompt::Chat(chat) = &prompt else { panic!("{prompt:?}") };
            assert_eq!(chat.chat_template_kwargs, variables);
        }
        let prompt = PairForm::Text.prompt(&query, &document, &variables).unwrap();
        assert!(matches!(&prompt, Prompt::Text(text) if text == "qa"), "{prompt:?}");
    }

    #[test]
    fn a_side_alone_is_copied_unless_pairs_share_it() {
        let (one, two) = (texts(&["four"]), texts(&["a", "b"]));
        for (queries, documents) in [(&one, &two), (&two, &one)] {
            assert_eq!(PairForm::Text.copied_bytes(queries, documents), 8);
            assert_eq!(PairForm::Pair.copied_bytes(queries, documents), 0);
        }
        assert_eq!(PairForm::Template.copied_bytes(&two, &two), 0);
        assert_eq!(PairForm::Text.copied_bytes(&[picture()], &two), 0);
    }

    #[test]
    fn pictures_are_parts_of_messages() {
        let sides = || vec![picture()];
        let of = |task, form| {
            let made = Scoring::new(task, form, texts(&["q"]), sides(), &Map::new());
            made.map(|(_, prompts)| prompts)
        };
        let alone = of(PoolingTask::Embed, PairForm::Pair).unwrap();
        assert_eq!(alone.iter().map(|(_, media)| media.len()).collect::<Vec<_>>(), [0, 1]);
        for form in [PairForm::Text, PairForm::Template] {
            let pairs = of(PoolingTask::Classify, form.clone()).unwrap();
            let [(Prompt::Chat(chat), media)] = &pairs[..] else { panic!("{pairs:?}") };
            assert_eq!((chat.messages.len(), media.len()), (2, 1));
            assert_eq!(chat.messages[1]["content"], json!([{"type": "image"}]));
            assert_eq!(chat.chat_template.is_some(), form == PairForm::Text);
        }
        let joined = of(PoolingTask::Classify, PairForm::Pair).unwrap_err().to_string();
        assert!(joined.contains("documents") && joined.contains("--chat-template"), "{joined}");
        assert_eq!(picture().media_with(&picture()).len(), 2);
        let named = |name: &str| match picture() {
            PairSide::Parts { parts, media } => {
                let media = media.iter().cloned();
                let media = media.map(|item| RawMedia { uuid: Some(name.into()), ..item });
                PairSide::Parts { parts, media: media.collect() }
            }
            side => side,
        };
        for (form, first) in [(PairForm::Text, "q"), (PairForm::DocumentFirst, "d")] {
            let (queries, documents) = (vec![named("q")], vec![named("d")]);
            let task = PoolingTask::Classify;
            let (_, prompts) = Scoring::new(task, form, queries, documents, &Map::new()).unwrap();
            assert_eq!(prompts[0].1[0].uuid.as_deref(), Some(first));
        }
    }

    #[test]
    fn equal_scores_keep_their_order() {
        assert_eq!(best_first(&[0.5, 0.9, 0.5]), [1, 0, 2]);
    }
}
