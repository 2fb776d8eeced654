//! The KV cache, and the leases of its users.
//!
//! A thread whose worker died may still compute a step. A thread that hangs may wake up long after
//! others use the cache again. So each executor holds a lease for its epoch, and the cache knows
//! the first epoch whose leases are good. A lease for a later epoch voids the earlier ones, and
//! reclaiming the cache voids all leases so far. A lease is checked under the cache's lock, so no
//! thread can use the cache between the check and the use.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use burn::tensor::Device;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use playhouse_actors::{
    logic::request::ids::Epoch,
    ports::{ExecuteError, KvContent},
};
use playhouse_kernels::{
    DeviceStream, KernelError, KvCache, KvCacheShape, KvDtype, SharedArena, StepGraphs, trim_memory,
};

use super::execute_error;

/// Allocates an empty cache, of the same shape each time.
type Allocate = dyn Fn() -> Result<KvMemory, KernelError> + Send + Sync;

/// A cache, and the steps that were recorded over it.
pub(super) struct KvMemory {
    pub(super) cache: KvCache,
    pub(super) graphs: StepGraphs,
    device: Device,
    queue: DeviceStream,
}

/// The properties of a cache other than its shape.
#[derive(Debug, Clone)]
pub(crate) struct KvSettings {
    /// The format of keys and values.
    pub(crate) dtype: KvDtype,
    /// Its device.
    pub(crate) device: Device,
    /// Bytes that recordings of steps over it may hold. With 0, no step is recorded.
    pub(crate) step_graph_bytes: u64,
}

impl KvMemory {
    /// Returns an empty cache whose memory belongs to this queue.
    ///
    /// # Errors
    /// As [`KvCache::new`].
    pub(super) fn new(
        shape: KvCacheShape,
        settings: &KvSettings,
        queue: DeviceStream,
    ) -> Result<Self, KernelError> {
        let KvSettings { dtype, device, step_graph_bytes } = settings;
        let cache = queue.run(|| KvCache::new(shape, *dtype, device))?;
        let graphs = match *step_graph_bytes {
            0 => StepGraphs::default(),
            bytes => StepGraphs::new(device, bytes),
        };
        Ok(Self { cache, graphs, device: device.clone(), queue })
    }

    /// Returns a cache of the CPU in shared memory, with the content that it has there.
    ///
    /// # Errors
    /// As [`KvCache::shared`].
    pub(super) fn shared(
        shape: KvCacheShape,
        settings: &KvSettings,
        queue: DeviceStream,
        memory: SharedArena,
    ) -> Result<Self, KernelError> {
        let KvSettings { dtype, device, .. } = settings;
        let cache = KvCache::shared(shape, *dtype, device, memory)?;
        Ok(Self { cache, graphs: StepGraphs::default(), device: device.clone(), queue })
    }

    /// Frees the cache, and returns its memory to the device.
    fn give_back(self) {
        let Self { cache, graphs, device, queue } = self;
        drop((graphs, cache));
        trim(&device, queue);
    }

    /// Frees the memory of recorded steps, and returns it to the device. The cache's content is
    /// kept.
    pub(super) fn forget_recordings(&mut self) {
        self.graphs.clear();
        trim(&self.device, self.queue);
    }
}

fn trim(device: &Device, queue: DeviceStream) {
    if let Err(error) = queue.run(|| trim_memory(device)) {
        tracing::warn!(%error, "the device did not release memory");
    }
}

/// The current cache, on which leases are given. A new cache replaces one that was in use when it
/// was reclaimed.
pub(super) struct KvArena {
    current: Mutex<Arc<Arena>>,
    allocate: Arc<Allocate>,
}

/// One cache in memory, freed with the last lease on it.
struct Arena {
    /// The first epoch whose leases may use it.
    good: AtomicU64,
    /// Whether leases on it are given. Not while the loss of the previous cache is unconfirmed.
    is_open: AtomicBool,
    /// `None` while its memory is released. The next user allocates it.
    kv_cache: Mutex<Option<KvMemory>>,
    allocate: Arc<Allocate>,
}

/// The right to use a KV cache until it is reclaimed.
pub(super) struct KvLease {
    epoch: u64,
    arena: Arc<Arena>,
}

impl KvArena {
    /// Returns an arena over a first cache of `allocate`.
    ///
    /// # Errors
    /// The error of `allocate`.
    pub(super) fn new(
        allocate: impl Fn() -> Result<KvMemory, KernelError> + Send + Sync + 'static,
    ) -> Result<Self, KernelError> {
        let allocate: Arc<Allocate> = Arc::new(allocate);
        let kv_cache = Mutex::new(Some(allocate()?));
        let first = Arena {
            good: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
            kv_cache,
            allocate: Arc::clone(&allocate),
        };
        Ok(Self { current: Mutex::new(Arc::new(first)), allocate })
    }

    /// Puts the cache into other memory, which `open` maps with its content, also after a release.
    /// A cache that replaces one in use is allocated as before. No lease was given yet.
    ///
    /// # Errors
    /// The error of `open`. The cache is as before.
    pub(super) fn move_to(
        &self,
        open: impl Fn() -> Result<KvMemory, KernelError> + Send + Sync + 'static,
    ) -> Result<(), KernelError> {
        let allocate: Arc<Allocate> = Arc::new(open);
        let kv_cache = Mutex::new(Some(allocate()?));
        let mut current = self.current.lock();
        let good = AtomicU64::new(current.good.load(Ordering::Acquire));
        let is_open = AtomicBool::new(true);
        *current = Arc::new(Arena { good, is_open, kv_cache, allocate });
        Ok(())
    }

    /// Returns a lease. It is good until a lease for a later epoch is given, or
    /// [`KvArena::reclaim`] is called.
    ///
    /// # Errors
    /// As [`KvLease::check`], when the epoch is past already. [`ExecuteError::Device`] also after
    /// an unconfirmed loss.
    pub(super) fn lease(&self, epoch: Epoch) -> Result<KvLease, ExecuteError> {
        let current = self.current.lock();
        if !current.is_open.load(Ordering::Acquire) {
            let message = "the loss of the KV cache's content was not confirmed".to_owned();
            return Err(ExecuteError::Device(message));
        }
        current.good.fetch_max(epoch.0, Ordering::AcqRel);
        let lease = KvLease { epoch: epoch.0, arena: Arc::clone(&current) };
        lease.check()?;
        Ok(lease)
    }

    /// Voids all leases of this epoch and of earlier ones, also those not yet given.
    pub(super) fn void(&self, epoch: Epoch) {
        self.current.lock().good.fetch_max(epoch.next().0, Ordering::AcqRel);
    }

    /// Voids leases as [`KvArena::void`] does, whatever the result is. A cache that is in use stays
    /// with its user, and is freed when the user releases it. New leases are then on another cache,
    /// which is allocated without blocking other threads.
    ///
    /// A GPU may still have work on a cache that is kept. That work was queued before any work of a
    /// new lease, on the same queue ([`ComputeThreads`](super::ComputeThreads::unoccupied)).
    ///
    /// No lease on another cache is given before [`KvArena::forgotten`] confirms the loss.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] when there is no memory for another cache. Then the cache must
    /// be reclaimed again before it is leased.
    pub(super) fn reclaim(&self, epoch: Epoch) -> Result<KvContent, ExecuteError> {
        let mut spare: Option<KvMemory> = None;
        loop {
            let mut current = self.current.lock();
            // This comes before `try_lock`. A user that locks the cache later sees the new epoch. A
            // user that locked it earlier makes `try_lock` fail.
            let before = current.good.fetch_max(epoch.next().0, Ordering::AcqRel);
            let content = match current.is_open.load(Ordering::Acquire) {
                // An unconfirmed loss is reported again.
                false => Some(KvContent::Lost),
                true => current.kv_cache.try_lock().is_some().then_some(KvContent::Kept),
            };
            if let Some(content) = content {
                drop(current);
                if let Some(unused) = spare {
                    unused.give_back();
                }
                return Ok(content);
            }
            let Some(kv_cache) = spare.take() else {
                drop(current);
                spare = Some((self.allocate)().map_err(execute_error)?);
                continue;
            };
            *current = Arc::new(Arena {
                good: AtomicU64::new(before.max(epoch.next().0)),
                is_open: AtomicBool::new(false),
                kv_cache: Mutex::new(Some(kv_cache)),
                allocate: Arc::clone(&self.allocate),
            });
            return Ok(KvContent::Lost);
        }
    }

    /// Confirms that the lost content is forgotten. `last` is the last epoch that may rely on it,
    /// and gets no lease on the new cache. Without a loss, nothing happens.
    pub(super) fn forgotten(&self, last: Epoch) {
        let current = self.current.lock();
        if !current.is_open.load(Ordering::Acquire) {
            current.good.fetch_max(last.next().0, Ordering::AcqRel);
            current.is_open.store(true, Ordering::Release);
        }
    }

    /// Frees the cache with its content until it is used or restored. Leases stay good. Waits for a
    /// current user.
    pub(super) fn release(&self) {
        let current = Arc::clone(&self.current.lock());
        let freed = current.kv_cache.lock().take();
        if let Some(freed) = freed {
            freed.give_back();
        }
    }

    /// Returns the counts of recorded and replayed steps over the current cache.
    #[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
    pub(super) fn step_graph_stats(&self) -> playhouse_kernels::StepGraphStats {
        let current = Arc::clone(&self.current.lock());
        let memory = current.kv_cache.lock();
        memory.as_ref().map(|memory| memory.graphs.stats()).unwrap_or_default()
    }

    /// Allocates a cache that was freed.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] when there is no memory for it.
    pub(super) fn restore(&self) -> Result<(), ExecuteError> {
        let current = Arc::clone(&self.current.lock());
        current.filled(current.kv_cache.lock()).map(drop)
    }
}

impl Arena {
    /// Returns the cache in the slot. Allocates it if it was freed.
    fn filled<'a>(
        &self,
        mut slot: MutexGuard<'a, Option<KvMemory>>,
    ) -> Result<MappedMutexGuard<'a, KvMemory>, ExecuteError> {
        let kv_cache = match slot.take() {
            Some(kv_cache) => kv_cache,
            None => (self.allocate)().map_err(execute_error)?,
        };
        Ok(MutexGuard::map(slot, |slot| slot.insert(kv_cache)))
    }
}

impl KvLease {
    /// Returns the cache, which may be used until the guard is dropped.
    ///
    /// # Errors
    /// As [`KvLease::check`]; [`ExecuteError::OutOfMemory`] when the cache was freed and cannot be
    /// allocated again.
    pub(super) fn lock(&self) -> Result<MappedMutexGuard<'_, KvMemory>, ExecuteError> {
        let slot = self.arena.kv_cache.lock();
        self.check()?;
        self.arena.filled(slot)
    }

    /// Checks that the lease is good. Without the lock, the result may be out of date at once.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] when a later epoch has the cache, or it was reclaimed.
    pub(super) fn check(&self) -> Result<(), ExecuteError> {
        let (mine, good) = (self.epoch, self.arena.good.load(Ordering::Acquire));
        if mine >= good {
            return Ok(());
        }
        let message = format!(
            "superseded: epoch {mine}'s lease on the KV cache is void, {good} is the first good"
        );
        Err(ExecuteError::Device(message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn allocate() -> Result<KvMemory, KernelError> {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 2,
            block_size: 4,
            num_kv_heads: 1,
            head_dim: 2,
            value_head_dim: 2,
            values_in_keys: false,
            state_len: 0,
        };
        let (dtype, device) = (KvDtype::F32, Device::flex());
        let settings = KvSettings { dtype, device, step_graph_bytes: 0 };
        KvMemory::new(shape, &settings, DeviceStream::new())
    }

    fn is_superseded(lease: &KvLease) -> bool {
        let refused = lease.lock().map(drop).unwrap_err();
        matches!(&refused, ExecuteError::Device(why) if why.starts_with("superseded"))
    }

    #[test]
    fn a_cache_at_rest_is_kept_and_the_old_lease_is_void() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease(Epoch(1)).unwrap();
        drop(old.lock().unwrap());
        assert_eq!(arena.reclaim(Epoch(1)), Ok(KvContent::Kept));
        assert!(arena.lease(Epoch(1)).is_err(), "a zombie gets no new one");
        let new = arena.lease(Epoch(2)).unwrap();
        assert!(is_superseded(&old));
        assert!(new.lock().is_ok());
        assert!(Arc::ptr_eq(&old.arena, &new.arena), "it is the same cache");
    }

    #[test]
    fn an_abandoned_thread_that_had_no_lease_yet_gets_none() {
        let arena = KvArena::new(allocate).unwrap();
        drop(arena.lease(Epoch(4)).unwrap());
        assert_eq!(arena.reclaim(Epoch(6)), Ok(KvContent::Kept));
        assert!(arena.lease(Epoch(6)).is_err());
        assert!(arena.lease(Epoch(7)).is_ok());
    }

    #[test]
    fn a_freed_cache_is_allocated_at_its_next_use() {
        let arena = KvArena::new(allocate).unwrap();
        let lease = arena.lease(Epoch(1)).unwrap();
        let is_allocated = || arena.current.lock().kv_cache.lock().is_some();
        arena.release();
        assert!(!is_allocated());
        assert!(lease.lock().is_ok());
        assert!(is_allocated());
        arena.release();
        assert_eq!(arena.restore(), Ok(()));
        assert!(is_allocated());
    }

    #[test]
    fn a_later_epoch_voids_the_earlier() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease(Epoch(4)).unwrap();
        let new = arena.lease(Epoch(5)).unwrap();
        assert!(is_superseded(&old));
        assert!(arena.lease(Epoch(4)).is_err());
        assert!(new.lock().is_ok());
    }

    #[test]
    fn a_cache_in_use_is_left_to_its_user_and_freed_with_it() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease(Epoch(1)).unwrap();
        let (freed, in_use) = (Arc::downgrade(&old.arena), old.lock().unwrap());
        assert_eq!(arena.reclaim(Epoch(1)), Ok(KvContent::Lost));
        arena.forgotten(Epoch(0));
        let new = arena.lease(Epoch(2)).unwrap();
        drop(new.lock().unwrap());
        drop(in_use);
        assert!(is_superseded(&old));
        assert_eq!(arena.reclaim(Epoch(2)), Ok(KvContent::Kept), "the new one is at rest");
        assert!(is_superseded(&new));
        drop(old);
        assert!(freed.upgrade().is_none());
    }

    #[test]
    fn an_epoch_that_began_on_lost_content_gets_no_lease_on_another_cache() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease(Epoch(2)).unwrap();
        let in_use = old.lock().unwrap();
        assert_eq!(arena.reclaim(Epoch(2)), Ok(KvContent::Lost));
        // An epoch that began while the other cache was allocated.
        arena.forgotten(Epoch(3));
        assert!(arena.lease(Epoch(3)).is_err(), "its blocks are not in this cache");
        assert!(arena.lease(Epoch(4)).unwrap().lock().is_ok());
        drop(in_use);
    }

    #[test]
    fn a_new_cache_is_closed_until_its_loss_is_confirmed() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease(Epoch(1)).unwrap();
        let in_use = old.lock().unwrap();
        assert_eq!(arena.reclaim(Epoch(1)), Ok(KvContent::Lost));
        let refused = arena.lease(Epoch(9)).map(drop).unwrap_err();
        assert!(refused.to_string().contains("not confirmed"), "{refused}");
        assert_eq!(arena.reclaim(Epoch(4)), Ok(KvContent::Lost), "the loss is not confirmed yet");
        arena.forgotten(Epoch(2));
        assert!(arena.lease(Epoch(4)).is_err());
        assert!(arena.lease(Epoch(5)).unwrap().lock().is_ok());
        arena.forgotten(Epoch(8));
        assert!(arena.lease(Epoch(5)).is_ok(), "there was no loss to confirm");
        drop(in_use);
    }

    #[test]
    fn a_cache_that_is_released_in_time_is_kept() {
        let (let_go, told) = sync_channel(1);
        let (gone, has_gone) = sync_channel(1);
        let (is_first, has_gone) = (AtomicBool::new(true), Mutex::new(has_gone));
        let arena = KvArena::new(move || {
            if !is_first.swap(false, Ordering::Relaxed) {
                let_go.send(()).unwrap();
                has_gone.lock().recv().unwrap();
            }
            allocate()
        });
        let arena = arena.unwrap();
        let old = &arena.lease(Epoch(1)).unwrap();
        let (began, has_begun) = sync_channel(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let in_use = old.lock().unwrap();
                began.send(()).unwrap();
                told.recv().unwrap();
                drop(in_use);
                gone.send(()).unwrap();
            });
            has_begun.recv().unwrap();
            assert_eq!(arena.reclaim(Epoch(1)), Ok(KvContent::Kept));
        });
        assert!(is_superseded(old));
    }

    #[test]
    fn without_memory_for_another_the_old_lease_is_void_all_the_same() {
        let allocated = AtomicU64::new(0);
        let once = move || match allocated.fetch_add(1, Ordering::Relaxed) {
            0 => allocate(),
            _ => Err(KernelError::OutOfMemory { what: "KV cache", bytes: 1 << 40 }),
        };
        let arena = KvArena::new(once).unwrap();
        let old = arena.lease(Epoch(1)).unwrap();
        let in_use = old.lock().unwrap();
        let refused = arena.reclaim(Epoch(1)).unwrap_err();
        assert!(matches!(refused, ExecuteError::OutOfMemory(_)), "{refused}");
        drop(in_use);
        assert!(is_superseded(&old));
        assert_eq!(arena.reclaim(Epoch(2)), Ok(KvContent::Kept), "it came back");
        assert!(arena.lease(Epoch(3)).unwrap().lock().is_ok());
    }
}
