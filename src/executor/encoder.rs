//! The encoder of images and sounds, and the store of its results, from which steps take them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::{
        failure::Failure,
        media::{MediaDtype, MediaTensor, MultimodalFeature},
    },
    ports::{EncoderExecutor, EncoderFactory, ExecuteError},
};

use super::threads::ComputeThreads;
use crate::model::{EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView};

/// The results in memory, by identifier. They outlive every executor.
pub(crate) struct EncoderStore {
    encoder: Arc<dyn MediaEncoder>,
    outputs: Mutex<BTreeMap<Arc<str>, Stored>>,
    /// The threads of steps.
    threads: ComputeThreads,
}

struct Stored {
    num_embeds: usize,
    output: Arc<EncoderOutput>,
}

impl EncoderStore {
    /// Returns an empty store for the results of `encoder`, which computes beside the `threads` of
    /// steps.
    pub(crate) fn new(encoder: Arc<dyn MediaEncoder>, threads: ComputeThreads) -> Self {
        Self { encoder, outputs: Mutex::default(), threads }
    }

    /// Returns the encoder.
    pub(super) fn encoder(&self) -> &dyn MediaEncoder {
        &*self.encoder
    }

    /// Returns the result for an item, if it is in memory.
    pub(super) fn get(&self, identifier: &Arc<str>) -> Option<Arc<EncoderOutput>> {
        self.outputs.lock().get(identifier).map(|stored| Arc::clone(&stored.output))
    }

    /// Encodes items on `threads` and stores the results.
    fn encode(
        &self,
        items: &[MultimodalFeature],
        threads: &ComputeThreads,
    ) -> Vec<Result<(), Failure>> {
        let inputs: Vec<MediaInput<'_>> = items.iter().map(input).collect();
        let outputs = threads.run(|| self.encoder.encode(&inputs));
        let stored = items.iter().zip(outputs).map(|(item, output)| {
            let output = output.map_err(Failure::Encoder)?;
            let num_embeds = output.embeddings.dims()[0];
            if num_embeds != item.num_embeds {
                let expected = item.num_embeds;
                let why = format!("the encoder returned {num_embeds} embeddings of {expected}");
                return Err(Failure::Encoder(why));
            }
            let stored = Stored { num_embeds, output: Arc::new(output) };
            self.outputs.lock().insert(Arc::clone(&item.identifier), stored);
            Ok(())
        });
        stored.collect()
    }
}

fn view(tensor: &MediaTensor) -> MediaTensorView<'_> {
    let data = match tensor.dtype {
        MediaDtype::U8 => MediaData::U8(&tensor.data),
        MediaDtype::F32 => MediaData::F32(&tensor.data),
    };
    MediaTensorView { shape: &tensor.shape, data }
}

/// Returns an item as the encoder takes it.
pub(super) fn input(item: &MultimodalFeature) -> MediaInput<'_> {
    MediaInput {
        tensors: item.media.tensors.iter().map(view).collect(),
        num_embeds: item.num_embeds,
        grid: item.media.grid,
    }
}

/// The store, for the encoder worker.
pub(crate) struct Encoders(pub(crate) Arc<EncoderStore>);

impl EncoderFactory for Encoders {
    fn create(&self) -> Result<Box<dyn EncoderExecutor>, ExecuteError> {
        // Those of an executor that hangs stay with it.
        let threads = self.0.threads.beside();
        let threads = threads.map_err(|error| ExecuteError::Device(error.to_string()))?;
        Ok(Box::new(Executor { store: Arc::clone(&self.0), threads }))
    }

    fn stored(&self) -> Vec<(Arc<str>, usize)> {
        let outputs = self.0.outputs.lock();
        outputs.iter().map(|(item, stored)| (Arc::clone(item), stored.num_embeds)).collect()
    }

    fn remove(&self, identifiers: &[Arc<str>]) {
        // Memory is freed after the lock is released.
        let removed: Vec<Option<Stored>> = {
            let mut outputs = self.0.outputs.lock();
            identifiers.iter().map(|identifier| outputs.remove(identifier)).collect()
        };
        drop(removed);
    }
}

struct Executor {
    store: Arc<EncoderStore>,
    threads: ComputeThreads,
}

impl EncoderExecutor for Executor {
    fn encode(
        &mut self,
        items: &[MultimodalFeature],
    ) -> Result<Vec<Result<(), Failure>>, ExecuteError> {
        Ok(self.store.encode(items, &self.threads))
    }
}
