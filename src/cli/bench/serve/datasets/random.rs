//! Prompts of random tokens. Speed does not depend on their meaning.

use rand::{Rng, RngExt as _, rngs::StdRng};

use super::{DatasetArgs, SampleRequest, Vocabulary, text_of, usage};
use crate::api::TextCodec;
use crate::cli::CliError;

/// Returns a random length from `len · (1 - ratio)` to `len · (1 + ratio)`.
fn draw_len(len: usize, ratio: f64, rng: &mut impl Rng) -> usize {
    let low = (len as f64 * (1.0 - ratio)).floor() as usize;
    let high = (len as f64 * (1.0 + ratio)).ceil() as usize;
    rng.random_range(low..=high)
}

pub(super) fn requests(
    args: &DatasetArgs,
    codec: &dyn TextCodec,
    rng: &mut StdRng,
) -> Result<Vec<SampleRequest>, CliError> {
    let ratio = args.random_range_ratio;
    if !(0.0..1.0).contains(&ratio) {
        return Err(usage(format!("--random-range-ratio must be from 0 to below 1, got {ratio}")));
    }
    let input_len = args.input_len.unwrap_or(args.random_input_len);
    let output_len = args.output_len.unwrap_or(args.random_output_len);
    // A prompt's tokens include those that the tokenizer adds.
    let added = codec.encode("", true)?.len();
    let input_len = input_len.saturating_sub(added);
    if input_len + args.random_prefix_len == 0 {
        return Err(usage("a prompt needs at least one token: raise --random-input-len"));
    }
    let vocabulary = Vocabulary::of(codec);
    let prefix = vocabulary.draw_many(args.random_prefix_len, rng);
    let mut requests = Vec::with_capacity(args.num_prompts);
    for _ in 0..args.num_prompts {
        let len = draw_len(input_len, ratio, rng).max(usize::from(prefix.is_empty()));
        let tokens = [prefix.clone(), vocabulary.draw_many(len, rng)].concat();
        let (prompt, prompt_len) = text_of(tokens, &vocabulary, codec, rng)?;
        let output_len = draw_len(output_len, ratio, rng).max(1);
        requests.push(SampleRequest { prompt, prompt_len: prompt_len + added, output_len });
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{args, codec, rng};
    use super::*;

    #[test]
    fn lengths_are_those_asked_for() {
        let (codec, args) = (codec(), args(&["--num-prompts", "20", "--random-input-len", "50"]));
        let requests = requests(&args, &codec, &mut rng(0)).unwrap();
        assert_eq!(requests.len(), 20);
        for request in &requests {
            let tokens = codec.encode(&request.prompt, true).unwrap().len();
            assert_eq!((tokens, request.output_len), (request.prompt_len, 128));
        }
        let exact = requests.iter().filter(|request| request.prompt_len == 50).count();
        assert!(exact >= 18, "{exact} of 20 have the right length");
        assert!(requests[0].prompt != requests[1].prompt);
    }

    #[test]
    fn lengths_spread_and_prefixes_are_shared() {
        let args = args(&[
            "--num-prompts=60",
            "--input-len=40",
            "--output-len=10",
            "--random-range-ratio=0.5",
            "--random-prefix-len=30",
        ]);
        let codec = codec();
        let first = requests(&args, &codec, &mut rng(1)).unwrap();
        assert_eq!(first, requests(&args, &codec, &mut rng(1)).unwrap(), "the seed decides");
        assert_ne!(first, requests(&args, &codec, &mut rng(2)).unwrap());
        let outputs: Vec<_> = first.iter().map(|request| request.output_len).collect();
        assert!(outputs.iter().all(|len| (5..=15).contains(len)));
        assert!(outputs.iter().any(|&len| len < 8) && outputs.iter().any(|&len| len > 12));
        let common =
            |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let shared = common(&first[0].prompt, &first[1].prompt);
        assert!(shared >= 30, "{shared} bytes in common");
    }

    #[test]
    fn nonsense_is_refused() {
        for (typed, says) in [
            ("--random-range-ratio=1", "from 0 to below 1"),
            ("--random-input-len=0", "at least one token"),
        ] {
            let error = requests(&args(&[typed]), &codec(), &mut rng(0)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
