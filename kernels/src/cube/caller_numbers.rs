//! Numbers of the host that are no input of a step: only the caller of an operation knows them. A
//! replay could not renew them, so a step that has them must not be recorded.

use std::cell::Cell;

use cubecl::client::Client;
use cubecl::server::Handle;

use super::upload;

thread_local! {
    static IS_USED: Cell<bool> = const { Cell::new(false) };
}

/// Copies numbers of a caller to the device.
pub(crate) fn upload_of_caller(client: &Client, numbers: &[u32]) -> Handle {
    IS_USED.set(true);
    upload(client, numbers)
}

/// Runs `step`. Returns its result, and whether it copied numbers of a caller on this thread.
pub(crate) fn noted<R>(step: impl FnOnce() -> R) -> (R, bool) {
    IS_USED.set(false);
    let done = step();
    (done, IS_USED.take())
}
