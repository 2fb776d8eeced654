//! A few prefixes, each with many endings: the best case of a prefix cache.

use rand::{rngs::StdRng, seq::SliceRandom as _};

use super::{DatasetArgs, SampleRequest, Vocabulary, text_of, usage};
use crate::api::TextCodec;
use crate::cli::CliError;

pub(super) fn requests(
    args: &DatasetArgs,
    codec: &dyn TextCodec,
    rng: &mut StdRng,
) -> Result<Vec<SampleRequest>, CliError> {
    let num_prefixes = args.prefix_repetition_num_prefixes;
    let each = args.num_prompts.checked_div(num_prefixes).unwrap_or(0);
    if each == 0 {
        let message = "--num-prompts must be at least --prefix-repetition-num-prefixes, and that \
                       at least 1";
        return Err(usage(format!("{message}: got {} and {num_prefixes}", args.num_prompts)));
    }
    let output_len = args.output_len.unwrap_or(args.prefix_repetition_output_len);
    let vocabulary = Vocabulary::of(codec);
    let mut text_of_len = |len: usize| {
        let tokens = vocabulary.draw_many(len, rng);
        text_of(tokens, &vocabulary, codec, rng)
    };
    let mut requests = Vec::with_capacity(each * num_prefixes);
    for _ in 0..num_prefixes {
        let (prefix, _) = text_of_len(args.prefix_repetition_prefix_len)?;
        for _ in 0..each {
            let (suffix, _) = text_of_len(args.prefix_repetition_suffix_len)?;
            let prompt = prefix.clone() + &suffix;
            let prompt_len = codec.encode(&prompt, true)?.len();
            requests.push(SampleRequest { prompt, prompt_len, output_len });
        }
    }
    requests.shuffle(rng);
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::{args, codec, rng};
    use super::*;

    #[test]
    fn every_prefix_is_repeated_equally_often() {
        let args = args(&[
            "--num-prompts=13",
            "--prefix-repetition-num-prefixes=3",
            "--prefix-repetition-prefix-len=40",
            "--prefix-repetition-suffix-len=8",
        ]);
        let requests = requests(&args, &codec(), &mut rng(3)).unwrap();
        assert_eq!(requests.len(), 12);
        let mut prefixes = BTreeMap::new();
        for request in &requests {
            let start: String = request.prompt.chars().take(20).collect();
            *prefixes.entry(start).or_insert(0) += 1;
            assert!((40..=56).contains(&request.prompt_len), "{}", request.prompt_len);
        }
        assert_eq!(prefixes.into_values().collect::<Vec<_>>(), [4; 3]);
    }

    #[test]
    fn fewer_prompts_than_prefixes_are_refused() {
        for typed in [&["--num-prompts=9"][..], &["--prefix-repetition-num-prefixes=0"]] {
            let error = requests(&args(typed), &codec(), &mut rng(0)).unwrap_err().to_string();
            assert!(error.contains("--num-prompts must be at least"), "{error}");
        }
    }
}
