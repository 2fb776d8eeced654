//! The content behind a URL, as far as the operator allows it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{data_url, fetch::Fetcher, local_file};
use crate::{
    api::{MediaSource, Modality},
    server::{ServerConfig, http::error::ApiError, memory::RequestMemory},
};

/// Reads the content behind URLs.
pub(in crate::server) struct MediaAccess {
    folder: Option<PathBuf>,
    bytes_max: usize,
    fetcher: Fetcher,
}

/// A URL that is not a data URI, or the content of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// The content itself.
    Here(MediaSource),
    /// The URL of a file on this machine; the part behind `file:`.
    File(String),
    /// A URL of the web.
    Web(String),
}

impl Content {
    /// Reads a URL. A data URI is decoded.
    ///
    /// # Errors
    /// 400 for a URL of another kind, and for data that is not base64.
    pub(super) fn of_url(modality: Modality, url: &str) -> Result<Self, ApiError> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match scheme.to_ascii_lowercase().as_str() {
            "data" => data_url::content(modality, rest).map(Self::Here),
            "file" => Ok(Self::File(rest.to_owned())),
            "http" | "https" => Ok(Self::Web(url.to_owned())),
            _ => {
                let message = "The URL must be either a HTTP, data or file URL.";
                Err(ApiError::bad_request(message))
            }
        }
    }
}

impl Content {
    /// Returns the bytes that the content had as base64 in the request's body.
    pub(super) fn base64_bytes(&self) -> usize {
        let bytes = match self {
            Self::Here(MediaSource::File(file)) => file.len(),
            Self::Here(MediaSource::Frames(files)) => files.iter().map(|file| file.len()).sum(),
            Self::Here(MediaSource::Embeddings(files)) => {
                files.values().map(|file| file.len()).sum()
            }
            Self::Here(MediaSource::Named) | Self::File(_) | Self::Web(_) => 0,
        };
        bytes / 3 * 4
    }
}

impl MediaAccess {
    /// Returns the access that the settings allow.
    pub(in crate::server) fn new(config: &ServerConfig) -> Self {
        // The settings are checked: the time is finite.
        let time = Duration::try_from_secs_f64(config.media_fetch_timeout_secs).unwrap_or_default();
        Self {
            folder: config.allowed_local_media_path.clone(),
            bytes_max: config.media_max_bytes,
            fetcher: Fetcher::new(&config.allowed_media_domains, config.media_max_bytes, time),
        }
    }

    /// Returns the file of a sound behind a URL. Its memory is leased on `memory`.
    ///
    /// # Errors
    /// As [`MediaAccess::load`].
    pub(in crate::server) async fn sound(
        &self,
        url: &str,
        memory: &RequestMemory,
    ) -> Result<Arc<[u8]>, ApiError> {
        match self.load(Content::of_url(Modality::Audio, url)?, memory).await? {
            MediaSource::File(file) => Ok(file),
            _ => Err(ApiError::bad_request("The URL has no sound.")),
        }
    }

    /// Returns the content. Its memory is leased on `memory`.
    ///
    /// # Errors
    /// 400 if the content is not allowed, or cannot be read.
    pub(super) async fn load(
        &self,
        content: Content,
        memory: &RequestMemory,
    ) -> Result<MediaSource, ApiError> {
        let bytes = match content {
            Content::Here(source) => return Ok(source),
            Content::Web(url) => self.fetcher.fetch(&url, memory).await?,
            Content::File(rest) => {
                let Some(folder) = self.folder.clone() else {
                    let message = "Cannot load local files without `--allowed-local-media-path`.";
                    return Err(ApiError::bad_request(message));
                };
                let bytes_max = self.bytes_max;
                let read = move || local_file::read(&folder, &rest, bytes_max);
                let read = tokio::task::spawn_blocking(read).await;
                let read = read.map_err(|error| ApiError::internal(error.to_string()))?;
                let bytes = read.map_err(ApiError::bad_request)?;
                memory.grow(2 * bytes.len()).await?;
                bytes
            }
        };
        Ok(MediaSource::File(Arc::from(bytes)))
    }
}
