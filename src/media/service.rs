//! The processor of a loaded model's media: limits, decoding, names, and the cache of processed
//! items, around the family's own part.

use std::{collections::BTreeMap, sync::Arc};

use metrics::{Counter, Label, counter};
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{
        ExpandedPrompt, MEDIA_IO_KWARGS, MediaError, MediaProcessor, MediaSource, RawMedia,
        ReadyMedia,
    },
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{
    audio::{self, SECONDS_MAX, decode},
    decode::{Decoding, decoded_bytes, picture},
    embeds::EmbedsLayout,
    expand::expanded,
    frames::{FRAMES_DEFAULT, FRAMES_MAX, animation, pictures, sampled},
    processor::FamilyProcessor,
    store::ProcessedStore,
};

/// Items of a kind in one prompt, if the settings say nothing.
const LIMIT_DEFAULT: usize = 999;

/// The settings of a model's media.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MediaSettings {
    /// Largest number of items of a kind in one prompt.
    pub(crate) limits: BTreeMap<Modality, usize>,
    /// Largest number of pixels of a picture, or of the frames of a video together.
    pub(crate) pixels_max: u64,
    /// Largest size of the cache of processed items.
    pub(crate) cache_bytes: usize,
    /// Settings of the processor that hold unless a request overrides them.
    pub(crate) kwargs: Map<String, Value>,
    /// The embeddings that clients may send, if they may.
    pub(crate) embeds: Option<EmbedsLayout>,
}

/// The processor of one loaded model's media.
pub(crate) struct MediaService {
    family: Arc<dyn FamilyProcessor>,
    settings: MediaSettings,
    store: ProcessedStore,
    queries: Counter,
    hits: Counter,
}

impl MediaService {
    /// Returns the processor over the family's. Its metrics have the label `model_name`.
    pub(crate) fn new(
        family: Arc<dyn FamilyProcessor>,
        settings: MediaSettings,
        model_name: &str,
    ) -> Self {
        let labels = [Label::new("model_name", model_name.to_owned()), Label::new("engine", "0")];
        let count = |name: &'static str| {
            let counter = counter!(name, labels.iter());
            counter.increment(0);
            counter
        };
        Self {
            family,
            store: ProcessedStore::new(settings.cache_bytes),
            settings,
            queries: count("playhouse:mm_cache_queries_total"),
            hits: count("playhouse:mm_cache_hits_total"),
        }
    }

    /// Returns the item in the encoder's form, without the cache.
    fn processed(
        &self,
        raw: &RawMedia,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (modality, invalid) = (raw.modality, |reason: &str| MediaError::Invalid {
            modality: raw.modality,
            reason: reason.to_owned(),
        });
        let decoding = self.decoding(modality, kwargs)?;
        match (modality, &raw.source) {
            (_, MediaSource::Embeddings(files)) => {
                let layout = self.embeds_layout(modality)?;
                layout.read(modality, files, self.max_item_embeds())
            }
            (Modality::Image, MediaSource::File(file)) => {
                self.family.image(&picture(file, decoding)?, kwargs)
            }
            (Modality::Video, MediaSource::File(file)) => {
                let (wanted, given) = (num_frames(kwargs)?, frame_rate(kwargs)?);
                let choose =
                    |total, fps: Option<f64>| self.chosen(total, fps.or(given), wanted, kwargs);
                let mut video = animation(file, &choose, decoding)?;
                video.fps = video.fps.or(given);
                self.family.video(&video, kwargs)
            }
            (Modality::Video, MediaSource::Frames(files)) => {
                let (wanted, fps) = (num_frames(kwargs)?, frame_rate(kwargs)?);
                let choose = |total, fps| self.chosen(total, fps, wanted, kwargs);
                self.family.video(&pictures(files, &choose, fps, decoding)?, kwargs)
            }
            (Modality::Audio, MediaSource::File(file)) => {
                let samples = decode(Arc::clone(file), self.family.sampling_rate(), SECONDS_MAX)?;
                self.family.audio(&samples, kwargs)
            }
            // The text of an encoder is no item of a message.
            (Modality::Text, _) => Err(MediaError::TooMany { modality, limit: 0 }),
            (Modality::Image | Modality::Audio, MediaSource::Frames(_)) => {
                Err(invalid("only a video has frames"))
            }
            (_, MediaSource::Named) => Err(MediaError::UnknownUuid { modality, index: 0 }),
        }
    }

    /// Returns the frames of a video that are processed: `wanted` of them, at equal distances from
    /// the first to the last. If there are no more, the family's processor chooses, as vLLM's
    /// does.
    fn chosen(
        &self,
        total: usize,
        fps: Option<f64>,
        wanted: usize,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        match total > wanted {
            true => Ok(sampled(total, wanted)),
            false => self.family.chosen_frames(total, fps, kwargs),
        }
    }

    fn decoding(
        &self,
        modality: Modality,
        kwargs: &Map<String, Value>,
    ) -> Result<Decoding, MediaError> {
        let given = io_kwarg(kwargs, modality, "rgba_background_color");
        let background = match given.map(|value| serde_json::from_value(value.clone())) {
            None => [u8::MAX; 3],
            Some(Ok(color)) => color,
            Some(Err(_)) => {
                let why = "rgba_background_color must be a list or tuple of 3 integers in the \
                           range [0, 255].";
                return Err(MediaError::Kwargs(why.to_owned()));
            }
        };
        Ok(Decoding { pixels_max: self.settings.pixels_max, background })
    }

    /// Returns the settings of an item: the client's over those of the server.
    fn kwargs(&self, raw: &RawMedia) -> Map<String, Value> {
        let mut kwargs = self.settings.kwargs.clone();
        for (name, value) in &raw.kwargs {
            match (kwargs.get_mut(name), value) {
                (Some(Value::Object(own)), Value::Object(given)) if name == MEDIA_IO_KWARGS => {
                    merge_io_kwargs(own, given);
                }
                _ => drop(kwargs.insert(name.clone(), value.clone())),
            }
        }
        kwargs
    }

    /// Returns the layout of the embeddings of items of a kind.
    fn embeds_layout(&self, modality: Modality) -> Result<EmbedsLayout, MediaError> {
        let layout = self.settings.embeds.ok_or(MediaError::EmbedsDisabled { modality })?;
        let is_taken = self.family.modalities().contains(&modality)
            && !self.family.is_attended()
            && layout.takes(modality);
        is_taken.then_some(layout).ok_or_else(|| {
            let reason = format!("this model takes no {}_embeds", modality.as_str());
            MediaError::Embeds { modality, reason }
        })
    }
}

impl MediaProcessor for MediaService {
    fn limit(&self, modality: Modality) -> usize {
        match self.family.modalities().contains(&modality) {
            // All tokens attend to the one item.
            true if self.family.is_attended() => 1,
            true if self.family.stands_alone().is_some() => {
                self.settings.limits.get(&modality).map_or(1, |limit| (*limit).min(1))
            }
            true => {
                let limit = self.settings.limits.get(&modality).copied().unwrap_or(LIMIT_DEFAULT);
                self.family.most_items().map_or(limit, |most| limit.min(most))
            }
            false => 0,
        }
    }

    fn max_item_embeds(&self) -> usize {
        self.family.max_item_embeds()
    }

    fn placeholder(&self, modality: Modality, index: usize) -> Option<String> {
        let takes = self.family.modalities().contains(&modality);
        takes.then(|| self.family.numbered_placeholder(modality, index))
    }

    fn other_placeholder(&self, modality: Modality) -> Option<&str> {
        self.family.other_placeholder(modality)
    }

    fn sound_seconds(&self) -> Option<u32> {
        self.family.sound_seconds()
    }

    fn pads_texts(&self) -> bool {
        self.family.pads_texts()
    }

    fn check_embeds(&self, modality: Modality) -> Result<(), MediaError> {
        self.embeds_layout(modality).map(|_| ())
    }

    fn process(&self, raw: &RawMedia) -> Result<ReadyMedia, MediaError> {
        let kwargs = self.kwargs(raw);
        let identifier = identifier(raw, &kwargs);
        self.queries.increment(1);
        if let Some(media) = self.store.get(&identifier) {
            self.hits.increment(1);
            return Ok(ReadyMedia { identifier, media });
        }
        let media = Arc::new(self.processed(raw, &kwargs)?);
        let parts = self.family.parts(&media);
        let size = parts.iter().map(|part| part.num_embeds).max().unwrap_or_default();
        let (modality, limit) = (raw.modality, self.max_item_embeds());
        if size > limit {
            let (size, limit) = (size as u64, limit as u64);
            return Err(MediaError::TooLarge { modality, size, unit: "embeddings", limit });
        }
        self.store.insert(&identifier, &media);
        Ok(ReadyMedia { identifier, media })
    }

    fn num_tokens(&self, item: &ReadyMedia) -> usize {
        match self.family.is_attended() {
            true => 0,
            false => item.media.num_embeds,
        }
    }

    fn expand(
        &self,
        tokens: Vec<TokenId>,
        media: &[ReadyMedia],
    ) -> Result<ExpandedPrompt, MediaError> {
        for modality in Modality::ALL {
            let limit = self.limit(modality);
            // As in vLLM, a limit of zero leaves embeddings unlimited: no encoder is needed.
            let counts = |item: &&ReadyMedia| {
                item.media.modality == modality && (limit > 0 || !item.media.is_embedded())
            };
            let count = media.iter().filter(counts).count();
            if count > limit {
                return Err(MediaError::TooMany { modality, limit });
            }
        }
        expanded(&*self.family, &tokens, media)
    }

    fn working_bytes(&self, raw: &RawMedia) -> usize {
        let limit = Decoding { pixels_max: self.settings.pixels_max, background: [0; 3] };
        match &raw.source {
            MediaSource::File(file) if raw.modality == Modality::Image => {
                decoded_bytes(file, limit)
            }
            MediaSource::File(file) if raw.modality == Modality::Video => {
                decoded_bytes(file, limit).saturating_mul(FRAMES_DEFAULT)
            }
            MediaSource::Frames(files) => {
                let files = files.iter().take(FRAMES_MAX);
                files.map(|file| decoded_bytes(file, limit)).fold(0, usize::saturating_add)
            }
            MediaSource::File(file) => audio::decoded_bytes(file, self.family.sampling_rate()),
            // As f32, and once more in the order of layers.
            MediaSource::Embeddings(files) => {
                files.values().map(|file| file.len().saturating_mul(8)).sum()
            }
            MediaSource::Named => 0,
        }
    }

    fn clear(&self) {
        self.store.clear();
    }
}

/// Returns the number of frames that the client wants of a video.
fn num_frames(kwargs: &Map<String, Value>) -> Result<usize, MediaError> {
    match io_kwarg(kwargs, Modality::Video, "num_frames") {
        None => Ok(FRAMES_DEFAULT),
        // vLLM's word for all.
        Some(value) if *value == -1 => Ok(FRAMES_MAX),
        Some(value) => {
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            count.filter(|count| (1..=FRAMES_MAX).contains(count)).ok_or_else(|| {
                let why = format!("num_frames must be -1, or 1 to {FRAMES_MAX}, got {value}");
                MediaError::Kwargs(why)
            })
        }
    }
}

/// Returns the frames a second of a list of pictures, or of an animation without times, if the
/// client gives them.
fn frame_rate(kwargs: &Map<String, Value>) -> Result<Option<f64>, MediaError> {
    let Some(value) = io_kwarg(kwargs, Modality::Video, "fps") else { return Ok(None) };
    let fps = value.as_f64().filter(|fps| fps.is_finite() && *fps > 0.0);
    fps.map(Some)
        .ok_or_else(|| MediaError::Kwargs(format!("fps must be a number above 0, got {value}")))
}

fn io_kwarg<'a>(
    kwargs: &'a Map<String, Value>,
    modality: Modality,
    name: &str,
) -> Option<&'a Value> {
    kwargs.get(MEDIA_IO_KWARGS)?.get(modality.as_str())?.get(name)
}

/// Writes the settings of decoding that a client gave over those of the server, kind by kind.
fn merge_io_kwargs(own: &mut Map<String, Value>, given: &Map<String, Value>) {
    for (modality, given) in given {
        match (own.get_mut(modality), given) {
            (Some(Value::Object(own)), Value::Object(given)) => own.extend(given.clone()),
            _ => drop(own.insert(modality.clone(), given.clone())),
        }
    }
}

/// Returns the name of an item in all caches: the client's own name for it, or the digest of its
/// content. A client's name is never the digest of other content. Items that are processed with
/// other settings have other names.
fn identifier(raw: &RawMedia, kwargs: &Map<String, Value>) -> Arc<str> {
    if let (Some(uuid), true) = (&raw.uuid, kwargs.is_empty()) {
        return format!("{}:uuid:{uuid}", raw.modality.as_str()).into();
    }
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    part(raw.modality.as_str().as_bytes());
    part(sorted(kwargs).as_bytes());
    match (&raw.uuid, &raw.source) {
        (Some(uuid), _) => {
            part(b"uuid");
            part(uuid.as_bytes());
        }
        (None, MediaSource::File(file)) => {
            part(b"file");
            part(file);
        }
        (None, MediaSource::Frames(files)) => {
            part(b"frames");
            files.iter().for_each(|file| part(file));
        }
        (None, MediaSource::Embeddings(files)) => {
            part(b"embeddings");
            for (name, file) in files {
                part(name.as_bytes());
                part(file);
            }
        }
        (None, MediaSource::Named) => part(b"named"),
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Returns settings as text. Their order does not matter.
fn sorted(kwargs: &Map<String, Value>) -> String {
    let sorted: BTreeMap<&String, &Value> = kwargs.iter().collect();
    serde_json::to_string(&sorted).unwrap_or_default()
}

#[cfg(test)]
mod tests;
