//! Parts in all their forms.

use std::collections::BTreeMap;

use super::*;
use crate::media::{MediaService, MediaSettings, test_family::TestFamily};

const TINY: AskedModel<'static> = AskedModel { name: "tiny", serves_text_alone: false };
/// A picture, as far as reading a part goes.
const URL: &str = "data:image/png;base64,aGk=";

/// Returns the reader of a model that takes two images and no video.
fn reader() -> MediaParts<'static> {
    let settings = MediaSettings {
        limits: BTreeMap::from([(Modality::Image, 2), (Modality::Video, 0)]),
        ..MediaSettings::default()
    };
    let service = MediaService::new(Arc::new(TestFamily(9)), settings, "tiny");
    MediaParts::new(TINY, Some(Arc::new(service)))
}

fn read(part: Value) -> Result<Option<Value>, ApiError> {
    reader().read("body.messages.0.content.0", &part)
}

fn refused(part: Value) -> (u16, String, Option<String>) {
    let error = read(part).unwrap_err();
    (error.status.as_u16(), error.message, error.param)
}

#[test]
fn images_come_in_several_forms() {
    let place = json!({"type": "image"});
    for part in [
        json!({"type": "image_url", "image_url": {"url": URL}}),
        json!({"type": "image_url", "image_url": {"url": URL, "detail": "low"}, "uuid": "a"}),
        json!({"type": "image_url", "image_url": null, "uuid": "a"}),
        json!({"type": "image_url", "uuid": "a"}),
        json!({"image_url": URL}),
        json!({"image_url": {"url": URL}}),
        json!({"type": "input_image", "image_url": URL}),
        json!({"type": "image", "image": URL}),
        json!({"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}),
        json!({"type": "image_url", "image_url": {"url": "file:///x.png"}}),
    ] {
        assert_eq!(read(part.clone()), Ok(Some(place.clone())), "{part}");
    }
    for text in [json!({"type": "text", "text": "a"}), json!("a"), json!({"type": "smell"})] {
        assert_eq!(read(text), Ok(None));
    }
}

#[test]
fn faults_have_vllms_words() {
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let empty = "multi_modal_data['image'][0] is empty but multi_modal_uuids['image'][0] is \
                 missing.";
    let scheme = "The URL must be either a HTTP, data or file URL.";
    for (part, message) in [
        (url(""), empty),
        (json!({"type": "image_url", "image_url": null}), empty),
        (url("ftp://127.0.0.1/x.png"), scheme),
        (url("x.png"), scheme),
        (url("data:image/png;base64,@@@"), "Non-base64 digit found"),
    ] {
        assert_eq!(refused(part), (400, message.to_owned(), None));
    }
    let too_many = |kind: &str| {
        let message =
            format!("At most 0 {kind}(s) may be provided in one prompt. (parameter={kind})");
        (400, message, Some(kind.to_owned()))
    };
    let audio =
        json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}});
    assert_eq!(refused(audio), too_many("audio"));
    let video = json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}});
    assert_eq!(refused(video), too_many("video"));
    for (part, param) in [
        (json!({"type": "image_url", "image_url": URL}), "image_url"),
        (json!({"type": "image_url", "image_url": {"url": 5}}), "image_url.url"),
        (json!({"type": "input_image", "image_url": 5}), "image_url"),
        (json!({"type": "image_url", "image_url": {"url": URL}, "uuid": 5}), "uuid"),
    ] {
        let (status, _, given) = refused(part.clone());
        let expected = Some(format!("body.messages.0.content.0.{param}"));
        assert_eq!((status, given), (400, expected), "{part}");
    }
}

#[test]
fn a_third_image_is_one_too_many() {
    let mut reader = reader();
    let part = json!({"type": "image_url", "image_url": {"url": URL}});
    assert!(reader.read("p", &part).is_ok() && reader.read("p", &part).is_ok());
    let error = reader.read("p", &part).unwrap_err();
    let message = "At most 2 image(s) may be provided in one prompt. (parameter=image)";
    assert_eq!((error.message.as_str(), error.param.as_deref()), (message, Some("image")));
}

#[test]
fn a_model_that_does_not_take_a_part_says_why() {
    let message = |model: AskedModel<'_>, kind: &str| {
        let error = MediaParts::new(model, None).read("p", &json!({"type": kind})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages"));
        error.message
    };
    assert!(message(TINY, "image_url").starts_with("tiny is not a multimodal model"));
    assert!(message(TINY, "file").contains("'file'"));
    let text_alone = AskedModel { serves_text_alone: true, ..TINY };
    assert!(message(text_alone, "video_url").contains("not served yet"));
    let (_, message, _) = refused(json!({"type": "video_embeds", "video_embeds": "AAAA"}));
    assert!(message.contains("'video_embeds' parts are not supported"), "{message}");
    let (status, message, param) = refused(json!({"type": "image_embeds", "image_embeds": "AAAA"}));
    assert!(message.contains("You must set `--enable-mm-embeds`"), "{message}");
    assert_eq!((status, param.as_deref()), (400, Some("image_embeds")));
}
