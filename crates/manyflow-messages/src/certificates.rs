//! Certificates for a small deployment: an authority, and a certificate for each daemon.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// The years for which certificates are valid.
const YEARS: i32 = 10;

/// The reason why certificates cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A file exists already.
    #[error("{0} exists already: remove it first, or choose another folder or name")]
    Exists(PathBuf),
    /// The authority's files cannot be used, or a name cannot be certified.
    #[error("{what}: {cause}")]
    Unusable {
        /// The file or the name.
        what: String,
        /// The cause.
        cause: rcgen::Error,
    },
}

/// A daemon that gets a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The daemon's name.
    pub name: String,
    /// Hosts and addresses at which clients connect to the daemon by TLS.
    pub hosts: Vec<String>,
}

/// Makes a certificate for each daemon, in the files `NAME.crt` and `NAME.key` of `folder`. Uses
/// the authority in `ca.crt` and `ca.key` there, and makes it if it does not exist. Returns the
/// files that were written. Existing files are never replaced.
///
/// # Errors
/// Returns an error if a file exists already or cannot be written, or if the authority cannot be
/// used.
pub fn make_certificates(
    folder: &Path,
    subjects: &[Subject],
    year: i32,
) -> Result<Vec<PathBuf>, CertificateError> {
    std::fs::create_dir_all(folder).map_err(|cause| failed(folder, cause))?;
    let mut written = Vec::new();
    let issuer = authority(folder, year, &mut written)?;
    for subject in subjects {
        let unusable = |cause| CertificateError::Unusable {
            what: subject.name.clone(),
            cause,
        };
        let names = [&subject.name].into_iter().chain(&subject.hosts).cloned();
        let names: Vec<_> = names.collect();
        let mut parameters = CertificateParams::new(names).map_err(unusable)?;
        parameters.distinguished_name = common_name(&subject.name);
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        set_validity(&mut parameters, year);
        let key = KeyPair::generate().map_err(unusable)?;
        let certificate = parameters.signed_by(&key, &issuer).map_err(unusable)?;
        let file = |ending: &str| folder.join(format!("{}.{ending}", subject.name));
        write(&file("key"), &key.serialize_pem(), 0o600, &mut written)?;
        write(&file("crt"), &certificate.pem(), 0o644, &mut written)?;
    }
    Ok(written)
}

fn authority(
    folder: &Path,
    year: i32,
    written: &mut Vec<PathBuf>,
) -> Result<Issuer<'static, KeyPair>, CertificateError> {
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| folder.join(name));
    let unusable = |cause| CertificateError::Unusable {
        what: certificate.display().to_string(),
        cause,
    };
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name("authority of an overlay of manyflow");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut parameters, year);
    if key.exists() {
        let pem = std::fs::read_to_string(&key).map_err(|cause| failed(&key, cause))?;
        let pair = KeyPair::from_pem(&pem).map_err(unusable)?;
        return Ok(Issuer::new(parameters, pair));
    }
    let pair = KeyPair::generate().map_err(unusable)?;
    let own = parameters.self_signed(&pair).map_err(unusable)?;
    write(&key, &pair.serialize_pem(), 0o600, written)?;
    write(&certificate, &own.pem(), 0o644, written)?;
    Ok(Issuer::new(parameters, pair))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_validity(parameters: &mut CertificateParams, year: i32) {
    parameters.not_before = date_time_ymd(year, 1, 1);
    parameters.not_after = date_time_ymd(year + YEARS, 12, 31);
}

fn write(
    path: &Path,
    text: &str,
    mode: u32,
    written: &mut Vec<PathBuf>,
) -> Result<(), CertificateError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let done = file.and_then(|mut file| file.write_all(text.as_bytes()));
    done.map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => CertificateError::Exists(path.to_owned()),
        _ => failed(path, cause),
    })?;
    written.push(path.to_owned());
    Ok(())
}

fn failed(path: &Path, cause: io::Error) -> CertificateError {
    CertificateError::File {
        path: path.to_owned(),
        cause,
    }
}
