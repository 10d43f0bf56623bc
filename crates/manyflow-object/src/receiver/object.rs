//! One file of the session, from its announcement to its verified content.

use bytes::Bytes;
use md5::{Digest, Md5};
use sha2::Sha256;

use super::Verified;
use super::assembly::Assembly;
use crate::error::{FileError, OtiError, ReceiveError};
use crate::fdt::FileEntry;
use crate::fec::Oti;
use crate::name;

pub(super) struct Object {
    name: String,
    md5: Option<[u8; 16]>,
    sha256: Option<[u8; 32]>,
    state: State,
}

enum State {
    /// The FDT leaves the FEC parameters to the packets, and none has given them yet.
    AwaitingOti,
    /// No symbol has arrived yet.
    Announced(Assembly),
    Receiving(Assembly),
    Complete,
    Refused,
}

impl Object {
    /// Checks the FDT's entry of a file.
    pub(super) fn announced(file: FileEntry) -> Result<Self, FileError> {
        let name = name::from_location(&file.location)?;
        let state = match file.oti()? {
            None if file.transfer_length == Some(0) => {
                State::Announced(Assembly::new(Oti::no_code(0, 1, 1)?))
            }
            None => State::AwaitingOti,
            Some(oti) => State::Announced(Assembly::new(oti)),
        };
        match file.content_encoding {
            None => Ok(Object {
                name,
                md5: file.md5,
                sha256: file.sha256,
                state,
            }),
            Some(encoding) => Err(FileError::ContentEncoding(name::abbreviate(&encoding))),
        }
    }

    /// A placeholder for a file that cannot be received: its packets are surplus.
    pub(super) fn refused() -> Self {
        Object {
            name: String::new(),
            md5: None,
            sha256: None,
            state: State::Refused,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The number of source symbols of the file; 0 until its FEC parameters are known.
    pub(super) fn symbols(&self) -> u64 {
        self.under_way()
            .map_or(0, |assembly| assembly.oti().symbols())
    }

    /// Memory for the object's symbols in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.under_way().map_or(0, Assembly::bytes)
    }

    /// Whether the file is empty and needs no symbol.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way()
            .is_some_and(|assembly| assembly.oti().transfer_length() == 0)
    }

    /// Adopts the FEC parameters of a packet if the FDT gave none.
    pub(super) fn learn(&mut self, in_packet: Option<Oti>) -> Result<(), ReceiveError> {
        match (&self.state, in_packet) {
            (State::AwaitingOti, Some(oti)) => self.state = State::Announced(Assembly::new(oti)),
            (State::AwaitingOti, None) => {
                return Err(OtiError::Missing(
                    "FEC scheme, which neither the FDT nor the packet gives",
                )
                .into());
            }
            (State::Announced(assembly) | State::Receiving(assembly), _) => {
                assembly.check_oti(in_packet)?
            }
            (State::Complete | State::Refused, _) => {}
        }
        Ok(())
    }

    /// The place for the file's next symbol; `None` if it needs no more.
    pub(super) fn assembly(&mut self) -> Option<&mut Assembly> {
        match &mut self.state {
            State::Announced(assembly) | State::Receiving(assembly) => Some(assembly),
            State::AwaitingOti | State::Complete | State::Refused => None,
        }
    }

    /// Records that a symbol was used; returns the file's name if it was the first.
    pub(super) fn start(&mut self) -> Option<String> {
        match std::mem::replace(&mut self.state, State::Complete) {
            State::Announced(assembly) => {
                self.state = State::Receiving(assembly);
                Some(self.name.clone())
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Takes the content of the complete blocks and verifies it. If it is wrong, the object starts
    /// over.
    pub(super) fn finish(&mut self) -> Result<(Bytes, Verified), FileError> {
        let (State::Announced(assembly) | State::Receiving(assembly)) =
            std::mem::replace(&mut self.state, State::Complete)
        else {
            return Ok((Bytes::new(), Verified::default()));
        };
        let oti = *assembly.oti();
        let content = assembly.into_content();
        let verified = self.verify(&content);
        if verified.is_err() {
            self.state = State::Receiving(Assembly::new(oti));
        }
        Ok((content.into(), verified?))
    }

    fn verify(&self, content: &[u8]) -> Result<Verified, FileError> {
        if self
            .md5
            .is_some_and(|md5| md5 != <[u8; 16]>::from(Md5::digest(content)))
        {
            return Err(FileError::Digest("MD5"));
        }
        if self
            .sha256
            .is_some_and(|sha256| sha256 != <[u8; 32]>::from(Sha256::digest(content)))
        {
            return Err(FileError::Digest("SHA-256"));
        }
        Ok(Verified {
            md5: self.md5.is_some(),
            sha256: self.sha256.is_some(),
        })
    }

    fn under_way(&self) -> Option<&Assembly> {
        match &self.state {
            State::Announced(assembly) | State::Receiving(assembly) => Some(assembly),
            State::AwaitingOti | State::Complete | State::Refused => None,
        }
    }
}
