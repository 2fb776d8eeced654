//! Places of images in templates that take parts, and in those that take text.

use playhouse_actors::{
    logic::request::{ids::TokenId, media::Modality},
    ports::{
        ChatPrompt, ExpandedPrompt, MediaError, MediaProcessor, RawMedia, ReadyMedia, TextError,
    },
};
use serde_json::{Value, json};

use super::ChatTemplates;
use crate::text::tokenizer_files::TokenizerFiles;

/// The media of a model that takes images alone.
struct Images;

impl MediaProcessor for Images {
    fn limit(&self, modality: Modality) -> usize {
        usize::from(modality == Modality::Image)
    }

    fn max_item_embeds(&self) -> usize {
        1
    }

    fn placeholder(&self, modality: Modality, _: usize) -> Option<String> {
        (modality == Modality::Image).then(|| "<image>".to_owned())
    }

    fn process(&self, raw: &RawMedia) -> Result<ReadyMedia, MediaError> {
        Err(MediaError::TooMany { modality: raw.modality, limit: 0 })
    }

    fn expand(&self, _: Vec<TokenId>, _: &[ReadyMedia]) -> Result<ExpandedPrompt, MediaError> {
        Ok(ExpandedPrompt::default())
    }
}

/// The media of a model whose clients may write `<image>` for the tokenizer's `<IMG_CONTEXT>`.
struct OtherName;

impl MediaProcessor for OtherName {
    fn limit(&self, modality: Modality) -> usize {
        Images.limit(modality)
    }

    fn max_item_embeds(&self) -> usize {
        Images.max_item_embeds()
    }

    fn placeholder(&self, modality: Modality, _: usize) -> Option<String> {
        (modality == Modality::Image).then(|| "<IMG_CONTEXT>".to_owned())
    }

    fn other_placeholder(&self, modality: Modality) -> Option<&str> {
        (modality == Modality::Image).then_some("<image>")
    }

    fn process(&self, raw: &RawMedia) -> Result<ReadyMedia, MediaError> {
        Images.process(raw)
    }

    fn expand(
        &self,
        tokens: Vec<TokenId>,
        media: &[ReadyMedia],
    ) -> Result<ExpandedPrompt, MediaError> {
        Images.expand(tokens, media)
    }
}

const TEXT: &str = "{% for m in messages %}{{ m.content }};{% endfor %}";
const PARTS: &str = "{% for m in messages %}{% for c in m.content %}\
                     {% if c.type == 'image' %}[image]{% else %}{{ c.text }}{% endif %}\
                     {% endfor %};{% endfor %}";

fn render(
    template: &str,
    contents: &[Value],
    media: Option<&dyn MediaProcessor>,
) -> Result<String, TextError> {
    let chat_templates = [("default".to_owned(), template.to_owned())].into();
    let templates =
        ChatTemplates::new(&TokenizerFiles { chat_templates, ..TokenizerFiles::default() });
    let messages = contents.iter().map(|content| json!({"role": "user", "content": content}));
    let chat = ChatPrompt { messages: messages.collect(), ..ChatPrompt::default() };
    templates.render_with_media(&chat, media)
}

fn image() -> Value {
    json!({"type": "image"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_template_of_parts_gets_each_item_in_its_place() {
    let contents = [json!([text("a"), image(), text("b"), image()]), json!("c")];
    assert_eq!(render(PARTS, &contents, Some(&Images)).unwrap(), "a[image]b[image];c;");
}

/// As the chat template in HF `Qwen2AudioProcessor` looks for sounds.
#[test]
fn a_template_may_look_for_the_name_of_an_item() {
    let template = "{% for m in messages %}{% for c in m.content %}\
                    {% if 'image' in c or 'image_url' in c %}[image]\
                    {% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %};{% endfor %}";
    let contents = [json!([text("a"), image(), text("b")])];
    assert_eq!(render(template, &contents, Some(&Images)).unwrap(), "a[image]b;");
}

#[test]
fn a_template_of_text_gets_placeholders_that_the_text_does_not_have() {
    let rendered = |content: Value| render(TEXT, &[content], Some(&Images)).unwrap();
    assert_eq!(rendered(json!([text("a"), image(), text("b")])), "<image>\na\nb;");
    assert_eq!(rendered(json!([image(), text("see <image> here")])), "see <image> here;");
    assert_eq!(rendered(json!([image(), image(), text("<image>")])), "<image>\n<image>;");
    assert_eq!(rendered(json!([image()])), "<image>;");
    assert_eq!(rendered(json!([text("a")])), "a;");
    let error = render(TEXT, &[json!([image(), text("<image><image>")])], Some(&Images));
    assert!(error.unwrap_err().to_string().contains("Found more '<image>' placeholders"));
}

#[test]
fn placeholders_may_have_no_line_of_their_own() {
    let chat_templates = [("default".to_owned(), TEXT.to_owned())].into();
    let templates =
        ChatTemplates::new(&TokenizerFiles { chat_templates, ..TokenizerFiles::default() });
    let rendered = |content: Value| {
        let messages = vec![json!({"role": "user", "content": content})];
        let chat = ChatPrompt { messages, joins_placeholders: true, ..ChatPrompt::default() };
        templates.render_with_media(&chat, Some(&Images)).unwrap()
    };
    let several = json!([text("a"), image(), text("b"), image()]);
    assert_eq!(rendered(several), "<image><image>a\nb;");
    assert_eq!(rendered(json!([image(), text("see <image>")])), "see <image>;");
    assert_eq!(rendered(json!([image()])), "<image>;");
}

/// The first prompt is that for two images in the model cards of InternVL.
#[test]
fn an_item_may_have_another_name_in_a_message_with_items() {
    let rendered = |content: Value| render(TEXT, &[content], Some(&OtherName)).unwrap();
    let two = "Image-1: <image>\nImage-2: <image>\nCompare them.";
    let placed = "Image-1: <IMG_CONTEXT>\nImage-2: <IMG_CONTEXT>\nCompare them.;";
    assert_eq!(rendered(json!([image(), image(), text(two)])), placed);
    let one_more = json!([image(), image(), image(), text(two)]);
    assert_eq!(rendered(one_more), format!("<IMG_CONTEXT>\n{placed}"));
    assert_eq!(rendered(json!([image(), text("a")])), "<IMG_CONTEXT>\na;");
    assert_eq!(rendered(json!("an <image> tag")), "an <image> tag;");
    let error = render(TEXT, &[json!([image(), text(two)])], Some(&OtherName));
    assert!(error.unwrap_err().to_string().contains("Found more '<IMG_CONTEXT>' placeholders"));
}

#[test]
fn a_model_without_images_refuses_them() {
    for template in [TEXT, PARTS] {
        let error = render(template, &[json!([image()])], None).unwrap_err();
        assert!(error.to_string().contains("\"image\" are not supported"), "{error}");
    }
    let error = render(TEXT, &[json!([{"type": "audio"}])], Some(&Images)).unwrap_err();
    assert!(error.to_string().contains("takes no audio"), "{error}");
}
