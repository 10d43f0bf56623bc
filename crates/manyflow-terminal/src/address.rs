//! Addresses in options and files: all are read by [`manyflow_net::address`].

use std::io;
use std::net::SocketAddr;

use anyhow::{Error, Result};
use manyflow_net::address::{Address, AddressError, listen_advice};
use manyflow_net::unix_socket;

use crate::usage;

/// Reads an option with an address to listen on. `PORT` is the port of the examples in an error.
pub fn listen<const PORT: u16>(text: &str) -> Result<SocketAddr, AddressError> {
    Address::parse_listen(text, PORT)
}

/// Checks an option with an address to listen on, for commands that look its name up themselves.
pub fn check_listen<const PORT: u16>(text: &str) -> Result<String, AddressError> {
    listen::<PORT>(text).map(|_| text.to_owned())
}

/// Checks an option with an address to listen on for clients, which may be a Unix socket.
pub fn check_clients<const PORT: u16>(text: &str) -> Result<String, AddressError> {
    match unix_socket::path_of(text) {
        Some(path) => path.map(|_| text.to_owned()),
        None => check_listen::<PORT>(text),
    }
}

/// Checks an option with an address to connect to. One without a port has `PORT`.
pub fn connect<const PORT: u16>(text: &str) -> Result<String, AddressError> {
    Address::parse(text, Some(PORT)).map(|address| address.to_string())
}

/// Checks an option with an address to connect to that needs a port.
pub fn connect_with_port(text: &str) -> Result<String, AddressError> {
    Address::parse(text, None).map(|address| address.to_string())
}

/// Checks the address of a server of NATS clients as daemons print it: a URL or a Unix socket.
pub fn server(text: &str) -> Result<String, AddressError> {
    if let Some(path) = unix_socket::path_of(text) {
        return path.map(|_| text.to_owned());
    }
    let address = Address::parse_url(text, &["nats"], manyflow_messages::CLIENT_PORT);
    address.map(|address| address.to_string())
}

/// Checks the address of a nats-server, or its URL.
pub fn nats_server(text: &str) -> Result<String, AddressError> {
    let address = Address::parse_url(text, &["nats"], manyflow_messages::CLIENT_PORT);
    address.map(|address| address.to_string())
}

/// Reads the address to listen on of a key in a file.
pub fn listen_of_key<const PORT: u16>(key: &str, text: &str) -> Result<SocketAddr> {
    listen::<PORT>(text).map_err(|error| explain(key, error))
}

/// Returns the error of an option or key with a wrong address. It is one of the command line only
/// if a later attempt fails as well.
pub fn explain(key: &str, error: AddressError) -> Error {
    match error.may_pass() {
        true => Error::new(error).context(key.to_owned()),
        false => usage(format!("{key}: {error}")),
    }
}

/// Returns the error of an address that cannot be listened on. `option` names where the user has
/// written the address.
pub fn cannot_listen(option: &str, address: SocketAddr, cause: io::Error) -> Error {
    let advice = listen_advice(&cause);
    Error::msg(format!(
        "cannot listen on {address} ({option}): {cause}{advice}"
    ))
}

/// Returns the address of `host:port`, one of IPv4 if there is one.
///
/// # Errors
/// If the text is not an address with a port, or its name cannot be resolved.
pub async fn resolve(address: &str) -> Result<SocketAddr> {
    let parsed = Address::parse(address, None).map_err(|error| usage(error.to_string()))?;
    Ok(parsed.resolve().await?[0])
}
