//! Seeds of choices.

/// Returns the seed of one of several choices: SplitMix64's finaliser (Steele, Lea and Flood, 2014)
/// over seed and index. So neighbouring indices have unrelated seeds.
#[must_use]
pub fn choice_seed(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::choice_seed;

    /// First outputs of SplitMix64 seeded with 1234567, as published with the generator.
    #[test]
    fn it_is_splitmix64() {
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([choice_seed(1_234_567, 0), choice_seed(1_234_567, 1)], expected);
    }
}
