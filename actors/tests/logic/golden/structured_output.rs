//! Requests that wait for their grammar: WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR.

use std::sync::Arc;

use playhouse_actors::logic::{
    request::{
        EngineRequest, FinishReason,
        failure::Failure,
        ids::{Epoch, RequestId, Step},
        structured_output::{OutputFormat, StructuredOutput},
    },
    scheduler::{RecoveredRequest, Resource, SchedulerConfig, SchedulingPolicy, WaitingReason},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn format(text: &str) -> Arc<StructuredOutput> {
    Arc::new(OutputFormat::Regex(text.to_owned()).into())
}

fn grammar(text: &str) -> Resource {
    Resource::Grammar(format(text))
}

fn constrained(id: u64, text: &str) -> EngineRequest {
    let mut request = request(id, own_prompt(id, 10));
    request.sampling_mut().structured_output = Some(format(text));
    request
}

fn free(id: u64) -> EngineRequest {
    request(id, own_prompt(id, 10))
}

fn compiled(harness: &mut Harness, text: &str) {
    assert_eq!(harness.scheduler.resolve(&grammar(text), Ok(())), []);
}

#[test]
fn others_pass_a_request_that_waits_for_its_grammar() {
    for policy in [SchedulingPolicy::Fcfs, SchedulingPolicy::Priority] {
        let mut harness = Harness::new(SchedulerConfig { policy, max_num_seqs: 1, ..roomy() });
        harness.add(constrained(0, "a"));
        harness.add(free(1));
        harness.add(free(2));
        assert_eq!(harness.step(), tokens([(1, 10)]));
        let reasons = harness.scheduler.waiting_reasons();
        let aside = (RequestId(0), WaitingReason::StructuredOutputGrammar);
        assert_eq!(reasons, [(RequestId(2), WaitingReason::MaxNumSeqs), aside]);
        compiled(&mut harness, "a");
        assert_eq!(harness.waiting(), [0, 2], "it arrived before the one that still waits");
        harness.finish(&[1]);
        assert_eq!(harness.step(), tokens([(0, 10)]));
    }
}

#[test]
fn suspects_alone_get_their_grammars() {
    let mut harness = Harness::new(roomy());
    for (id, text) in [(0, "a"), (1, "b"), (2, "b")] {
        harness.add(constrained(id, text));
    }
    harness.scheduler.set_cohort(Some([RequestId(2)].into()));
    assert_eq!(harness.scheduler.take_wanted(), [grammar("b")]);
    assert_eq!(harness.scheduler.awaited(), [grammar("b")]);
    assert_eq!(harness.scheduler.take_wanted(), []);
    harness.scheduler.set_cohort(None);
    assert_eq!(harness.scheduler.take_wanted(), [grammar("a")], "it was not forgotten");
    assert_eq!(harness.scheduler.awaited(), [grammar("a"), grammar("b")]);
}

#[test]
fn each_format_is_asked_for_once() {
    let mut harness = Harness::new(roomy());
    for (id, text) in [(0, "b"), (1, "a"), (2, "b")] {
        harness.add(constrained(id, text));
    }
    assert_eq!(harness.scheduler.take_wanted(), [grammar("b"), grammar("a")]);
    assert_eq!(harness.scheduler.take_wanted(), []);
    assert_eq!(harness.scheduler.awaited(), [grammar("b"), grammar("a")]);
    compiled(&mut harness, "b");
    assert_eq!(harness.scheduler.awaited(), [grammar("a")]);
    assert_eq!(harness.step(), tokens([(0, 10), (2, 10)]));
    let stale = harness.scheduler.stats().num_stale;
    compiled(&mut harness, "b");
    assert_eq!(harness.scheduler.stats().num_stale, stale + 1, "no request waits for it");
}

#[test]
fn a_bad_grammar_ends_the_requests_that_ask_for_it() {
    let mut harness = Harness::new(roomy());
    for (id, text) in [(0, "bad"), (1, "good"), (2, "bad")] {
        harness.add(constrained(id, text));
    }
    let failure = Failure::InvalidGrammar("no grammar".to_owned());
    let ended = harness.scheduler.resolve(&grammar("bad"), Err(failure.clone()));
    let ends: Vec<_> = ended.into_iter().map(|end| (end.request.0, end.finish)).collect();
    let finish = Some(FinishReason::Error(failure));
    assert_eq!(ends, [(0, finish.clone()), (2, finish)]);
    compiled(&mut harness, "good");
    assert_eq!(harness.step(), tokens([(1, 10)]));
}

#[test]
fn aborted_and_late_requests_no_longer_wait() {
    let mut harness = Harness::new(roomy());
    harness.add(constrained(0, "a"));
    harness.add(EngineRequest { deadline: Some(5), ..constrained(1, "b") });
    assert_eq!(harness.finish(&[0]), [0]);
    assert_eq!(harness.scheduler.take_wanted(), [grammar("b")]);
    harness.now = 5;
    harness.step();
    let finish = Some(FinishReason::Error(Failure::DeadlineExceeded));
    assert_eq!(harness.last.ended[0].finish, finish);
    assert_eq!(harness.scheduler.awaited(), []);
    assert_eq!(harness.scheduler.num_unfinished(), 0);
}

#[test]
fn a_preempted_request_has_its_grammar_and_a_new_epoch_asks_again() {
    let mut harness = Harness::new(SchedulerConfig { num_blocks: 3, ..roomy() });
    harness.add(constrained(0, "a"));
    compiled(&mut harness, "a");
    harness.step();
    harness.scheduler.reset_prefix_cache(true);
    assert_eq!(harness.step(), tokens([(0, 11)]), "it was preempted and resumed at once");
    let live = RecoveredRequest {
        request: Arc::new(constrained(0, "a")),
        output_token_ids: vec![0],
        num_prompt_logprobs: 0,
    };
    harness.scheduler.recover(Epoch(1), Step(0), vec![live]);
    assert_eq!(harness.scheduler.take_wanted(), [grammar("a")]);
    assert_eq!(harness.step(), tokens([]));
    compiled(&mut harness, "a");
    assert_eq!(harness.step(), tokens([(0, 11)]));
}
