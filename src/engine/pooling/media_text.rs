//! A text with images, videos and sounds, in the place of a text alone.

use std::sync::Arc;

use playhouse_actors::{
    logic::request::pooling_params::PoolingParams, message::input_processor::RawRequest,
    ports::RawMedia,
};
use serde_json::{Value, json};

use super::PairSide;

/// A text with the images, videos and sounds before it. Either may be empty.
#[derive(Debug, Clone, Default)]
pub struct MediaText {
    /// The images, videos and sounds.
    pub media: Vec<RawMedia>,
    /// The text.
    pub text: String,
}

impl From<String> for MediaText {
    fn from(text: String) -> Self {
        Self { media: Vec::new(), text }
    }
}

impl From<&str> for MediaText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<RawMedia> for MediaText {
    fn from(item: RawMedia) -> Self {
        Self { media: vec![item], text: String::new() }
    }
}

impl MediaText {
    /// Returns the request for [`Engine::pool`](crate::Engine::pool) that pools this content, as a
    /// side of a pair is pooled: without a chat template, and with the tokenizer's special tokens.
    #[must_use]
    pub fn request(self, params: PoolingParams) -> RawRequest {
        let (prompt, media) = PairSide::from(self).alone();
        RawRequest { media, add_special_tokens: true, ..RawRequest::pool(prompt, params) }
    }
}

impl From<MediaText> for PairSide {
    fn from(MediaText { media, text }: MediaText) -> Self {
        if media.is_empty() {
            return Self::from(text);
        }
        let placeholder = |item: &RawMedia| json!({"type": item.modality.as_str()});
        let of_text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
        let parts: Vec<Value> = media.iter().map(placeholder).chain(of_text).collect();
        Self::Parts { parts, media: Arc::from(media) }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::{
        logic::request::{media::Modality, pooling_params::PoolingTask},
        message::input_processor::Prompt,
        ports::MediaSource,
    };
    use serde_json::Map;

    use super::*;

    #[test]
    fn media_stand_before_their_text() {
        let image = RawMedia {
            modality: Modality::Image,
            source: MediaSource::Named,
            uuid: Some("a".into()),
            kwargs: Map::new(),
        };
        let both = MediaText { text: "b".to_owned(), ..MediaText::from(image.clone()) };
        let PairSide::Parts { parts, media } = PairSide::from(both) else { panic!("it has parts") };
        assert_eq!(parts, [json!({"type": "image"}), json!({"type": "text", "text": "b"})]);
        assert_eq!(*media, *std::slice::from_ref(&image));
        let params = PoolingParams::new(PoolingTask::Embed);
        let request = MediaText::from(image).request(params.clone());
        let Prompt::Chat(chat) = &request.prompt else { panic!("{:?}", request.prompt) };
        assert_eq!(chat.messages[0]["content"], json!([{"type": "image"}]));
        assert!(request.add_special_tokens && request.media.len() == 1);
        let request = MediaText::from("b").request(params);
        assert!(matches!(&request.prompt, Prompt::Text(text) if text == "b"));
        assert!(request.add_special_tokens && request.media.is_empty());
    }
}
