//! Processors of images whose settings a client may change: `mm_processor_kwargs` replace fields of
//! the image processor's config, as in transformers.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::{Encode, of_images};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// The fields that the encoder applies, not the processor. A client may only repeat their values.
const OF_ENCODER: [&str; 5] =
    ["do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"];

/// The processor of one model, and what it is made of.
pub(super) struct Adjustable {
    own: Arc<dyn FamilyProcessor>,
    family: VisionFamily,
    outer: Fields,
    config: ProcessorConfig,
    encode: Arc<Encode>,
}

impl Adjustable {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        config: ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        let own = of_images(family, outer, &config, Arc::clone(&encode))?;
        Ok(Self { own, family, outer: outer.clone(), config, encode })
    }

    /// Returns the processor with the client's settings, if they change any.
    fn with(
        &self,
        kwargs: &Map<String, Value>,
    ) -> Result<Option<Arc<dyn FamilyProcessor>>, MediaError> {
        let mut fields = self.config.image.clone();
        let mut is_changed = false;
        for (name, value) in kwargs.iter().filter(|(_, value)| !value.is_null()) {
            let is_same = match fields.value(name) {
                Some(own) => own == value,
                // The default of these.
                None => match &**name {
                    "do_rescale" | "do_normalize" | "normalize" | "crop_mode" => *value == true,
                    "crop_to_patches" => *value == false,
                    _ => false,
                },
            };
            let is_fixed = fixed(self.family).contains(&&**name);
            if (is_fixed || OF_ENCODER.contains(&&**name)) && !is_same {
                return Err(MediaError::Kwargs(format!(
                    "`{name}` is {value}; expected the value of the model's image processor"
                )));
            }
            // The class of the processor asks for tiles, also if the file of the images does not.
            let is_whole = &**name == "crop_to_patches" && *value == false;
            if is_same && !is_whole || !changed_by_clients(self.family).contains(&&**name) {
                continue;
            }
            is_changed = true;
            fields = match (&**name, value) {
                // HF `InternVLProcessor` and others ask for tiles unless their caller does not.
                ("crop_to_patches", Value::Bool(false)) => {
                    fields.with("min_patches", 1.into()).with("max_patches", 1.into())
                }
                _ => fields.with(name, value.clone()),
            };
        }
        if !is_changed {
            return Ok(None);
        }
        let config = ProcessorConfig { image: fields, ..self.config.clone() };
        let made = of_images(self.family, &self.outer, &config, Arc::clone(&self.encode));
        let made = made.map_err(|error| MediaError::Kwargs(reason(&error)))?;
        // The encoder cache and the tokens of places are those of the model's own settings.
        let (most, wanted) = (self.own.max_item_embeds(), made.max_item_embeds());
        match wanted <= most {
            true => Ok(Some(made)),
            false => Err(MediaError::Kwargs(format!(
                "they allow images of {wanted} embeddings; the model's own settings {most}"
            ))),
        }
    }
}

/// Returns further fields of which a client may only repeat the values.
fn fixed(family: VisionFamily) -> &'static [&'static str] {
    match family {
        // As in vLLM: the tokens of an image are counted by the sizes of the model.
        VisionFamily::DeepseekOcr | VisionFamily::DeepseekOcr2 => {
            &["base_size", "image_size", "max_crops", "crop_mode", "normalize"]
        }
        // The tower has the windows of the model's own crops.
        VisionFamily::Molmo2 => &["size", "patch_size", "overlap_margins", "pooling_size"],
        // Its images have one size.
        VisionFamily::GotOcr2 => &["crop_to_patches"],
        _ => &[],
    }
}

/// Returns the fields that a processor applies for each image.
fn changed_by_clients(family: VisionFamily) -> &'static [&'static str] {
    match family {
        VisionFamily::Clip
        | VisionFamily::Siglip
        | VisionFamily::ClipModel
        | VisionFamily::SiglipModel => {
            &["size", "crop_size", "resample", "do_resize", "do_center_crop", "do_pad"]
        }
        VisionFamily::LlavaNext
        | VisionFamily::LlavaNextSiglip
        | VisionFamily::LlavaOnevision
        | VisionFamily::LlavaNextVideo => {
            &["size", "crop_size", "resample", "do_resize", "image_grid_pinpoints"]
        }
        VisionFamily::Pixtral | VisionFamily::Mistral3 => &["size", "resample", "do_resize"],
        // HF `PixtralProcessor` sets `patch_size`; this class leaves it to its caller.
        VisionFamily::LightOnOcr => &["size", "resample", "do_resize", "patch_size"],
        VisionFamily::Gemma3
        | VisionFamily::PaliGemma
        | VisionFamily::GotOcr2
        | VisionFamily::Blip2 => &["size", "resample", "do_resize"],
        VisionFamily::Gemma4 | VisionFamily::Gemma4Unified => {
            &["resample", "do_resize", "max_soft_tokens"]
        }
        VisionFamily::Idefics3 => &[
            "size",
            "max_image_size",
            "resample",
            "do_resize",
            "do_image_splitting",
            "max_image_tiles",
        ],
        VisionFamily::Llama4 => {
            &["size", "resample", "do_resize", "max_patches", "resize_to_max_canvas"]
        }
        VisionFamily::InternVl | VisionFamily::AyaVision | VisionFamily::Cohere2Vision => {
            &["size", "resample", "do_resize", "crop_to_patches", "min_patches", "max_patches"]
        }
        VisionFamily::Ovis2 => &[
            "size",
            "resample",
            "do_resize",
            "crop_to_patches",
            "min_patches",
            "max_patches",
            "use_covering_area_grid",
        ],
        VisionFamily::Lfm2Vl => &[
            "resample",
            "do_image_splitting",
            "min_tiles",
            "max_tiles",
            "use_thumbnail",
            "min_image_tokens",
            "max_image_tokens",
            "tile_size",
            "max_pixels_tolerance",
        ],
        VisionFamily::MiniCpmV => &[
            "resample",
            "do_resize",
            "patch_size",
            "max_slice_nums",
            "slice_mode",
            "scale_resolution",
            // Another one than the model's is refused.
            "downsample_mode",
        ],
        VisionFamily::Aria => &["resample", "min_image_size", "max_image_size", "split_image"],
        VisionFamily::Molmo2 => &["max_crops", "resample", "do_resize"],
        VisionFamily::KimiVl => &["in_token_limit"],
        VisionFamily::KimiK25 => &["max_patches", "size", "resample", "do_resize"],
        VisionFamily::Phi3V => &["num_crops"],
        VisionFamily::DeepseekOcr | VisionFamily::DeepseekOcr2 => &[],
        VisionFamily::Phi4 => &["resample", "dynamic_hd"],
        // As in vLLM.
        VisionFamily::InternVlChat | VisionFamily::NemotronVl => {
            &["dynamic_image_size", "min_dynamic_patch", "max_dynamic_patch"]
        }
        // Their limits of pixels are for videos, too. They read them themselves.
        VisionFamily::Qwen2Vl
        | VisionFamily::Qwen2_5Vl
        | VisionFamily::Exaone4_5
        | VisionFamily::DotsOcr
        | VisionFamily::Qwen2_5Omni
        | VisionFamily::Qwen3Omni
        | VisionFamily::Qwen3Vl
        | VisionFamily::Qwen3_5
        | VisionFamily::Glm4v
        | VisionFamily::GlmOcr
        | VisionFamily::PaddleOcr => &["resample", "do_resize"],
    }
}

/// Returns a fault of a field without the file, which the client does not know.
pub(super) fn reason(error: &ConfigError) -> String {
    match error {
        ConfigError::Invalid { field, value, expected, .. } => {
            format!("`{field}` is {value}; expected {expected}")
        }
        other => other.to_string(),
    }
}

impl FamilyProcessor for Adjustable {
    fn modalities(&self) -> &[Modality] {
        self.own.modalities()
    }

    fn max_item_embeds(&self) -> usize {
        self.own.max_item_embeds()
    }

    fn placeholder(&self, modality: Modality) -> &str {
        self.own.placeholder(modality)
    }

    fn numbered_placeholder(&self, modality: Modality, index: usize) -> String {
        self.own.numbered_placeholder(modality, index)
    }

    fn other_placeholder(&self, modality: Modality) -> Option<&str> {
        self.own.other_placeholder(modality)
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        self.own.placeholder_tokens(modality)
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        self.own.tokens(media)
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        self.own.is_placeholder(token)
    }

    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        self.own.parts(media)
    }

    fn join(&self, prompt: &mut ExpandedPrompt) {
        self.own.join(prompt);
    }

    fn is_attended(&self) -> bool {
        self.own.is_attended()
    }

    fn stands_alone(&self) -> Option<&[TokenId]> {
        self.own.stands_alone()
    }

    fn pads_texts(&self) -> bool {
        self.own.pads_texts()
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        match self.with(kwargs)? {
            Some(made) => made.image(image, kwargs),
            None => self.own.image(image, kwargs),
        }
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.own.chosen_frames(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.own.video(video, kwargs)
    }

    fn sampling_rate(&self) -> u32 {
        self.own.sampling_rate()
    }

    fn audio(
        &self,
        samples: &[f32],
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.own.audio(samples, kwargs)
    }
}
