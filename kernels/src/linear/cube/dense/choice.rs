//! Which routine multiplies matrices of a shape fastest on a device. It is measured the first time
//! that the shape occurs, for each power of two of rows, and may be kept for the next process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cubecl::client::Client;
use cubecl::server::Handle;
use cubek::matmul::definition::MatmulSetupError;

use super::HalfFormat;
use super::routine::Routine;
use crate::TunedProduct;

/// Products that a routine is timed over, after one that compiles it.
const TIMES: u32 = 3;

/// What was measured in this process or adopted from another. `None`: no routine makes it.
static CHOSEN: Mutex<BTreeMap<Key, Option<Routine>>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    device: String,
    half: HalfFormat,
    /// Rounded up to a power of two.
    rows: usize,
    inputs: usize,
    outputs: usize,
}

/// The routine for `[rows, inputs, outputs]`, measured now if it never was; `run` makes the product in
/// `y`.
pub(super) fn chosen(
    client: &Client,
    device: &cubecl::Device,
    half: HalfFormat,
    [rows, inputs, outputs]: [usize; 3],
    y: &Handle,
    run: impl Fn(Routine) -> Result<(), MatmulSetupError>,
) -> Option<Routine> {
    let device = format!("{} {device:?}", client.name());
    let key = Key { device, half, rows: rows.next_power_of_two(), inputs, outputs };
    let known = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
    known.unwrap_or_else(|| {
        let routine = fastest(Routine::ALL, |routine| time(client, y, || run(routine)));
        CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, routine);
        routine
    })
}

/// The one that takes the least time, of those that work.
fn fastest<R: Copy>(
    routines: impl IntoIterator<Item = R>,
    time: impl Fn(R) -> Option<Duration>,
) -> Option<R> {
    let timed = routines.into_iter().filter_map(|routine| Some((time(routine)?, routine)));
    timed.min_by_key(|(time, _)| *time).map(|(_, routine)| routine)
}

/// How long a product takes; `None` where the device, or the shape, does not suit the routine: it
/// says so, or panics.
fn time(
    client: &Client,
    y: &Handle,
    run: impl Fn() -> Result<(), MatmulSetupError>,
) -> Option<Duration> {
    // A kernel that could not be compiled or launched is told of what it should have written alone.
    let wait = || cubecl::future::block_on(client.sync_buffers([y])).ok();
    let run = || catch_unwind(AssertUnwindSafe(&run)).ok()?.ok();
    run()?;
    wait()?;
    let started = Instant::now();
    for _ in 0..TIMES {
        run()?;
    }
    wait()?;
    Some(started.elapsed() / TIMES)
}

/// All that is known by now, in order.
pub(crate) fn tuned_products() -> Vec<TunedProduct> {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let told = chosen.iter().map(|(key, routine)| TunedProduct {
        device: key.device.clone(),
        dtype: key.half.name().to_owned(),
        rows: key.rows,
        inputs: key.inputs,
        outputs: key.outputs,
        routine: routine.map(|routine| routine.name().to_owned()),
    });
    told.collect()
}

/// Adds what another process measured.
pub(crate) fn adopt_tuned_products(products: impl IntoIterator<Item = TunedProduct>) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    for product in products {
        let TunedProduct { device, dtype, rows, inputs, outputs, routine } = product;
        let Some(half) = HalfFormat::named(&dtype) else { continue };
        let routine = match routine {
            None => None,
            Some(name) => match Routine::named(&name) {
                Some(routine) => Some(routine),
                None => continue,
            },
        };
        chosen.entry(Key { device, half, rows, inputs, outputs }).or_insert(routine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_works_is_chosen() {
        let times = [Some(30), None, Some(10), Some(20)];
        let time = |routine: usize| times[routine].map(Duration::from_millis);
        assert_eq!(fastest(0..4, time), Some(2));
        assert_eq!(fastest(1..2, time), None);
    }

    #[test]
    fn what_was_measured_elsewhere_is_known_and_what_is_unknown_is_left() {
        let product = |device: &str, routine: Option<&str>| TunedProduct {
            device: device.to_owned(),
            dtype: "bf16".to_owned(),
            rows: 64,
            inputs: 8,
            outputs: 16,
            routine: routine.map(str::to_owned),
        };
        let known = [product("a", Some("DoubleCyclicMma")), product("b", None)];
        let strange = TunedProduct { dtype: "f8".to_owned(), ..product("c", None) };
        adopt_tuned_products(known.clone());
        adopt_tuned_products([strange, product("d", Some("Abacus")), product("a", None)]);
        let told = tuned_products();
        assert!(known.iter().all(|product| told.contains(product)), "{told:?}");
        assert!(!told.iter().any(|product| ["c", "d"].contains(&&*product.device)), "{told:?}");
    }
}
