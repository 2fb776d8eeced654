//! Fetches from a small server of this machine, and probes that must not be answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::api::MemoryBudget;

/// Gives all names the same addresses.
struct FixedResolver(Vec<SocketAddr>);

impl Resolver for FixedResolver {
    fn resolve(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(addresses) })
    }
}

/// A server that answers each path in its own way, and counts its connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let len = stream.read(&mut request).await.unwrap_or(0);
                    let request = String::from_utf8_lossy(&request[..len]).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                    let _ = stream.write_all(answer(&path).as_bytes()).await;
                });
            }
        });
        Self { address, connections }
    }

    fn fetcher(&self, reaches: fn(IpAddr) -> bool) -> Fetcher {
        let domains = ["media.example".to_owned(), "127.0.0.1".to_owned()];
        let resolver = Box::new(FixedResolver(vec![self.address]));
        Fetcher { resolver, reaches, ..Fetcher::new(&domains, 100, Duration::from_secs(60)) }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn answer(path: &str) -> String {
    let redirect = |to: &str| format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\n\r\n");
    match path {
        "/picture" => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        "/moved" => redirect("/picture"),
        "/loop" => redirect("/loop"),
        "/elsewhere" => redirect("http://other.example/picture"),
        "/to-file" => redirect("file:///etc/passwd"),
        "/to-second-loopback" => redirect("http://127.0.0.2/picture"),
        "/to-loopback-v6" => redirect("http://[::1]/picture"),
        "/to-mapped" => redirect("http://[::ffff:127.0.0.2]/picture"),
        "/to-metadata" => redirect("//169.254.169.254/latest/meta-data"),
        "/to-decimal" => redirect("http://2130706434/picture"),
        "/nowhere" => "HTTP/1.1 302 Found\r\n\r\n".to_owned(),
        "/large" => format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(101)),
        "/announced" => "HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n".to_owned(),
        "/cut" => "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhel".to_owned(),
        "/garbage" => "no HTTP\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    }
}

fn memory() -> RequestMemory {
    RequestMemory::new(&MemoryBudget::new(16 << 20, "m", "0"))
}

fn any(_: IpAddr) -> bool {
    true
}

#[tokio::test]
async fn a_file_is_fetched_from_an_allowed_domain() {
    let server = Server::start().await;
    let fetcher = server.fetcher(any);
    let memory = memory();
    for path in ["picture", "moved"] {
        let found = fetcher.fetch(&format!("http://media.example/{path}"), &memory).await;
        assert_eq!(found.unwrap(), b"hello", "{path}");
    }
    assert_eq!(memory.lease().bytes(), 20);
    for (path, part) in [
        ("none", "HTTP 404"),
        ("loop", "more than 5 redirects"),
        ("elsewhere", "allowed domains"),
        ("to-file", "either a HTTP"),
        ("nowhere", "names no place"),
        ("large", "more than 100 bytes"),
        ("announced", "more than 100 bytes"),
        ("cut", "Failed to fetch"),
        ("garbage", "Failed to fetch"),
    ] {
        let url = format!("http://media.example/{path}");
        let error = fetcher.fetch(&url, &memory).await.unwrap_err();
        assert!(error.status == 400 && error.message.contains(part), "{path}: {}", error.message);
    }
}

#[tokio::test]
async fn no_connection_is_made_to_an_address_that_is_not_public() {
    let server = Server::start().await;
    let fetcher = server.fetcher(is_public);
    let port = server.address.port();
    // The name resolves to this machine.
    let named = fetcher.fetch(&format!("http://media.example:{port}/picture"), &memory()).await;
    let addressed = fetcher.fetch(&format!("http://127.0.0.1:{port}/picture"), &memory()).await;
    for error in [named.unwrap_err(), addressed.unwrap_err()] {
        assert!(error.message.contains("not of the public internet"), "{}", error.message);
    }
    let every = Fetcher {
        domains: vec!["*".to_owned()],
        resolver: Box::new(SystemResolver),
        ..server.fetcher(is_public)
    };
    for host in [
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "10.0.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        let url = format!("http://{host}:{port}/picture");
        let error = every.fetch(&url, &memory()).await.unwrap_err();
        assert_eq!(error.status, 400, "{host}");
        let is_refused = ["public internet", "cannot be resolved", "not valid"]
            .iter()
            .any(|part| error.message.contains(part));
        assert!(is_refused, "{host}: {}", error.message);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_this_machine_is_not_followed() {
    let server = Server::start().await;
    // The first hop is allowed to reach the server of the test.
    let second = Location::parse("http://media.example/moved").unwrap();
    let next = second.redirected("http://[::1]/x").unwrap();
    let fetcher = server.fetcher(is_public);
    assert!(fetcher.check_domain(&next).is_err());
    assert!(fetcher.addresses(&next).await.is_err());
    // One private address among public ones is enough.
    let mixed = vec!["8.8.8.8:80".parse().unwrap(), server.address];
    let fetcher = Fetcher { resolver: Box::new(FixedResolver(mixed)), ..fetcher };
    assert!(fetcher.fetch("http://media.example/picture", &memory()).await.is_err());
    assert_eq!(server.connections(), 0);
}

/// The first hop is a real answer over the wire. The second is refused before it is connected to.
#[tokio::test]
async fn a_redirect_over_the_wire_reaches_no_other_private_address() {
    fn only_the_server(address: IpAddr) -> bool {
        address == IpAddr::from([127, 0, 0, 1]) || is_public(address)
    }
    /// Gives the name of the test's server its address, and resolves addresses as the system does.
    struct Mixed(SocketAddr);
    impl Resolver for Mixed {
        fn resolve(
            &self,
            host: String,
            port: u16,
        ) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            match host.as_str() {
                "media.example" => {
                    let address = self.0;
                    Box::pin(async move { Ok(vec![address]) })
                }
                _ => SystemResolver.resolve(host, port),
            }
        }
    }
    let server = Server::start().await;
    let fetcher = Fetcher {
        domains: vec!["*".to_owned()],
        resolver: Box::new(Mixed(server.address)),
        ..server.fetcher(only_the_server)
    };
    assert!(fetcher.fetch("http://media.example/picture", &memory()).await.is_ok());
    for (index, path) in
        ["to-second-loopback", "to-loopback-v6", "to-mapped", "to-metadata", "to-decimal"]
            .into_iter()
            .enumerate()
    {
        let url = format!("http://media.example/{path}");
        let error = fetcher.fetch(&url, &memory()).await.unwrap_err();
        let is_refused = ["public internet", "cannot be resolved", "not valid"]
            .iter()
            .any(|part| error.message.contains(part));
        assert!(error.status == 400 && is_refused, "{path}: {}", error.message);
        assert_eq!(server.connections(), index + 2, "{path}: only the first hop");
    }
}

#[tokio::test]
async fn nothing_is_fetched_without_allowed_domains() {
    let server = Server::start().await;
    let fetcher = Fetcher { domains: Vec::new(), ..server.fetcher(any) };
    let error = fetcher.fetch("http://media.example/picture", &memory()).await.unwrap_err();
    assert!(error.message.contains("--allowed-media-domains"), "{}", error.message);
    let fetcher = server.fetcher(any);
    let error = fetcher.fetch("http://other.example/picture", &memory()).await.unwrap_err();
    let message = "The URL must be from one of the allowed domains: ['media.example', \
                   '127.0.0.1']. Input URL domain: other.example";
    assert_eq!((error.status.as_u16(), error.message.as_str()), (400, message));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let resolver = Box::new(FixedResolver(vec![listener.local_addr().unwrap()]));
    let domains = ["*".to_owned()];
    let fetcher = Fetcher::new(&domains, 100, Duration::from_millis(50));
    let fetcher = Fetcher { resolver, reaches: any, ..fetcher };
    let error = fetcher.fetch("http://media.example/picture", &memory()).await.unwrap_err();
    assert!(error.message.contains("media_fetch_timeout_secs"), "{}", error.message);
}
