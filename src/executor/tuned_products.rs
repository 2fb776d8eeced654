//! The measurements of products by tensor cores, kept in a file from one start to the next.

use std::{env, fs, io, path::PathBuf};

use playhouse_kernels::{TunedProduct, adopt_tuned_products, tuned_products};

use crate::files;

/// A JSON file with all known measurements.
#[derive(Debug)]
pub(super) struct TunedProductsFile {
    path: PathBuf,
}

impl TunedProductsFile {
    /// Returns the user's file: `playhouse/products.json` in `$XDG_CACHE_HOME`, which defaults to
    /// `~/.cache`. `None` for a user without a home.
    pub(super) fn of_user() -> Option<Self> {
        let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(Self { path: cache.join("playhouse/products.json") })
    }

    /// Adopts the measurements in the file. If it cannot be read, everything is measured again.
    pub(super) fn adopt(&self) {
        match self.read() {
            Ok(products) => adopt_tuned_products(products),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "measurements are not read");
            }
        }
    }

    /// Writes all known measurements, if they are more than the file has. If it cannot be written,
    /// the next start measures again.
    pub(super) fn keep(&self) {
        let known = tuned_products();
        if self.read().is_ok_and(|kept| kept == known) {
            return;
        }
        if let Err(error) = self.write(&known) {
            tracing::warn!(path = %self.path.display(), %error, "measurements are not kept");
        }
    }

    fn read(&self) -> io::Result<Vec<TunedProduct>> {
        Ok(serde_json::from_slice(&files::read(&self.path)?)?)
    }

    fn write(&self, products: &[TunedProduct]) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        files::replace(&self.path, &serde_json::to_vec_pretty(products)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_measurements_are_read() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = TunedProductsFile { path: folder.path().join("a/products.json") };
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        let product = TunedProduct {
            device: "cuda:0".to_owned(),
            dtype: "bf16".to_owned(),
            rows: 64,
            inputs: 128,
            outputs: 256,
            routine: None,
        };
        file.write(std::slice::from_ref(&product)).unwrap();
        assert_eq!(file.read().unwrap(), [product]);
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
        fs::write(&file.path, "no JSON").unwrap();
        file.adopt();
        file.keep();
        assert_eq!(file.read().unwrap(), tuned_products());
    }
}
