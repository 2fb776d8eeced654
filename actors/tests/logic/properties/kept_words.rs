//! The block directory in memory that outlives its process, whose last stores may be cut off.

use playhouse_actors::logic::{
    kv_cache::{
        BlockDirectory, DirectoryUpdate, KeptBlocks, KeptLayout, KeptWriter, KvCacheConfig, Store,
    },
    request::ids::RequestId,
};

const FINGERPRINT: [u8; 32] = [7; 32];

pub(crate) struct KeptWords {
    layout: KeptLayout,
    writer: KeptWriter,
    words: Vec<u64>,
    /// The stores of the last update, and the words before it.
    last: Vec<Store>,
    before: Vec<u64>,
}

impl KeptWords {
    pub(crate) fn new(config: &KvCacheConfig) -> Self {
        let layout = KeptLayout::new(config);
        let (writer, stores) = KeptWriter::begin(layout, &FINGERPRINT);
        let words = vec![0; layout.num_words()];
        let mut kept = Self { layout, writer, before: words.clone(), words, last: Vec::new() };
        kept.store(stores);
        kept.settle();
        kept
    }

    fn store(&mut self, stores: Vec<Store>) {
        self.before.clone_from(&self.words);
        for store in &stores {
            self.words[store.place] = store.value;
        }
        self.last = stores;
    }

    pub(crate) fn update(&mut self, updates: &[DirectoryUpdate]) {
        let mut stores = Vec::new();
        updates.iter().for_each(|update| self.writer.write(update, &mut stores));
        self.store(stores);
    }

    pub(crate) fn forget(&mut self, requests: &[RequestId]) {
        let gone = |&request: &RequestId| DirectoryUpdate::TailGone { request };
        let updates: Vec<_> = requests.iter().map(gone).collect();
        self.update(&updates);
    }

    /// Records that all stores so far are made.
    pub(crate) fn settle(&mut self) {
        self.last.clear();
        self.before.clone_from(&self.words);
    }

    /// Undoes the last stores of the last update.
    pub(crate) fn cut(&mut self, cut: u64) {
        let kept = match cut {
            u64::MAX => self.last.len(),
            cut => (cut % (self.last.len() as u64 + 1)) as usize,
        };
        self.words.clone_from(&self.before);
        for store in &self.last[..kept] {
            self.words[store.place] = store.value;
        }
    }

    pub(crate) fn read(&self) -> KeptBlocks {
        KeptBlocks::read(self.layout, &FINGERPRINT, &self.words).unwrap()
    }

    /// Begins as the next process does.
    pub(crate) fn adopt(&mut self) -> BlockDirectory {
        let blocks = self.read();
        let (writer, stores) = KeptWriter::adopt(self.layout, &blocks);
        self.writer = writer;
        self.store(stores);
        // A step that finishes later is not simulated.
        let proven = self.writer.proven();
        self.store(proven.into_iter().collect());
        self.settle();
        BlockDirectory::adopted(blocks)
    }

    /// Checks that the words say what the directory says.
    pub(crate) fn check(&self, directory: &BlockDirectory) {
        let blocks = self.read();
        assert!(blocks.sealed.into_iter().eq(directory.sealed()));
        assert!(blocks.tails.into_iter().eq(directory.tails()));
    }
}
