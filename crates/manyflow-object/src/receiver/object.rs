//! One file of the session, from its announcement to its verified content.

use std::io;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::assembly::Assembly;
use super::{CompleteObject, Verified};
use crate::alc::PAYLOAD_ID_BYTES;
use crate::chunks::Chunks;
use crate::error::{FileError, OtiError, ReceiveError};
use crate::fdt::{Attributes, FileEntry, Section};
use crate::fec::{BlockDigest, Oti};
use crate::name;
use crate::storage::{Record, Storage};

/// The length of the parts in which a complete object is read to compute its digest.
const PART_BYTES: u64 = 1 << 18;

pub(super) struct Object {
    toi: u128,
    name: String,
    length: u64,
    md5: Option<[u8; 16]>,
    sha256: Option<[u8; 32]>,
    bundle: Option<u64>,
    attributes: Option<Attributes>,
    section: Option<Section>,
    /// The chunks, until the caller has offered a former version of the file.
    chunks: Option<Chunks>,
    /// FEC parameters that packets gave instead of the FDT's, and the number of packets that gave
    /// others since.
    learnt: Option<Rival>,
    is_withdrawn: bool,
    state: State,
}

/// FEC parameters that differ from those learnt first, and the number of their packets. The first
/// packet may be forged, so parameters that most packets have replace those of the first.
#[derive(Default)]
struct Rival {
    oti: Option<Oti>,
    packets: u64,
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
        let (toi, oti) = (file.toi, file.oti()?);
        if let Some(encoding) = file.content_encoding {
            return Err(FileError::ContentEncoding(name::abbreviate(&encoding)));
        }
        check_chunks(file.chunks.as_ref(), file.transfer_length)?;
        let announced = |oti, digests| State::Announced(Assembly::new(toi, oti, digests));
        let state = match oti {
            None if file.transfer_length == Some(0) => {
                announced(Oti::no_code(0, 1, 1)?, Vec::new())
            }
            None => State::AwaitingOti,
            Some(oti) => announced(oti, check_digests(file.blocks, &oti)?),
        };
        Ok(Object {
            toi,
            name,
            length: file.transfer_length.unwrap_or(0),
            md5: file.md5,
            sha256: file.sha256,
            bundle: file.bundle,
            attributes: file.attributes,
            section: file.section,
            chunks: file.chunks,
            learnt: None,
            is_withdrawn: false,
            state,
        })
    }

    /// A placeholder for a file that cannot be received: its packets are surplus.
    pub(super) fn refused() -> Self {
        Object {
            toi: 0,
            name: String::new(),
            length: 0,
            md5: None,
            sha256: None,
            bundle: None,
            attributes: None,
            section: None,
            chunks: None,
            learnt: None,
            is_withdrawn: false,
            state: State::Refused,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The object's place in an image, if it is a section of one.
    pub(super) fn section(&self) -> Option<Section> {
        self.section
    }

    /// The end of the section in its image.
    pub(super) fn section_end(&self) -> Option<u64> {
        let section = self.section?;
        let content_end = section.offset.checked_add(self.length)?;
        content_end.checked_add(section.zeros)
    }

    /// The number of files in the object.
    pub(super) fn files(&self) -> usize {
        self.bundle.map_or(1, |files| files as usize)
    }

    /// Notes whether the sender has withdrawn the file, which is not complete. Returns whether this
    /// is news.
    pub(super) fn set_withdrawn(&mut self, is_withdrawn: bool) -> bool {
        let is_under_way = !matches!(self.state, State::Complete | State::Refused);
        let is_news = self.is_withdrawn != is_withdrawn && is_under_way;
        if is_news {
            self.is_withdrawn = is_withdrawn;
        }
        is_news
    }

    pub(super) fn is_bundle(&self) -> bool {
        self.bundle.is_some()
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

    /// Whether the file can be received, and is not complete.
    pub(super) fn is_missing(&self) -> bool {
        !matches!(self.state, State::Complete | State::Refused)
    }

    /// Whether the file needs no more symbols and is not finished yet: it is empty, or all its
    /// blocks are complete.
    pub(super) fn can_finish(&self) -> bool {
        self.under_way().is_some_and(Assembly::is_complete)
    }

    /// Whether the file almost certainly needs no more symbols.
    pub(super) fn has_enough(&self) -> bool {
        match &self.state {
            State::Complete | State::Refused => true,
            State::Announced(assembly) | State::Receiving(assembly) => assembly.has_enough(),
            State::AwaitingOti => false,
        }
    }

    /// Adopts the FEC parameters of a packet if the FDT gave none.
    pub(super) fn learn(
        &mut self,
        in_packet: Option<Oti>,
        storage: &mut impl Storage,
    ) -> Result<(), ReceiveError> {
        match (&self.state, in_packet) {
            (State::AwaitingOti, Some(oti)) => {
                self.adopt(oti);
                Ok(())
            }
            (State::AwaitingOti, None) => Err(OtiError::Missing(
                "FEC scheme, which neither the FDT nor the packet gives",
            )
            .into()),
            (State::Announced(assembly) | State::Receiving(assembly), _) => {
                let checked = assembly.check_oti(in_packet);
                if let (Err(_), Some(oti)) = (&checked, in_packet)
                    && self.rival_wins(oti)
                {
                    storage.remove(self.toi)?;
                    self.adopt(oti);
                    return Ok(());
                }
                checked
            }
            (State::Complete | State::Refused, _) => Ok(()),
        }
    }

    fn adopt(&mut self, oti: Oti) {
        self.length = oti.transfer_length();
        self.learnt = Some(Rival::default());
        self.state = State::Announced(Assembly::new(self.toi, oti, Vec::new()));
    }

    /// Counts a packet with other parameters than those that were learnt. Returns whether more
    /// packets had them than the object has symbols.
    fn rival_wins(&mut self, oti: Oti) -> bool {
        let held = self.under_way().map_or(0, Assembly::held);
        let Some(rival) = &mut self.learnt else {
            return false;
        };
        if rival.oti != Some(oti) {
            *rival = Rival {
                oti: Some(oti),
                packets: 0,
            };
        }
        rival.packets += 1;
        rival.packets > held
    }

    /// The place for the file's next symbol; `None` if it needs no more.
    pub(super) fn assembly(&mut self) -> Option<&mut Assembly> {
        match &mut self.state {
            State::Announced(assembly) | State::Receiving(assembly) => Some(assembly),
            State::AwaitingOti | State::Complete | State::Refused => None,
        }
    }

    /// The block of a symbol; `None` unless the object needs symbols.
    pub(super) fn block_of(&self, payload_id: [u8; PAYLOAD_ID_BYTES]) -> Option<u32> {
        let (sbn, _) = self.under_way()?.oti().split_payload_id(payload_id);
        Some(sbn)
    }

    /// Records that a symbol was used; returns the file's name if it was the first.
    pub(super) fn start(&mut self) -> Option<String> {
        if !matches!(self.state, State::Announced(_)) {
            return None;
        }
        if let State::Announced(assembly) = std::mem::replace(&mut self.state, State::Complete) {
            self.state = State::Receiving(assembly);
        }
        Some(self.name.clone())
    }

    /// Returns the chunks of a file that is not complete, the first time.
    pub(super) fn take_chunks(&mut self) -> Option<Chunks> {
        self.chunks.take().filter(|_| self.is_missing())
    }

    /// Whether the file is not complete, and has chunks that were not taken.
    pub(super) fn has_chunks(&self) -> bool {
        self.chunks.is_some() && self.is_missing()
    }

    /// The symbols that the file's blocks lack; `None` while their number is not known.
    pub(super) fn needs(&self) -> Option<Vec<(u32, u32)>> {
        match &self.state {
            State::Announced(assembly) | State::Receiving(assembly) => {
                Some(assembly.needs().collect())
            }
            State::Complete | State::Refused => Some(Vec::new()),
            State::AwaitingOti => None,
        }
    }

    /// Drops a false symbol. Returns whether the object had it.
    pub(super) fn withdraw(
        &mut self,
        payload_id: [u8; PAYLOAD_ID_BYTES],
        storage: &mut impl Storage,
    ) -> io::Result<bool> {
        self.assembly()
            .map_or(Ok(false), |assembly| assembly.withdraw(payload_id, storage))
    }

    /// Repeats a change that an earlier receiver recorded.
    pub(super) fn restore(&mut self, record: Record) {
        if let Some(assembly) = self.assembly() {
            assembly.restore(record);
        }
    }

    /// Declares that the file is complete without its packets, because its content is there.
    pub(super) fn skip(&mut self) -> CompleteObject {
        self.state = State::Complete;
        self.completed(Verified {
            md5: false,
            sha256: true,
        })
    }

    /// Verifies the content of the complete blocks. If it is wrong, the object starts over.
    ///
    /// The outer error is that of the storage.
    pub(super) fn finish(
        &mut self,
        storage: &mut impl Storage,
    ) -> io::Result<Result<CompleteObject, FileError>> {
        let Some(assembly) = self.under_way() else {
            return Ok(Ok(self.completed(Verified::default())));
        };
        let verified = if assembly.verifies_blocks() {
            Ok(Verified {
                md5: false,
                sha256: true,
            })
        } else {
            self.verify(storage)?
        };
        Ok(match verified {
            Ok(verified) => {
                self.state = State::Complete;
                Ok(self.completed(verified))
            }
            Err(error) => {
                if let Some(assembly) = self.assembly() {
                    assembly.start_over(storage)?;
                }
                Err(error)
            }
        })
    }

    /// The description of this file, as its FDT gives it.
    pub(super) fn completed(&self, verified: Verified) -> CompleteObject {
        CompleteObject {
            toi: self.toi,
            name: self.name.clone(),
            length: self.length,
            sha256: self.sha256,
            bundle: self.bundle,
            attributes: self.attributes,
            section: self.section,
            verified,
        }
    }

    fn verify(&self, storage: &mut impl Storage) -> io::Result<Result<Verified, FileError>> {
        let (mut md5, mut sha256) = (Md5::new(), Sha256::new());
        let mut part = vec![0; PART_BYTES.min(self.length) as usize];
        let mut position = 0;
        while position < self.length {
            let length = (self.length - position).min(PART_BYTES);
            let part = &mut part[..length as usize];
            storage.read_at(self.toi, position, part)?;
            if self.md5.is_some() {
                md5.update(&*part);
            }
            if self.sha256.is_some() {
                sha256.update(&*part);
            }
            position += length;
        }
        if self
            .md5
            .is_some_and(|digest| digest != <[u8; 16]>::from(md5.finalize()))
        {
            return Ok(Err(FileError::Digest("MD5")));
        }
        if self
            .sha256
            .is_some_and(|digest| digest != <[u8; 32]>::from(sha256.finalize()))
        {
            return Ok(Err(FileError::Digest("SHA-256")));
        }
        Ok(Ok(Verified {
            md5: self.md5.is_some(),
            sha256: self.sha256.is_some(),
        }))
    }

    fn under_way(&self) -> Option<&Assembly> {
        match &self.state {
            State::Announced(assembly) | State::Receiving(assembly) => Some(assembly),
            State::AwaitingOti | State::Complete | State::Refused => None,
        }
    }
}

/// Refuses chunks that are not those of a file of this length.
fn check_chunks(chunks: Option<&Chunks>, length: Option<u64>) -> Result<(), FileError> {
    let (found, expected) = (chunks.map(Chunks::length), length.unwrap_or(0));
    match found {
        Some(found) if found != expected => Err(FileError::Chunks(found, expected)),
        _ => Ok(()),
    }
}

/// Refuses a list of digests that has not one for each block.
fn check_digests(digests: Vec<BlockDigest>, oti: &Oti) -> Result<Vec<BlockDigest>, FileError> {
    if digests.is_empty() || digests.len() == oti.blocks() as usize {
        Ok(digests)
    } else {
        Err(FileError::BlockDigests(digests.len(), oti.blocks()))
    }
}
