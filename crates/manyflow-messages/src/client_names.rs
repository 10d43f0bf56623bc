//! The names in the certificate of a client, by which it can be a user.

use rustls_pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Returns the names in the certificate that a client has shown.
pub(super) fn names_shown_in<S>(stream: &TlsStream<S>) -> Vec<String> {
    let shown = stream.get_ref().1.peer_certificates();
    shown
        .and_then(|chain| chain.first())
        .map_or(Vec::new(), names_of)
}

/// Returns the names of a certificate in the order in which nats-server compares them with those of
/// users (`verify_and_map`): addresses of mail, names of DNS, and the subject as RFC 4514 writes
/// it, the last part first. A certificate that cannot be read has none.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let certificate = certificate.tbs_certificate;
    let alternative = certificate.get::<SubjectAltName>().ok().flatten();
    let alternative = alternative.map_or(Vec::new(), |(_, names)| names.0);
    let mails = alternative.iter().filter_map(|name| match name {
        GeneralName::Rfc822Name(mail) => Some(mail.to_string()),
        _ => None,
    });
    let hosts = alternative.iter().filter_map(|name| match name {
        GeneralName::DnsName(host) => Some(host.to_string()),
        _ => None,
    });
    let subject = certificate.subject.to_string();
    let subject = Some(subject).filter(|subject| !subject.is_empty());
    mails.chain(hosts).chain(subject).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn mails_come_first_then_hosts_then_the_subject() {
        let mut parameters = CertificateParams::default();
        let names = ["www.example.net", "example.net"].map(|name| name.try_into().unwrap());
        let mail = "ann@example.net".try_into().unwrap();
        parameters.subject_alt_names = names.into_iter().map(SanType::DnsName).collect();
        parameters.subject_alt_names.push(SanType::Rfc822Name(mail));
        let subject = &mut parameters.distinguished_name;
        *subject = rcgen::DistinguishedName::new();
        subject.push(DnType::OrganizationName, "Example, Inc");
        subject.push(DnType::CommonName, "Ann");
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let expected = [
            "ann@example.net",
            "www.example.net",
            "example.net",
            "CN=Ann,O=Example\\, Inc",
        ];
        assert_eq!(names_of(certificate.der()), expected);
        assert!(names_of(&CertificateDer::from(vec![0x30, 3, 1, 2])).is_empty());
    }
}
