//! Intel AMX: each instruction multiplies whole tiles of bfloat16, 16 rows by 16 columns by 32
//! inputs. The instructions have no stable intrinsics, hence the assembly.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;

/// Rows of a tile of activations.
pub(crate) const TILE_ROWS: usize = 16;
/// Inputs of a tile.
pub(crate) const TILE_INPUTS: usize = 32;
/// Columns that [`Tiles::multiply`] computes: two tiles side by side.
pub(crate) const TILE_COLUMNS: usize = 32;

/// One tile of activations: rows one after the other.
pub(crate) type ActivationTile = [[u16; TILE_INPUTS]; TILE_ROWS];
/// The weights of one tile's inputs: pairs of inputs, by column.
pub(crate) type WeightTile = [[[u16; 2]; TILE_COLUMNS]; TILE_INPUTS / 2];
/// One tile of totals.
pub(crate) type TotalTile = [[f32; TILE_COLUMNS]; TILE_ROWS];

/// Proof that the processor has AMX with bfloat16 and that the system lets this process use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amx(());

impl Amx {
    pub(super) fn detect() -> Option<Self> {
        const LEAF: u32 = 7;
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        let edx = __cpuid_count(LEAF, 0).edx;
        (edx & AMX_BF16 != 0 && edx & AMX_TILE != 0 && request_permission()).then_some(Self(()))
    }

    /// Configures this thread's tiles.
    pub(crate) fn tiles(self) -> Tiles {
        /// Palette 1: eight tiles of up to 16 rows of 64 bytes.
        #[repr(C, align(64))]
        struct Config {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        const ALL: Config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        let config = ALL;
        // SAFETY: `self` proves the feature and the permission; the operand is a valid 64-byte
        // configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Tiles { not_send: PhantomData }
    }
}

/// Asks Linux for the 8 KiB of tile state, which it grants only to processes that ask.
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes two integers and changes only the permissions of this process.
    return unsafe {
        libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
    };
    #[cfg(not(target_os = "linux"))]
    false
}

/// This thread's configured tiles, released at the end.
#[derive(Debug)]
pub(crate) struct Tiles {
    /// Tiles belong to their thread.
    not_send: PhantomData<*mut ()>,
}

impl Tiles {
    /// Computes `totals[t] += x[t] · w` for up to two tiles of rows, `t`, over inputs in order.
    /// `x[t]` and `w` have one tile for each 32 inputs.
    ///
    /// # Panics
    /// If the lengths disagree.
    #[inline]
    pub(crate) fn multiply(
        &self,
        x: [&[ActivationTile]; 2],
        w: &[WeightTile],
        totals: &mut [TotalTile],
    ) {
        assert!(x[0].len() == w.len() && !w.is_empty());
        match totals {
            [total] => {
                // SAFETY: tiles are configured; each pointer is valid for `w.len()` tiles.
                unsafe { multiply_one(x[0].as_ptr(), w.as_ptr(), total, w.len()) }
            }
            [first, second] => {
                assert!(x[1].len() == w.len());
                // SAFETY: as above.
                unsafe {
                    multiply_two(x.map(<[_]>::as_ptr), w.as_ptr(), first, second, w.len());
                }
            }
            _ => unreachable!("one tile of rows or two"),
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the processor has AMX, and the tiles hold no data that is still needed.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// # Safety
/// Tiles are configured on this thread; `x` and `w` are valid for `steps >= 1` tiles.
#[inline]
unsafe fn multiply_one(
    x: *const ActivationTile,
    w: *const WeightTile,
    total: &mut TotalTile,
    steps: usize,
) {
    // SAFETY: by the contract, reads and writes stay within the arguments.
    unsafe {
        asm!(
            "tileloadd tmm0, [{c} + {wide}]",
            "tileloadd tmm1, [{c} + {wide} + 64]",
            "2:",
            "tileloadd tmm4, [{x} + {narrow}]",
            "tileloadd tmm6, [{w} + {wide}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{w} + {wide} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {x}, 1024",
            "add {w}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{c} + {wide}], tmm0",
            "tilestored [{c} + {wide} + 64], tmm1",
            c = in(reg) total,
            x = inout(reg) x => _,
            w = inout(reg) w => _,
            steps = inout(reg) steps => _,
            narrow = in(reg) 64_usize,
            wide = in(reg) 128_usize,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
/// As [`multiply_one`], for both elements of `x`.
#[inline]
unsafe fn multiply_two(
    x: [*const ActivationTile; 2],
    w: *const WeightTile,
    first: &mut TotalTile,
    second: &mut TotalTile,
    steps: usize,
) {
    // SAFETY: by the contract, reads and writes stay within the arguments.
    unsafe {
        asm!(
            "tileloadd tmm0, [{c0} + {wide}]",
            "tileloadd tmm1, [{c0} + {wide} + 64]",
            "tileloadd tmm2, [{c1} + {wide}]",
            "tileloadd tmm3, [{c1} + {wide} + 64]",
            "2:",
            "tileloadd tmm4, [{x0} + {narrow}]",
            "tileloadd tmm6, [{w} + {wide}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{w} + {wide} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{x1} + {narrow}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {x0}, 1024",
            "add {x1}, 1024",
            "add {w}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{c0} + {wide}], tmm0",
            "tilestored [{c0} + {wide} + 64], tmm1",
            "tilestored [{c1} + {wide}], tmm2",
            "tilestored [{c1} + {wide} + 64], tmm3",
            c0 = in(reg) first,
            c1 = in(reg) second,
            x0 = inout(reg) x[0] => _,
            x1 = inout(reg) x[1] => _,
            w = inout(reg) w => _,
            steps = inout(reg) steps => _,
            narrow = in(reg) 64_usize,
            wide = in(reg) 128_usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
