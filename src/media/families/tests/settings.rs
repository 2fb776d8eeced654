//! The settings of `preprocessor_config.json` and of `mm_processor_kwargs`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Golden, Modality, ReadyMedia, drawn, expanded, models, processor_for};

#[test]
fn clients_may_ask_for_fewer_pixels_and_not_for_more() {
    let model = models().into_iter().find(|model| model.ends_with("qwen3_vl")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let embeds = |kwargs: serde_json::Value| {
        let item = processor.image(&drawn(96, 96), kwargs.as_object().unwrap());
        item.map(|item| item.num_embeds).map_err(|error| error.to_string())
    };
    assert_eq!(embeds(json!({})), Ok(9));
    assert_eq!(embeds(json!({ "size": { "longest_edge": 4096 } })), Ok(4));
    assert_eq!(embeds(json!({ "max_pixels": 1024, "nonsense": 3 })), Ok(1));
    for kwargs in [json!({ "max_pixels": 1_000_000 }), json!({ "size": { "shortest_edge": "1" } })]
    {
        assert!(embeds(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

/// A number is the shorter side, although the default of `SiglipImageProcessor` is a square. With a
/// `size` of 14, transformers makes 14 x 28 pixels of 20 x 40.
#[test]
fn a_size_of_siglip_that_is_a_number_is_the_shorter_side() {
    let model = models().into_iter().find(|model| model.ends_with("llava-siglip")).unwrap();
    let copy = tempfile::TempDir::new().unwrap();
    for name in ["config.json", "golden.json"] {
        std::fs::copy(model.join(name), copy.path().join(name)).unwrap();
    }
    let settings = std::fs::read(model.join("preprocessor_config.json")).unwrap();
    let mut settings: Value = serde_json::from_slice(&settings).unwrap();
    settings["size"] = settings["size"]["height"].take();
    std::fs::write(copy.path().join("preprocessor_config.json"), settings.to_string()).unwrap();
    let golden = Golden::read(copy.path());
    let processor = golden.processor(copy.path());
    for recorded in &golden.images {
        let found = processor.image(&drawn(recorded.height, recorded.width), &Map::new());
        if recorded.height != recorded.width {
            assert!(found.unwrap_err().to_string().contains("the model takes 42 x 42"));
            continue;
        }
        let found = found.unwrap();
        assert_eq!(found.tensors[0].shape, recorded.shape);
        let bytes = found.tensors[0].data.iter();
        let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        assert!(hex == recorded.pixels, "other pixels");
    }
}

/// The tiles are those of HF `get_optimal_tiled_canvas`, and a thumbnail if there are several.
#[test]
fn clients_may_ask_for_fewer_tiles() {
    let model = models().into_iter().find(|model| model.ends_with("internvl_chat")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    assert_eq!(processor.modalities(), [Modality::Image]);
    assert_eq!(processor.other_placeholder(Modality::Image), Some("<image>"));
    let tiles = |kwargs: Value| {
        let item = processor.image(&drawn(40, 197), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].shape[0]).map_err(|error| error.to_string())
    };
    assert_eq!(tiles(json!({})), Ok(6));
    assert_eq!(tiles(json!({ "max_dynamic_patch": 2 })), Ok(3));
    assert_eq!(tiles(json!({ "dynamic_image_size": false })), Ok(1));
    for kwargs in [json!({ "max_dynamic_patch": 7 }), json!({ "min_dynamic_patch": 7 })] {
        assert!(tiles(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

/// The tiles are those of HF `get_optimal_tiled_canvas` of Command A Vision and of GOT-OCR 2.
#[test]
fn clients_may_ask_for_other_tiles_of_cohere() {
    let tiles = |name: &str, kwargs: Value| {
        let model = models().into_iter().find(|model| model.ends_with(name)).unwrap();
        let processor = Golden::read(&model).processor(&model);
        let item = processor.image(&drawn(40, 197), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].shape[0]).map_err(|error| error.to_string())
    };
    assert_eq!(tiles("cohere2_vision", json!({})), Ok(6));
    assert_eq!(tiles("cohere2_vision", json!({ "max_patches": 4 })), Ok(5));
    for name in ["aya_vision", "cohere2_vision"] {
        assert_eq!(tiles(name, json!({ "crop_to_patches": false })), Ok(1), "{name}");
        let refused = tiles(name, json!({ "max_patches": 7 })).unwrap_err();
        assert!(refused.starts_with("mm_processor_kwargs: "), "{refused}");
    }
    // The model's own setting is one tile.
    let refused = tiles("cohere2_vision-one", json!({ "crop_to_patches": true })).unwrap_err();
    assert!(refused.contains("the model's own settings 1"), "{refused}");
}

/// The crops are those of HF `select_tiling`, and the whole image is before them.
#[test]
fn clients_may_ask_for_fewer_crops_of_molmo() {
    let model = models().into_iter().find(|model| model.ends_with("molmo2")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    assert_eq!(processor.modalities(), [Modality::Image]);
    let crops = |kwargs: Value| {
        let item = processor.image(&drawn(40, 197), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].shape[0]).map_err(|error| error.to_string())
    };
    assert_eq!(crops(json!({})), Ok(5));
    assert_eq!(crops(json!({ "max_crops": 2 })), Ok(3));
    assert_eq!(crops(json!({ "pooling_size": [2, 2] })), Ok(5));
    for kwargs in [json!({ "max_crops": 5 }), json!({ "pooling_size": [1, 1] })] {
        assert!(crops(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

/// As HF `Molmo2Processor` and vLLM: a token is before prompts with images, once.
#[test]
fn a_prompt_of_molmo_begins_with_a_token() {
    let model = models().into_iter().find(|model| model.ends_with("molmo2")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let item = Arc::new(processor.image(&drawn(5, 7), &Map::new()).unwrap());
    let image = processor.placeholder_tokens(Modality::Image)[0];
    let of = |tokens: &[u32]| {
        let items = [ReadyMedia { identifier: "a".into(), media: Arc::clone(&item) }];
        let prompt = expanded(&*processor, tokens, &items).unwrap();
        let [feature] = &*prompt.features else { panic!("{} items", prompt.features.len()) };
        let end = feature.offset + feature.length;
        assert_eq!(prompt.tokens[feature.offset..end], processor.tokens(&item));
        (prompt.tokens[..feature.offset].to_vec(), prompt.tokens[end..].to_vec())
    };
    assert_eq!(of(&[7, image, 8]), (vec![0, 7], vec![8]));
    assert_eq!(of(&[0, 7, image]), (vec![0, 7], vec![]));
    assert_eq!(expanded(&*processor, &[7, 8], &[]).unwrap().tokens, [7, 8]);
}

#[test]
fn a_folder_of_molmo_names_the_token_before_prompts() {
    let model = models().into_iter().find(|model| model.ends_with("molmo2")).unwrap();
    let texts = Golden::read(&model).texts;
    let refused = |tokenizer: Option<Value>| {
        let copy = tempfile::TempDir::new().unwrap();
        for name in ["config.json", "preprocessor_config.json", "processor_config.json"] {
            std::fs::copy(model.join(name), copy.path().join(name)).unwrap();
        }
        if let Some(tokenizer) = tokenizer {
            let path = copy.path().join("tokenizer_config.json");
            std::fs::write(path, tokenizer.to_string()).unwrap();
        }
        let texts = texts.clone();
        let encode = move |text: &str| texts.get(text).cloned().unwrap_or_else(|| vec![1, 2]);
        processor_for(copy.path(), encode).err().map(|error| error.to_string())
    };
    assert_eq!(refused(Some(json!({ "bos_token": "<|endoftext|>" }))), None);
    assert_eq!(refused(Some(json!({ "eos_token": { "content": "<|endoftext|>" } }))), None);
    for tokenizer in [None, Some(json!({})), Some(json!({ "bos_token": "two tokens" }))] {
        let why = refused(tokenizer).unwrap();
        assert!(why.contains("`bos_token` is missing"), "{why}");
        assert!(why.contains("tokenizer_config.json"), "{why}");
    }
}

/// HF `AyaVisionProcessor` asks for tiles unless its caller does not, whatever the file says.
#[test]
fn clients_turn_tiles_off_that_the_class_asks_for() {
    let model = models().into_iter().find(|model| model.ends_with("aya_vision")).unwrap();
    let copy = tempfile::TempDir::new().unwrap();
    std::fs::copy(model.join("config.json"), copy.path().join("config.json")).unwrap();
    let settings = std::fs::read(model.join("preprocessor_config.json")).unwrap();
    let mut settings: Value = serde_json::from_slice(&settings).unwrap();
    settings["crop_to_patches"] = json!(false);
    std::fs::write(copy.path().join("preprocessor_config.json"), settings.to_string()).unwrap();
    let processor = Golden::read(&model).processor(copy.path());
    for (kwargs, num_tiles) in [(json!({}), 6), (json!({ "crop_to_patches": false }), 1)] {
        let item = processor.image(&drawn(40, 197), kwargs.as_object().unwrap()).unwrap();
        assert_eq!(item.tensors[0].shape[0], num_tiles, "{kwargs}");
    }
}

#[test]
fn clients_may_ask_for_smaller_pages() {
    let embeds = |name: &str, kwargs: Value| {
        let model = models().into_iter().find(|model| model.ends_with(name)).unwrap();
        let processor = Golden::read(&model).processor(&model);
        let item = processor.image(&drawn(96, 96), kwargs.as_object().unwrap());
        item.map(|item| item.num_embeds).map_err(|error| error.to_string())
    };
    assert_eq!(embeds("lighton_ocr", json!({})), Ok(25));
    assert_eq!(embeds("lighton_ocr", json!({ "size": { "longest_edge": 48 } })), Ok(9));
    // 13 patches on a side, in squares of three.
    assert_eq!(embeds("lighton_ocr-rest", json!({ "size": { "longest_edge": 49 } })), Ok(16));
    assert_eq!(embeds("paddleocr_vl", json!({})), Ok(9));
    assert_eq!(embeds("paddleocr_vl", json!({ "max_pixels": 1024 })), Ok(4));
    for name in ["lighton_ocr", "paddleocr_vl"] {
        let wanted = json!({ "size": { "longest_edge": 1_000_000, "shortest_edge": 900_000 } });
        assert!(embeds(name, wanted).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

#[test]
fn clients_may_ask_for_fewer_tiles_of_ovis() {
    let model = models().into_iter().find(|model| model.ends_with("ovis2")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let images = |kwargs: Value| {
        let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].shape[0]).map_err(|error| error.to_string())
    };
    assert_eq!(images(json!({})), Ok(5));
    let two = json!({ "min_patches": 2, "max_patches": 2, "use_covering_area_grid": false });
    assert_eq!(images(two), Ok(3));
    assert_eq!(images(json!({ "crop_to_patches": false })), Ok(1));
    for kwargs in [json!({ "max_patches": 5 }), json!({ "size": { "height": 9, "width": 9 } })] {
        assert!(images(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

#[test]
fn clients_do_not_change_the_views_of_deepseek_ocr() {
    for name in ["deepseek_ocr", "deepseek_ocr2"] {
        let model = models().into_iter().find(|model| model.ends_with(name)).unwrap();
        let processor = Golden::read(&model).processor(&model);
        let made = |kwargs: Value| {
            let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
            item.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(made(json!({ "base_size": 80, "crop_mode": true, "normalize": true })), Ok(()));
        for kwargs in [
            json!({ "base_size": 64 }),
            json!({ "image_size": 64 }),
            json!({ "max_crops": 2 }),
            json!({ "crop_mode": false }),
            json!({ "normalize": false }),
        ] {
            assert!(made(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "), "{name}");
        }
    }
}

#[test]
fn clients_do_not_ask_for_tiles_of_got_ocr() {
    let model = models().into_iter().find(|model| model.ends_with("got_ocr2")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let made = |kwargs: Value| {
        let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
        item.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(made(json!({ "crop_to_patches": false })), Ok(()));
    let refused = made(json!({ "crop_to_patches": true })).unwrap_err();
    assert!(refused.starts_with("mm_processor_kwargs: `crop_to_patches` is true"), "{refused}");
}

#[test]
fn clients_may_ask_for_tiles_of_lfm2() {
    let model = models().into_iter().find(|model| model.ends_with("lfm2_vl-wide")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let tensors = |kwargs: Value| {
        let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
        item.map(|item| item.tensors.len()).map_err(|error| error.to_string())
    };
    assert_eq!(tensors(json!({})), Ok(1));
    // Four tiles, a smaller form of the image, and the number of tiles.
    let tiles = json!({
        "do_image_splitting": true, "max_pixels_tolerance": 1.0, "min_tiles": 4, "max_tiles": 4,
        "use_thumbnail": true,
    });
    assert_eq!(tensors(tiles), Ok(6));
    for kwargs in [
        json!({ "do_image_splitting": true, "min_tiles": 5, "max_tiles": 4 }),
        json!({ "do_image_splitting": true, "tile_size": 25 }),
        json!({ "max_image_tokens": 21 }),
    ] {
        assert!(tensors(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

#[test]
fn clients_may_ask_for_slices() {
    let model = models().into_iter().find(|model| model.ends_with("minicpmv4_6")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let tensors = |kwargs: Value| {
        let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
        item.map(|item| item.tensors.len()).map_err(|error| error.to_string())
    };
    assert_eq!(tensors(json!({})), Ok(1));
    // A smaller form of the image, two slices, and the number of slices.
    assert_eq!(tensors(json!({ "max_slice_nums": 6 })), Ok(4));
    assert_eq!(tensors(json!({ "max_slice_nums": 6, "slice_mode": false })), Ok(1));
    for kwargs in [
        json!({ "max_slice_nums": 65 }),
        json!({ "scale_resolution": 8 }),
        json!({ "scale_resolution": 128 }),
        json!({ "downsample_mode": "4x" }),
        json!({ "do_resize": false }),
    ] {
        assert!(tensors(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
    let refused = processor.image(&drawn(1, 3_000), &Map::new()).unwrap_err().to_string();
    assert!(refused.contains("16 x 3008 pixels, more than 64 embeddings"), "{refused}");
}

#[test]
fn a_page_without_a_square_is_refused() {
    let model = models().into_iter().find(|model| model.ends_with("lighton_ocr-rest")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let refused = processor.image(&drawn(8, 40), &Map::new()).unwrap_err().to_string();
    assert!(refused.contains("8 x 40 pixels have no square of 12"), "{refused}");
}

/// As `get_size_dict` of transformers.
#[test]
fn a_size_may_be_a_list_of_its_sides() {
    let model = models().into_iter().find(|model| model.ends_with("llava-siglip")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let made = |kwargs: Value| {
        let item = processor.image(&drawn(61, 83), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].data.clone()).map_err(|error| error.to_string())
    };
    assert_eq!(made(json!({ "size": [42, 42] })), made(json!({})));
    let refused = made(json!({ "size": [42] })).unwrap_err();
    assert!(refused.contains("`size` is [42]; expected a height and a width"), "{refused}");
}

/// The sizes come from HF `get_aspect_ratio_preserving_size`.
#[test]
fn clients_may_ask_for_fewer_embeddings_of_gemma_4() {
    let model = models().into_iter().find(|model| model.ends_with("gemma4")).unwrap();
    let copy = tempfile::TempDir::new().unwrap();
    for name in ["config.json", "golden.json"] {
        std::fs::copy(model.join(name), copy.path().join(name)).unwrap();
    }
    let config = std::fs::read(model.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["vision_config"]["position_embedding_size"] = json!(10_240);
    std::fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    let settings = std::fs::read(model.join("preprocessor_config.json")).unwrap();
    let mut settings: Value = serde_json::from_slice(&settings).unwrap();
    settings["max_soft_tokens"] = json!(280);
    std::fs::write(copy.path().join("preprocessor_config.json"), settings.to_string()).unwrap();
    let processor = Golden::read(copy.path()).processor(copy.path());
    let size = |kwargs: Value| {
        let item = processor.image(&drawn(40, 197), kwargs.as_object().unwrap());
        item.map(|item| item.tensors[0].shape[1..3].to_vec()).map_err(|error| error.to_string())
    };
    assert_eq!(size(json!({})), Ok(vec![42, 222]));
    assert_eq!(size(json!({ "max_soft_tokens": 140 })), Ok(vec![30, 156]));
    for most in [100, 560] {
        let refused = size(json!({ "max_soft_tokens": most })).unwrap_err();
        assert!(refused.starts_with("mm_processor_kwargs: "), "{refused}");
    }
}
