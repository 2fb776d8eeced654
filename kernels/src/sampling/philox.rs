//! Philox4x32-10, a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy
//! as 1, 2, 3"). It is a keyed bijection of 128-bit counters, so any draw can be made at any time.

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Returns four words of noise.
#[inline(always)]
pub(super) fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox4x32_lanes(counter.map(|word| [word]), key).map(|[word]| word)
}

/// Returns four words of noise for each of `N` counters, word by word. It loops over lanes, which
/// the compiler turns into vectors.
#[inline(always)]
pub(super) fn philox4x32_lanes<const N: usize>(
    counters: [[u32; N]; 4],
    key: [u32; 2],
) -> [[u32; N]; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], mut k) = (counters, key);
    for _ in 0..ROUNDS {
        for i in 0..N {
            let product0 = u64::from(MULTIPLIERS[0]) * u64::from(c0[i]);
            let product1 = u64::from(MULTIPLIERS[1]) * u64::from(c2[i]);
            c0[i] = (product1 >> 32) as u32 ^ c1[i] ^ k[0];
            c1[i] = product1 as u32;
            c2[i] = (product0 >> 32) as u32 ^ c3[i] ^ k[1];
            c3[i] = product0 as u32;
        }
        k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
    }
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors publish (Random123, `kat_vectors`).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }
}
