//! The port that the server listens on.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::Check;

/// How long whoever has the port may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much it may say.
const MAX_ANSWER: u64 = 64 << 10;

/// The port is free, or an Ash server has it already.
pub(super) fn check(host: IpAddr, port: u16) -> Check {
    let addr = SocketAddr::new(host, port);
    match TcpListener::bind(addr) {
        Ok(_) if port == 0 => Check::ok("port", "any that is free will do"),
        Ok(_) => Check::ok("port", format!("{addr} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match health(addr) {
            Some(version) => {
                Check::ok("port", format!("an Ash server {version} answers on {addr}"))
            }
            None => Check::problem(
                "port",
                format!("{addr} is taken by another program"),
                "choose another with --port or ASH_PORT, or end that program",
            ),
        },
        Err(error) => Check::problem(
            "port",
            format!("{addr} cannot be listened on: {error}"),
            "choose another address with --host and --port, or ASH_HOST and ASH_PORT",
        ),
    }
}

/// The version of the Ash server at an address, if one is there.
fn health(addr: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET /health HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    // What came before it fell silent may be enough.
    let _silent = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.get(answer.find('{')?..=answer.rfind('}')?)?;
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    // What other servers say under the same path has no isolation in it.
    let is_ash = body["status"] == "ok" && body["isolation"].is_string();
    is_ash.then(|| body["version"].as_str().unwrap_or_default().to_owned())
}
