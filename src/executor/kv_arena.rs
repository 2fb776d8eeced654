//! The KV cache, and who may touch it.
//!
//! A thread that hangs is abandoned, and may wake up when others have long used the cache again. So
//! each executor holds a lease, and the cache knows the only one that is good: reclaiming the cache
//! voids all leases so far. A lease is checked under the cache's lock, so no thread is in between.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use playhouse_actors::ports::{ExecuteError, KvContent};
use playhouse_kernels::{KernelError, KvCache};

/// Makes an empty cache, of the same shape each time.
type Allocate = dyn Fn() -> Result<KvCache, KernelError> + Send + Sync;

/// The cache that leases are given on. It is another one once a reclaimed one did not come back.
pub(super) struct KvArena {
    current: Mutex<Arc<Arena>>,
    allocate: Box<Allocate>,
}

/// One cache in memory; freed with the last lease on it.
struct Arena {
    /// The lease that may use it. Written by [`KvArena::reclaim`] alone.
    good: AtomicU64,
    kv_cache: Mutex<KvCache>,
}

/// The right to use a KV cache, until it is reclaimed.
pub(super) struct KvLease {
    number: u64,
    arena: Arc<Arena>,
}

impl KvArena {
    /// An arena over a first cache of `allocate`.
    ///
    /// # Errors
    /// What `allocate` says.
    pub(super) fn new(
        allocate: impl Fn() -> Result<KvCache, KernelError> + Send + Sync + 'static,
    ) -> Result<Self, KernelError> {
        let first = Arena { good: AtomicU64::new(0), kv_cache: Mutex::new(allocate()?) };
        Ok(Self { current: Mutex::new(Arc::new(first)), allocate: Box::new(allocate) })
    }

    /// A lease that is good until the next [`KvArena::reclaim`].
    pub(super) fn lease(&self) -> KvLease {
        let current = self.current.lock();
        KvLease { number: current.good.load(Ordering::Acquire), arena: Arc::clone(&current) }
    }

    /// Voids all leases given so far, whatever it returns. Does not wait: a cache that is in use
    /// right now is left to its user, and freed when that lets go; new leases are on another.
    ///
    /// # Errors
    /// [`ExecuteError::OutOfMemory`] when there is no memory for another: the cache is to be
    /// reclaimed again before it is leased.
    pub(super) fn reclaim(&self) -> Result<KvContent, ExecuteError> {
        let mut current = self.current.lock();
        let number = current.good.load(Ordering::Acquire) + 1;
        // Before the lock is tried: who takes it after us sees this, who took it before us is seen.
        current.good.store(number, Ordering::Release);
        if current.kv_cache.try_lock().is_some() {
            return Ok(KvContent::Kept);
        }
        let kv_cache = Mutex::new((self.allocate)().map_err(refused)?);
        *current = Arc::new(Arena { good: AtomicU64::new(number), kv_cache });
        Ok(KvContent::Lost)
    }
}

impl KvLease {
    /// The cache, to be used until the guard is dropped.
    ///
    /// # Errors
    /// As [`KvLease::check`].
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, KvCache>, ExecuteError> {
        let kv_cache = self.arena.kv_cache.lock();
        self.check()?;
        Ok(kv_cache)
    }

    /// Whether the lease is still good; without the lock, the answer may be out of date at once.
    ///
    /// # Errors
    /// [`ExecuteError::Device`] when the cache was reclaimed.
    pub(super) fn check(&self) -> Result<(), ExecuteError> {
        let (mine, good) = (self.number, self.arena.good.load(Ordering::Acquire));
        if mine == good {
            return Ok(());
        }
        let message = format!("superseded: lease {mine} on the KV cache gave way to lease {good}");
        Err(ExecuteError::Device(message))
    }
}

fn refused(error: KernelError) -> ExecuteError {
    match error {
        KernelError::OutOfMemory { .. } => ExecuteError::OutOfMemory(error.to_string()),
        _ => ExecuteError::Device(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use playhouse_kernels::{KvCacheShape, WeightDtype};

    use super::*;

    fn allocate() -> Result<KvCache, KernelError> {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 2,
            block_size: 4,
            num_kv_heads: 1,
            head_dim: 2,
        };
        KvCache::new(shape, WeightDtype::F32, &Device::flex())
    }

    fn is_superseded(lease: &KvLease) -> bool {
        let refused = lease.lock().map(drop).unwrap_err();
        matches!(&refused, ExecuteError::Device(why) if why.starts_with("superseded"))
    }

    #[test]
    fn a_cache_at_rest_is_kept_and_the_old_lease_is_void() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease();
        drop(old.lock().unwrap());
        assert_eq!(arena.reclaim(), Ok(KvContent::Kept));
        let new = arena.lease();
        assert!(is_superseded(&old));
        assert!(new.lock().is_ok());
        assert!(Arc::ptr_eq(&old.arena, &new.arena), "it is the same cache");
    }

    #[test]
    fn a_cache_in_use_is_left_to_its_user_and_freed_with_it() {
        let arena = KvArena::new(allocate).unwrap();
        let old = arena.lease();
        let (freed, in_use) = (Arc::downgrade(&old.arena), old.lock().unwrap());
        assert_eq!(arena.reclaim(), Ok(KvContent::Lost));
        let new = arena.lease();
        drop(new.lock().unwrap());
        drop(in_use);
        assert!(is_superseded(&old));
        assert_eq!(arena.reclaim(), Ok(KvContent::Kept), "the new one is at rest");
        assert!(is_superseded(&new));
        drop(old);
        assert!(freed.upgrade().is_none());
    }

    #[test]
    fn without_memory_for_another_the_old_lease_is_void_all_the_same() {
        let allocated = AtomicU64::new(0);
        let once = move || match allocated.fetch_add(1, Ordering::Relaxed) {
            0 => allocate(),
            _ => Err(KernelError::OutOfMemory { what: "KV cache", bytes: 1 << 40 }),
        };
        let arena = KvArena::new(once).unwrap();
        let old = arena.lease();
        let in_use = old.lock().unwrap();
        let refused = arena.reclaim().unwrap_err();
        assert!(matches!(refused, ExecuteError::OutOfMemory(_)), "{refused}");
        drop(in_use);
        assert!(is_superseded(&old));
        assert_eq!(arena.reclaim(), Ok(KvContent::Kept), "it came back");
        assert!(arena.lease().lock().is_ok());
    }
}
