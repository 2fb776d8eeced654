//! The list of items that requests need, and the answer to it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logic::request::{
    failure::Failure,
    ids::{Epoch, RequestId},
    media::MultimodalFeature,
};

/// All items that requests need now. A later list replaces an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncoderNeeds {
    /// The scheduler's epoch.
    pub epoch: Epoch,
    /// The number of the list in its epoch, from 1.
    pub version: u64,
    /// The needs, the most urgent first: requests that run come before others.
    pub needs: Vec<EncoderNeed>,
}

/// The items that one request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderNeed {
    /// The request.
    pub request: RequestId,
    /// Its items, in the order of the prompt.
    pub items: Vec<MultimodalFeature>,
}

/// The state of the items of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EncoderAnswer {
    /// The epoch of the list.
    pub epoch: Epoch,
    /// The number of the list.
    pub version: u64,
    /// The items whose embeddings are in the store, for each request that may use them. They stay
    /// there while lists name them for the request.
    pub ready: Vec<(RequestId, Arc<str>)>,
    /// The items that cannot be encoded.
    pub failed: Vec<(Arc<str>, Failure)>,
    /// The most urgent request whose items find no room.
    pub starved: Option<RequestId>,
}
