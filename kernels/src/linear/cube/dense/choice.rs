//! The choice of the fastest way to a product of one shape on one device. It is measured the first
//! time that the shape occurs, for each power of two of rows. It may be kept for the next process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cubecl::client::Client;
use cubecl::server::Handle;
use cubek::matmul::definition::MatmulSetupError;

use super::Way;
use crate::TunedProduct;
use crate::cube::WordFormat;

/// Products over which a way is timed, after one that compiles it.
const TIMES: u32 = 3;

/// Results that this process measured or adopted from another. `None`: no way works.
static CHOSEN: Mutex<BTreeMap<Key, Option<Way>>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    device: String,
    /// The format of the weight.
    format: &'static str,
    /// The number of rows, rounded up to a power of two.
    rows: usize,
    inputs: usize,
    outputs: usize,
}

/// Returns the fastest of `ways` for `[rows, inputs, outputs]`. The first call measures it. `run`
/// computes the product in `y`.
pub(super) fn chosen(
    device: &cubecl::Device,
    format: WordFormat,
    [rows, inputs, outputs]: [usize; 3],
    ways: &[Way],
    y: &Handle,
    run: impl Fn(Way) -> Result<(), MatmulSetupError>,
) -> Option<Way> {
    let client = &device.client();
    let device = format!("{} {device:?}", client.name());
    let (format, rows) = (format.name(), rows.next_power_of_two());
    let key = Key { device, format, rows, inputs, outputs };
    let known = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
    known.unwrap_or_else(|| {
        let way = fastest(ways.iter().copied(), |way| time(client, y, || run(way)));
        CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, way);
        way
    })
}

/// Returns the way that takes the least time, of those that work.
fn fastest<W: Copy>(
    ways: impl IntoIterator<Item = W>,
    time: impl Fn(W) -> Option<Duration>,
) -> Option<W> {
    let timed = ways.into_iter().filter_map(|way| Some((time(way)?, way)));
    timed.min_by_key(|(time, _)| *time).map(|(_, way)| way)
}

/// Returns how long a product takes; `None` where the device or the shape does not suit the way.
/// The way then returns an error, or panics.
fn time(
    client: &Client,
    y: &Handle,
    run: impl Fn() -> Result<(), MatmulSetupError>,
) -> Option<Duration> {
    // If a kernel cannot be compiled or launched, only its output buffer carries the error.
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

/// Returns all known results, in order.
pub(crate) fn tuned_products() -> Vec<TunedProduct> {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let told = chosen.iter().map(|(key, way)| TunedProduct {
        device: key.device.clone(),
        dtype: key.format.to_owned(),
        rows: key.rows,
        inputs: key.inputs,
        outputs: key.outputs,
        routine: way.map(Way::name),
    });
    told.collect()
}

/// Adds the results that another process measured.
pub(crate) fn adopt_tuned_products(products: impl IntoIterator<Item = TunedProduct>) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    for product in products {
        let TunedProduct { device, dtype, rows, inputs, outputs, routine } = product;
        let Some(format) = WordFormat::named(&dtype).map(WordFormat::name) else { continue };
        let way = match routine {
            None => None,
            Some(name) => match Way::named(&name) {
                Some(way) => Some(way),
                None => continue,
            },
        };
        chosen.entry(Key { device, format, rows, inputs, outputs }).or_insert(way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_works_is_chosen() {
        let times = [Some(30), None, Some(10), Some(20)];
        let time = |way: usize| times[way].map(Duration::from_millis);
        assert_eq!(fastest(0..4, time), Some(2));
        assert_eq!(fastest(1..2, time), None);
    }

    #[test]
    fn results_of_another_process_are_adopted_and_unknown_ones_skipped() {
        let product = |device: &str, routine: Option<&str>| TunedProduct {
            device: device.to_owned(),
            dtype: "bf16".to_owned(),
            rows: 64,
            inputs: 8,
            outputs: 16,
            routine: routine.map(str::to_owned),
        };
        let by_panels = product("e", Some("SimpleTmaMma by panels"));
        let known = [product("a", Some("DoubleCyclicMma")), product("b", None), by_panels];
        let strange = TunedProduct { dtype: "f8".to_owned(), ..product("c", None) };
        adopt_tuned_products(known.clone());
        adopt_tuned_products([strange, product("d", Some("Abacus")), product("a", None)]);
        let told = tuned_products();
        assert!(known.iter().all(|product| told.contains(product)), "{told:?}");
        assert!(!told.iter().any(|product| ["c", "d"].contains(&&*product.device)), "{told:?}");
    }
}
