//! Tests of leases that wait, and of leases whose owners leave.

use super::*;

const MIB: usize = 1 << 20;

fn budget() -> Arc<MemoryBudget> {
    MemoryBudget::new(16 * MIB, "m", "0")
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_served_when_others_end_and_refused_otherwise() {
    let budget = budget();
    let holder = budget.lease();
    holder.grow(12 * MIB).await.unwrap();
    let second = budget.lease();
    let leave = async {
        tokio::time::sleep(PATIENCE / 2).await;
        drop(holder);
    };
    let (grown, ()) = tokio::join!(second.grow(12 * MIB), leave);
    assert_eq!(grown, Ok(()));
    let third = budget.lease();
    let before = Instant::now();
    let refused = third.grow(MIB).await.unwrap_err();
    assert_eq!(before.elapsed(), PATIENCE);
    let (in_use, limit, retry_after) = (12 * MIB, 16 * MIB, RETRY_AFTER);
    assert_eq!(refused, MemoryError::Short { wanted: MIB, in_use, limit, retry_after });
    let limit = 12 * MIB;
    let refused = third.grow(13 * MIB).await.unwrap_err();
    assert_eq!(refused, MemoryError::TooLarge { wanted: 13 * MIB, limit });
    assert_eq!(budget.in_use(), 12 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_wish_whose_owner_leaves_delays_no_other() {
    let budget = budget();
    let [holder, leaving, waiting] = [0; 3].map(|_| budget.lease());
    holder.grow(8 * MIB).await.unwrap();
    let soon = Instant::now() + PATIENCE / 4;
    assert!(timeout_at(soon, leaving.grow(10 * MIB)).await.is_err());
    waiting.grow(4 * MIB).await.unwrap();
    drop(holder);
    assert_eq!((leaving.bytes(), budget.in_use()), (0, 4 * MIB));
    assert!(budget.inner.lock().waiting.is_empty());
}

#[tokio::test]
async fn a_lease_is_set_from_another_first() {
    let budget = budget();
    let [request, stored] = [0; 2].map(|_| budget.lease());
    request.grow(MIB).await.unwrap();
    stored.set(3 * MIB, Some(&request));
    assert_eq!((request.bytes(), stored.bytes(), budget.in_use()), (0, 3 * MIB, 3 * MIB));
    stored.set(MIB, None);
    stored.shrink(MIB / 2);
    assert_eq!(budget.in_use(), MIB / 2);
    drop((request, stored));
    assert_eq!(budget.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_ends_for_another() {
    let budget = budget();
    let [still, other] = [0; 2].map(|_| budget.lease());
    let arriving = still.body();
    still.grow(10 * MIB).await.unwrap();
    arriving.arrived(10 * MIB);
    let ends = async {
        let error = arriving.must_end().await;
        still.shrink(usize::MAX);
        error
    };
    let (grown, error) = tokio::join!(other.grow(10 * MIB), ends);
    assert_eq!(grown, Ok(()));
    assert!(matches!(error, MemoryError::Short { .. }), "{error}");
    drop(arriving);
    assert!(budget.inner.lock().bodies.is_empty());
}
