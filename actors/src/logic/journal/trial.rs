//! Answers that may have killed their process, and how the next one finds the culprit.
//!
//! Requests that kill the whole process are accepted again by the next one, and would kill each.
//! So the journal counts, for each answer, the processes that died while it was computed. Up to
//! [`NUM_DEATHS_MAX`] deaths may have another cause, and all answers continue together. An answer
//! with more is a *suspect*. Suspects are computed before all other answers of earlier processes,
//! a quarter of them at a time. Each further death thereby leaves fewer of the highest count. An
//! answer is convicted if it is the only suspect in the engine at its fifth death or a later one.
//! Its requests end with an error. Kills from outside end an answer only if five of them hit it,
//! and it is the only suspect at the last.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Number of deaths while an answer was computed, from which on it is a suspect at the next one:
/// that of the process that accepted it, and of the next one.
pub const NUM_DEATHS_MAX: u32 = 2;

/// Number of deaths at which an answer can be convicted. With fewer, kills from outside may have
/// hit it by chance, because suspects are computed first.
const NUM_DEATHS_CONVICTED: u32 = 5;

/// Suspects are tried in groups, of which the first has one of so many.
const NUM_GROUPS: usize = 4;

/// The deaths that may be the work of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Number of processes that died while it was computed.
    pub num_deaths: u32,
    /// Whether the process that wrote last computes it.
    pub is_running: bool,
    /// Whether it killed its process.
    pub is_convicted: bool,
}

impl Trial {
    /// Returns whether it may be the cause of the deaths.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.num_deaths > NUM_DEATHS_MAX
    }
}

/// Counts a death against the answers that were computed, among these unfinished ones. The only one
/// that enough deaths point at is convicted.
pub(super) fn condemn<'a>(unfinished: impl Iterator<Item = &'a mut Trial>) {
    let mut suspects = Vec::new();
    for trial in unfinished.filter(|trial| trial.is_running) {
        trial.num_deaths = trial.num_deaths.saturating_add(1);
        if trial.is_suspect() {
            suspects.push(trial);
        }
    }
    if let [culprit] = suspects.as_mut_slice() {
        culprit.is_convicted = culprit.num_deaths >= NUM_DEATHS_CONVICTED;
    }
}

/// Returns the suspects among unfinished answers in groups. The engine gets a group after the one
/// before it has ended. None are convicted.
#[must_use]
pub fn groups(answers: &[(Arc<str>, Trial)]) -> Vec<Vec<Arc<str>>> {
    let mut suspects: Vec<_> = answers.iter().filter(|(_, trial)| trial.is_suspect()).collect();
    // A stable sort: answers with the same number stay in order of their names.
    suspects.sort_by_key(|(_, trial)| std::cmp::Reverse(trial.num_deaths));
    let of_same_count =
        suspects.chunk_by(|(_, one), (_, other)| one.num_deaths == other.num_deaths);
    let mut groups = Vec::new();
    for same in of_same_count {
        let size = same.len().div_ceil(NUM_GROUPS).max(1);
        let names = |group: &[&(Arc<str>, Trial)]| {
            group.iter().map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>()
        };
        groups.extend(same.chunks(size).map(names));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets processes compute answers, each until it computes `killer`. Returns the number of
    /// deaths before the killer is convicted, and the answers that were convicted.
    fn deaths(num_answers: usize, killer: usize) -> (usize, Vec<usize>) {
        let name = |answer: usize| -> Arc<str> { format!("{answer:02}").into() };
        let accepted = Trial { is_running: true, ..Trial::default() };
        let mut open: Vec<_> = (0..num_answers).map(|answer| (name(answer), accepted)).collect();
        for num_deaths in 1..100 {
            condemn(open.iter_mut().map(|(_, trial)| trial));
            open.iter_mut().for_each(|(_, trial)| trial.is_running = false);
            let convicted = open.iter().filter(|(_, trial)| trial.is_convicted);
            let convicted: Vec<usize> = convicted.map(|(name, _)| name.parse().unwrap()).collect();
            if !convicted.is_empty() {
                return (num_deaths, convicted);
            }
            let all = open.iter().map(|(name, _)| Arc::clone(name)).collect();
            for group in groups(&open).into_iter().chain([all]) {
                if group.contains(&name(killer)) {
                    let is_tried = |name: &Arc<str>| group.contains(name);
                    let tried = open.iter_mut().filter(|(name, _)| is_tried(name));
                    tried.for_each(|(_, trial)| trial.is_running = true);
                    break;
                }
                open.retain(|(name, _)| !group.contains(name));
            }
        }
        unreachable!("the killer is never convicted");
    }

    #[test]
    fn one_answer_is_ended_after_the_fifth_death() {
        assert_eq!(deaths(1, 0), (5, vec![0]));
    }

    #[test]
    fn the_killer_alone_is_convicted_among_many() {
        for killer in [0, 1, 17, 31] {
            let (num_deaths, convicted) = deaths(32, killer);
            assert_eq!(convicted, [killer]);
            assert!(num_deaths <= 6, "{num_deaths} deaths");
        }
    }

    #[test]
    fn two_deaths_make_no_suspect() {
        let mut trial = Trial { is_running: true, ..Trial::default() };
        condemn([&mut trial].into_iter());
        condemn([&mut trial].into_iter());
        assert_eq!((trial.num_deaths, trial.is_convicted), (2, false));
        assert!(groups(&[("a".into(), trial)]).is_empty());
    }
}
