//! Names, limits and the cache.

use std::io::Cursor;

use image::{ImageFormat, RgbImage};
use playhouse_actors::ports::expanded_prompt;
use serde_json::json;

use super::*;
use crate::media::test_family::{MARKS, TestFamily};

fn service(limits: BTreeMap<Modality, usize>) -> MediaService {
    let settings = MediaSettings {
        limits,
        pixels_max: 10_000,
        cache_bytes: 1 << 20,
        ..MediaSettings::default()
    };
    MediaService::new(Arc::new(TestFamily(50)), settings, "m")
}

fn png(width: u32, height: u32) -> MediaSource {
    let mut file = Cursor::new(Vec::new());
    RgbImage::new(width, height).write_to(&mut file, ImageFormat::Png).unwrap();
    MediaSource::File(file.into_inner().into())
}

fn image(source: MediaSource, uuid: Option<&str>) -> RawMedia {
    let uuid = uuid.map(Arc::from);
    RawMedia { modality: Modality::Image, source, uuid, kwargs: Map::new() }
}

fn with(raw: &RawMedia, kwargs: Value) -> RawMedia {
    let Value::Object(kwargs) = kwargs else { panic!("{kwargs}") };
    RawMedia { kwargs, ..raw.clone() }
}

#[test]
fn equal_content_is_processed_once() {
    let service = service(BTreeMap::new());
    let first = service.process(&image(png(3, 4), None)).unwrap();
    let second = service.process(&image(png(3, 4), None)).unwrap();
    assert!(Arc::ptr_eq(&first.media, &second.media));
    assert_eq!((first.identifier.len(), &first.identifier), (64, &second.identifier));
    let other = service.process(&image(png(4, 3), None)).unwrap();
    assert_ne!(other.identifier, first.identifier);
    service.clear();
    let again = service.process(&image(png(3, 4), None)).unwrap();
    assert!(!Arc::ptr_eq(&first.media, &again.media) && first == again);
}

#[test]
fn settings_are_part_of_the_name() {
    let raw = image(png(3, 4), None);
    let name = |kwargs| identifier(&with(&raw, json!({})), &with(&raw, kwargs).kwargs);
    assert_eq!(name(json!({"a": 1, "b": 2})), name(json!({"b": 2, "a": 1})));
    assert_ne!(name(json!({"a": 1})), name(json!({"a": 2})));
    assert_ne!(name(json!({"a": 1})), name(json!({})));
}

#[test]
fn a_name_stands_for_content_that_was_sent_before() {
    let service = service(BTreeMap::new());
    let named = image(MediaSource::Named, Some("pic-1"));
    let unknown = MediaError::UnknownUuid { modality: Modality::Image, index: 0 };
    assert_eq!(service.process(&named), Err(unknown.clone()));
    let sent = service.process(&image(png(3, 4), Some("pic-1"))).unwrap();
    assert_eq!(service.process(&named), Ok(sent));
    // A name that looks like the digest of content does not stand for that content.
    let digest = service.process(&image(png(5, 4), None)).unwrap().identifier;
    assert_eq!(service.process(&image(MediaSource::Named, Some(&digest))), Err(unknown));
}

#[test]
fn counts_and_sizes_have_limits() {
    let service = service([(Modality::Image, 1)].into());
    let limits = Modality::ALL.map(|modality| service.limit(modality));
    assert_eq!(limits, [1, 0, LIMIT_DEFAULT]);
    let ready = service.process(&image(png(1, 2), None)).unwrap();
    let expand = |media: &[ReadyMedia]| service.expand(vec![MARKS[1]; media.len()], media);
    assert_eq!(expand(std::slice::from_ref(&ready)).unwrap().tokens.len(), 4);
    let error = expand(&[ready.clone(), ready]).unwrap_err();
    assert_eq!(error.to_string(), "At most 1 image(s) may be provided in one prompt.");
    let error = service.process(&image(png(1, 60), None)).unwrap_err();
    assert_eq!(error.to_string(), "the image has 60 embeddings, and at most 50 are accepted");
}

/// A small file may become much memory, so a prompt stops before all of its items are processed.
#[test]
fn items_behind_the_context_are_not_processed() {
    let service: Arc<dyn MediaProcessor> = Arc::new(service(BTreeMap::new()));
    let broken = image(MediaSource::File(b"broken".to_vec().into()), None);
    let items = [image(png(1, 30), None), image(png(2, 31), None), broken];
    let of = |most| expanded_prompt(Some(&service), vec![MARKS[1]; 3], &items, most).unwrap_err();
    let (max_model_len, min_prompt_tokens) = (60, 61);
    assert_eq!(of(60), MediaError::PromptTooLong { max_model_len, min_prompt_tokens });
    assert!(matches!(of(61), MediaError::Invalid { .. }), "the third is reached");
    let refused = expanded_prompt(None, Vec::new(), &items, 99).unwrap_err();
    assert_eq!(refused, MediaError::TooMany { modality: Modality::Image, limit: 0 });
}

/// Parts of an item have names that begin with `part:`.
#[test]
fn no_item_has_the_name_of_a_part() {
    for uuid in [None, Some("part:1:x"), Some("")] {
        let raw = image(png(1, 1), uuid);
        for raw in [raw.clone(), with(&raw, json!({"part:": 1}))] {
            let name = identifier(&raw, &raw.kwargs);
            let begins = ["image:", "video:", "audio:"].iter().any(|kind| name.starts_with(kind));
            assert!(begins || !name.contains(':'), "{name}");
        }
    }
}

#[test]
fn the_background_and_the_number_of_frames_are_settings_of_decoding() {
    let service = service(BTreeMap::new());
    let clear = image::RgbaImage::new(1, 1);
    let mut file = Cursor::new(Vec::new());
    clear.write_to(&mut file, ImageFormat::Png).unwrap();
    let raw = image(MediaSource::File(file.into_inner().into()), None);
    let color = |kwargs| {
        let ready = service.process(&with(&raw, kwargs)).map_err(|error| error.to_string());
        ready.map(|ready| ready.media.tensors[0].data.to_vec())
    };
    assert_eq!(color(json!({})), Ok(vec![255; 3]));
    let background =
        |color| json!({"media_io_kwargs": {"image": {"rgba_background_color": color}}});
    assert_eq!(color(background(json!([1, 2, 3]))), Ok(vec![1, 2, 3]));
    for wrong in [json!([1, 2]), json!([1, 2, 256]), json!("white")] {
        assert!(color(background(wrong)).unwrap_err().contains("rgba_background_color"));
    }
    let frames = vec![
        match png(2, 2) {
            MediaSource::File(file) => file,
            _ => unreachable!(),
        };
        40
    ];
    let video = RawMedia { modality: Modality::Video, source: MediaSource::Frames(frames), ..raw };
    let count = |kwargs| service.process(&with(&video, kwargs)).map(|ready| ready.media.num_embeds);
    assert_eq!(count(json!({})), Ok(32));
    let wanted = |count| json!({"media_io_kwargs": {"video": {"num_frames": count}}});
    assert_eq!(count(wanted(json!(7))), Ok(7));
    assert_eq!(count(wanted(json!(-1))), Ok(40));
    assert!(count(wanted(json!(0))).is_err() && count(wanted(json!("x"))).is_err());
}

#[test]
fn settings_of_decoding_hold_for_the_server_and_a_request_overrides_them_by_name() {
    let settings = MediaSettings {
        pixels_max: 10_000,
        kwargs: json!({MEDIA_IO_KWARGS: {
            "video": {"num_frames": 2}, "image": {"rgba_background_color": [1, 2, 3]},
        }})
        .as_object()
        .unwrap()
        .clone(),
        ..MediaSettings::default()
    };
    let service = MediaService::new(Arc::new(TestFamily(50)), settings, "m");
    let MediaSource::File(file) = png(3, 4) else { panic!("a file") };
    let video = RawMedia {
        modality: Modality::Video,
        source: MediaSource::Frames(vec![file; 5]),
        ..image(MediaSource::Named, None)
    };
    let frames = |raw: &RawMedia| service.process(raw).unwrap().media.num_embeds;
    assert_eq!(frames(&video), 2);
    let own = with(&video, json!({MEDIA_IO_KWARGS: {"video": {"num_frames": 4}}}));
    assert_eq!(frames(&own), 4);
    let io = service.kwargs(&own);
    let color = &io[MEDIA_IO_KWARGS]["image"]["rgba_background_color"];
    assert_eq!(color, &json!([1, 2, 3]), "the server's other settings stay");
}
