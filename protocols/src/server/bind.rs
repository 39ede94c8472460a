//! Taking the address.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// An address that is taken; connections wait until it is served.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
}

impl Listener {
    /// The address, with the port that was chosen where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Why an address cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another program has it.
    #[error(
        "port {port} on {host} is in use by another program; stop that, or choose another with --port (0: any free one)"
    )]
    InUse {
        /// The host asked for.
        host: String,
        /// The port asked for.
        port: u16,
    },
    /// The system does not let this user have it.
    #[error("port {port} on {host} may not be used by this user; choose one above 1023 with --port")]
    Forbidden {
        /// The host asked for.
        host: String,
        /// The port asked for.
        port: u16,
    },
    /// The system has no socket to give.
    #[error("port {port} on {host} cannot be listened on: {source}")]
    System {
        /// The host asked for.
        host: String,
        /// The port asked for.
        port: u16,
        /// What the system says.
        source: std::io::Error,
    },
    /// The host is not one of this machine's.
    #[error("`{host}` is not an address of this machine ({source}); use 127.0.0.1, or 0.0.0.0 for all")]
    Host {
        /// The host asked for.
        host: String,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Takes an address; port 0 picks a free one.
///
/// # Errors
/// If another program has it, or the system does not give it.
pub async fn bind(host: &str, port: u16) -> Result<Listener, BindError> {
    let taken = async {
        let socket = TcpListener::bind((host, port)).await?;
        let address = socket.local_addr()?;
        Ok(Listener { socket, address })
    };
    let host = host.to_owned();
    taken.await.map_err(|source: std::io::Error| match source.kind() {
        ErrorKind::AddrInUse => BindError::InUse { host, port },
        ErrorKind::PermissionDenied => BindError::Forbidden { host, port },
        // Names that nobody knows are told without a number of the system's.
        ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput => BindError::Host { host, source },
        _ if source.raw_os_error().is_none() => BindError::Host { host, source },
        _ => BindError::System { host, port, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_said_with_what_to_do() {
        let first = bind("127.0.0.1", 0).await.unwrap();
        let port = first.address().port();
        let error = bind("127.0.0.1", port).await.unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }));
        assert!(error.to_string().starts_with(&format!("port {port} on 127.0.0.1 is in use")));
    }

    #[tokio::test]
    async fn a_host_of_another_machine_is_named() {
        let error = bind("192.0.2.1", 0).await.unwrap_err();
        assert!(error.to_string().starts_with("`192.0.2.1` is not an address of this machine"), "{error}");
    }
}
