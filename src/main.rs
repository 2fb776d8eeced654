//! The `playhouse` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use playhouse_kernels::ReportingAllocator;

/// A layer gives back what the next one asks for. glibc returns such memory to the system between
/// the two, which clears it page by page: a fifth of a prefill. An allocation that is refused ends
/// the process with a message and an exit code, where Rust's default would abort it.
#[global_allocator]
static ALLOCATOR: ReportingAllocator<MiMalloc> = ReportingAllocator(MiMalloc);

fn main() -> ExitCode {
    playhouse::cli::main()
}
