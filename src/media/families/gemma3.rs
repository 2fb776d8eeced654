//! Images of Gemma 3: one size, whatever their own (HF `Gemma3ImageProcessor`, `Gemma3Processor`).
//! With pan and scan, crops of a wide image follow it in the prompt, each as one more image.

use std::collections::BTreeSet;
use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaTensor, Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::item;
use super::llava::invalid;
use super::pan_and_scan::PanAndScan;
use super::resize::{Filter, Pixels};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The texts before an image that has crops, before the first crop, and before each other one.
const CROP_TEXTS: [&str; 3] =
    ["Here is the original image ", " and here are some crops to help you see better ", " "];

/// The names that fields of `config.json` may also have: HF `attribute_map`.
const OTHER_NAMES: &[(&str, &str)] =
    &[("boi_token_id", "boi_token_index"), ("eoi_token_id", "eoi_token_index")];

/// The longest run of line feeds that may be one token, as in the tokenizers of Gemma.
const LINE_FEEDS_MAX: usize = 32;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Gemma3 {
    image_token: TokenId,
    begin_token: [TokenId; 1],
    end_token: TokenId,
    num_embeds: usize,
    /// Pixels on a side of an image.
    side: usize,
    filter: Filter,
    pan_and_scan: PanAndScan,
    /// The tokens of [`CROP_TEXTS`].
    crop_texts: [Vec<TokenId>; 3],
    /// The tokens of each number of line feeds.
    line_feeds: Vec<Vec<TokenId>>,
}

impl Gemma3 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        const LEN: &str = "image_seq_length";
        let images = TileImages::read(family, outer)?;
        let fields = &processor.image;
        let side = images.image_size;
        let square = |side: usize| Size::Exact { height: side, width: side };
        if fields::size(fields, SIZE, true, square(224))? != square(side) {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        fields::require_resize(fields)?;
        let whole = &processor.whole;
        if whole.size(LEN)?.is_some_and(|len| len != images.num_embeds) {
            let expected = format!("{}, mm_tokens_per_image of config.json", images.num_embeds);
            return Err(whole.invalid(LEN, &expected));
        }
        let outer = outer.with_aliases(OTHER_NAMES);
        let token = |field: &str, default: usize| {
            let id = outer.count(field)?.unwrap_or(default);
            u32::try_from(id).map_err(|_| outer.invalid(field, "a token id"))
        };
        Ok(Self {
            image_token: images.placeholder,
            begin_token: [token("boi_token_index", 255_999)?],
            end_token: token("eoi_token_index", 256_000)?,
            num_embeds: images.num_embeds,
            side,
            filter: fields::filter(fields, Filter::Bilinear)?,
            pan_and_scan: PanAndScan::read(processor)?,
            crop_texts: CROP_TEXTS.map(encode),
            line_feeds: (0..=LINE_FEEDS_MAX).map(|count| encode(&"\n".repeat(count))).collect(),
        })
    }

    /// Returns the number of line feeds of a token that has nothing else.
    fn line_feeds_of(&self, token: TokenId) -> Option<usize> {
        self.line_feeds.iter().position(|tokens| *tokens == [token])
    }
}

impl FamilyProcessor for Gemma3 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<start_of_image>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.begin_token
    }

    /// The first text of an image with crops is not joined with that of the prompt before it.
    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        let has_crops = media.tensors.len() > 1;
        for index in 0..media.tensors.len() {
            tokens.extend(self.crop_texts[index.min(2)].iter().filter(|_| has_crops));
            tokens.extend(&self.line_feeds[2]);
            tokens.extend(self.begin_token);
            tokens.extend(std::iter::repeat_n(self.image_token, self.num_embeds));
            tokens.push(self.end_token);
            tokens.extend(&self.line_feeds[2]);
        }
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token
    }

    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.tensors.len() == 1 {
            return vec![Arc::clone(media)];
        }
        let part = |tensor: &MediaTensor| ProcessedMedia {
            tensors: vec![tensor.clone()],
            num_embeds: self.num_embeds,
            ..ProcessedMedia::clone(media)
        };
        media.tensors.iter().map(part).map(Arc::new).collect()
    }

    /// The tokenizer has tokens of several line feeds. So the two on each side of an image are one
    /// token with those of the text beside them, or of the next image.
    fn join(&self, prompt: &mut ExpandedPrompt) {
        let items = prompt.features.iter();
        let begins: BTreeSet<usize> = items.clone().map(|item| item.offset - 1).collect();
        let ends: BTreeSet<usize> = items.map(|item| item.offset + item.length + 1).collect();
        let tokens = std::mem::take(&mut prompt.tokens);
        let (mut at, mut items) = (0, prompt.features.iter_mut().peekable());
        while at < tokens.len() {
            let run: Vec<usize> =
                tokens[at..].iter().map_while(|token| self.line_feeds_of(*token)).collect();
            if run.is_empty() {
                if let Some(item) = items.next_if(|item| item.offset == at) {
                    item.offset = prompt.tokens.len();
                }
                prompt.tokens.push(tokens[at]);
                at += 1;
                continue;
            }
            let end = at + run.len();
            let is_beside = ends.contains(&at) || begins.contains(&end);
            let joined = self.line_feeds.get(run.iter().sum::<usize>()).filter(|_| is_beside);
            prompt.tokens.extend(joined.map_or(&tokens[at..end], |joined| &joined[..]));
            at = end;
        }
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let crops = self.pan_and_scan.with(kwargs)?.crops(&pixels);
        let crops = crops.map_err(|reason| invalid(&reason))?;
        let resized = |pixels: Pixels| {
            let pixels = pixels.resized(self.filter, [self.side; 2]);
            item(vec![pixels], self.num_embeds, None)
        };
        let mut media = resized(pixels);
        for crop in crops.into_iter().map(resized) {
            media.tensors.extend(crop.tensors);
            media.num_embeds += crop.num_embeds;
        }
        Ok(media)
    }
}
