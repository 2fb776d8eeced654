//! Constraints that get their tokens one by one, and all at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::Builder,
};

use playhouse_actors::logic::{
    input::thinking::Thinking,
    request::{
        EngineRequest, ids::RequestId, sampling_params::SamplingParams,
        structured_output::OutputFormat, work::Work,
    },
};

use serde_json::json;

use super::constraint::{Allowed, Constraint, ConstraintSources, Job, Masks};
use crate::{
    grammar::{
        GrammarStore,
        tests::{EOS, VOCAB_SIZE, store},
    },
    token_rules::{
        NextToken, TokenRules,
        tests::{call, rules},
    },
};

const BEGIN: u32 = b'<' as u32;
const END: u32 = b'>' as u32;

/// The sources of constraints: a store of grammars, and token rules.
struct Sources {
    grammars: GrammarStore,
    token_rules: TokenRules,
}

impl Sources {
    fn new() -> Self {
        Self { grammars: store(), token_rules: rules() }
    }

    fn all(&self) -> ConstraintSources<'_> {
        let vocab_size = VOCAB_SIZE as usize;
        ConstraintSources { grammars: &self.grammars, token_rules: &self.token_rules, vocab_size }
    }
}

fn request(
    prompt: &[u32],
    format: Option<OutputFormat>,
    budget: Option<u32>,
) -> Arc<EngineRequest> {
    let thinking = Thinking { begin: vec![BEGIN], end: vec![END, END], budget };
    let params = SamplingParams {
        structured_output: format.map(|format| Arc::new(format.into())),
        thinking: (!prompt.is_empty()).then(|| Arc::new(thinking)),
        ..SamplingParams::default()
    };
    Arc::new(EngineRequest {
        work: Work::Generate(params),
        eos_token_ids: [EOS].into(),
        ..EngineRequest::for_test(1, prompt.iter().copied())
    })
}

fn abc() -> Option<OutputFormat> {
    Some(OutputFormat::Regex("abc+".to_owned()))
}

/// Returns the tokens that may follow the output.
fn first(allowed: Vec<Allowed>) -> Allowed {
    allowed.into_iter().next().unwrap()
}

/// Returns those of the test's tokens that are allowed. `None` means all.
fn named(allowed: Allowed) -> Option<Vec<u32>> {
    let mask = allowed.unwrap().mask?;
    Some((0..VOCAB_SIZE).filter(|&token| mask.allows(token)).collect())
}

/// Returns the allowed tokens after each token of `output`, from one constraint.
fn step_by_step(
    sources: ConstraintSources<'_>,
    request: &Arc<EngineRequest>,
    output: &[u32],
) -> Vec<Option<Vec<u32>>> {
    let mut constraint = Constraint::new(request).unwrap();
    let mut seen = Vec::new();
    for step in 0..=output.len() {
        assert_eq!(constraint.num_output(), step.saturating_sub(1));
        let new_tokens = output[constraint.num_output()..step].to_vec();
        let jobs = vec![Job { request: RequestId(1), constraint, new_tokens, guesses: Vec::new() }];
        let done =
            std::thread::scope(|scope| Masks::start(scope, jobs, sources).join().next().unwrap());
        constraint = done.constraint;
        seen.push(named(first(done.allowed)));
    }
    seen
}

/// Returns the same, each time from a new constraint, as after a preemption or a crash.
fn replayed(
    sources: ConstraintSources<'_>,
    request: &Arc<EngineRequest>,
    output: &[u32],
) -> Vec<Option<Vec<u32>>> {
    let allowed = |end: usize| {
        let constraint = Constraint::new(request).unwrap();
        let new_tokens = output[..end].to_vec();
        let job = Job { request: RequestId(1), constraint, new_tokens, guesses: Vec::new() };
        named(first(job.run(sources).allowed))
    };
    (0..=output.len()).map(allowed).collect()
}

fn check(request: &Arc<EngineRequest>, output: &[u32], expected: &[Option<&[u32]>]) {
    let sources = Sources::new();
    let expected: Vec<_> = expected.iter().map(|tokens| tokens.map(<[u32]>::to_vec)).collect();
    assert_eq!(step_by_step(sources.all(), request, output), expected);
    assert_eq!(replayed(sources.all(), request, output), expected);
}

const A: u32 = b'a' as u32;
const B: u32 = b'b' as u32;
const C: u32 = b'c' as u32;
const END_ALONE: [u32; 1] = [EOS];

#[test]
fn an_output_follows_its_grammar_from_the_first_token() {
    let may_end: &[u32] = &[C, EOS, EOS + 1];
    let expected = [Some(&[A][..]), Some(&[B]), Some(&[C]), Some(may_end), Some(&END_ALONE)];
    check(&request(&[], abc(), None), &[A, B, C, EOS], &expected);
}

#[test]
fn thoughts_are_free_and_the_answer_is_not() {
    let output = [A, END, END, A, B];
    let expected = [None, None, None, Some(&[A][..]), Some(&[B]), Some(&[C])];
    check(&request(&[BEGIN], abc(), None), &output, &expected);
    // The prompt ends the thoughts.
    check(&request(&[BEGIN, END, END], abc(), None), &[A], &[Some(&[A]), Some(&[B])]);
}

#[test]
fn the_end_of_thoughts_is_forced_also_without_a_grammar() {
    let output = [A, END, END, A];
    let forced = Some(&[END][..]);
    check(&request(&[BEGIN], None, Some(1)), &output, &[None, forced, forced, None, None]);
    let then = [None, forced, forced, Some(&[A][..]), Some(&[B])];
    check(&request(&[BEGIN], abc(), Some(1)), &output, &then);
}

#[test]
fn a_request_without_constraints_has_none() {
    assert!(Constraint::new(&request(&[], None, None)).is_none());
}

fn job(request: &Arc<EngineRequest>, id: u64, new_tokens: &[u32]) -> Job {
    Job {
        request: RequestId(id),
        constraint: Constraint::new(request).unwrap(),
        new_tokens: new_tokens.to_vec(),
        guesses: Vec::new(),
    }
}

#[test]
fn masks_are_computed_where_the_system_gives_no_thread_or_few() {
    let (sources, abc) = (Sources::new(), request(&[], abc(), None));
    for refused_from in [0, 1] {
        let asked = AtomicUsize::new(0);
        let builder = || match asked.fetch_add(1, Ordering::Relaxed) {
            place if place < refused_from => Builder::new(),
            // More than an address space has.
            _ => Builder::new().stack_size(1 << 50),
        };
        let jobs: Vec<Job> = (0..40).map(|id| job(&abc, id, &[A])).collect();
        let mut done: Vec<_> = std::thread::scope(|scope| {
            Masks::start_on(builder, scope, jobs, sources.all()).join().collect()
        });
        done.sort_by_key(|done| done.request.0);
        assert!((0..40).eq(done.iter().map(|done| done.request.0)));
        assert!(done.into_iter().all(|done| named(first(done.allowed)) == Some(vec![B])));
    }
}

#[test]
fn a_constraint_that_fails_says_why_and_leaves_others_alone() {
    let sources = Sources::new();
    let broken = request(&[], Some(OutputFormat::Regex("[a-".to_owned())), None);
    let strayed = request(&[], abc(), None);
    // The output of the second does not match its grammar.
    let jobs = vec![job(&broken, 1, &[]), job(&strayed, 2, &[B]), job(&strayed, 3, &[A])];
    let done: Vec<_> =
        std::thread::scope(|scope| Masks::start(scope, jobs, sources.all()).join().collect());
    assert_eq!(done.iter().map(|done| done.request.0).collect::<Vec<_>>(), [1, 2, 3]);
    let [one, two, three] = done.try_into().ok().unwrap();
    assert!(first(one.allowed).unwrap_err().contains("[a-"));
    assert!(first(two.allowed).unwrap_err().contains("cannot go on"));
    assert_eq!(named(first(three.allowed)), Some(vec![B]));
}

/// A request with a rule that counts the output's tokens, a rule that does not, and its own
/// lists.
fn ruled() -> Arc<EngineRequest> {
    let params = SamplingParams {
        token_rules: vec![call("at_most", json!({"token": A, "times": 2})), call("from", json!(B))],
        allowed_token_ids: Some(vec![A, B, C]),
        logit_bias: vec![(C, 0.5)],
        ..SamplingParams::default()
    };
    let work = Work::Generate(params);
    Arc::new(EngineRequest { work, ..EngineRequest::for_test(1, [A]) })
}

#[test]
fn token_rules_see_the_output_and_say_the_same_when_they_begin_anew() {
    let (sources, request) = (Sources::new(), ruled());
    let output = [A, B, A, C];
    let mut constraint = Constraint::new(&request).unwrap();
    for end in 0..=output.len() {
        let new_tokens = output[constraint.num_output()..end].to_vec();
        let done = Job { request: RequestId(1), constraint, new_tokens, guesses: Vec::new() }
            .run(sources.all());
        constraint = done.constraint;
        let next = first(done.allowed).unwrap();
        assert!(next.mask.is_none());
        let mut expected = NextToken::new(Some(&[B, C]), &[(C, 0.5)]);
        if end >= 3 {
            expected.forbid(A);
        }
        assert_eq!(next.ruled.as_ref(), Some(&expected), "after {end} tokens");
        let replayed = job(&request, 1, &output[..end]).run(sources.all());
        let replayed = first(replayed.allowed).unwrap();
        assert_eq!(replayed.ruled, next.ruled);
    }
}

#[test]
fn a_rule_that_is_not_there_ends_its_request_with_a_reason() {
    let params =
        SamplingParams { token_rules: vec![call("upto", json!(3))], ..SamplingParams::default() };
    let work = Work::Generate(params);
    let request = Arc::new(EngineRequest { work, ..EngineRequest::for_test(1, [A]) });
    let refused = job(&request, 1, &[]).run(Sources::new().all());
    let refused = first(refused.allowed).unwrap_err();
    assert!(refused.contains("at_most, from"), "{refused}");
}

#[test]
fn masks_after_guesses_are_those_after_the_tokens() {
    let sources = Sources::new();
    let cases: [(Arc<EngineRequest>, &[u32]); 3] = [
        (request(&[], abc(), None), &[A, B, C, C, EOS]),
        (request(&[BEGIN], abc(), Some(1)), &[A, END, END, A, B]),
        (ruled(), &[A, B, A, C]),
    ];
    for (request, output) in cases {
        let mut constraint = Constraint::new(&request).unwrap();
        for known in 0..=output.len() {
            let new_tokens = output[constraint.num_output()..known].to_vec();
            let guesses = output[known..].to_vec();
            let guessed = Job { request: RequestId(1), constraint, new_tokens, guesses };
            let done = guessed.run(sources.all());
            constraint = done.constraint;
            assert_eq!(constraint.num_output(), known, "guesses are forgotten");
            assert_eq!(done.allowed.len(), output.len() - known + 1);
            for (end, allowed) in (known..).zip(done.allowed) {
                let expected = job(&request, 1, &output[..end]).run(sources.all()).allowed;
                let (found, expected) = (allowed.unwrap(), first(expected).unwrap());
                assert_eq!((found.mask, found.ruled), (expected.mask, expected.ruled));
            }
        }
    }
}

#[test]
fn nothing_follows_a_guess_that_may_not_come() {
    let sources = Sources::new();
    let mut strayed = job(&request(&[], abc(), None), 1, &[A]);
    strayed.guesses = vec![B, A, C];
    let done = strayed.run(sources.all());
    assert_eq!(
        done.allowed.into_iter().map(named).collect::<Vec<_>>(),
        [Some(vec![B]), Some(vec![C])]
    );
}

#[test]
fn forced_tokens_are_those_without_a_choice() {
    let sources = Sources::new();
    let forced = |request: &Arc<EngineRequest>, output: &[u32], most: usize| {
        let mut constraint = Constraint::new(request).unwrap();
        constraint.see(output);
        constraint.forced_tokens(sources.all(), most)
    };
    let plain = request(&[], abc(), None);
    assert_eq!(forced(&plain, &[], 9), [A, B, C]);
    assert_eq!(forced(&plain, &[], 2), [A, B]);
    assert_eq!(forced(&plain, &[A, B, C], 9), [0; 0], "it may end");
    let thinking = request(&[BEGIN], abc(), Some(1));
    assert_eq!(forced(&thinking, &[], 9), [0; 0], "thoughts are free");
    assert_eq!(forced(&thinking, &[A], 9), [END, END]);
    assert_eq!(forced(&thinking, &[A, END, END], 9), [A, B, C]);
}
