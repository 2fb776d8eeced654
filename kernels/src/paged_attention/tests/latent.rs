//! Values that are the first elements of their keys.

use super::*;

#[test]
fn values_in_keys_agree_with_the_reference() {
    for dtype in DTYPES {
        for (head_dim, value_head_dim, heads) in
            [(576, 512, 16), (576, 512, 128), (32, 24, 4), (40, 40, 3), (6, 2, 1), (66, 34, 20)]
        {
            for block_size in [16, 8, 24] {
                let widths = [head_dim, value_head_dim];
                let world = World::latent(&[300, 17], block_size, widths, dtype, true);
                let meta = world.meta(&[(0, 290, 10), (1, 16, 1)]);
                let q = values(meta.num_tokens() * heads * head_dim, 9);
                let params = AttentionParams { scale: 0.1, ..params(heads) };
                for isa in Isa::available() {
                    let error = world.error(isa, &q, &meta, &params);
                    let name = isa.name();
                    assert!(error < 6e-6, "{name} {dtype:?} {widths:?} {heads}: {error}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_token_over_latents_does_not_depend_on_its_batch(
        len in 2usize..300,
        cut in 1usize..299,
        params in variants(5),
        dtype in prop::sample::select(DTYPES.to_vec()),
    ) {
        let (cut, width) = (cut.min(len - 1), 5 * 40);
        let q = values(len * width, 3);
        let world = World::latent(&[len], 16, [40, 32], dtype, false);
        let other = World::latent(&[len, 70], 16, [40, 32], dtype, true);
        for isa in Isa::available() {
            let whole = world.run(isa, &q, &world.meta(&[(0, 0, len)]), &params);
            let out = 5 * 32;
            let first = world.run(isa, &q[..cut * width], &world.meta(&[(0, 0, cut)]), &params);
            prop_assert_eq!(bits(&first), bits(&whole[..cut * out]));
            let rest = world.meta(&[(0, cut, len - cut)]);
            let rest = world.run(isa, &q[cut * width..], &rest, &params);
            prop_assert_eq!(bits(&rest), bits(&whole[cut * out..]));
            let beside = [&values(3 * width, 8), &q[(len - 1) * width..]].concat();
            let meta = other.meta(&[(1, 60, 3), (0, len - 1, 1)]);
            let beside = other.run(isa, &beside, &meta, &params);
            prop_assert_eq!(bits(&beside[3 * out..]), bits(&whole[(len - 1) * out..]));
        }
    }
}

/// A token whose context is divided among threads has the same bytes as one whose context is not.
#[test]
fn a_long_context_of_latents_in_parts_gives_the_same_bytes() {
    let len = 2300;
    for dtype in DTYPES {
        let world = World::latent(&[len], 16, [40, 32], dtype, false);
        let (width, out) = (4 * 40, 4 * 32);
        let q = values(len * width, 3);
        let (whole, last) = (world.meta(&[(0, 0, len)]), world.meta(&[(0, len - 1, 1)]));
        for isa in Isa::available() {
            let whole = world.run(isa, &q, &whole, &params(4));
            let last = world.run(isa, &q[(len - 1) * width..], &last, &params(4));
            assert_eq!(bits(&last), bits(&whole[(len - 1) * out..]), "{} {dtype:?}", isa.name());
        }
    }
}

#[test]
fn stale_garbage_beyond_the_latents_is_not_read() {
    for dtype in DTYPES {
        let mut world = World::latent(&[20], 16, [40, 32], dtype, false);
        let meta = world.meta(&[(0, 10, 10)]);
        let q = values(10 * 40, 3);
        let run = |world: &World| -> Vec<Vec<u32>> {
            let run = |isa| bits(&world.run(isa, &q, &meta, &params(1)));
            Isa::available().into_iter().map(run).collect()
        };
        let clean = run(&world);
        let slots: Vec<u32> = (20..32).map(|p| world.tables[0][1] * 16 + p - 16).collect();
        cache_keys(tensor(vec![f32::NAN; 12 * 40], 40), world.cache.layer_mut(0), &slots);
        assert_eq!(run(&world), clean);
    }
}
