//! The block directory in memory that outlives its process: every beginning of its stores is a true
//! directory, and no content makes the reader fail.

use std::collections::BTreeMap;

use playhouse_actors::logic::{
    kv_cache::{
        DirectoryUpdate, KeptBlocks, KeptLayout, KeptWriter, KvCacheConfig, KvKind, KvSpec, Store,
        Tail, Unusable, block_pool::BlockKey, hashes::BlockHash,
    },
    request::ids::{BlockId, RequestId},
};
use proptest::prelude::*;

const NUM_BLOCKS: u32 = 12;
const FINGERPRINT: [u8; 32] = [3; 32];

/// Returns the layout of a model whose layers are of several kinds.
fn layout(num_groups: usize) -> KeptLayout {
    let kinds = (1..=num_groups).map(|window| KvKind::Sliding { window });
    let spec = KvSpec::of_layers(&kinds.collect::<Vec<_>>(), 4, 64);
    assert_eq!(spec.groups.len(), num_groups);
    KeptLayout::new(&KvCacheConfig { num_blocks: NUM_BLOCKS, num_step_tokens: 8, spec })
}

/// The naive model: the entries that may be read after a cut. An entry that is being replaced may
/// be absent.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    sealed: BTreeMap<BlockId, BlockKey>,
    tails: BTreeMap<RequestId, Tail>,
}

impl Model {
    fn apply(&mut self, update: &DirectoryUpdate) {
        match update.clone() {
            DirectoryUpdate::Sealed { block, hash, group } => {
                self.sealed.insert(block, BlockKey::new(&hash, group));
            }
            DirectoryUpdate::Evicted { block } => drop(self.sealed.remove(&block)),
            DirectoryUpdate::TailAt { request, tail } => drop(self.tails.insert(request, tail)),
            DirectoryUpdate::TailGone { request } => drop(self.tails.remove(&request)),
        }
    }

    /// Removes the entry that an update replaces.
    fn without(&self, update: &DirectoryUpdate) -> Self {
        let mut model = self.clone();
        match update {
            DirectoryUpdate::Sealed { block, .. } | DirectoryUpdate::Evicted { block } => {
                model.sealed.remove(block);
            }
            DirectoryUpdate::TailAt { request, .. } | DirectoryUpdate::TailGone { request } => {
                model.tails.remove(request);
            }
        }
        model
    }
}

fn update(num_groups: usize) -> impl Strategy<Value = DirectoryUpdate> {
    let block = || 1..NUM_BLOCKS;
    let request = || (0..6u64).prop_map(RequestId);
    let tail = (prop::collection::vec(block(), num_groups), 0..9usize, 0..99usize);
    let tail = tail.prop_map(|(blocks, index, caught_up_at)| Tail {
        blocks: blocks.into_iter().collect(),
        index,
        caught_up_at,
    });
    prop_oneof![
        4 => (block(), any::<[u8; 32]>(), 0..num_groups).prop_map(|(block, hash, group)| {
            DirectoryUpdate::Sealed { block, hash: BlockHash(hash), group }
        }),
        3 => block().prop_map(|block| DirectoryUpdate::Evicted { block }),
        4 => (request(), tail).prop_map(|(request, tail)| DirectoryUpdate::TailAt { request, tail }),
        2 => request().prop_map(|request| DirectoryUpdate::TailGone { request }),
    ]
}

fn groups_and_updates() -> impl Strategy<Value = (usize, Vec<DirectoryUpdate>)> {
    (1..5usize).prop_flat_map(|num_groups| {
        (Just(num_groups), prop::collection::vec(update(num_groups), 0..40))
    })
}

fn apply(words: &mut [u64], stores: &[Store]) {
    stores.iter().for_each(|store| words[store.place] = store.value);
}

fn read(layout: KeptLayout, words: &[u64]) -> Result<Model, Unusable> {
    let KeptBlocks { sealed, tails, .. } = KeptBlocks::read(layout, &FINGERPRINT, words)?;
    Ok(Model { sealed, tails })
}

fn begun(layout: KeptLayout) -> (KeptWriter, Vec<u64>) {
    let (writer, stores) = KeptWriter::begin(layout, &FINGERPRINT);
    let mut words = vec![0; layout.num_words()];
    for store in &stores {
        assert_eq!(read(layout, &words), Err(Unusable::Fresh), "before the last store");
        apply(&mut words, std::slice::from_ref(store));
    }
    assert_eq!(read(layout, &words), Ok(Model::default()));
    (writer, words)
}

proptest! {
    #[test]
    fn a_directory_that_is_cut_anywhere_says_what_was_or_what_is_or_less(
        (num_groups, updates) in groups_and_updates(),
        adoptions in prop::collection::vec(any::<bool>(), 40),
    ) {
        let layout = layout(num_groups);
        let (mut writer, mut words) = begun(layout);
        let mut model = Model::default();
        for (update, is_adopted) in updates.iter().zip(adoptions) {
            let mut stores = Vec::new();
            writer.write(update, &mut stores);
            let before = model.clone();
            model.apply(update);
            for end in 0..=stores.len() {
                let mut cut = words.clone();
                apply(&mut cut, &stores[..end]);
                let found = read(layout, &cut).unwrap();
                let allowed = [&before, &before.without(update), &model];
                prop_assert!(allowed.contains(&&found), "{update:?} cut at {end}: {found:?}");
            }
            apply(&mut words, &stores);
            prop_assert_eq!(&read(layout, &words).unwrap(), &model);
            if is_adopted {
                let blocks = KeptBlocks::read(layout, &FINGERPRINT, &words).unwrap();
                let (adopter, stores) = KeptWriter::adopt(layout, &blocks);
                writer = adopter;
                apply(&mut words, &stores);
                apply(&mut words, &Vec::from_iter(writer.proven()));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_or_removes_an_entry(
        (num_groups, updates) in groups_and_updates(),
        place in any::<prop::sample::Index>(),
        bit in 0..64u32,
    ) {
        let layout = layout(num_groups);
        let (mut writer, mut words) = begun(layout);
        let mut stores = Vec::new();
        updates.iter().for_each(|update| writer.write(update, &mut stores));
        apply(&mut words, &stores);
        let model = read(layout, &words).unwrap();
        words[place.index(layout.num_words())] ^= 1 << bit;
        if let Ok(found) = read(layout, &words) {
            // The flip was in a word that no entry uses.
            prop_assert_eq!(found, model);
        }
    }

    #[test]
    fn no_content_makes_the_reader_fail(
        num_groups in 1..5usize,
        fill in prop::collection::vec(any::<u64>(), 1..50),
        num_words in 0..3usize,
    ) {
        let layout = layout(num_groups);
        let (_, mut words) = begun(layout);
        let header_len = 8;
        let rest = words[header_len..].iter_mut().zip(fill.iter().cycle());
        rest.for_each(|(word, random)| *word = *random);
        let _ = read(layout, &words);
        words.truncate(words.len() - num_words);
        let found = words.len();
        let expected = layout.num_words();
        if num_words > 0 {
            prop_assert_eq!(read(layout, &words), Err(Unusable::Length { found, expected }));
        }
    }
}

#[test]
fn another_model_size_or_version_is_refused() {
    let (_, words) = begun(layout(2));
    let other = KeptBlocks::read(layout(2), &[4; 32], &words).unwrap_err();
    assert_eq!(other, Unusable::Fingerprint);
    let mut version = words.clone();
    version[0] += 1 << 56;
    assert!(matches!(read(layout(2), &version), Err(Unusable::Magic { .. })));
    let mut size = words.clone();
    size[5] += 1;
    let error = read(layout(2), &size).unwrap_err();
    let expected = "the directory has 13 blocks in 2 groups, this KV cache 12 in 2";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn content_that_kills_two_processes_in_a_row_is_not_adopted() {
    let layout = layout(1);
    let (_, mut words) = begun(layout);
    let adopt = |words: &mut Vec<u64>| -> Result<KeptWriter, Unusable> {
        let blocks = KeptBlocks::read(layout, &FINGERPRINT, words)?;
        let (writer, stores) = KeptWriter::adopt(layout, &blocks);
        apply(words, &stores);
        Ok(writer)
    };
    for _ in 0..5 {
        adopt(&mut words).unwrap();
        let mut writer = adopt(&mut words).unwrap();
        let store = writer.proven().unwrap();
        assert_eq!(writer.proven(), None, "one store is enough");
        apply(&mut words, &[store]);
    }
    adopt(&mut words).unwrap();
    adopt(&mut words).unwrap();
    let refused = adopt(&mut words).unwrap_err();
    assert_eq!(refused, Unusable::Deadly { num_unproven: 2 });
}

#[test]
fn a_tail_without_a_place_is_left_out() {
    let layout = layout(1);
    let (mut writer, mut words) = begun(layout);
    let tail = |index| Tail { blocks: [1].into_iter().collect(), index, caught_up_at: 0 };
    let mut stores = Vec::new();
    for request in 0..u64::from(NUM_BLOCKS) + 3 {
        let update = DirectoryUpdate::TailAt { request: RequestId(request), tail: tail(0) };
        writer.write(&update, &mut stores);
    }
    let gone = DirectoryUpdate::TailGone { request: RequestId(4) };
    writer.write(&gone, &mut stores);
    let at = |request, index| DirectoryUpdate::TailAt { request, tail: tail(index) };
    writer.write(&at(RequestId(99), 7), &mut stores);
    // No field of a directory holds such an index.
    writer.write(&at(RequestId(5), usize::MAX), &mut stores);
    apply(&mut words, &stores);
    let tails = read(layout, &words).unwrap().tails;
    assert_eq!(tails.len(), NUM_BLOCKS as usize - 1);
    assert_eq!(tails[&RequestId(99)].index, 7);
    assert!(!tails.contains_key(&RequestId(5)));
}
