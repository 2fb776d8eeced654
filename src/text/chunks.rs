//! The tokens of texts that are read as one: which text each of them belongs to.

/// Returns, for each text, the position after its last token. `text_ends` has the byte after each
/// text, and `token_ends` that after each token. `None` is a special token around the texts. A
/// token of two texts is the later one's. The last text has all tokens behind it. A text without a
/// token has the end of the text before.
pub(super) fn ends(
    token_ends: impl Iterator<Item = Option<usize>>,
    text_ends: &[usize],
) -> Vec<usize> {
    let last = text_ends.len().saturating_sub(1);
    let (mut ends, mut num_tokens) = (vec![0; text_ends.len()], 0);
    for end in token_ends {
        num_tokens += 1;
        if let Some(end) = end {
            let text = text_ends.partition_point(|text_end| *text_end < end).min(last);
            ends.get_mut(text).into_iter().for_each(|end| *end = num_tokens);
        }
    }
    // An empty text takes none of the tokens around the texts from its neighbours.
    let last_is_empty = ends.last().is_some_and(|end| *end == 0);
    let mut before = 0;
    for end in &mut ends {
        *end = before.max(*end);
        before = *end;
    }
    if !last_is_empty {
        ends.last_mut().into_iter().for_each(|end| *end = num_tokens);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(token_ends: &[Option<usize>], text_ends: &[usize]) -> Vec<usize> {
        ends(token_ends.iter().copied(), text_ends)
    }

    #[test]
    fn special_tokens_are_those_of_the_first_and_the_last_text() {
        let tokens = [None, Some(3), Some(5), Some(9), None];
        assert_eq!(of(&tokens, &[5, 9]), [3, 5]);
        assert_eq!(of(&tokens, &[9]), [5]);
    }

    #[test]
    fn a_token_of_two_texts_is_the_later_ones() {
        assert_eq!(of(&[Some(3), Some(7), Some(9)], &[5, 9]), [1, 3]);
    }

    #[test]
    fn a_text_without_tokens_ends_where_it_begins() {
        assert_eq!(of(&[None, Some(5), Some(9), None], &[5, 5, 9]), [2, 2, 4]);
        assert_eq!(of(&[None, Some(5), None], &[5, 5]), [2, 2]);
        assert_eq!(of(&[None, Some(5), None], &[0, 5]), [0, 3]);
        assert!(of(&[], &[]).is_empty());
    }
}
