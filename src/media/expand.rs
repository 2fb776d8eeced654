//! Expansion: the placeholder of each item in a prompt becomes as many tokens as the item has
//! embeddings.

use std::{cmp::Reverse, sync::Arc};

use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, MultimodalFeature},
    },
    ports::{ExpandedPrompt, MediaError, ReadyMedia},
};

use super::processor::FamilyProcessor;

/// Returns the prompt with the tokens of all items. The items of a kind take the placeholders of
/// that kind in order.
///
/// # Errors
/// [`MediaError::Placeholders`] if a kind has more or fewer placeholders than items.
pub(super) fn expanded(
    family: &dyn FamilyProcessor,
    tokens: &[TokenId],
    media: &[ReadyMedia],
) -> Result<ExpandedPrompt, MediaError> {
    if family.is_attended() {
        return Ok(attended(tokens, media));
    }
    if let Some(specials) = family.stands_alone() {
        return alone(family, specials, tokens, media);
    }
    let mut kinds: Vec<(Modality, &[TokenId])> = family
        .modalities()
        .iter()
        .map(|&kind| (kind, family.placeholder_tokens(kind)))
        .filter(|(_, placeholder)| !placeholder.is_empty())
        .collect();
    // A placeholder may begin with that of another kind.
    kinds.sort_by_key(|(_, placeholder)| Reverse(placeholder.len()));
    let mut waiting: Vec<(Modality, _)> = Modality::ALL
        .map(|kind| (kind, media.iter().filter(move |item| item.media.modality == kind)))
        .into();
    let (mut found, mut placed, mut prompt) = (0, 0, ExpandedPrompt::default());
    let mut rest = tokens;
    while let [token, behind @ ..] = rest {
        let kind = kinds.iter().find(|(_, placeholder)| rest.starts_with(placeholder));
        let Some(&(kind, placeholder)) = kind else {
            prompt.tokens.push(*token);
            rest = behind;
            continue;
        };
        found += 1;
        rest = &rest[placeholder.len()..];
        let item = waiting.iter_mut().find(|(other, _)| *other == kind);
        // The others are counted for the error.
        if let Some(item) = item.and_then(|(_, items)| items.next()) {
            place(family, &mut prompt, item)?;
            placed += 1;
        }
    }
    match found == media.len() && placed == media.len() {
        true => {
            family.join(&mut prompt);
            Ok(prompt)
        }
        false => Err(MediaError::Placeholders { found, items: media.len() }),
    }
}

/// Returns the prompt of a model whose tokens all attend to the items, which have no tokens.
fn attended(tokens: &[TokenId], media: &[ReadyMedia]) -> ExpandedPrompt {
    let feature = |item: &ReadyMedia| MultimodalFeature {
        identifier: Arc::clone(&item.identifier),
        offset: 0,
        length: 0,
        num_embeds: item.media.num_embeds,
        media: Arc::clone(&item.media),
    };
    ExpandedPrompt { tokens: tokens.to_vec(), features: media.iter().map(feature).collect() }
}

/// Returns the prompt of a model whose prompts are either a text or one item, which has no tokens
/// beside its own.
///
/// # Errors
/// [`MediaError::TextBeside`] if there is a token of another kind than `specials`.
fn alone(
    family: &dyn FamilyProcessor,
    specials: &[TokenId],
    tokens: &[TokenId],
    media: &[ReadyMedia],
) -> Result<ExpandedPrompt, MediaError> {
    let item = match media {
        [] => return Ok(ExpandedPrompt { tokens: tokens.to_vec(), features: Vec::new() }),
        [item] => item,
        [first, ..] => {
            return Err(MediaError::TooMany { modality: first.media.modality, limit: 1 });
        }
    };
    let placeholder = family.placeholder_tokens(item.media.modality);
    let place_at = tokens.windows(placeholder.len().max(1)).position(|part| part == placeholder);
    let (before, behind) = match place_at {
        Some(at) => (&tokens[..at], &tokens[at + placeholder.len()..]),
        None => (tokens, &[][..]),
    };
    if before.iter().chain(behind).any(|token| !specials.contains(token)) {
        return Err(MediaError::TextBeside);
    }
    let mut prompt = ExpandedPrompt::default();
    place(family, &mut prompt, item)?;
    Ok(prompt)
}

/// Adds the tokens of an item to the end of the prompt. Each of its parts has its own place.
fn place(
    family: &dyn FamilyProcessor,
    prompt: &mut ExpandedPrompt,
    item: &ReadyMedia,
) -> Result<(), MediaError> {
    let tokens = family.tokens(&item.media);
    let places = (prompt.tokens.len()..).zip(&tokens);
    let places = places.filter(|(_, token)| family.is_placeholder(**token));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    let parts = family.parts(&item.media);
    if places.len() != parts.iter().map(|part| part.num_embeds).sum::<usize>() {
        return Err(unequal(item, places.len()));
    }
    let mut rest = &*places;
    for (index, media) in parts.into_iter().enumerate() {
        let (own, behind) = rest.split_at(media.num_embeds);
        let [first, ..] = *own else { return Err(unequal(item, places.len())) };
        let last = own.last().copied().unwrap_or(first);
        prompt.features.push(MultimodalFeature {
            identifier: identifier_of(item, index),
            offset: first,
            length: last - first + 1,
            num_embeds: media.num_embeds,
            media,
        });
        rest = behind;
    }
    prompt.tokens.extend(tokens);
    Ok(())
}

/// Returns the name of a part of an item. No item has the name of a part: those of
/// `MediaService` begin with the kind, or have no colon.
fn identifier_of(item: &ReadyMedia, part: usize) -> Arc<str> {
    match part {
        0 => Arc::clone(&item.identifier),
        part => format!("part:{part}:{}", item.identifier).into(),
    }
}

/// Returns the error of an item whose tokens do not fit its embeddings.
fn unequal(item: &ReadyMedia, num_placeholders: usize) -> MediaError {
    let (modality, num_embeds) = (item.media.modality, item.media.num_embeds);
    let reason = format!("it has {num_embeds} embeddings and {num_placeholders} places for them");
    MediaError::Invalid { modality, reason }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::logic::request::media::ProcessedMedia;
    use proptest::prelude::*;

    use super::*;
    use crate::media::test_family::{MARKS, TestFamily, VIDEO};

    fn item(name: &str, modality: Modality, num_embeds: usize) -> ReadyMedia {
        let media = ProcessedMedia { modality, num_embeds, ..ProcessedMedia::default() };
        ReadyMedia { identifier: name.into(), media: Arc::new(media) }
    }

    #[test]
    fn each_placeholder_becomes_the_tokens_of_its_item() {
        let [begin, place, end] = MARKS;
        let media = [
            item("a", Modality::Image, 2),
            item("v", Modality::Video, 1),
            item("b", Modality::Image, 1),
        ];
        // The video stands first in the prompt.
        let tokens = [1, VIDEO, 2, place, place, 3];
        let prompt = expanded(&TestFamily(9), &tokens, &media).unwrap();
        let expected = [1, begin, place, end, 2, begin, place, place, end, begin, place, end, 3];
        assert_eq!(prompt.tokens, expected);
        let places: Vec<(&str, usize, usize)> = prompt
            .features
            .iter()
            .map(|feature| (&*feature.identifier, feature.offset, feature.length))
            .collect();
        assert_eq!(places, [("v", 2, 1), ("a", 6, 2), ("b", 10, 1)]);
    }

    #[test]
    fn placeholders_and_items_must_fit() {
        let place = MARKS[1];
        let media = [item("a", Modality::Image, 2), item("v", Modality::Video, 1)];
        for (tokens, found) in
            [(vec![], 0), (vec![place], 1), (vec![place; 2], 2), (vec![place, VIDEO, place], 3)]
        {
            let error = expanded(&TestFamily(9), &tokens, &media).unwrap_err();
            assert_eq!(error, MediaError::Placeholders { found, items: 2 }, "{tokens:?}");
        }
    }

    /// A family whose images stand alone.
    struct Alone(TestFamily);

    impl FamilyProcessor for Alone {
        fn modalities(&self) -> &[Modality] {
            self.0.modalities()
        }

        fn max_item_embeds(&self) -> usize {
            1
        }

        fn placeholder(&self, modality: Modality) -> &str {
            self.0.placeholder(modality)
        }

        fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
            &[7, 8]
        }

        fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
            vec![MARKS[1]; media.num_embeds]
        }

        fn is_placeholder(&self, token: TokenId) -> bool {
            self.0.is_placeholder(token)
        }

        fn stands_alone(&self) -> Option<&[TokenId]> {
            Some(&[1, 2])
        }

        fn image(
            &self,
            image: &image::RgbImage,
            kwargs: &serde_json::Map<String, serde_json::Value>,
        ) -> Result<ProcessedMedia, MediaError> {
            self.0.image(image, kwargs)
        }
    }

    #[test]
    fn an_image_that_stands_alone_has_no_text_beside_it() {
        let (one, family) = ([item("a", Modality::Image, 1)], Alone(TestFamily(1)));
        let of = |tokens: &[TokenId]| expanded(&family, tokens, &one).map(|prompt| prompt.tokens);
        for tokens in [&[][..], &[7, 8], &[1, 7, 8, 2], &[1, 2]] {
            assert_eq!(of(tokens), Ok(vec![MARKS[1]]), "{tokens:?}");
        }
        for tokens in [&[7][..], &[7, 8, 9], &[7, 8, 7, 8], &[1, 5, 7, 8, 2]] {
            assert_eq!(of(tokens), Err(MediaError::TextBeside), "{tokens:?}");
        }
        assert_eq!(expanded(&family, &[7, 8, 5], &[]).unwrap().tokens, [7, 8, 5]);
        let two = [item("a", Modality::Image, 1), item("b", Modality::Image, 1)];
        let many = MediaError::TooMany { modality: Modality::Image, limit: 1 };
        assert_eq!(expanded(&family, &[7, 8, 7, 8], &two).unwrap_err(), many);
    }

    proptest! {
        #[test]
        fn the_tokens_between_items_stay(
            gaps in prop::collection::vec(prop::collection::vec(0..90_u32, 0..4), 1..6),
            sizes in prop::collection::vec(1..5_usize, 6),
        ) {
            let media: Vec<ReadyMedia> = (1..gaps.len())
                .map(|index| item(&index.to_string(), Modality::Image, sizes[index]))
                .collect();
            let tokens = gaps.join(&MARKS[1]);
            let prompt = expanded(&TestFamily(9), &tokens, &media).unwrap();
            let others: Vec<u32> =
                prompt.tokens.iter().copied().filter(|token| *token < 90).collect();
            prop_assert_eq!(others, gaps.concat());
            for (feature, item) in prompt.features.iter().zip(&media) {
                prop_assert_eq!(feature.length, item.media.num_embeds);
                let range = feature.offset..feature.offset + feature.length;
                prop_assert!(prompt.tokens[range].iter().all(|token| *token == MARKS[1]));
            }
        }
    }
}
