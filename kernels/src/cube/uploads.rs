//! Numbers of the host that every layer of a step reads: token ids, positions, slots, plans. The
//! first layer that asks copies them to the device, once.
//!
//! While a step is recorded each input has a buffer of its own, even where two hold the same
//! numbers. Replays find their numbers in the same places.

use std::cell::RefCell;
use std::collections::VecDeque;

use cubecl::client::Client;
use cubecl::server::Handle;

use super::upload;
use crate::paged_attention::cube::PlanOf;
use crate::states::cube::StatesOf;

/// Copies that a thread keeps: a few of each kind that the layers of a step ask for, in each group
/// of layers.
const KEPT: usize = 32;

/// Most numbers that are kept. A longer copy is made anew, because a comparison takes as long.
const NUMBERS_MAX: usize = 1 << 16;

thread_local! {
    static RECENT: RefCell<VecDeque<Copied>> = const { RefCell::new(VecDeque::new()) };
    static RECORDING: RefCell<Option<Vec<(StepInput, Handle)>>> = const { RefCell::new(None) };
}

/// The role of numbers in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StepInput {
    TokenIds,
    Positions,
    /// The slots of a group of layers.
    Slots(usize),
    /// The work of attention's cubes, in layers of one kind and group.
    Plan(PlanOf),
    /// The sequences of a step for layers of one group whose blocks have states.
    States(StatesOf),
    /// The order of rows by head, which the number of tokens alone decides.
    HeadRows {
        heads: usize,
        tokens: usize,
    },
}

impl StepInput {
    /// Returns the layers that the plan is for, if it is a plan.
    pub(crate) fn plan(self) -> Option<PlanOf> {
        match self {
            Self::Plan(of) => Some(of),
            _ => None,
        }
    }

    /// Returns the layers whose states it describes, if it does.
    pub(crate) fn states(self) -> Option<StatesOf> {
        match self {
            Self::States(of) => Some(of),
            _ => None,
        }
    }
}

/// Numbers, and their place on a device. No kernel writes there.
struct Copied {
    device: cubecl::Device,
    numbers: Vec<u32>,
    handle: Handle,
}

/// Returns the numbers on the device: this thread's last copy of the same numbers, or a new one.
pub(crate) fn upload_once(
    client: &Client,
    device: &cubecl::Device,
    input: StepInput,
    numbers: &[u32],
) -> Handle {
    if let Some(handle) = recorded(client, input, numbers) {
        return handle;
    }
    if numbers.len() > NUMBERS_MAX {
        return upload(client, numbers);
    }
    RECENT.with_borrow_mut(|recent| {
        let is_it = |copied: &Copied| copied.numbers == numbers && copied.device == *device;
        if let Some(copied) = recent.iter().find(|copied| is_it(copied)) {
            return copied.handle.clone();
        }
        let handle = upload(client, numbers);
        recent.truncate(KEPT - 1);
        let copied = Copied { device: device.clone(), numbers: numbers.to_vec(), handle };
        recent.push_front(copied);
        recent[0].handle.clone()
    })
}

/// Returns the buffer of an input where a step is recorded. The first call makes it.
fn recorded(client: &Client, input: StepInput, numbers: &[u32]) -> Option<Handle> {
    RECORDING.with_borrow_mut(|recording| {
        let inputs = recording.as_mut()?;
        if let Some((_, handle)) = inputs.iter().find(|(known, _)| *known == input) {
            return Some(handle.clone());
        }
        let handle = upload(client, numbers);
        inputs.push((input, handle.clone()));
        Some(handle)
    })
}

/// Returns whether this thread records a step. Its results then must depend on the inputs alone.
pub(crate) fn is_recording() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

/// A recording on this thread: while it lives, each input has a buffer of its own.
pub(crate) struct Recording(());

impl Recording {
    pub(crate) fn begin() -> Self {
        RECORDING.set(Some(Vec::new()));
        Self(())
    }

    /// Returns the inputs that were asked for.
    pub(crate) fn end(self) -> Vec<(StepInput, Handle)> {
        RECORDING.take().unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::test_device::test_client;

    fn kept() -> Vec<Vec<u32>> {
        RECENT.with_borrow(|recent| recent.iter().map(|copied| copied.numbers.clone()).collect())
    }

    fn read(client: &Client, handle: Handle) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&client.read_one(handle).unwrap()[..])
    }

    #[test]
    fn the_same_numbers_are_copied_once() {
        let Some((client, device)) = test_client() else { return };
        let copy = |numbers: &[u32]| {
            read(&client, upload_once(&client, &device, StepInput::Slots(0), numbers))
        };
        for numbers in [vec![1, 2, 3], vec![1, 2], vec![1, 2, 3], vec![1, 2, 4]] {
            assert_eq!(copy(&numbers), numbers);
        }
        assert_eq!(kept(), [vec![1, 2, 4], vec![1, 2], vec![1, 2, 3]]);
        for i in 0..2 * KEPT as u32 {
            assert_eq!(copy(&[i]), [i]);
        }
        assert_eq!(kept().len(), KEPT);
    }

    #[test]
    fn inputs_of_a_recorded_step_do_not_share_a_buffer() {
        let Some((client, device)) = test_client() else { return };
        let recording = Recording::begin();
        let copy = |input| upload_once(&client, &device, input, &[7]);
        let (positions, slots) = (copy(StepInput::Positions), copy(StepInput::Slots(0)));
        let _again = copy(StepInput::Slots(0));
        let inputs = recording.end();
        assert_eq!(inputs.len(), 2);
        assert!(!is_recording());
        client.write(&inputs[1].1, cubecl::bytes::Bytes::from_elems(vec![8u32]));
        assert_eq!((read(&client, positions), read(&client, slots)), (vec![7], vec![8]));
    }
}
