//! Time of a hop between two actors: a call with its answer, and thousands of casts.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::runtime::Runtime;

/// An actor that adds up the numbers in its messages.
struct Counter;

enum Message {
    Count(u64),
    Read(RpcReplyPort<u64>),
}

impl Actor for Counter {
    type Msg = Message;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Message>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        count: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Count(by) => *count += by,
            Message::Read(reply) => drop(reply.send(*count)),
        }
        Ok(())
    }
}

fn bench(criterion: &mut Criterion) {
    const CASTS: u64 = 1_000;
    let Ok(runtime) = Runtime::new() else { return };
    let Ok((counter, _)) = runtime.block_on(Actor::spawn(None, Counter, ())) else { return };
    let mut group = criterion.benchmark_group("actor_hop");
    group.bench_function("call", |bencher| {
        bencher.iter(|| runtime.block_on(counter.call(Message::Read, None)));
    });
    group.throughput(Throughput::Elements(CASTS));
    group.bench_function("1000 casts and a call", |bencher| {
        bencher.iter(|| {
            for _ in 0..CASTS {
                drop(counter.cast(Message::Count(1)));
            }
            runtime.block_on(counter.call(Message::Read, None))
        });
    });
    group.finish();
    counter.stop(None);
}

criterion_group!(benches, bench);
criterion_main!(benches);
