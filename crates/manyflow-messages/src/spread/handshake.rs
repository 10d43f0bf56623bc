//! The beginning of a connection, without its socket.

use bytes::BytesMut;

use super::wire::{DAEMON_NAME_BYTES_MAX, take_methods};
use super::wire::{GREETING_BYTES_MAX, Greeting, METHODS_BYTES, Refusal, acceptance, methods};

/// Bytes that a client sends at most before it is accepted.
pub(super) const HANDSHAKE_BYTES_MAX: usize = GREETING_BYTES_MAX + METHODS_BYTES;

/// A wish of a client in its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To have this name, or any if it is empty: answered by [`Handshake::name`].
    Name(String),
    /// To be connected under its name: answered by [`Handshake::accept`].
    Connection,
}

#[derive(Debug)]
enum Stage {
    /// The greeting has not arrived.
    Greeting,
    /// The daemon has not answered the greeting.
    Naming(Greeting),
    /// The methods of authentication have not arrived.
    Methods(Greeting),
    /// The daemon has not answered the methods.
    Admission(Greeting),
}

/// The handshake of a client.
#[derive(Debug)]
pub(super) struct Handshake {
    stage: Stage,
    daemon: String,
}

impl Handshake {
    /// Begins the handshake of a client of the daemon with this name.
    pub(super) fn new(daemon: &str) -> Handshake {
        debug_assert!(
            daemon.len() <= DAEMON_NAME_BYTES_MAX,
            "checked at the start"
        );
        Handshake {
            stage: Stage::Greeting,
            daemon: daemon.to_owned(),
        }
    }

    /// Reads what the client has sent. Returns its next wish, if that has arrived.
    ///
    /// # Errors
    /// Returns an error if the client has to be refused.
    pub(super) fn read(&mut self, bytes: &mut BytesMut) -> Result<Option<Wish>, Refusal> {
        match &self.stage {
            Stage::Greeting => {
                let Some(greeting) = Greeting::take(bytes)? else {
                    return Ok(None);
                };
                let wish = Wish::Name(greeting.name.clone());
                self.stage = Stage::Naming(greeting);
                Ok(Some(wish))
            }
            Stage::Methods(greeting) => {
                if greeting.authenticates() && take_methods(bytes)?.is_none() {
                    return Ok(None);
                }
                self.stage = Stage::Admission(greeting.clone());
                Ok(Some(Wish::Connection))
            }
            Stage::Naming(_) | Stage::Admission(_) => Ok(None),
        }
    }

    /// Gives the client the name that it has asked for, or another one. Returns the answer.
    pub(super) fn name(&mut self, name: &str) -> Vec<u8> {
        let Stage::Naming(greeting) = &self.stage else {
            unreachable!("the client has asked for a name");
        };
        let greeting = Greeting {
            name: name.to_owned(),
            ..greeting.clone()
        };
        let answer = match greeting.authenticates() {
            true => methods(),
            false => Vec::new(),
        };
        self.stage = Stage::Methods(greeting);
        answer
    }

    /// Returns the name of the client's private group.
    pub(super) fn private_group(&self) -> String {
        format!("#{}#{}", self.greeting().name, self.daemon)
    }

    /// Returns whether the client wants messages about members.
    pub(super) fn wants_views(&self) -> bool {
        self.greeting().wants_views
    }

    /// Returns the answer to a client that has been connected.
    pub(super) fn acceptance(&self) -> Vec<u8> {
        acceptance(self.greeting(), &self.private_group())
    }

    fn greeting(&self) -> &Greeting {
        match &self.stage {
            Stage::Naming(greeting) | Stage::Methods(greeting) | Stage::Admission(greeting) => {
                greeting
            }
            Stage::Greeting => unreachable!("the client has greeted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a library of Spread 4.4 that asks for the name `ada`, with views.
    const ADA: &[u8] = &[4, 4, 0, 0x01, 3, b'a', b'd', b'a'];

    fn null() -> Vec<u8> {
        let mut methods = b"NULL".to_vec();
        methods.resize(METHODS_BYTES, 0);
        methods
    }

    #[test]
    fn a_client_gets_its_private_group_however_its_bytes_are_cut() {
        let all = [ADA, &null(), b"more"].concat();
        let mut handshake = Handshake::new("london");
        let (mut bytes, mut wishes, mut answers) = (BytesMut::new(), Vec::new(), Vec::new());
        for byte in &all {
            bytes.extend_from_slice(&[*byte]);
            if let Some(wish) = handshake.read(&mut bytes).unwrap() {
                match &wish {
                    Wish::Name(name) => answers.push(handshake.name(name)),
                    Wish::Connection => answers.push(handshake.acceptance()),
                }
                wishes.push(wish);
            }
        }
        assert_eq!(wishes, [Wish::Name("ada".to_owned()), Wish::Connection]);
        assert!(handshake.wants_views());
        assert_eq!(answers[0], b"\x08NULL IP ");
        assert_eq!(answers[1], b"\x01\x04\x00\x00\x0b#ada#london");
        assert_eq!(bytes, &b"more"[..]);
    }

    #[test]
    fn old_libraries_do_not_authenticate_themselves() {
        let mut handshake = Handshake::new("d");
        let mut bytes = BytesMut::from(&[3, 12, 0x10, 1, b'x'][..]);
        let wish = handshake.read(&mut bytes).unwrap();
        assert_eq!(wish, Some(Wish::Name("x".to_owned())));
        assert_eq!(handshake.name("x"), b"");
        assert!(!handshake.wants_views());
        assert_eq!(handshake.read(&mut bytes).unwrap(), Some(Wish::Connection));
        assert_eq!(handshake.acceptance(), b"\x01\x04\x00\x04#x#d");
    }

    #[test]
    fn greetings_that_are_not_allowed_are_refused_with_the_codes_of_spread() {
        let greeting = |bytes: &[u8]| Handshake::new("d").read(&mut BytesMut::from(bytes));
        assert_eq!(greeting(&[2, 9]), Err(Refusal::Version));
        assert_eq!(greeting(&[3, 0]), Err(Refusal::Version));
        for name in ["elevenbytes", "a#b", "a b", "nats-7", "n\u{7f}"] {
            let head = [4, 0, 0, 0, name.len() as u8];
            let refused = greeting(&[&head, name.as_bytes()].concat());
            assert_eq!(refused, Err(Refusal::IllegalName), "{name}");
        }
        assert_eq!(greeting(&[4, 0, 0, 0]), Ok(None));
        assert_eq!(Refusal::NotUnique.byte() as i8, -6);
    }

    #[test]
    fn authentication_methods_that_the_daemon_lacks_are_refused() {
        for (first, second, is_known) in [
            ("NULL", "", true),
            ("IP", "NULL", true),
            ("PWORD", "", false),
            ("NULL", "PWORD", false),
            ("", "", false),
        ] {
            let mut handshake = Handshake::new("d");
            let mut bytes = BytesMut::from(ADA);
            handshake.read(&mut bytes).unwrap();
            handshake.name("ada");
            for name in [first, second, ""] {
                let mut field = name.as_bytes().to_vec();
                field.resize(30, 0);
                bytes.extend_from_slice(&field);
            }
            let expected = match is_known {
                true => Ok(Some(Wish::Connection)),
                false => Err(Refusal::Authentication),
            };
            assert_eq!(handshake.read(&mut bytes), expected, "{first} {second}");
        }
    }
}
