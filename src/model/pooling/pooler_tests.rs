//! Results of poolers from hidden states: in chunks, by task, and with wrong inputs.

use super::super::{Calibration, ClassifierActivation, Dense, DenseActivation, PairInput};
use super::*;
use crate::config::SequencePooling;

fn pooler(sequence: SequencePooling) -> Pooler {
    Pooler {
        tasks: vec![PoolerTask::Embed, PoolerTask::TokenEmbed],
        sequence: sequence.into(),
        token: TokenPooling::All,
        step_tag_id: None,
        returned_token_ids: Vec::new(),
        hidden_size: 2,
        stages: Vec::new(),
        classifier: None,
        pools_classes: false,
        vocabulary: None,
        activation: true,
        matryoshka: Matryoshka::Fixed,
        dimensions: None,
        truncate_dim: None,
        max_embed_len: None,
        prompts: Vec::new(),
        excludes_prompt: false,
        skipped_tokens: Vec::new(),
        token_heads: None,
        ranking: None,
    }
}

/// Three hidden states.
const HIDDEN: [f32; 6] = [3.0, 4.0, 5.0, 0.0, 1.0, 2.0];

fn request(task: PoolerTask, activation: bool) -> PoolerRequest<'static> {
    let (prompt, chunk_ends, num_left_out) = (&[7, 8, 7], &[], 0);
    let (dimensions, classifier) = (None, None);
    PoolerRequest { task, activation, dimensions, prompt, chunk_ends, num_left_out, classifier }
}

#[test]
fn first_tokens_may_be_left_out() {
    for (sequence, expected) in [
        (SequencePooling::Mean, [3.0, 1.0]),
        (SequencePooling::Cls, [5.0, 0.0]),
        (SequencePooling::Last, [1.0, 2.0]),
    ] {
        for ends in [&[3][..], &[1, 3], &[1, 2, 3]] {
            let pooler = pooler(sequence);
            let of = |task| PoolerRequest { num_left_out: 1, ..request(task, false) };
            let found = pooled_as(&pooler, &of(PoolerTask::Embed), ends).unwrap();
            assert_eq!(found, expected, "{sequence:?} {ends:?}");
            // Vectors of tokens are all there.
            let tokens = pooled_as(&pooler, &of(PoolerTask::TokenEmbed), ends).unwrap();
            assert_eq!(tokens, HIDDEN);
        }
    }
}

/// Returns the result when the prompt is computed in chunks that end at `ends`.
fn pooled(
    pooler: &Pooler,
    task: PoolerTask,
    ends: &[usize],
    activation: bool,
) -> Result<Vec<f32>, PoolerError> {
    pooled_as(pooler, &request(task, activation), ends)
}

fn pooled_as(
    pooler: &Pooler,
    request: &PoolerRequest<'_>,
    ends: &[usize],
) -> Result<Vec<f32>, PoolerError> {
    let mut gathered = Gathered::default();
    let mut start = 0;
    for &end in ends {
        let wanted = pooler.wanted(request, start..end);
        let rows = &HIDDEN[2 * wanted.start..2 * wanted.end];
        pooler.gather(request, &mut gathered, start..end, rows)?;
        start = end;
    }
    let output = pooler.finish(request, gathered)?;
    assert_eq!(output.values.len() % output.width, 0);
    Ok(output.values)
}

#[test]
fn a_result_does_not_depend_on_the_chunks() {
    for (sequence, expected) in [
        (SequencePooling::Last, [1.0, 2.0]),
        (SequencePooling::Cls, [3.0, 4.0]),
        (SequencePooling::Mean, [3.0, 2.0]),
    ] {
        for ends in [&[3][..], &[1, 3], &[2, 3], &[1, 2, 3]] {
            let result = pooled(&pooler(sequence), PoolerTask::Embed, ends, false);
            assert_eq!(result, Ok(expected.to_vec()), "{sequence:?} {ends:?}");
        }
    }
    for ends in [&[3][..], &[1, 2, 3]] {
        let result = pooled(&pooler(SequencePooling::Last), PoolerTask::TokenEmbed, ends, false);
        assert_eq!(result, Ok(HIDDEN.to_vec()));
    }
}

#[test]
fn each_chunk_of_a_prompt_has_its_mean() {
    let mean = pooler(SequencePooling::Mean);
    for steps in [&[3][..], &[1, 3], &[2, 3], &[1, 2, 3]] {
        let request = PoolerRequest { chunk_ends: &[1, 3], ..request(PoolerTask::Embed, false) };
        let (mut gathered, mut start) = (Gathered::default(), 0);
        for &end in steps {
            let rows = &HIDDEN[2 * start..2 * end];
            mean.gather(&request, &mut gathered, start..end, rows).unwrap();
            start = end;
        }
        let output = mean.finish(&request, gathered).unwrap();
        assert_eq!((output.values, output.width), (vec![3.0, 4.0, 3.0, 1.0], 2), "{steps:?}");
    }
}

#[test]
fn classes_of_tokens_have_a_mean() {
    let layer = |weight: &[f32], activation| Dense {
        weight: weight.to_vec(),
        bias: Vec::new(),
        inputs: 2,
        activation,
        norm: None,
    };
    let classifier = Classifier {
        layers: vec![
            layer(&[1.0, -1.0, -1.0, 1.0], DenseActivation::Relu),
            layer(&[1.0, 0.0, 0.0, 2.0], DenseActivation::Identity),
        ],
        calibration: Calibration::default(),
        activation: ClassifierActivation::Softmax,
        labels: Vec::new(),
        pairs: PairInput::Joined,
    };
    let late = Pooler {
        classifier: Some(classifier),
        pools_classes: true,
        ..pooler(SequencePooling::Mean)
    };
    for ends in [&[3][..], &[1, 3], &[1, 2, 3]] {
        let result = pooled(&late, PoolerTask::Classify, ends, false).unwrap();
        assert_eq!(result, [5.0 / 3.0, 4.0 / 3.0], "{ends:?}");
        let of_tokens = pooled(&late, PoolerTask::TokenClassify, ends, false).unwrap();
        assert_eq!(of_tokens, [0.0, 2.0, 5.0, 0.0, 0.0, 2.0]);
    }
    // The mean of hidden states has other classes.
    let early = Pooler { pools_classes: false, ..late };
    assert_eq!(pooled(&early, PoolerTask::Classify, &[3], false), Ok(vec![1.0, 0.0]));
}

#[test]
fn hidden_states_that_are_missing_are_no_result() {
    let mean = pooler(SequencePooling::Mean);
    let mut gathered = Gathered::default();
    let embed = request(PoolerTask::Embed, true);
    let refused = mean.gather(&embed, &mut gathered, 1..3, &HIDDEN[2..]);
    assert_eq!(refused, Err(PoolerError::Missing { missing: 1 }));
    let last = pooler(SequencePooling::Last);
    assert_eq!(last.gather(&embed, &mut gathered, 1..3, &HIDDEN[4..]), Ok(()));
}

#[test]
fn vectors_are_cut_before_they_are_normalized() {
    let cls = pooler(SequencePooling::Cls);
    assert_eq!(pooled(&cls, PoolerTask::Embed, &[3], true), Ok(vec![0.6, 0.8]));
    let cut = Pooler { dimensions: Some(1), ..cls };
    assert_eq!(pooled(&cut, PoolerTask::Embed, &[3], true), Ok(vec![1.0]));
    assert!(pooled(&cut, PoolerTask::Classify, &[3], true).is_err());
}

/// `truncate_dim` of sentence-transformers.
#[test]
fn the_files_cut_vectors_after_they_are_normalized() {
    let cut = Pooler { truncate_dim: Some(1), ..pooler(SequencePooling::Cls) };
    assert_eq!(pooled(&cut, PoolerTask::Embed, &[3], true), Ok(vec![0.6]));
    let asked = PoolerRequest { dimensions: Some(1), ..request(PoolerTask::Embed, true) };
    assert_eq!(pooled_as(&cut, &asked, &[3]), Ok(vec![1.0]));
    let all = PoolerRequest { dimensions: Some(2), ..asked };
    assert_eq!(pooled_as(&cut, &all, &[3]), Ok(vec![0.6, 0.8]));
    let tokens = pooled(&cut, PoolerTask::TokenEmbed, &[3], false);
    assert_eq!(tokens, Ok(HIDDEN.to_vec()), "vectors of tokens are whole");
}

#[test]
fn steps_are_the_tokens_of_their_tag() {
    let step = Pooler {
        token: TokenPooling::Step,
        step_tag_id: Some(7),
        returned_token_ids: vec![1],
        ..pooler(SequencePooling::Last)
    };
    for ends in [&[3][..], &[1, 2, 3]] {
        let result = pooled(&step, PoolerTask::TokenEmbed, ends, false);
        assert_eq!((result, step.width(PoolerTask::TokenEmbed)), (Ok(vec![4.0, 2.0]), 1));
    }
    let untagged = Pooler { step_tag_id: None, ..step };
    let result = pooled(&untagged, PoolerTask::TokenEmbed, &[3], false);
    assert_eq!(result, Ok(vec![4.0, 0.0, 2.0]));
}

/// The activation of weights is `max(x, 0)`, and vectors have the length 1.
#[test]
fn tokens_may_have_layers_of_their_own() {
    let layer = |weight: &[f32]| Dense {
        weight: weight.to_vec(),
        bias: Vec::new(),
        inputs: 2,
        activation: DenseActivation::Identity,
        norm: None,
    };
    let heads = TokenHeads {
        vectors: layer(&[1.0, 0.0, 0.0, 2.0]),
        weights: layer(&[1.0, -1.0]),
        bos: Some(7),
        eos: None,
    };
    let pooler = Pooler { token_heads: Some(heads), ..pooler(SequencePooling::Cls) };
    let of = |task, activation| {
        (pooler.width(task), pooled(&pooler, task, &[2, 3], activation).unwrap())
    };
    assert_eq!(of(PoolerTask::TokenClassify, false), (1, vec![5.0, -1.0]));
    assert_eq!(of(PoolerTask::TokenClassify, true), (1, vec![5.0, 0.0]));
    assert_eq!(of(PoolerTask::TokenEmbed, false), (2, vec![5.0, 0.0, 1.0, 4.0]));
    assert_eq!(of(PoolerTask::Embed, true), (2, vec![0.6, 0.8]));
}
