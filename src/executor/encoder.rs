//! The encoder of images and sounds, and the store of its results, from which steps take them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use burn::tensor::{Device as BurnDevice, Tensor, TensorData};
use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::{
        failure::Failure,
        media::{MediaDtype, MediaTensor, MultimodalFeature},
    },
    ports::{EncoderExecutor, EncoderFactory, ExecuteError},
};

use super::{encoder_connector::EncoderExchange, threads::ComputeThreads};
use crate::model::{EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView};

/// The results in memory, by identifier. They outlive every executor.
pub(crate) struct EncoderStore {
    encoder: Arc<dyn MediaEncoder>,
    outputs: Mutex<BTreeMap<Arc<str>, Stored>>,
    /// The threads of steps.
    threads: ComputeThreads,
    /// The device of the results.
    device: BurnDevice,
    /// Results that other engines share.
    exchange: Option<EncoderExchange>,
    /// Number of results that were not computed here.
    num_received: AtomicU64,
}

struct Stored {
    num_embeds: usize,
    output: Arc<EncoderOutput>,
}

impl EncoderStore {
    /// Returns an empty store for the results of `encoder`, which computes beside the `threads` of
    /// steps.
    pub(crate) fn new(
        encoder: Arc<dyn MediaEncoder>,
        threads: ComputeThreads,
        device: BurnDevice,
    ) -> Self {
        Self {
            encoder,
            outputs: Mutex::default(),
            threads,
            device,
            exchange: None,
            num_received: AtomicU64::new(0),
        }
    }

    /// Returns an empty store that exchanges results with other engines.
    pub(crate) fn with_exchange(&self, exchange: EncoderExchange) -> Self {
        let (encoder, threads) = (Arc::clone(&self.encoder), self.threads.clone());
        let exchange = Some(exchange);
        Self { exchange, ..Self::new(encoder, threads, self.device.clone()) }
    }

    /// Returns the encoder.
    pub(super) fn encoder(&self) -> &dyn MediaEncoder {
        &*self.encoder
    }

    /// Returns the result for an item, if it is in memory.
    pub(super) fn get(&self, identifier: &Arc<str>) -> Option<Arc<EncoderOutput>> {
        self.outputs.lock().get(identifier).map(|stored| Arc::clone(&stored.output))
    }

    /// Returns the results of items, in order. Some are there already, so they are not encoded.
    fn outputs_of(&self, items: &[MultimodalFeature]) -> Vec<Result<EncoderOutput, String>> {
        let mut outputs: Vec<Option<Result<EncoderOutput, String>>> =
            items.iter().map(|item| self.given(item)).collect();
        let (missing, inputs): (Vec<usize>, Vec<MediaInput<'_>>) = (0..items.len())
            .filter(|index| outputs[*index].is_none())
            .map(|index| (index, input(&items[index])))
            .unzip();
        if !inputs.is_empty() {
            for (index, output) in missing.into_iter().zip(self.encoder.encode(&inputs)) {
                if let (Some(exchange), Ok(output)) = (&self.exchange, &output) {
                    exchange.save(&items[index].media, output);
                }
                outputs[index] = Some(output);
            }
        }
        let lost = || Err("the encoder lost an item".to_owned());
        outputs.into_iter().map(|output| output.unwrap_or_else(lost)).collect()
    }

    /// Returns the result that a client sent, or that another engine has stored.
    fn given(&self, item: &MultimodalFeature) -> Option<Result<EncoderOutput, String>> {
        let given = match item.media.is_embedded() {
            true => self.sent(item),
            false => Ok(self.exchange.as_ref()?.load(&item.media, &self.device)?),
        };
        self.num_received.fetch_add(1, Ordering::Relaxed);
        Some(given)
    }

    /// Returns the embeddings that a client sent.
    fn sent(&self, item: &MultimodalFeature) -> Result<EncoderOutput, String> {
        let tensors = item.media.tensors.iter().map(|sent| tensor(sent, &self.device));
        let mut tensors = tensors.collect::<Result<Vec<Tensor<2>>, String>>()?.into_iter();
        let embeddings = tensors.next().ok_or("the item has no embeddings")?;
        Ok(EncoderOutput { embeddings, by_layer: tensors.collect() })
    }

    /// Encodes items on `threads` and stores the results.
    fn encode(
        &self,
        items: &[MultimodalFeature],
        threads: &ComputeThreads,
    ) -> Vec<Result<(), Failure>> {
        let outputs = threads.run(|| self.outputs_of(items));
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
        MediaDtype::F32 | MediaDtype::Embedding => MediaData::F32(&tensor.data),
        MediaDtype::TokenIds => MediaData::TokenIds(&tensor.data),
    };
    MediaTensorView { shape: &tensor.shape, data }
}

/// Returns stored rows as a tensor.
fn tensor(stored: &MediaTensor, device: &BurnDevice) -> Result<Tensor<2>, String> {
    let [rows, width] = *stored.shape else {
        return Err(format!("embeddings of the shape {:?}", stored.shape));
    };
    let (values, rest) = stored.data.as_chunks();
    let values: Vec<f32> = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    if !rest.is_empty() || Some(values.len()) != rows.checked_mul(width) {
        return Err(format!("{} bytes of embeddings of {:?}", stored.data.len(), stored.shape));
    }
    Ok(Tensor::from_data(TensorData::new(values, [rows, width]), device))
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

    fn num_received(&self) -> u64 {
        self.0.num_received.load(Ordering::Relaxed)
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
