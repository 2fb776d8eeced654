//! Every piece runs once, whatever else happens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Returns how often each of `pieces` ran.
fn counts(pool: &ThreadPool, pieces: usize, deal: Deal) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
    pool.run(pieces, deal, &|piece| {
        counts[piece].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

const DEALS: [Deal; 2] = [Deal::InTurn, Deal::Stretches];

#[test]
fn each_piece_runs_once() {
    for (threads, pin) in [(1, false), (2, true), (2, false), (5, false)] {
        let pool = ThreadPool::new(threads, pin).unwrap();
        assert_eq!(pool.num_threads(), threads);
        for (pieces, deal) in
            (1..40).chain([1000, 2, 1000]).flat_map(|n| DEALS.map(|deal| (n, deal)))
        {
            let counts = counts(&pool, pieces, deal);
            assert_eq!(counts, vec![1; pieces], "{pieces} on {threads}, {deal:?}");
        }
    }
}

/// Pieces that wait for each other end only if each has a thread.
#[test]
fn sleeping_helpers_wake() {
    let pool = ThreadPool::new(3, false).unwrap();
    for round in 0..30 {
        for together in [3, 2] {
            let barrier = Barrier::new(together);
            pool.run(together, DEALS[round as usize % 2], &|_| {
                barrier.wait();
            });
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(round * 10) {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn many_callers_share_a_pool() {
    let pool = ThreadPool::new(3, false).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for pieces in 1..300 {
                    assert_eq!(counts(&pool, pieces, DEALS[pieces % 2]), vec![1; pieces]);
                }
            });
        }
    });
}

/// The threads begin with two pieces that wait for each other.
#[test]
fn each_thread_begins_with_a_stretch_of_its_own() {
    let pool = ThreadPool::new(2, false).unwrap();
    let barrier = Barrier::new(2);
    let order = std::sync::Mutex::new(Vec::new());
    pool.run(100, Deal::Stretches, &|piece| {
        if piece == 0 || piece == 50 {
            barrier.wait();
        }
        order.lock().unwrap().push((thread::current().id(), piece));
    });
    let order = order.into_inner().unwrap();
    let caller = thread::current().id();
    let of = |is_caller: bool| {
        order.iter().filter(move |(id, _)| (*id == caller) == is_caller).map(|(_, piece)| *piece)
    };
    assert_eq!((of(true).next(), of(false).next()), (Some(0), Some(50)));
    // Each thread's pieces are in order, except where it has finished its stretch and continues in
    // the other's.
    for is_caller in [true, false] {
        let pieces: Vec<usize> = of(is_caller).collect();
        assert!(pieces.windows(2).filter(|pair| pair[0] > pair[1]).count() <= 1, "{pieces:?}");
    }
}

#[test]
fn an_operation_within_a_piece_runs_there() {
    let pool = ThreadPool::new(2, false).unwrap();
    let total = AtomicUsize::new(0);
    pool.install(|| {
        for_each_piece(16, PARALLEL_WORK_MIN, |_| {
            let here = thread::current().id();
            for_each_piece(16, PARALLEL_WORK_MIN, |_| {
                assert_eq!(thread::current().id(), here);
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
    });
    assert_eq!(total.into_inner(), 256);
}

#[test]
fn a_panic_of_a_piece_reaches_the_caller_and_the_pool_lives_on() {
    let pool = ThreadPool::new(2, false).unwrap();
    for (unlucky, deal) in [0, 1, 63].into_iter().flat_map(|piece| DEALS.map(|deal| (piece, deal)))
    {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.run(64, deal, &|piece| assert_ne!(piece, unlucky, "on purpose"));
        }));
        let payload = panicked.unwrap_err();
        let message = payload.downcast_ref::<String>().unwrap();
        assert!(message.contains("on purpose"), "{message}");
        assert_eq!(counts(&pool, 64, deal), vec![1; 64]);
    }
}

#[test]
fn rows_are_cut_without_a_rest() {
    for (rows, width) in [(1, 7), (3, 100_000), (700, 257), (1 << 17, 1)] {
        let mut data = vec![0.0; rows * width];
        for_each_rows(&mut data, width, |first, piece| {
            for (r, row) in piece.chunks_mut(width).enumerate() {
                row.iter_mut().for_each(|x| *x += (first + r) as f32);
            }
        });
        for (r, row) in data.chunks(width).enumerate() {
            assert!(row.iter().all(|x| *x == r as f32), "row {r} of {rows}");
        }
    }
}
