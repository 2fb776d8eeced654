//! An authority, and what it signs.

use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;

/// Signs certificates and keeps them in a folder of its own.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// Two files.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("authority.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// The file of its own certificate.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A certificate for `localhost` in files called `name`; what they held is replaced.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.folder.path().join(format!("{name}.{kind}.pem"));
        let signed = Signed { certificate: file("cert"), key: file("key") };
        fs::write(&signed.key, key.serialize_pem()).unwrap();
        fs::write(&signed.certificate, certificate.pem()).unwrap();
        signed
    }

    /// What a client is told that trusts it, speaks `protocol`, and shows `own`.
    pub(crate) fn client(&self, protocol: &str, own: Option<&Signed>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(Signed { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(config)
    }
}
