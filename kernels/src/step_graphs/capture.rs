//! The recording of a step.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::MemoryScope;
use cubecl::client::{Client, Graph};
use cubecl::server::ServerError;

use super::cube::Forward;
use super::recorded::Recorded;
use crate::AttentionMetadata;
use crate::cube::{Recording, device_tensor};

/// Records a step, whose kernels are already compiled. Returns it and the bytes that it holds.
pub(super) fn capture(
    client: &Client,
    token_ids: &[u32],
    metas: &[AttentionMetadata],
    forward: Forward<'_>,
) -> Result<(Recorded, u64), ServerError> {
    // On the device's own thread, memory is free as soon as a tensor is dropped. All runs then find
    // the same free memory, which the last run needs. No other thread takes or frees memory
    // meanwhile.
    client.exclusive(|| {
        let before = held_bytes(client);
        // Memory of exact size, because the recording alone can use it. The default would be large
        // pages.
        let record = |()| record(client, token_ids, metas, forward);
        let recorded = client.memory_persistent_allocation((), record)?;
        Ok((recorded, held_bytes(client).saturating_sub(before)))
    })?
}

/// Returns the bytes of this queue's memory of exact size that are in use.
fn held_bytes(client: &Client) -> u64 {
    let report = client.memory_report(MemoryScope::CurrentStream);
    let pools = report.streams.iter().map(|stream| &stream.pools.persistent.usage);
    pools.map(|usage| usage.bytes_in_use + usage.bytes_padding).sum()
}

/// Computes the step once for its inputs, and once for its other memory. A third run then records
/// the launches and executes none.
fn record(
    client: &Client,
    token_ids: &[u32],
    metas: &[AttentionMetadata],
    forward: Forward<'_>,
) -> Result<Recorded, ServerError> {
    if client.is_capturing() {
        // A thread that hung and was abandoned left a recording open.
        drop(client.stop_capture());
    }
    let recording = Recording::begin();
    let window = Window::prepare(client)?;
    for _ in 0..2 {
        // An earlier error is reported here, and not later as a missing launch.
        client.check([&of_device(forward(token_ids, metas))?.handle])?;
    }
    client.start_capture()?;
    let output = forward(token_ids, metas);
    let graph = window.close()?;
    Ok(Recorded { inputs: recording.end(), output: of_device(output)?, graph })
}

fn of_device(output: Tensor<2>) -> Result<CubeTensor, ServerError> {
    device_tensor(output).map_err(|_| ServerError::graph_state("the step was computed elsewhere"))
}

/// The time in which a queue records. Dropping it ends the recording on every path.
struct Window<'a>(Option<&'a Client>);

impl<'a> Window<'a> {
    fn prepare(client: &'a Client) -> Result<Self, ServerError> {
        client.graph_prepare()?;
        Ok(Self(Some(client)))
    }

    fn close(mut self) -> Result<Graph, ServerError> {
        match self.0.take() {
            Some(client) => client.stop_capture(),
            None => unreachable!("a window is closed once"),
        }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            // The error or panic that led here is the one to report.
            drop(client.stop_capture());
        }
    }
}
