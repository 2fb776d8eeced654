//! Errors in the weights, caches and batches that callers pass.

/// A weight, cache or batch description that the kernels cannot take.
///
/// Operations on valid ones do not fail. Two arguments of an operation that disagree in shape are a
/// bug of the caller, and the operation panics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A buffer whose length does not fit its shape.
    #[error("{what}: {field} holds {got} elements, but {expected} are needed")]
    Length {
        /// The thing being built, for example "linear weight".
        what: &'static str,
        /// The argument at fault.
        field: String,
        /// The number of elements found.
        got: usize,
        /// The number of elements needed.
        expected: usize,
    },
    /// A number outside the accepted range.
    #[error("{what}: {field} is {got}, but must be {accepted}")]
    OutOfRange {
        /// The thing being built or checked.
        what: &'static str,
        /// The field at fault.
        field: String,
        /// The value found.
        got: u64,
        /// The accepted values.
        accepted: String,
    },
    /// Parts that are stacked, but are not of one kind.
    #[error("{what}: {field} of parts[{part}] differs from that of parts[0]")]
    PartsDiffer {
        /// The thing being built.
        what: &'static str,
        /// The field that differs.
        field: String,
        /// The part at fault.
        part: usize,
    },
    /// A device that no kernel of this build runs on.
    #[error("{what}: no kernels for device {device}; this build has: {built}")]
    UnsupportedDevice {
        /// The thing being built.
        what: &'static str,
        /// The device asked for.
        device: String,
        /// The devices that this build has kernels for.
        built: &'static str,
    },
    /// A form that the kernels of this device do not take.
    #[error("{what}: {form} has no kernels on device {device}")]
    UnsupportedForm {
        /// The thing being built.
        what: &'static str,
        /// The form asked for.
        form: String,
        /// The device asked for.
        device: String,
    },
    /// A device other than the CPU, for a thing that only the CPU has kernels for.
    #[error("{what}: runs on the CPU only, not on device {device}")]
    CpuOnly {
        /// The thing being built.
        what: &'static str,
        /// The name of the device asked for, as settings know it.
        device: String,
    },
    /// A buffer larger than the device's largest.
    #[error("{what}: needs a buffer of {bytes} bytes, and the device's largest has {largest}")]
    BufferTooLarge {
        /// The thing being built.
        what: &'static str,
        /// The bytes asked for.
        bytes: u64,
        /// The bytes of its largest buffer.
        largest: u64,
    },
    /// Matrices behind one another whose places a kernel cannot count.
    #[error("{what}: {count} matrices take {bytes} bytes, but kernels reach only {most}")]
    StackTooLarge {
        /// The thing being built.
        what: &'static str,
        /// The number of matrices.
        count: usize,
        /// The bytes of all of them.
        bytes: u64,
        /// The largest number of bytes that kernels reach.
        most: u64,
    },
    /// The device did not do its work.
    #[error("device error: {why}")]
    Device {
        /// The device's text.
        why: String,
        /// Whether its memory ran out.
        is_out_of_memory: bool,
    },
    /// The allocator refused the memory.
    #[error("{what}: cannot allocate {bytes} bytes")]
    OutOfMemory {
        /// The thing being built.
        what: &'static str,
        /// The bytes asked for.
        bytes: usize,
    },
}

impl KernelError {
    /// Returns the error of a device. Errors come as text through burn and the queues of devices.
    /// The text shows whether cubecl reports that memory ran out.
    pub(crate) fn device(why: String) -> Self {
        let is_out_of_memory = why.contains("out of device memory");
        Self::Device { why, is_out_of_memory }
    }

    /// Returns the error for a thing that only the CPU has kernels for.
    #[cfg(feature = "gpu")]
    pub(crate) fn cpu_only(what: &'static str, device: &cubecl::Device) -> Self {
        Self::CpuOnly { what, device: crate::cube::device_name(device) }
    }

    /// Returns the error for a number format that only GPUs have kernels for.
    pub(crate) fn not_on_cpu(what: &'static str, form: &str) -> Self {
        Self::UnsupportedForm { what, form: form.to_owned(), device: "cpu".to_owned() }
    }

    /// Fails with [`KernelError::OutOfRange`] unless `ok`.
    pub(crate) fn require(
        ok: bool,
        what: &'static str,
        field: impl Into<String>,
        got: u64,
        accepted: impl Into<String>,
    ) -> Result<(), Self> {
        if ok {
            return Ok(());
        }
        Err(Self::OutOfRange { what, field: field.into(), got, accepted: accepted.into() })
    }

    /// Fails with [`KernelError::Length`] unless `got == expected`.
    pub(crate) fn require_len(
        what: &'static str,
        field: impl Into<String>,
        got: usize,
        expected: usize,
    ) -> Result<(), Self> {
        if got == expected {
            return Ok(());
        }
        Err(Self::Length { what, field: field.into(), got, expected })
    }
}
