//! The images, sounds and texts of a replay. They are encoded before the first step of each request
//! that has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use playhouse_actors::{
    logic::{
        recording::DeviceFault,
        request::{
            EngineRequest,
            ids::RequestId,
            media::{MultimodalFeature, ProcessedMedia},
        },
        scheduler::output::SchedulerOutput,
    },
    ports::{EncoderExecutor, EncoderFactory},
};

/// Encodes the items of requests, and keeps the results until the requests end.
pub(super) struct ReplayedMedia {
    encoders: Arc<dyn EncoderFactory>,
    executor: Option<Box<dyn EncoderExecutor>>,
    /// The recorded content of each item. A recording has it once.
    contents: BTreeMap<Arc<str>, Arc<ProcessedMedia>>,
    /// The items that each request uses.
    in_use: BTreeMap<RequestId, BTreeSet<Arc<str>>>,
}

impl ReplayedMedia {
    pub(super) fn new(encoders: Arc<dyn EncoderFactory>) -> Self {
        let (contents, in_use) = (BTreeMap::new(), BTreeMap::new());
        Self { encoders, executor: None, contents, in_use }
    }

    /// Encodes the items of requests that begin in `step`, and drops those of requests that have
    /// ended.
    ///
    /// # Errors
    /// [`DeviceFault`] if the recording lacks the content of an item, or it cannot be encoded.
    pub(super) fn encode(&mut self, step: &SchedulerOutput) -> Result<(), DeviceFault> {
        for request in step.finished.iter().chain(&step.preempted) {
            self.in_use.remove(request);
        }
        let requests = step.scheduled_new.iter().map(|row| &*row.request);
        for request in requests.clone().filter(|request| !request.mm_features.is_empty()) {
            self.mark_used(request);
        }
        self.drop_unused();
        for request in requests {
            self.encode_items(request)?;
        }
        Ok(())
    }

    /// Takes the content that the recording has with this request. Others may use it: the recording
    /// has it once.
    pub(super) fn take(&mut self, request: &EngineRequest) {
        let recorded = request.mm_features.iter().filter(|item| !item.media.tensors.is_empty());
        for item in recorded {
            let content = Arc::clone(&item.media);
            self.contents.entry(Arc::clone(&item.identifier)).or_insert(content);
        }
    }

    fn mark_used(&mut self, request: &EngineRequest) {
        let names = request.mm_features.iter().map(|item| Arc::clone(&item.identifier)).collect();
        self.in_use.insert(request.id, names);
    }

    fn drop_unused(&self) {
        let used: BTreeSet<&Arc<str>> = self.in_use.values().flatten().collect();
        let stored = self.encoders.stored().into_iter().map(|(item, _)| item);
        let unused: Vec<Arc<str>> = stored.filter(|item| !used.contains(item)).collect();
        self.encoders.remove(&unused);
    }

    fn encode_items(&mut self, request: &EngineRequest) -> Result<(), DeviceFault> {
        let stored: BTreeSet<Arc<str>> =
            self.encoders.stored().into_iter().map(|(item, _)| item).collect();
        let missing = request.mm_features.iter().filter(|item| !stored.contains(&item.identifier));
        let with_content = missing.map(|item| {
            let content = self.contents.get(&item.identifier).ok_or_else(|| {
                DeviceFault(format!(
                    "the recording has no content of item {} of request {}: the server had no \
                     record_media, or many items at once; --schedule-only works",
                    item.identifier, request.id,
                ))
            })?;
            Ok(MultimodalFeature { media: Arc::clone(content), ..item.clone() })
        });
        let items = with_content.collect::<Result<Vec<MultimodalFeature>, DeviceFault>>()?;
        if items.is_empty() {
            return Ok(());
        }
        let fault = |why: String| DeviceFault(format!("an item of request {}: {why}", request.id));
        if self.executor.is_none() {
            let created = self.encoders.create();
            self.executor = Some(created.map_err(|error| fault(error.to_string()))?);
        }
        let Some(executor) = &mut self.executor else {
            return Err(fault("the encoder is gone".to_owned()));
        };
        let encoded = executor.encode(&items).map_err(|error| fault(error.to_string()))?;
        let failed = encoded.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |failure| Err(fault(failure.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use playhouse_actors::{
        logic::request::{
            failure::Failure,
            media::{MediaDtype, MediaTensor},
        },
        ports::ExecuteError,
    };

    use super::*;

    /// An item that was encoded, and the bytes of its content.
    type Encoded = (Arc<str>, usize);

    #[derive(Clone, Default)]
    struct Encoders(Arc<Mutex<Vec<Encoded>>>);

    impl EncoderFactory for Encoders {
        fn create(&self) -> Result<Box<dyn EncoderExecutor>, ExecuteError> {
            Ok(Box::new(self.clone()))
        }

        fn stored(&self) -> Vec<Encoded> {
            self.0.lock().clone()
        }

        fn remove(&self, identifiers: &[Arc<str>]) {
            self.0.lock().retain(|(item, _)| !identifiers.contains(item));
        }
    }

    impl EncoderExecutor for Encoders {
        fn encode(
            &mut self,
            items: &[MultimodalFeature],
        ) -> Result<Vec<Result<(), Failure>>, ExecuteError> {
            let encoded = items.iter().map(|it| (Arc::clone(&it.identifier), it.media.num_bytes()));
            self.0.lock().extend(encoded);
            Ok(vec![Ok(()); items.len()])
        }
    }

    fn request(id: u64, num_bytes: usize) -> EngineRequest {
        let tensor = MediaTensor {
            shape: vec![num_bytes],
            dtype: MediaDtype::U8,
            data: vec![1; num_bytes].into(),
        };
        let tensors = if num_bytes == 0 { Vec::new() } else { vec![tensor] };
        let media = Arc::new(ProcessedMedia { tensors, ..ProcessedMedia::default() });
        let identifier = "picture".into();
        let item = MultimodalFeature { identifier, offset: 0, length: 1, num_embeds: 1, media };
        EngineRequest { mm_features: [item].into(), ..EngineRequest::for_test(id, [1]) }
    }

    /// The first request with the picture ends before any step has it.
    #[test]
    fn a_request_has_the_content_that_came_with_another() {
        let encoders = Encoders::default();
        let mut media = ReplayedMedia::new(Arc::new(encoders.clone()));
        let fault = media.encode_items(&request(2, 0)).unwrap_err().to_string();
        assert!(fault.contains("no content of item picture of request 2"), "{fault}");
        media.take(&request(1, 5));
        let second = request(2, 0);
        media.take(&second);
        media.mark_used(&second);
        media.encode_items(&second).unwrap();
        media.encode_items(&second).unwrap();
        assert_eq!(encoders.stored(), [("picture".into(), 5)]);
        media.drop_unused();
        assert_eq!(encoders.stored().len(), 1);
        media.in_use.clear();
        media.drop_unused();
        assert_eq!(encoders.stored(), []);
    }
}
