//! The keys that open the server, and the tenants that they belong to.

use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::api::Tenant;
use crate::{config::ServerSettings, files};

/// A file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {path:?}: {reason}")]
pub struct KeyFileError {
    /// The setting that names the file.
    pub setting: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

type KeyDigest = [u8; 32];

/// The routes and facts that a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Role {
    /// Everything but the operators' routes. Of other clients' requests it sees only counts.
    Client,
    /// Everything.
    Operator,
}

/// The tenant whose key a request came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) struct Identity {
    /// Equal for equal keys as long as the server runs.
    pub(in crate::server) tenant: Tenant,
    pub(in crate::server) role: Role,
    /// Keeps this key's cached prefixes apart from those of other keys. `None` if they are shared.
    /// Equal in every run.
    pub(in crate::server) cache_scope: Option<u64>,
}

impl Identity {
    /// Returns the only tenant whose requests it may see and end. `None` stands for all tenants.
    pub(in crate::server) fn sees_only(&self) -> Option<Tenant> {
        (self.role == Role::Client).then_some(self.tenant)
    }
}

/// Digests of the keys. Comparing digests takes the same time for every key, whatever its length.
#[derive(Debug)]
pub(in crate::server) struct ApiKeys {
    clients: Source,
    operators: Source,
    is_needed: bool,
    share_prefix_cache: bool,
    /// Every key that was ever read. Its index is its tenant.
    known: RwLock<Vec<Known>>,
}

/// The places that the keys of one role come from.
#[derive(Debug)]
struct Source {
    /// The setting that names the file.
    setting: &'static str,
    /// The keys in the settings, which never change.
    fixed: Vec<KeyDigest>,
    file: Option<PathBuf>,
}

#[derive(Debug)]
struct Known {
    digest: KeyDigest,
    /// Its current role. `None` if it opens nothing.
    role: Option<Role>,
}

impl ApiKeys {
    /// Reads the keys in the settings and in the files that these name.
    pub(in crate::server) fn new(config: &ServerSettings) -> Result<Self, KeyFileError> {
        let source = |setting, keys: &[String], file: &Option<PathBuf>| Source {
            setting,
            fixed: keys.iter().map(|key| digest(key)).collect(),
            file: file.clone(),
        };
        let keys = Self {
            clients: source("api_key_file", &config.api_keys, &config.api_key_file),
            operators: source(
                "admin_api_key_file",
                &config.admin_api_keys,
                &config.admin_api_key_file,
            ),
            is_needed: config.needs_keys(),
            share_prefix_cache: config.share_prefix_cache_between_keys,
            known: RwLock::default(),
        };
        keys.read()?;
        Ok(keys)
    }

    /// Returns the files of keys.
    pub(in crate::server) fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.clients.file, &self.operators.file];
        files.into_iter().flatten().map(PathBuf::as_path)
    }

    /// Returns whether clients must send a key. A file without keys lets no client in.
    pub(in crate::server) fn are_needed(&self) -> bool {
        self.is_needed
    }

    /// Reads the files again. If one cannot be used, all keys stay as they are.
    pub(in crate::server) fn reload(&self) {
        match self.read() {
            Ok(count) => tracing::info!(keys = count, "the API keys were read again"),
            Err(error) => tracing::error!(%error, "the API keys stay as they were"),
        }
    }

    /// Reads the files. Returns the number of current keys.
    fn read(&self) -> Result<usize, KeyFileError> {
        let (clients, operators) = (self.clients.read()?, self.operators.read()?);
        let role = |digest: &KeyDigest| {
            let is_operators = operators.contains(digest).then_some(Role::Operator);
            is_operators.or(clients.contains(digest).then_some(Role::Client))
        };
        let mut known = self.known.write();
        for key in known.iter_mut() {
            key.role = role(&key.digest);
        }
        for &digest in clients.iter().chain(&operators) {
            if known.iter().all(|key| key.digest != digest) {
                known.push(Known { digest, role: role(&digest) });
            }
        }
        Ok(known.iter().filter(|key| key.role.is_some()).count())
    }

    /// Returns the identity of the key in the headers.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Option<Identity> {
        given_keys(headers).find_map(|key| self.identify_key(key))
    }

    /// Returns a name of this tenant's key that shows nothing of the key and is equal in every run.
    pub(in crate::server) fn name_of(&self, tenant: Tenant) -> Option<u64> {
        self.known.read().get(tenant.0 as usize).map(|key| name(&key.digest))
    }

    /// Returns the tenant whose key has this name, if the key opens the server now.
    pub(in crate::server) fn named(&self, key: u64) -> Option<Tenant> {
        let known = self.known.read();
        let is_it = |known: &Known| known.role.is_some() && name(&known.digest) == key;
        let index = known.iter().position(is_it)?;
        u32::try_from(index).ok().map(Tenant)
    }

    /// Returns the identity of a tenant whose key opens the server now.
    pub(in crate::server) fn identity_of(&self, tenant: Tenant) -> Option<Identity> {
        let known = self.known.read();
        let key = known.get(tenant.0 as usize)?;
        Some(self.identity(&known, tenant, key.role?, &key.digest))
    }

    fn identity(
        &self,
        known: &[Known],
        tenant: Tenant,
        role: Role,
        digest: &KeyDigest,
    ) -> Identity {
        let is_only = known.iter().filter(|key| key.role.is_some()).count() == 1;
        let cache_scope = (!is_only && !self.share_prefix_cache).then(|| scope(digest));
        Identity { tenant, role, cache_scope }
    }

    fn identify_key(&self, key: &str) -> Option<Identity> {
        let given = digest(key);
        let known = self.known.read();
        // Every key is compared to its end: an early exit would show which byte was wrong.
        let found = known.iter().zip(0..).fold(None, |found, (key, index)| {
            let is_this = equal(&key.digest, &given);
            found.or(key.role.filter(|_| is_this).map(|role| (Tenant(index), role)))
        });
        let (tenant, role) = found?;
        Some(self.identity(&known, tenant, role, &given))
    }
}

impl Source {
    fn read(&self) -> Result<Vec<KeyDigest>, KeyFileError> {
        let mut keys = self.fixed.clone();
        if let Some(path) = &self.file {
            let refuse =
                |reason| KeyFileError { setting: self.setting, path: path.clone(), reason };
            let text = files::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
            keys.extend(parse(&text).map_err(refuse)?.into_iter().map(digest));
        }
        Ok(keys)
    }
}

/// Returns the keys in the headers: a Bearer token, and `x-api-key` as Anthropic's clients send it.
/// One of them may be a proxy's own.
fn given_keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token)
    });
    let keys = [bearer, header(X_API_KEY)].into_iter().flatten().map(str::trim);
    keys.filter(|key| !key.is_empty())
}

/// Returns the keys, one a line. `#` begins a comment.
fn parse(text: &str) -> Result<Vec<&str>, String> {
    let mut keys = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        match (words.next().filter(|word| !word.starts_with('#')), words.next()) {
            (None, _) => {}
            (Some(key), None) => keys.push(key),
            (Some(key), Some(comment)) if comment.starts_with('#') => keys.push(key),
            // The line itself is a secret.
            (Some(_), Some(_)) => return Err(format!("line {number} holds more than one key")),
        }
    }
    Ok(keys)
}

fn digest(key: &str) -> KeyDigest {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns a hash that shows nothing of the key's own digest.
fn scope(key: &KeyDigest) -> u64 {
    hashed("prefix cache", key)
}

/// Returns the name of a key in the journal.
fn name(key: &KeyDigest) -> u64 {
    hashed("journal", key)
}

fn hashed(purpose: &str, key: &KeyDigest) -> u64 {
    let hashed = Sha256::new().chain_update(purpose).chain_update(key).finalize();
    hashed.iter().take(8).fold(0, |scope, &byte| scope << 8 | u64::from(byte))
}

fn equal(a: &KeyDigest, b: &KeyDigest) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(config: ServerSettings) -> ApiKeys {
        ApiKeys::new(&config).unwrap()
    }

    fn two() -> ServerSettings {
        let api_keys = vec!["first".to_owned(), "second".to_owned()];
        ServerSettings { api_keys, ..Default::default() }
    }

    fn identity(keys: &ApiKeys, header: &str) -> Option<Identity> {
        keys.identify(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]))
    }

    fn tenant(keys: &ApiKeys, header: &str) -> Option<Tenant> {
        identity(keys, header).map(|identity| identity.tenant)
    }

    #[test]
    fn every_key_opens_and_identifies_its_tenant() {
        let keys = keys(two());
        assert_eq!(tenant(&keys, "Bearer first"), Some(Tenant(0)));
        assert_eq!(tenant(&keys, "bearer second"), Some(Tenant(1)));
        for wrong in ["Bearer third", "Bearer ", "Bearer firs", "Basic first", "first"] {
            assert_eq!(tenant(&keys, wrong), None, "{wrong}");
        }
        assert_eq!(keys.identify(&HeaderMap::new()), None);
        // A proxy's own key beside the client's.
        let both = |bearer: &str, key: &str| {
            let headers = [(AUTHORIZATION, bearer), (X_API_KEY, key)];
            let headers = headers.map(|(name, value)| (name, value.parse().unwrap()));
            keys.identify(&HeaderMap::from_iter(headers)).map(|identity| identity.tenant)
        };
        assert_eq!(both("Bearer first", ""), Some(Tenant(0)));
        assert_eq!(both("Bearer gateway", "second"), Some(Tenant(1)));
        assert_eq!(both("Bearer third", "fourth"), None);
        let with = |key: &'static str| {
            let headers = HeaderMap::from_iter([(X_API_KEY, key.parse().unwrap())]);
            keys.identify(&headers).map(|identity| identity.tenant)
        };
        assert_eq!((with("second"), with("third")), (Some(Tenant(1)), None));
    }

    #[test]
    fn an_operators_key_is_known_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operators");
        std::fs::write(&path, "root\n").unwrap();
        let keys = keys(ServerSettings {
            admin_api_keys: vec!["second".to_owned()],
            admin_api_key_file: Some(path.clone()),
            ..two()
        });
        let role = |key: &str| identity(&keys, key).map(|identity| identity.role);
        assert_eq!(role("Bearer first"), Some(Role::Client));
        assert_eq!(role("Bearer second"), Some(Role::Operator), "the more it opens, the better");
        assert_eq!(role("Bearer root"), Some(Role::Operator));
        assert_eq!(identity(&keys, "Bearer first").unwrap().sees_only(), Some(Tenant(0)));
        assert_eq!(identity(&keys, "Bearer root").unwrap().sees_only(), None);
        std::fs::write(&path, "").unwrap();
        keys.reload();
        assert_eq!(role("Bearer root"), None);
    }

    #[test]
    fn an_operators_key_alone_closes_the_server() {
        let admin_api_keys = vec!["root".to_owned()];
        let keys = keys(ServerSettings { admin_api_keys, ..Default::default() });
        assert!(keys.are_needed());
        assert_eq!(tenant(&keys, "Bearer root"), Some(Tenant(0)));
    }

    #[test]
    fn no_key_is_no_key() {
        let empty = ServerSettings { api_keys: vec![String::new()], ..Default::default() };
        let keys = keys(empty);
        assert_eq!(tenant(&keys, "Bearer "), None);
        let headers = HeaderMap::from_iter([(X_API_KEY, "".parse().unwrap())]);
        assert_eq!(keys.identify(&headers), None);
    }

    #[test]
    fn several_keys_keep_their_prefixes_apart() {
        let scopes = |config| {
            let keys = keys(config);
            ["Bearer first", "Bearer second"].map(|key| identity(&keys, key)?.cache_scope)
        };
        let [first, second] = scopes(two());
        assert!(first.is_some() && second.is_some() && first != second);
        assert_eq!(scopes(two()), [first, second], "in every run");
        let shared = ServerSettings { share_prefix_cache_between_keys: true, ..two() };
        assert_eq!(scopes(shared), [None, None]);
        let alone = ServerSettings { api_keys: vec!["first".to_owned()], ..Default::default() };
        assert_eq!(scopes(alone), [None, None]);
    }

    #[test]
    fn a_file_holds_one_key_a_line() {
        let text = "# ours\n\n first \nsecond # of the website\n";
        assert_eq!(parse(text).unwrap(), ["first", "second"]);
        assert_eq!(parse("a\nb c\n").unwrap_err(), "line 2 holds more than one key");
        assert!(parse("# nobody\n").unwrap().is_empty());
    }

    #[test]
    fn reloading_keeps_the_tenants() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("a\nb\n");
        let keys = keys(ServerSettings { api_key_file: Some(path.clone()), ..Default::default() });
        let whose = |key: &str| tenant(&keys, &format!("Bearer {key}"));
        assert_eq!((whose("a"), whose("b")), (Some(Tenant(0)), Some(Tenant(1))));
        write("c\nb\n");
        keys.reload();
        assert_eq!((whose("a"), whose("b"), whose("c")), (None, Some(Tenant(1)), Some(Tenant(2))));
        write("a a a\n");
        keys.reload();
        assert_eq!(whose("b"), Some(Tenant(1)), "what cannot be read changes nothing");
        write("");
        keys.reload();
        assert_eq!((whose("b"), keys.are_needed()), (None, true), "it never opens by itself");
        write("a\n");
        keys.reload();
        assert_eq!(whose("a"), Some(Tenant(0)));
    }
}
