//! Content parts of media. Text models accept none of them.

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

/// Returns why `model` rejects a part of this `kind`, if `protocol` has it as a part of media.
pub(in crate::server) fn refusal(
    protocol: MediaProtocol,
    model: &str,
    kind: &str,
) -> Option<String> {
    let is_media = |(name, protocols): &(&str, &[MediaProtocol])| {
        *name == kind && protocols.contains(&protocol)
    };
    MEDIA_PARTS
        .iter()
        .any(is_media)
        .then(|| format!("{model} is not a multimodal model: it takes no '{kind}' parts"))
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
            let is_refused = |protocol| refusal(protocol, "m", kind).is_some();
            let found = (is_refused(MediaProtocol::Chat), is_refused(MediaProtocol::Responses));
            assert_eq!(found, (chat, responses), "{kind}");
        }
    }
}
