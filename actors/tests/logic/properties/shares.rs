//! The wait of a request for those of others.

use playhouse_actors::logic::{
    admission::Tenant,
    request::{EngineRequest, ids::RequestId},
    scheduler::request_queue::{RequestQueue, SchedulingPolicy},
};
use proptest::prelude::*;

use crate::harness::request;

struct World {
    queue: RequestQueue<(Option<Tenant>, usize)>,
    next_id: u64,
}

impl World {
    fn new(policy: SchedulingPolicy) -> Self {
        Self { queue: RequestQueue::new(policy, u64::MAX), next_id: 0 }
    }

    /// Adds a client's request of `num_choices` choices.
    fn add(&mut self, tenant: Option<Tenant>, num_choices: u64, tokens: usize) {
        let group = RequestId(self.next_id);
        for _ in 0..num_choices {
            let id = RequestId(self.next_id);
            let request = EngineRequest { id, group, tenant, ..request(group.0, [1]) };
            self.queue.push_back(&request, (tenant, tokens));
            self.next_id += 1;
        }
    }

    /// Serves the next request.
    fn serve(&mut self) -> Option<Option<Tenant>> {
        let (key, (tenant, tokens)) = self.queue.peek(0)?;
        // Arrivals count only under priority, where `remove` needs them.
        assert!(self.queue.take(key, 0));
        self.queue.charge(tenant, tokens);
        Some(tenant)
    }
}

fn backlog() -> impl Strategy<Value = Vec<(u32, u64, usize)>> {
    prop::collection::vec((0..4u32, prop_oneof![4 => Just(1), 1 => 2..300u64], 1..500usize), 1..40)
}

proptest! {
    /// Four tenants have queued and been served any number of requests. The first request of a
    /// fifth waits for at most one of each.
    #[test]
    fn a_tenants_first_request_waits_for_at_most_one_of_each_other(
        before in backlog(), num_served in 0..500usize, after in backlog(), num_choices in 1..50u64,
    ) {
        let mut world = World::new(SchedulingPolicy::Fcfs);
        for (tenant, num_choices, tokens) in before {
            world.add(Some(Tenant(tenant)), num_choices, tokens);
        }
        for _ in 0..num_served {
            world.serve();
        }
        let newcomer = Some(Tenant(4));
        world.add(newcomer, num_choices, 100);
        for (tenant, num_choices, tokens) in after {
            world.add(Some(Tenant(tenant)), num_choices, tokens);
        }
        let served: Vec<_> = std::iter::from_fn(|| world.serve()).collect();
        let place = served.iter().position(|tenant| *tenant == newcomer).unwrap();
        prop_assert!(place <= 4, "{:?}", &served[..=place]);
    }

    /// Tenants that both wait are served equally, up to one request.
    #[test]
    fn tenants_that_wait_get_the_same_tokens(
        few in 1..400usize, many in 1..400usize, num_choices in 1..200u64, steps in 1..150usize,
    ) {
        let mut world = World::new(SchedulingPolicy::Fcfs);
        world.add(Some(Tenant(0)), num_choices, few);
        for _ in 0..150 {
            world.add(Some(Tenant(1)), 1, many);
        }
        for _ in 0..steps.min(num_choices as usize) {
            world.serve();
        }
        let served = |tenant| world.queue.served(Some(Tenant(tenant)));
        prop_assert!(served(0).abs_diff(served(1)) <= few.max(many) as u64);
    }

    /// Another request has choices in the queue, some of them served, and there are no tenants.
    /// Then request `k` that arrives waits for the `k` before it and for `k` choices.
    #[test]
    fn a_request_waits_for_as_many_choices_of_another_as_requests_came_before_it(
        num_choices in 2..2_000u64, num_served in 0..2_000u64, num_others in 1..50u64,
    ) {
        let num_served = num_served.min(num_choices - 1);
        let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
        for id in 0..num_choices {
            queue.push_back(&EngineRequest { group: RequestId(0), ..request(id, [1]) }, id);
        }
        let serve = |queue: &mut RequestQueue<u64>| {
            let (key, id) = queue.peek(0)?;
            queue.take(key, 0);
            Some(id)
        };
        for id in 0..num_served {
            prop_assert_eq!(serve(&mut queue), Some(id));
        }
        for id in num_choices..num_choices + num_others {
            queue.push_back(&request(id, [1]), id);
        }
        let served: Vec<u64> = std::iter::from_fn(|| serve(&mut queue)).collect();
        for other in 0..num_others {
            let place = served.iter().position(|&id| id == num_choices + other).unwrap() as u64;
            // If no choice was served, the first choice has its turn before all others.
            prop_assert!(place <= 2 * other + 1, "{other}: {place}");
        }
        let choices: Vec<u64> = served.into_iter().filter(|&id| id < num_choices).collect();
        prop_assert!(choices.is_sorted());
    }
}
