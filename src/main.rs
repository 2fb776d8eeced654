//! The `playhouse` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use playhouse_kernels::ReportingAllocator;

/// A layer frees the memory that the next one allocates. Between the two, glibc would return it to
/// the system, which clears it page by page: a fifth of a prefill. A failed allocation ends the
/// process with a message and an exit code. Rust's default would abort it.
#[global_allocator]
static ALLOCATOR: ReportingAllocator<MiMalloc> = ReportingAllocator(MiMalloc);

fn main() -> ExitCode {
    playhouse::cli::main()
}
