//! Constraints on a request's next token: a grammar, which applies once the thoughts are over, and
//! token rules.

use std::{
    panic::resume_unwind,
    sync::{Arc, mpsc::sync_channel},
    thread::{self, Builder, Scope, ScopedJoinHandle},
};

use playhouse_actors::{
    logic::{
        input::thinking::Thoughts,
        request::{
            EngineRequest,
            ids::{RequestId, TokenId},
        },
    },
    ports::GrammarError,
};

use crate::{
    grammar::{GrammarStore, Matcher, TokenMask},
    token_rules::{NextToken, RequestRule, TokenRules, TokensSoFar},
};

/// Most threads that compute masks at a time.
const MAX_THREADS: usize = 8;

/// The state of one request's constraint. It depends only on prompt and output, so a new one can
/// replace a lost one.
pub(super) struct Constraint {
    request: Arc<EngineRequest>,
    thoughts: Option<Thoughts>,
    /// Number of output tokens so far.
    num_output: usize,
    /// Tokens of the answer, if they must match a grammar.
    answer: Vec<TokenId>,
    /// The place in the grammar after so many tokens of the answer.
    matcher: Option<(Matcher, usize)>,
    /// The token rules of a request that has some, once they are made.
    rules: Option<Vec<Box<dyn RequestRule>>>,
    /// All of the output, for token rules.
    output: Vec<TokenId>,
}

/// The tokens that may come next, or the reason why none can.
pub(super) type Allowed = Result<Next, String>;

/// The tokens that may come next.
#[derive(Debug, Default)]
pub(super) struct Next {
    /// The tokens that the grammar or the budget of thoughts allows. `None` means all.
    pub(super) mask: Option<TokenMask>,
    /// The answer of the token rules, in place of the request's own lists. `None`: there are no
    /// rules.
    pub(super) ruled: Option<NextToken>,
}

/// The sources of constraints.
#[derive(Clone, Copy)]
pub(super) struct ConstraintSources<'a> {
    pub(super) grammars: &'a GrammarStore,
    pub(super) token_rules: &'a TokenRules,
    pub(super) vocab_size: usize,
}

/// A request's constraint while it is on another thread.
pub(super) struct Job {
    pub(super) request: RequestId,
    pub(super) constraint: Constraint,
    /// Output tokens that the constraint has not consumed.
    pub(super) new_tokens: Vec<TokenId>,
    /// Guesses of the tokens after them.
    pub(super) guesses: Vec<TokenId>,
}

/// A constraint that returns with its results.
pub(super) struct Done {
    pub(super) request: RequestId,
    pub(super) constraint: Constraint,
    /// The tokens that may follow the output, then those after each guess. A guess that may not
    /// come, or a failure, ends the list. The draws after it do not count.
    pub(super) allowed: Vec<Allowed>,
}

/// The place of a constraint before guesses.
struct Place {
    thoughts: Option<Thoughts>,
    num_output: usize,
    num_answer: usize,
    /// The matcher itself. Guesses are followed with a copy.
    matcher: Option<(Matcher, usize)>,
}

impl Constraint {
    /// Returns `None` if every token is always allowed.
    pub(super) fn new(request: &Arc<EngineRequest>) -> Option<Self> {
        let params = request.sampling()?;
        let has_rules = !params.token_rules.is_empty();
        if params.structured_output.is_none() && params.thinking.is_none() && !has_rules {
            return None;
        }
        let thinking = params.thinking.clone();
        Some(Self {
            thoughts: thinking.map(|thinking| Thoughts::new(thinking, &request.prompt_token_ids)),
            num_output: 0,
            answer: Vec::new(),
            matcher: None,
            rules: None,
            output: Vec::new(),
            request: Arc::clone(request),
        })
    }

    /// Returns the number of output tokens that it has consumed.
    pub(super) fn num_output(&self) -> usize {
        self.num_output
    }

    /// Consumes output tokens.
    pub(super) fn see(&mut self, tokens: &[TokenId]) {
        let Some(params) = self.request.sampling() else { return };
        let is_structured = params.structured_output.is_some();
        if !params.token_rules.is_empty() {
            self.output.extend_from_slice(tokens);
        }
        for &token in tokens {
            if is_structured && self.is_answer() {
                self.answer.push(token);
            }
            self.num_output += 1;
            if let Some(thoughts) = &mut self.thoughts {
                thoughts.push(token);
            }
        }
    }

    /// Returns whether the next token belongs to the answer.
    fn is_answer(&self) -> bool {
        self.thoughts.as_ref().is_none_or(|thoughts| thoughts.answer_start().is_some())
    }

    /// Returns the place before guesses, to return to.
    fn leave_place(&mut self) -> Place {
        let matcher = self.matcher.take();
        self.matcher = matcher.as_ref().map(|(matcher, at)| (matcher.fork(), *at));
        let (thoughts, num_output) = (self.thoughts.clone(), self.num_output);
        Place { thoughts, num_output, num_answer: self.answer.len(), matcher }
    }

    /// Forgets the tokens since `place`.
    fn return_to(&mut self, place: Place) {
        let Place { thoughts, num_output, num_answer, matcher } = place;
        (self.thoughts, self.num_output, self.matcher) = (thoughts, num_output, matcher);
        self.output.truncate(num_output);
        self.answer.truncate(num_answer);
    }

    /// Returns the tokens that must come next, at most `most`: those of an end marker, or those
    /// that the grammar leaves no choice about.
    pub(super) fn forced_tokens(
        &mut self,
        sources: ConstraintSources<'_>,
        most: usize,
    ) -> Vec<TokenId> {
        let mut forced = Vec::new();
        if let Some(mut thoughts) = self.thoughts.clone() {
            while let Some(token) = thoughts.forced_token().filter(|_| forced.len() < most) {
                thoughts.push(token);
                forced.push(token);
            }
        }
        let params = self.request.sampling();
        let output = params.and_then(|params| params.structured_output.clone());
        let Some(output) = output.filter(|_| forced.is_empty() && self.is_answer()) else {
            return forced;
        };
        let grammars = sources.grammars;
        match self.follow(|| grammars.matcher(&output)) {
            Ok(matcher) => forced = grammars.forced_tokens(matcher),
            // The mask is computed with a new matcher, which shows the failure if there is one.
            Err(_) => self.matcher = None,
        }
        forced.truncate(most);
        forced
    }

    /// Returns the tokens that may follow the output, then those after each guess.
    fn allowed_after(
        &mut self,
        guesses: &[TokenId],
        sources: ConstraintSources<'_>,
    ) -> Vec<Allowed> {
        let mut allowed = vec![self.allowed(sources)];
        if guesses.is_empty() {
            return allowed;
        }
        let place = self.leave_place();
        for &guess in guesses {
            let may_come = match allowed.last() {
                Some(Ok(next)) => next.mask.as_ref().is_none_or(|mask| mask.allows(guess)),
                Some(Err(_)) | None => false,
            };
            if !may_come {
                break;
            }
            self.see(&[guess]);
            allowed.push(self.allowed(sources));
        }
        self.return_to(place);
        allowed
    }

    fn allowed(&mut self, sources: ConstraintSources<'_>) -> Allowed {
        let ruled = self.ruled(sources.token_rules)?;
        let mask = self.masked(sources).map_err(|error| error.to_string())?;
        Ok(Next { mask, ruled })
    }

    /// Returns what the token rules say, if the request has some.
    fn ruled(&mut self, token_rules: &TokenRules) -> Result<Option<NextToken>, String> {
        let Some(params) = self.request.sampling() else { return Ok(None) };
        if params.token_rules.is_empty() {
            return Ok(None);
        }
        let rules = match &self.rules {
            Some(rules) => rules,
            None => {
                let calls = params.token_rules.iter();
                let rules = calls.map(|call| token_rules.for_request(call));
                // They were accepted, so only a rule that is no function can reject them now.
                let rules = rules.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
                self.rules.insert(rules)
            }
        };
        let prompt = &self.request.prompt_token_ids;
        let tokens = TokensSoFar { prompt, output: &self.output };
        let mut next = NextToken::new(params.allowed_token_ids.as_deref(), &params.logit_bias);
        rules.iter().for_each(|rule| rule.restrict(tokens, &mut next));
        Ok(Some(next))
    }

    /// Returns the tokens that the grammar or the budget of thoughts allows, if not all.
    fn masked(
        &mut self,
        ConstraintSources { grammars, vocab_size, .. }: ConstraintSources<'_>,
    ) -> Result<Option<TokenMask>, GrammarError> {
        if let Some(token) = self.thoughts.as_ref().and_then(Thoughts::forced_token) {
            return Ok(Some(TokenMask::only(token, vocab_size)));
        }
        let params = self.request.sampling();
        let Some(output) = params.and_then(|params| params.structured_output.clone()) else {
            return Ok(None);
        };
        if !self.is_answer() {
            return Ok(None);
        }
        let first = self.mask(|| grammars.matcher(&output));
        // Matchers share states. Another request's matcher may have exhausted or broken them.
        let mask = first.or_else(|_| {
            self.matcher = None;
            self.mask(|| grammars.fresh_matcher(&output))
        });
        mask.map(Some)
    }

    fn mask(
        &mut self,
        make: impl FnOnce() -> Result<Matcher, GrammarError>,
    ) -> Result<TokenMask, GrammarError> {
        self.follow(make)?.mask()
    }

    /// Returns the matcher after the answer so far.
    fn follow(
        &mut self,
        make: impl FnOnce() -> Result<Matcher, GrammarError>,
    ) -> Result<&mut Matcher, GrammarError> {
        let (matcher, num_consumed) = match &mut self.matcher {
            Some(matcher) => matcher,
            none => none.insert((make()?, 0)),
        };
        matcher.consume(&self.answer[*num_consumed..])?;
        *num_consumed = self.answer.len();
        Ok(matcher)
    }
}

impl Job {
    pub(super) fn run(self, sources: ConstraintSources<'_>) -> Done {
        let Self { request, mut constraint, new_tokens, guesses } = self;
        constraint.see(&new_tokens);
        let allowed = constraint.allowed_after(&guesses, sources);
        Done { request, constraint, allowed }
    }
}

/// Masks that other threads compute while the model runs.
pub(super) struct Masks<'scope> {
    threads: Vec<ScopedJoinHandle<'scope, Vec<Done>>>,
    /// The masks for which the system could not start a thread.
    done: Vec<Done>,
}

impl<'scope> Masks<'scope> {
    /// Starts to compute masks on new threads, because those of the model are busy.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        jobs: Vec<Job>,
        sources: ConstraintSources<'env>,
    ) -> Self {
        Self::start_on(Builder::new, scope, jobs, sources)
    }

    /// Starts to compute masks on threads of `builder`. If the system cannot start a thread, its
    /// masks are computed here. Then the model runs later, but no request fails.
    pub(super) fn start_on<'env>(
        builder: impl Fn() -> Builder,
        scope: &'scope Scope<'scope, 'env>,
        jobs: Vec<Job>,
        sources: ConstraintSources<'env>,
    ) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let per_thread = jobs.len().div_ceil(cores.min(MAX_THREADS)).max(1);
        let run = move |part: Vec<Job>| -> Vec<Done> {
            part.into_iter().map(|job| job.run(sources)).collect()
        };
        let mut jobs = jobs.into_iter();
        let (mut threads, mut done) = (Vec::new(), Vec::new());
        while jobs.len() > 0 {
            let part: Vec<Job> = jobs.by_ref().take(per_thread).collect();
            // If the thread does not start, its closure is dropped with everything in it. So the
            // jobs are sent afterwards.
            let (give, take) = sync_channel(1);
            let work = move || take.recv().map(run).unwrap_or_default();
            match builder().spawn_scoped(scope, work) {
                Ok(thread) => {
                    if let Err(refused) = give.send(part) {
                        done.extend(run(refused.0));
                    }
                    threads.push(thread);
                }
                Err(error) => {
                    tracing::warn!(%error, "no thread for masks: they are computed before the step");
                    done.extend(run(part));
                }
            }
        }
        Self { threads, done }
    }

    /// Waits for all masks. A panic continues here, so the whole step fails.
    pub(super) fn join(self) -> impl Iterator<Item = Done> {
        let join = |thread: ScopedJoinHandle<'scope, Vec<Done>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        self.done.into_iter().chain(self.threads.into_iter().flat_map(join))
    }
}
