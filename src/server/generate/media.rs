//! Content parts of media. No model that is served accepts one.

/// A protocol whose messages may have parts of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum MediaProtocol {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
}

const CHAT: &[MediaProtocol] = &[MediaProtocol::Chat];
const RESPONSES: &[MediaProtocol] = &[MediaProtocol::Responses];
const BOTH: &[MediaProtocol] = &[MediaProtocol::Chat, MediaProtocol::Responses];

/// The `type` of each part of media, and the protocols that have it.
const MEDIA_PARTS: [(&str, &[MediaProtocol]); 13] = [
    ("image_url", CHAT),
    ("image", CHAT),
    ("input_image", BOTH),
    ("image_pil", CHAT),
    ("image_embeds", CHAT),
    ("audio_url", CHAT),
    ("input_audio", BOTH),
    ("audio_embeds", CHAT),
    ("video_url", CHAT),
    ("video", CHAT),
    ("file", CHAT),
    ("input_file", RESPONSES),
    ("computer_screenshot", RESPONSES),
];

/// The model of a request, for errors about parts of media.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct AskedModel<'a> {
    pub(in crate::server) name: &'a str,
    /// Whether it has parts for media, which are not served.
    pub(in crate::server) serves_text_alone: bool,
}

/// Returns why `model` rejects a part of this `kind`, if `protocol` has it as a part of media.
pub(in crate::server) fn refusal(
    protocol: MediaProtocol,
    model: AskedModel<'_>,
    kind: &str,
) -> Option<String> {
    let AskedModel { name, serves_text_alone } = model;
    let is_media = |(name, protocols): &(&str, &[MediaProtocol])| {
        *name == kind && protocols.contains(&protocol)
    };
    MEDIA_PARTS.iter().any(is_media).then(|| match serves_text_alone {
        true => format!(
            "{name} takes no '{kind}' parts: only its text model is served, its parts for images, \
             video and audio are not served yet"
        ),
        false => format!("{name} is not a multimodal model: it takes no '{kind}' parts"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_refuses_its_own_parts_of_media() {
        for (kind, chat, responses) in [
            ("image_url", true, false),
            ("input_image", true, true),
            ("input_audio", true, true),
            ("input_file", false, true),
            ("text", false, false),
        ] {
            let model = AskedModel { name: "m", serves_text_alone: false };
            let is_refused = |protocol| refusal(protocol, model, kind).is_some();
            let found = (is_refused(MediaProtocol::Chat), is_refused(MediaProtocol::Responses));
            assert_eq!(found, (chat, responses), "{kind}");
        }
    }

    #[test]
    fn the_refusal_of_a_multimodal_model_says_that_its_text_alone_is_served() {
        for (serves_text_alone, expected) in [(true, "not served yet"), (false, "not a multimodal")]
        {
            let model = AskedModel { name: "gemma", serves_text_alone };
            let refused = refusal(MediaProtocol::Chat, model, "image_url").unwrap();
            assert!(refused.starts_with("gemma ") && refused.contains(expected), "{refused}");
            assert!(refused.contains("'image_url'"), "{refused}");
        }
    }
}
