//! Opens the exchange of encoders' results with other engines.

use std::{io, sync::Arc};

use super::{LoadedModel, StartError};
use crate::{
    config::{EcTransferConfig, EngineConfig},
    executor::{DiskConnector, EncoderExchange},
    journal::fingerprint,
};

/// Returns the exchange that the settings name. Blocks while the disk does.
///
/// # Errors
/// [`StartError::EncoderExchange`] if its folder cannot be used.
pub(super) fn open(
    config: &EngineConfig,
    model: &LoadedModel,
) -> Result<Option<EncoderExchange>, StartError> {
    let Some(EcTransferConfig { role, shared_storage_path, max_bytes }) =
        &config.ec_transfer_config
    else {
        return Ok(None);
    };
    let opened = || -> io::Result<DiskConnector> {
        // All on which an engine's tokens depend. An encoder depends on less, but none of it is
        // missing here.
        let fingerprint = format!("{:?}", fingerprint(config, model)?);
        DiskConnector::open(shared_storage_path, &fingerprint, *max_bytes)
    };
    let connector = opened().map_err(|source| StartError::EncoderExchange {
        folder: shared_storage_path.clone(),
        source,
    })?;
    let (stores, takes) = (role.stores(), role.takes());
    Ok(Some(EncoderExchange { connector: Arc::new(connector), stores, takes }))
}
