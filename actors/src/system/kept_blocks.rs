//! The block directory of an engine process, in memory that outlives the process.

use std::sync::Arc;

use crate::{
    logic::{
        kv_cache::{
            Adoption, BlockDirectory, DirectoryUpdate, KeptBlocks, KeptLayout, KeptWriter, Store,
            Unusable,
        },
        request::ids::RequestId,
    },
    ports::KeptMemory,
};

/// The writer of the directory, and its memory.
pub(super) struct KeptDirectory {
    writer: KeptWriter,
    memory: Arc<dyn KeptMemory>,
    /// The stores of an update, kept for their memory.
    stores: Vec<Store>,
}

impl KeptDirectory {
    /// Adopts the content of `memory`, or begins an empty one. Returns the writer and the content,
    /// or `None` if the memory cannot be cleared.
    pub(super) fn open(
        layout: KeptLayout,
        memory: Arc<dyn KeptMemory>,
        adoption: Adoption,
    ) -> Option<(Self, BlockDirectory)> {
        let found = KeptBlocks::read(layout, &memory.fingerprint(), &memory.words());
        match found {
            Ok(blocks) => Some(Self::adopt(layout, memory, blocks, adoption)),
            Err(why) => {
                if why != Unusable::Fresh {
                    tracing::warn!(%why, "the KV cache of the process before is not adopted");
                }
                Some((Self::begin(layout, memory)?, BlockDirectory::default()))
            }
        }
    }

    fn adopt(
        layout: KeptLayout,
        memory: Arc<dyn KeptMemory>,
        mut blocks: KeptBlocks,
        adoption: Adoption,
    ) -> (Self, BlockDirectory) {
        let (writer, stores) = KeptWriter::adopt(layout, &blocks);
        let mut kept = Self { writer, memory, stores };
        kept.flush();
        if adoption != Adoption::All {
            for request in std::mem::take(&mut blocks.tails).into_keys() {
                kept.tail_gone(request);
            }
        }
        let (num_blocks, num_tails) = (blocks.sealed.len(), blocks.tails.len());
        tracing::info!(num_blocks, num_tails, "the KV cache of the process before is adopted");
        (kept, BlockDirectory::adopted(blocks))
    }

    fn begin(layout: KeptLayout, memory: Arc<dyn KeptMemory>) -> Option<Self> {
        if let Err(error) = memory.clear() {
            tracing::warn!(%error, "the KV cache ends with its process");
            return None;
        }
        let (writer, stores) = KeptWriter::begin(layout, &memory.fingerprint());
        let mut kept = Self { writer, memory, stores };
        kept.flush();
        Some(kept)
    }

    /// Writes an update.
    pub(super) fn write(&mut self, update: &DirectoryUpdate) {
        self.writer.write(update, &mut self.stores);
        self.flush();
    }

    /// Forgets the tail of a request.
    pub(super) fn tail_gone(&mut self, request: RequestId) {
        self.write(&DirectoryUpdate::TailGone { request });
    }

    /// Records that a step has finished on the content.
    pub(super) fn proven(&mut self) {
        self.stores.extend(self.writer.proven());
        self.flush();
    }

    /// Forgets the directory. The content is not to be adopted.
    pub(super) fn end(self) {
        let Store { place, value } = KeptWriter::end();
        self.memory.store(place, value);
    }

    /// Stores in order, because each beginning of the stores is a true directory.
    fn flush(&mut self) {
        for Store { place, value } in self.stores.drain(..) {
            self.memory.store(place, value);
        }
    }
}

impl std::fmt::Debug for KeptDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptDirectory").field("memory", &self.memory).finish_non_exhaustive()
    }
}
