//! Straight loops in f64.

use super::{ExpertGroups, GroupScore, RouterConfig, Scoring};

/// Returns the chosen experts of a row with their weights, the best first.
pub(super) fn route(
    logits: &[f32],
    config: &RouterConfig,
    bias: Option<&[f32]>,
) -> Vec<(usize, f64)> {
    let (logits, scores) = scores(logits, config);
    let keys = keys(&logits, &scores, config, bias);
    let may = allowed(&keys, config.groups.as_ref());
    let experts: Vec<usize> = (0..keys.len()).filter(|e| may[*e]).collect();
    let chosen = best(&experts, &keys, config.top_k);
    let mut weights: Vec<f64> = chosen.iter().map(|e| scores[*e]).collect();
    if config.scoring == Scoring::SigmoidOfChosen {
        weights.iter_mut().for_each(|w| *w = logistic(*w));
    }
    match config.scoring {
        Scoring::SoftmaxOfChosen => weights = softmax(&weights),
        Scoring::SparseMixer => weights = weights_among_near(&logits, &chosen, config.jitter),
        _ if config.renormalize => {
            let mut sum: f64 = weights.iter().sum();
            if config.scoring == Scoring::Softmax {
                sum = sum.max(f64::from(config.min_sum));
            }
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        _ => {}
    }
    let scale = f64::from(config.scale);
    chosen.into_iter().zip(weights).map(|(e, w)| (e, w * scale)).collect()
}

/// Returns the least difference between the numbers of two experts, or two groups, by which they
/// are chosen. A tie by rounding needs a smaller one.
pub(super) fn least_gap(logits: &[f32], config: &RouterConfig, bias: Option<&[f32]>) -> f64 {
    let (logits, scores) = scores(logits, config);
    let keys = keys(&logits, &scores, config, bias);
    let of_groups = config.groups.map_or_else(Vec::new, |groups| group_keys(&keys, &groups));
    let mut least = f64::INFINITY;
    for mut keys in [keys, of_groups] {
        keys.sort_by(f64::total_cmp);
        least = keys.windows(2).fold(least, |least, pair| least.min(pair[1] - pair[0]));
    }
    if config.scoring == Scoring::SparseMixer {
        // An expert at the border of the near ones counts by rounding, too.
        let limit = 2.0 * f64::from(config.jitter);
        let pairs = logits.iter().flat_map(|best| logits.iter().map(move |x| distance(*best, *x)));
        least = pairs.fold(least, |least, distance| least.min((distance - limit).abs()));
    }
    least
}

/// Returns the weight of each chosen expert among the experts near it, without earlier choices.
fn weights_among_near(logits: &[f64], chosen: &[usize], jitter: f32) -> Vec<f64> {
    let limit = 2.0 * f64::from(jitter);
    let weight = |(place, expert): (usize, &usize)| {
        let best = logits[*expert];
        let near = (0..logits.len())
            .filter(|e| !chosen[..place].contains(e) && distance(best, logits[*e]) <= limit);
        1.0 / near.map(|e| (logits[e] - best).exp()).sum::<f64>()
    };
    chosen.iter().enumerate().map(weight).collect()
}

/// Returns the relative distance of a logit below that of the chosen expert.
fn distance(best: f64, logit: f64) -> f64 {
    (best - logit) / logit.abs().max(best)
}

fn scores(logits: &[f32], config: &RouterConfig) -> (Vec<f64>, Vec<f64>) {
    let logits: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
    let scores = match config.scoring {
        Scoring::Softmax => softmax(&logits),
        Scoring::Sigmoid => logits.iter().map(|x| logistic(*x)).collect(),
        Scoring::SoftmaxOfChosen | Scoring::SigmoidOfChosen | Scoring::SparseMixer => {
            logits.clone()
        }
    };
    (logits, scores)
}

fn keys(logits: &[f64], scores: &[f64], config: &RouterConfig, bias: Option<&[f32]>) -> Vec<f64> {
    match (bias, config.groups) {
        (Some(bias), _) => scores.iter().zip(bias).map(|(s, b)| s + f64::from(*b)).collect(),
        (None, Some(ExpertGroups { by: GroupScore::TopTwoSum, .. })) => scores.to_vec(),
        (None, _) => logits.to_vec(),
    }
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

/// Returns the `k` candidates of the largest keys. A stable sort keeps the lower index first.
fn best(candidates: &[usize], keys: &[f64], k: usize) -> Vec<usize> {
    let mut order = candidates.to_vec();
    order.sort_by(|a, b| keys[*b].total_cmp(&keys[*a]));
    order.truncate(k);
    order
}

/// Returns for each expert whether its group was chosen.
fn allowed(keys: &[f64], groups: Option<&ExpertGroups>) -> Vec<bool> {
    let Some(groups) = groups else { return vec![true; keys.len()] };
    let all: Vec<usize> = (0..groups.num_groups).collect();
    let open = best(&all, &group_keys(keys, groups), groups.num_chosen);
    let size = keys.len() / groups.num_groups;
    (0..keys.len()).map(|e| open.contains(&(e / size))).collect()
}

fn group_keys(keys: &[f64], groups: &ExpertGroups) -> Vec<f64> {
    let mut group_keys = Vec::new();
    for keys in keys.chunks(keys.len() / groups.num_groups) {
        let mut keys = keys.to_vec();
        keys.sort_by(|a, b| b.total_cmp(a));
        group_keys.push(match groups.by {
            GroupScore::Max => keys[0],
            GroupScore::TopTwoSum => keys[0] + keys[1],
        });
    }
    group_keys
}
