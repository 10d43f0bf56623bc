//! The options of `keygen`.

use std::path::PathBuf;

use clap::Args;

pub(super) const KEYGEN_EXAMPLES: &str = "\
Example:
  manyflow keygen builds.key
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --sign builds.key
  manyflow recv http://192.0.2.1:8080/session.sdp --trust builds.key.pub

  # A key that the ends of a service share, to seal their messages
  manyflow keygen --shared-key service.key

  # Certificates for three daemons of an overlay
  manyflow keygen --certificates certificates --daemon a --daemon b --daemon c=c.example.net

Keys of `openssl genpkey -algorithm ed25519` will do, too.";

/// Arguments of `keygen`.
#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The file for the private key, which only its owner may read; the public key goes to
    /// FILE.pub. Existing files are never replaced
    #[arg(required_unless_present_any = ["certificates", "shared_key"])]
    pub(crate) file: Option<PathBuf>,
    /// Write a random key of 32 bytes in base64 to this file, which only its owner may read,
    /// instead of a pair of keys: a group key, or the shared key of a service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "certificates"])]
    pub(crate) shared_key: Option<PathBuf>,
    /// Make certificates for the daemons of an overlay in this folder, instead of a key: NAME.crt
    /// and NAME.key for each, and an authority in ca.crt and ca.key unless the folder has one
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "file",
        requires = "daemon"
    )]
    pub(crate) certificates: Option<PathBuf>,
    /// A daemon that gets a certificate, and the hosts at which clients connect to it by TLS; can
    /// be repeated
    #[arg(long, value_name = "NAME[=HOST,...]", requires = "certificates")]
    pub(crate) daemon: Vec<String>,
}
