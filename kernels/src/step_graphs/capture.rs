//! How a step is recorded.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::MemoryScope;
use cubecl::client::{Client, Graph};
use cubecl::server::ServerError;

use super::cube::Forward;
use super::recorded::Recorded;
use crate::AttentionMetadata;
use crate::cube::{Recording, device_tensor};

/// Records a step, whose kernels are there already, and says how many bytes the recording holds.
pub(super) fn capture(
    client: &Client,
    token_ids: &[u32],
    meta: &AttentionMetadata,
    forward: Forward<'_>,
) -> Result<(Recorded, u64), ServerError> {
    // On the device's own thread, memory is free as soon as a tensor is dropped: all runs find the same,
    // which the last must. And nobody else takes or frees any meanwhile.
    client.exclusive(|| {
        let before = held_bytes(client);
        // Of exact size, as what a recording touches serves nothing else, and else it would be large
        // pages.
        let record = |()| record(client, token_ids, meta, forward);
        let recorded = client.memory_persistent_allocation((), record)?;
        Ok((recorded, held_bytes(client).saturating_sub(before)))
    })?
}

/// Bytes of this queue's memory of exact size that are in use.
fn held_bytes(client: &Client) -> u64 {
    let report = client.memory_report(MemoryScope::CurrentStream);
    let pools = report.streams.iter().map(|stream| &stream.pools.persistent.usage);
    pools.map(|usage| usage.bytes_in_use + usage.bytes_padding).sum()
}

/// The step is computed once for its inputs, again for the memory that it needs beside them, and then
/// launches are recorded and not done.
fn record(
    client: &Client,
    token_ids: &[u32],
    meta: &AttentionMetadata,
    forward: Forward<'_>,
) -> Result<Recorded, ServerError> {
    if client.is_capturing() {
        // By a thread that hung, and was given up.
        drop(client.stop_capture());
    }
    let recording = Recording::begin();
    let window = Window::prepare(client)?;
    for _ in 0..2 {
        // What is amiss already is told as such, and not as a launch that is missing.
        client.check([&of_device(forward(token_ids, meta))?.handle])?;
    }
    client.start_capture()?;
    let output = forward(token_ids, meta);
    let graph = window.close()?;
    Ok(Recorded { inputs: recording.end(), output: of_device(output)?, graph })
}

fn of_device(output: Tensor<2>) -> Result<CubeTensor, ServerError> {
    device_tensor(output).map_err(|_| ServerError::graph_state("the step was computed elsewhere"))
}

/// The time in which a queue records, which ends in any case.
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
            // The error or panic that led here is the one to tell.
            drop(client.stop_capture());
        }
    }
}
