//! The file of `manyflow bridge`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use manyflow_bridge::{BridgeConfig, StreamConfig, Way};
use manyflow_messages::Credentials;
use manyflow_net::tls::Authorities;
use manyflow_scenario::read_tables;
use manyflow_terminal::failure::read_description;
use manyflow_terminal::usage;
use serde::Deserialize;

use crate::address;

/// The file of a bridge.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct BridgeFile {
    site: String,
    nats: Server,
    daemon: Option<Server>,
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    streams: Vec<StreamTable>,
    /// The folder of the file, in which relative paths begin.
    #[serde(skip)]
    folder: PathBuf,
}

/// A server: its address, or a table.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a server is an address such as \"127.0.0.1:4222\", or a table with the keys address, user, password-file, token-file, tls and ca, and nkey-file or credentials for nats"
)]
enum Server {
    Address(String),
    Table(ServerTable),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ServerTable {
    address: String,
    user: Option<String>,
    password_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    /// For nats only, as the next one.
    nkey_file: Option<PathBuf>,
    credentials: Option<PathBuf>,
    #[serde(default)]
    tls: bool,
    ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StreamTable {
    name: String,
    to: Option<Vec<String>>,
    from: Option<String>,
    /// The name of the stream at the other site, if it is another one.
    stream: Option<String>,
}

impl From<Server> for ServerTable {
    fn from(server: Server) -> ServerTable {
        match server {
            Server::Table(table) => table,
            Server::Address(address) => ServerTable {
                address,
                ..ServerTable::default()
            },
        }
    }
}

impl BridgeFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid. Messages have the line and the key.
    pub(super) fn read(path: &Path) -> Result<BridgeFile> {
        let shown = path.display();
        let text = read_description(path)?;
        let file = read_tables(&shown.to_string(), &text);
        let file: BridgeFile = file.map_err(|error| usage(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(BridgeFile {
            folder: folder.to_owned(),
            ..file
        })
    }

    /// Returns the bridge's configuration.
    ///
    /// # Errors
    /// If keys contradict each other, an address is invalid, or a secret cannot be read.
    pub(super) fn config(self) -> Result<BridgeConfig> {
        let BridgeFile {
            site,
            nats,
            daemon,
            subjects,
            streams,
            folder,
        } = self;
        let nats = ServerTable::from(nats);
        let daemon = daemon.map_or_else(ServerTable::default, ServerTable::from);
        let own = match daemon.address.as_str() {
            "" => BridgeConfig::default_daemon(),
            text => address::server(text).map_err(|error| address::explain("daemon", error))?,
        };
        let server = address::nats_server(&nats.address);
        let server = server.map_err(|error| address::explain("nats", error))?;
        if daemon.nkey_file.is_some() || daemon.credentials.is_some() {
            let problem =
                "daemon: nkey-file and credentials are for nats; give password-file or token-file";
            return Err(usage(problem.to_owned()));
        }
        let mut config = BridgeConfig::new(&site, &server, &own);
        config.daemon_options.credentials = daemon.credentials("daemon", &folder)?;
        config.daemon_options.tls = daemon.authorities(&folder)?;
        match nats.credentials("nats", &folder)? {
            Some(Credentials::Password { name, password }) => {
                config.nats_options.user = Some((name, password));
            }
            Some(Credentials::Token(token)) => config.nats_options.token = Some(token),
            None => {}
        }
        let seed = nats
            .nkey_file
            .as_ref()
            .map(|path| secret(&folder.join(path)));
        config.nats_options.nkey = seed.transpose()?;
        // The library reads these files whenever it connects.
        nats.authorities(&folder)?;
        let credentials = nats.credentials.as_ref().map(|path| folder.join(path));
        credentials.as_deref().map(read_description).transpose()?;
        config.nats_options.credentials = credentials;
        config.nats_options.tls = nats.tls;
        config.nats_options.ca = nats.ca.map(|path| folder.join(path));
        config.subjects = subjects;
        config.streams = streams
            .into_iter()
            .map(StreamTable::config)
            .collect::<Result<_>>()?;
        Ok(config)
    }
}

impl ServerTable {
    fn credentials(&self, key: &str, folder: &Path) -> Result<Option<Credentials>> {
        match (&self.user, &self.password_file, &self.token_file) {
            (None, None, None) => Ok(None),
            (Some(name), Some(path), None) => Ok(Some(Credentials::Password {
                name: name.clone(),
                password: secret(&folder.join(path))?,
            })),
            (None, None, Some(path)) => Ok(Some(Credentials::Token(secret(&folder.join(path))?))),
            _ => Err(usage(format!(
                "{key}: a user has a password-file; a token-file stands alone"
            ))),
        }
    }

    fn authorities(&self, folder: &Path) -> Result<Option<Authorities>> {
        let path = self.ca.as_ref().map(|path| folder.join(path));
        let wanted = self.tls || path.is_some();
        let read = || Authorities::read(path.as_deref());
        Ok(wanted.then(read).transpose()?)
    }
}

impl StreamTable {
    fn config(self) -> Result<StreamConfig> {
        let way = match (self.to, self.from, self.stream) {
            (Some(sites), None, None) => Way::To(sites),
            (None, Some(site), stream) => Way::From {
                site,
                stream: stream.unwrap_or_else(|| self.name.clone()),
            },
            _ => {
                return Err(usage(format!(
                    "the stream {}: give either `to` with the sites that get its messages, or `from` \
                     with the site whose messages it gets, and `stream` if that has another name there",
                    self.name
                )));
            }
        };
        Ok(StreamConfig {
            name: self.name,
            way,
        })
    }
}

fn secret(path: &Path) -> Result<String> {
    let text = read_description(path)?;
    let secret = text.trim_end_matches(['\r', '\n']).to_owned();
    match secret.is_empty() {
        true => Err(usage(format!(
            "{} is empty: write a secret to it",
            path.display()
        ))),
        false => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<BridgeConfig> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "word\n").unwrap();
        let path = folder.path().join("bridge.toml");
        std::fs::write(&path, format!("site = \"a\"\n{lines}\n")).unwrap();
        BridgeFile::read(&path)?.config()
    }

    #[test]
    fn servers_have_an_address_or_a_table() {
        let config = read("nats = \"nats://127.0.0.1\"\nsubjects = [\"x\"]").unwrap();
        assert_eq!(config.nats, "127.0.0.1:4222");
        assert_eq!(config.daemon, BridgeConfig::default_daemon());
        let config = read(
            "[nats]\naddress = \"localhost:1\"\nuser = \"u\"\npassword-file = \"secret\"\n\
             [daemon]\naddress = \"unix:/run/m.sock\"\ntoken-file = \"secret\"",
        );
        let config = config.unwrap();
        assert_eq!(config.nats_options.user, Some(("u".into(), "word".into())));
        assert_eq!(config.daemon, "unix:/run/m.sock");
        let credentials = config.daemon_options.credentials;
        assert!(matches!(credentials, Some(Credentials::Token(token)) if token == "word"));
    }

    #[test]
    fn keys_and_credentials_are_for_nats() {
        let lines = |table: &str, key: &str| {
            let other = if table == "nats" {
                ""
            } else {
                "nats = \"h\"\n"
            };
            read(&format!(
                "{other}[{table}]\naddress = \"h:1\"\n{key} = \"secret\""
            ))
        };
        let options = lines("nats", "nkey-file").unwrap().nats_options;
        assert_eq!(options.nkey.as_deref(), Some("word"));
        let options = lines("nats", "credentials").unwrap().nats_options;
        assert!(options.credentials.unwrap().ends_with("secret"));
        for key in ["nkey-file", "credentials"] {
            let error = lines("daemon", key).unwrap_err().to_string();
            assert!(error.starts_with("daemon: "), "{error}");
        }
        let missing = "[nats]\naddress = \"h\"\ncredentials = \"none.creds\"";
        let error = read(missing).unwrap_err().to_string();
        assert!(error.contains("none.creds"), "{error}");
    }

    #[test]
    fn streams_have_one_direction() {
        let lines = |stream: &str| format!("nats = \"h\"\n[[streams]]\nname = \"S\"\n{stream}");
        let config = read(&lines("from = \"b\"")).unwrap();
        let (site, stream) = ("b".to_owned(), "S".to_owned());
        assert_eq!(config.streams[0].way, Way::From { site, stream });
        for wrong in [
            "",
            "to = [\"b\"]\nfrom = \"b\"",
            "to = [\"b\"]\nstream = \"T\"",
        ] {
            let error = read(&lines(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("the stream S: "), "{error}");
        }
    }

    #[test]
    fn a_wrong_key_is_refused_with_its_line() {
        let error = read("nats = \"h\"\nsubject = []").unwrap_err().to_string();
        assert!(error.contains("bridge.toml:3: "), "{error}");
        let error = read("nats = \"unix:/x\"").unwrap_err().to_string();
        assert!(error.starts_with("nats: "), "{error}");
    }
}
