//! Slopes, sinks and widths of values: their results, and the parameters that are rejected.

use super::*;

/// Values narrower and wider than keys, of whole vectors and not.
#[test]
fn values_may_have_another_width_than_keys() {
    for dtype in DTYPES {
        for (head_dim, value_head_dim, kv_heads, group) in
            [(192, 128, 2, 1), (192, 128, 1, 16), (40, 24, 2, 3), (24, 40, 1, 2), (16, 1, 2, 2)]
        {
            let widths = [kv_heads, head_dim, value_head_dim];
            let world = World::of_widths(&[300, 17], 16, widths, dtype, true);
            let meta = world.meta(&[(0, 280, 20), (1, 16, 1)]);
            let heads = kv_heads * group;
            let q = values(meta.num_tokens() * heads * head_dim, 9);
            let params = AttentionParams { sinks: sinks(heads), ..params(heads) };
            for isa in Isa::available() {
                let error = world.error(isa, &q, &meta, &params);
                assert!(error < 4e-6, "{} {dtype:?} {widths:?} {group}: {error}", isa.name());
            }
            let q = tensor(q, heads * head_dim);
            let o = paged_attention(q, world.cache.layer(0), &meta, &params);
            assert_eq!(o.dims(), [meta.num_tokens(), heads * value_head_dim]);
        }
    }
}

/// A slope of 0 and a sink that has no weight change nothing, not even the last bit.
#[test]
fn slopes_and_sinks_without_effect_leave_the_bytes() {
    let world = World::new(&[600], 16, [2, 32], KvDtype::F32, false);
    let meta = world.meta(&[(0, 580, 20)]);
    let q = values(20 * 4 * 32, 9);
    let without_effect = AttentionParams {
        alibi_slopes: vector(vec![0.0; 4]),
        sinks: vector(vec![f32::NEG_INFINITY; 4]),
        ..params(4)
    };
    for isa in Isa::available() {
        let run = |params: &AttentionParams| world.run(isa, &q, &meta, params);
        let (plain, with) = (run(&params(4)), run(&without_effect));
        assert_eq!(bits(&plain), bits(&with), "{}", isa.name());
    }
}

/// The tokens of an image see all of it. Their bytes do not depend on the chunk that has it.
#[test]
fn tokens_may_see_keys_after_their_own() {
    let end = |position: u32| match position {
        270..540 => 540,
        580..600 => 600,
        _ => position + 1,
    };
    for dtype in DTYPES {
        let world = World::new(&[600, 40], 16, [2, 32], dtype, true);
        let with_ends = |chunks: &[(usize, usize, usize)]| {
            let mut meta = world.meta(chunks);
            meta.visible_ends = meta.positions.iter().copied().map(end).collect();
            meta.validate(&world.shape).unwrap();
            meta
        };
        let all = with_ends(&[(0, 250, 350), (1, 39, 1)]);
        let q = values(351 * 4 * 32, 9);
        let part = with_ends(&[(0, 300, 240)]);
        for mask in [AttentionMask::Full, AttentionMask::Sliding(16), AttentionMask::Sliding(400)] {
            let params = AttentionParams { mask, sinks: sinks(4), ..params(4) };
            for isa in Isa::available() {
                let error = world.error(isa, &q, &all, &params);
                assert!(error < 4e-6, "{} {dtype:?} {mask:?}: {error}", isa.name());
                let of = 50 * 128..290 * 128;
                let (whole, part) = (
                    world.run(isa, &q, &all, &params),
                    world.run(isa, &q[of.clone()], &part, &params),
                );
                assert_eq!(bits(&whole[of]), bits(&part), "{} {mask:?}", isa.name());
            }
        }
    }
}

#[test]
fn ends_of_visible_keys_are_checked() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let check = |ends: &[u32]| {
        let mut meta = world.meta(&[(0, 17, 3)]);
        meta.visible_ends = ends.to_vec();
        meta.validate(&world.shape).map_err(|error| error.to_string())
    };
    assert_eq!((check(&[]), check(&[18, 20, 20])), (Ok(()), Ok(())));
    for (ends, at) in [(&[18, 19][..], ""), (&[17, 19, 20], "[0]"), (&[18, 21, 21], "[1]")] {
        let why = check(ends).unwrap_err();
        assert!(why.contains(&format!("visible_ends{at}")), "{ends:?}: {why}");
    }
    assert!(check(&[20, 19, 20]).unwrap_err().contains("visible_ends[1]"));
}

/// Positions above 256 are rounded, too.
#[test]
fn rounded_biases_are_those_of_the_reference() {
    let world = World::new(&[700, 40], 16, [2, 32], KvDtype::F32, false);
    let meta = world.meta(&[(0, 680, 20), (1, 39, 1)]);
    let q = values(21 * 4 * 32, 9);
    let slopes = [0.5, 0.343_75, 0.0625, 0.003_906_25];
    let rounded =
        AttentionParams { alibi_slopes: vector(slopes.to_vec()), rounds_alibi: true, ..params(4) };
    for isa in Isa::available() {
        let error = world.error(isa, &q, &meta, &rounded);
        assert!(error < 4e-6, "{}: {error}", isa.name());
    }
}

#[test]
fn a_sink_that_is_no_number_shows() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let meta = world.meta(&[(0, 19, 1)]);
    let params = AttentionParams { sinks: vector(vec![1.0, f32::NAN]), ..params(2) };
    for isa in Isa::available() {
        let o = world.run(isa, &values(2 * 32, 3), &meta, &params);
        assert!(o[..32].iter().all(|x| x.is_finite()) && o[32..].iter().all(|x| x.is_nan()));
    }
}

#[test]
#[should_panic(expected = "length of sinks")]
fn sinks_of_other_heads_are_refused() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let params = AttentionParams { sinks: sinks(3), ..params(2) };
    let q = tensor(values(2 * 32, 3), 2 * 32);
    let _ = paged_attention(q, world.cache.layer(0), &world.meta(&[(0, 19, 1)]), &params);
}

#[test]
#[should_panic(expected = "hides every key")]
fn a_mask_of_no_key_is_refused() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let params = AttentionParams { mask: AttentionMask::Chunked(0), ..params(2) };
    let q = tensor(values(2 * 32, 3), 2 * 32);
    let _ = paged_attention(q, world.cache.layer(0), &world.meta(&[(0, 19, 1)]), &params);
}
