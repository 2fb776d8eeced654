//! Tests of wishes that fit, wishes that wait, and bodies that have to end.

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;
const SECOND: Micros = 1_000_000;

fn waits(growth: Growth) -> Ticket {
    let Growth::Waits(ticket) = growth else { panic!("{growth:?}") };
    ticket
}

#[test]
fn wishes_that_do_not_fit_wait_and_the_oldest_is_granted_first() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [first, second, third] = [0; 3].map(|_| ledger.open());
    assert_eq!(ledger.grow(first, 10 * MIB), Growth::Taken);
    let third_ticket = waits(ledger.grow(third, 3 * MIB));
    let second_ticket = waits(ledger.grow(second, 8 * MIB));
    ledger.release(first, 6 * MIB);
    assert_eq!(ledger.granted(), [second_ticket]);
    assert_eq!(ledger.held(second), 8 * MIB);
    assert_eq!(ledger.in_use(), 12 * MIB);
    ledger.close(second);
    assert_eq!(ledger.granted(), [third_ticket]);
    assert_eq!((ledger.in_use(), ledger.num_waiting()), (7 * MIB, 0));
}

#[test]
fn a_wish_that_can_never_fit_is_rejected_at_once() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let lease = ledger.open();
    assert_eq!(ledger.grow(lease, 12 * MIB + 1), Growth::TooLarge(12 * MIB));
    assert_eq!(ledger.grow(lease, 12 * MIB), Growth::Taken);
    assert_eq!(ledger.grow(lease, 1), Growth::TooLarge(12 * MIB));
    assert_eq!(ledger.grow(lease, usize::MAX), Growth::TooLarge(12 * MIB));
    assert_eq!(ledger.in_use(), 12 * MIB);
}

#[test]
fn a_small_request_never_waits_for_a_large_one() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [large, waiting, small] = [0; 3].map(|_| ledger.open());
    assert_eq!(ledger.grow(large, 12 * MIB), Growth::Taken);
    waits(ledger.grow(waiting, MIB));
    assert_eq!(ledger.grow(small, SMALL_BYTES), Growth::Taken);
    let smaller = ledger.open();
    let mut num_taken = 0;
    while ledger.grow(smaller, 1024) == Growth::Taken && num_taken < 256 {
        num_taken += 1;
    }
    assert_eq!(num_taken, 256, "large requests leave a quarter of the limit free");
}

#[test]
fn the_number_of_waiting_wishes_is_limited() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let holder = ledger.open();
    assert_eq!(ledger.grow(holder, 12 * MIB), Growth::Taken);
    for _ in 0..WAITING_MAX {
        let lease = ledger.open();
        waits(ledger.grow(lease, MIB));
    }
    let late = ledger.open();
    assert_eq!(ledger.grow(late, MIB), Growth::Refused);
    assert_eq!(ledger.num_waiting(), WAITING_MAX);
    assert_eq!(ledger.grow(late, 1024), Growth::Taken, "it is small");
}

#[test]
fn the_number_of_waiting_small_wishes_is_limited() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let holder = ledger.open();
    assert!(ledger.add(holder, 16 * MIB));
    let large = ledger.open();
    waits(ledger.grow(large, MIB));
    for _ in 0..SMALL_WAITING_MAX {
        let lease = ledger.open();
        waits(ledger.grow(lease, 1024));
    }
    let late = ledger.open();
    assert_eq!(ledger.grow(late, 1024), Growth::Refused);
    waits(ledger.grow(late, MIB));
    assert_eq!(ledger.num_waiting(), SMALL_WAITING_MAX + 2);
}

/// A younger wish waits for an older one, so the end of a body would not help it.
#[test]
fn only_the_oldest_wish_and_the_oldest_small_one_end_bodies() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let stalled = [0; 2].map(|_| ledger.open());
    for lease in stalled {
        ledger.body_begins(lease, 0);
        assert_eq!(ledger.grow(lease, 6 * MIB), Growth::Taken);
    }
    let holder = ledger.open();
    assert!(ledger.add(holder, 4 * MIB));
    let mut wish = |bytes| {
        let lease = ledger.open();
        waits(ledger.grow(lease, bytes))
    };
    let [large, small] = [MIB, 1024].map(&mut wish);
    for late in [MIB, 1024].map(&mut wish) {
        assert_eq!(ledger.end_bodies(late, true, 9 * SECOND), []);
    }
    assert_eq!(ledger.end_bodies(small, true, 9 * SECOND), [stalled[1]]);
    assert_eq!(ledger.end_bodies(small, true, 9 * SECOND), [], "the body that ends is enough");
    assert_eq!(ledger.end_bodies(large, true, 9 * SECOND), [], "one is enough for both");
}

/// Whether a wish is small depends on the bytes that its lease holds now.
#[test]
fn a_small_wish_becomes_large_with_its_lease() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [holder, growing, small] = [0; 3].map(|_| ledger.open());
    assert!(ledger.add(holder, 14 * MIB));
    let first = waits(ledger.grow(growing, 1024));
    let second = waits(ledger.grow(small, 1024));
    assert!(ledger.add(growing, MIB));
    ledger.release(holder, MIB + 1024);
    assert_eq!(ledger.granted(), [second], "the first is large now");
    ledger.release(growing, MIB);
    assert_eq!(ledger.granted(), [first]);
}

#[test]
fn outputs_take_the_whole_limit_and_then_only_small_shares() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [large, small] = [0; 2].map(|_| ledger.open());
    assert_eq!(ledger.grow(large, 12 * MIB), Growth::Taken);
    assert!(ledger.add(large, 4 * MIB));
    assert!(!ledger.add(large, 1), "it holds more than half of the limit");
    assert!(ledger.add(small, 100), "it holds little");
    assert!(ledger.add(small, MIB));
    assert_eq!(ledger.in_use(), 17 * MIB + 100);
}

#[test]
fn a_stalled_body_ends_when_another_needs_its_memory() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [stalled, moving, small, complete] = [0; 4].map(|_| ledger.open());
    for lease in [stalled, moving, small] {
        ledger.body_begins(lease, 0);
    }
    for (lease, bytes) in [(stalled, 4 * MIB), (moving, 6 * MIB), (small, MIB), (complete, MIB)] {
        assert_eq!(ledger.grow(lease, bytes), Growth::Taken);
    }
    ledger.body_arrived(moving, MIB, SECOND);
    ledger.body_arrived(stalled, 10, SECOND);
    let ticket = waits(ledger.grow(complete, MIB));
    assert_eq!(ledger.end_bodies(ticket, true, SECOND - 1), []);
    assert_eq!(ledger.end_bodies(ticket, true, SECOND), [stalled], "the largest body is enough");
    assert!(ledger.is_ending(stalled) && !ledger.is_ending(small) && !ledger.is_ending(moving));
    assert_eq!(ledger.end_bodies(ticket, true, SECOND), [], "the body that ends is enough");
    ledger.close(stalled);
    assert_eq!(ledger.granted(), [ticket]);
}

#[test]
fn a_body_that_waits_for_memory_ends_only_for_the_oldest_wish() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [one, other] = [0; 2].map(|_| ledger.open());
    for lease in [one, other] {
        ledger.body_begins(lease, 0);
        assert_eq!(ledger.grow(lease, 6 * MIB), Growth::Taken);
    }
    let first = waits(ledger.grow(one, MIB));
    let second = waits(ledger.grow(other, MIB));
    assert_eq!(ledger.end_bodies(first, false, 9 * SECOND), []);
    assert_eq!(ledger.end_bodies(second, true, 9 * SECOND), [], "an older wish waits");
    assert_eq!(
        ledger.end_bodies(first, true, 9 * SECOND),
        [other],
        "otherwise neither could go on"
    );
    ledger.close(other);
    assert_eq!(ledger.granted(), [first]);
}

#[test]
fn memory_that_moves_to_another_lease_is_counted_once() {
    let mut ledger = MemoryLedger::new(16 * MIB);
    let [request, stored] = [0; 2].map(|_| ledger.open());
    assert_eq!(ledger.grow(request, MIB), Growth::Taken);
    assert_eq!(ledger.transfer(request, stored, 3 * MIB), MIB);
    assert_eq!((ledger.held(request), ledger.held(stored)), (0, MIB));
    ledger.close(request);
    assert_eq!(ledger.in_use(), MIB);
    ledger.close(stored);
    assert_eq!(ledger.in_use(), 0);
}

#[derive(Debug, Clone)]
enum Act {
    Open,
    Grow(usize, usize),
    Add(usize, usize),
    Release(usize, usize),
    Close(usize),
    Cancel(usize),
    EndStalled(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let bytes = prop_oneof![1..SMALL_BYTES, 1..8 * MIB];
    let act = prop_oneof![
        Just(Act::Open),
        (any::<usize>(), bytes.clone()).prop_map(|(at, bytes)| Act::Grow(at, bytes)),
        (any::<usize>(), bytes.clone()).prop_map(|(at, bytes)| Act::Add(at, bytes)),
        (any::<usize>(), bytes).prop_map(|(at, bytes)| Act::Release(at, bytes)),
        any::<usize>().prop_map(Act::Close),
        any::<usize>().prop_map(Act::Cancel),
        any::<usize>().prop_map(Act::EndStalled),
    ];
    proptest::collection::vec(act, 1..200)
}

proptest! {
    /// The sum agrees with the leases, and requests stay below their share. A wish that can be
    /// granted does not wait. Each wish is granted when all leases without a wish have ended,
    /// unless its own body ends for an older wish.
    #[test]
    fn sums_agree_and_nothing_waits_for_ever(acts in acts()) {
        let mut ledger = MemoryLedger::new(16 * MIB);
        let (mut leases, mut tickets) = (vec![ledger.open()], Vec::new());
        for (now, act) in acts.into_iter().enumerate() {
            let in_use = ledger.in_use();
            let at = |at: usize| at % leases.len().max(1);
            match act {
                Act::Open => leases.push(ledger.open()),
                Act::Grow(lease, bytes) if !leases.is_empty() => {
                    let lease = leases[at(lease)];
                    ledger.body_begins(lease, now as Micros * SECOND);
                    match ledger.grow(lease, bytes) {
                        Growth::Waits(ticket) => tickets.push((ticket, bytes)),
                        Growth::Taken => {
                            let total = ledger.held(lease);
                            prop_assert!(ledger.in_use() <= ledger.ceiling(total));
                        }
                        Growth::Refused => prop_assert!(false, "few wait"),
                        Growth::TooLarge(_) => prop_assert_eq!(ledger.in_use(), in_use),
                    }
                }
                Act::Add(lease, bytes) if !leases.is_empty() => {
                    ledger.add(leases[at(lease)], bytes);
                }
                Act::Release(lease, bytes) if !leases.is_empty() => {
                    ledger.release(leases[at(lease)], bytes);
                }
                Act::Close(lease) if !leases.is_empty() => {
                    let lease = leases.swap_remove(at(lease));
                    ledger.close(lease);
                }
                Act::Cancel(ticket) if !tickets.is_empty() => {
                    let (ticket, _) = tickets.swap_remove(ticket % tickets.len());
                    ledger.cancel(ticket);
                }
                Act::EndStalled(ticket) if !tickets.is_empty() => {
                    let (ticket, _) = tickets[ticket % tickets.len()];
                    for lease in ledger.end_bodies(ticket, now % 2 == 0, now as Micros * SECOND) {
                        ledger.close(lease);
                        leases.retain(|other| *other != lease);
                    }
                }
                _ => {}
            }
            let sum: usize = leases.iter().map(|lease| ledger.held(*lease)).sum();
            prop_assert_eq!(ledger.in_use(), sum);
            let holders = leases.iter().filter(|lease| ledger.held(**lease) > 0).count();
            prop_assert_eq!(ledger.num_holders, holders);
            prop_assert_eq!(ledger.next_wish(), None);
        }
        let mut pending: BTreeMap<Ticket, usize> = tickets.into_iter().collect();
        loop {
            let granted = ledger.granted();
            pending.retain(|ticket, _| {
                !granted.contains(ticket) && leases.contains(&ticket.lease)
            });
            let Some(&oldest) = pending.keys().next() else { break };
            // A lease can become too large for its wish, because output was added after the wish.
            let may_be_granted = |lease: LeaseId| {
                let of_lease = pending.iter().filter(|(ticket, _)| ticket.lease == lease);
                let most = of_lease.map(|(_, bytes)| ledger.held(lease) + bytes).max();
                most.is_some_and(|most| most <= ledger.request_limit())
            };
            let done = leases.iter().copied().filter(|lease| !may_be_granted(*lease));
            let mut ended: Vec<LeaseId> = done.collect();
            if ended.is_empty() {
                ended = ledger.end_bodies(oldest, true, Micros::MAX);
                prop_assert!(!ended.is_empty(), "{oldest:?} waits for ever");
                prop_assert!(!ended.contains(&oldest.lease));
            }
            ended.iter().for_each(|lease| ledger.close(*lease));
            leases.retain(|lease| !ended.contains(lease));
        }
        prop_assert_eq!(ledger.num_waiting(), 0);
    }
}
