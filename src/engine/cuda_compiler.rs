//! The part of NVIDIA's toolkit that the compilers of CUDA kernels need. It is looked for before
//! the model is loaded, so that a start without it ends with words that help.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::StartError;

/// Where cubecl 0.11 looks for NVIDIA's toolkit if `CUDA_PATH` names no folder.
const ROOTS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// The file or folder of the toolkit that is needed. LLVM has no exponential function for NVIDIA's
/// GPUs: it comes from this library. NVRTC needs the headers.
const NEEDED: &str = match cfg!(feature = "cuda-nvrtc") {
    true => "include/cuda_fp16.h",
    false => "nvvm/libdevice/libdevice.10.bc",
};

/// # Errors
/// [`StartError::NoCudaToolkit`] if the needed part of the toolkit is not there.
pub(super) fn check() -> Result<(), StartError> {
    let named = env::var_os("CUDA_PATH").map(PathBuf::from);
    match is_complete(named.as_deref()) {
        true => Ok(()),
        false => Err(StartError::NoCudaToolkit { needed: NEEDED, named }),
    }
}

fn is_complete(named: Option<&Path>) -> bool {
    match named {
        Some(root) => root.join(NEEDED).is_file(),
        None => ROOTS.iter().any(|root| Path::new(root).join(NEEDED).is_file()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_named_folder_must_have_the_file() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_complete(Some(root.path())));
        let file = root.path().join(NEEDED);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
        assert!(is_complete(Some(root.path())));
    }
}
