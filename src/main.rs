//! The `playhouse` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A layer gives back what the next one asks for. glibc returns such memory to the system between
/// the two, which clears it page by page: a fifth of a prefill.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    playhouse::cli::main()
}
