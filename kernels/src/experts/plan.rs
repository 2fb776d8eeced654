//! The order in which a batch's tokens meet the experts.

use super::Experts;
use crate::linear::groups::RowGroups;
use crate::{LinearWeight, Routing, WeightVector};

/// The choices of a batch, sorted by expert. A choice is a row of the experts' products.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The experts that have tokens, in order.
    chosen: Vec<u32>,
    /// The first row of each of them, then the number of rows.
    starts: Vec<u32>,
    /// The choice of each row: `token · top_k + place`.
    pub(super) choices: Vec<u32>,
    /// The row of each choice, or [`Plan::NO_ROW`].
    pub(super) rows: Vec<u32>,
    /// The next row of each expert, while choices are sorted.
    next: Vec<u32>,
}

impl Plan {
    /// The row of a choice of an identity, which has none.
    pub(super) const NO_ROW: u32 = u32::MAX;

    /// Replaces the plan, whatever it held, with the plan of a batch over `num_experts` experts
    /// with weights. Those behind them are identities. Choices of an expert stay in the order of
    /// their tokens.
    pub(super) fn sort(&mut self, routing: &Routing, num_experts: usize) {
        let Self { chosen, starts, choices, rows, next } = self;
        let all = routing.choices();
        next.clear();
        next.resize(num_experts, 0);
        for choice in all {
            if let Some(count) = next.get_mut(choice.expert as usize) {
                *count += 1;
            }
        }
        chosen.clear();
        starts.clear();
        let mut first = 0;
        for (expert, next) in next.iter_mut().enumerate() {
            let count = std::mem::replace(next, first);
            if count > 0 {
                chosen.push(expert as u32);
                starts.push(first);
                first += count;
            }
        }
        starts.push(first);
        choices.clear();
        choices.resize(first as usize, 0);
        rows.clear();
        for (index, choice) in all.iter().enumerate() {
            let Some(row) = next.get_mut(choice.expert as usize) else {
                rows.push(Self::NO_ROW);
                continue;
            };
            choices[*row as usize] = index as u32;
            rows.push(*row);
            *row += 1;
        }
    }

    /// Returns the rows with the matrices that expand them.
    pub(super) fn gate_up<'a>(&'a self, experts: &'a Experts) -> RowGroups<'a> {
        let weights = experts.on_cpu();
        self.groups(&weights.gate_up, weights.gate_up_bias.as_deref())
    }

    /// Returns the rows with the matrices that bring them back.
    pub(super) fn down<'a>(&'a self, experts: &'a Experts) -> RowGroups<'a> {
        let weights = experts.on_cpu();
        self.groups(&weights.down, weights.down_bias.as_deref())
    }

    fn groups<'a>(
        &'a self,
        weights: &'a [LinearWeight],
        biases: Option<&'a [WeightVector]>,
    ) -> RowGroups<'a> {
        RowGroups { weights, biases, chosen: &self.chosen, starts: &self.starts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;

    #[test]
    fn choices_are_sorted_by_expert_and_then_by_token() {
        let experts = [3, 1, 1, 0, 3, 1];
        let choices = experts.map(|expert| Choice { expert, weight: 1.0 });
        let mut plan = Plan::default();
        plan.sort(&Routing::new(&[choices[0]; 4], 2, 9).unwrap(), 9);
        plan.sort(&Routing::new(&choices, 2, 5).unwrap(), 5);
        assert_eq!(plan.chosen, [0, 1, 3]);
        assert_eq!(plan.starts, [0, 1, 4, 6]);
        assert_eq!(plan.choices, [3, 1, 2, 5, 0, 4]);
        assert_eq!(plan.rows, [4, 1, 2, 0, 5, 3]);
        plan.sort(&Routing::new(&[], 2, 5).unwrap(), 5);
        assert_eq!((plan.chosen.len(), &plan.starts[..]), (0, &[0][..]));
        // Experts from 2 on are identities.
        plan.sort(&Routing::new(&choices, 2, 5).unwrap(), 2);
        assert_eq!((&plan.chosen[..], &plan.starts[..]), (&[0, 1][..], &[0, 1, 4][..]));
        assert_eq!(plan.choices, [3, 1, 2, 5]);
        assert_eq!(plan.rows, [Plan::NO_ROW, 1, 2, 0, Plan::NO_ROW, 3]);
    }
}
