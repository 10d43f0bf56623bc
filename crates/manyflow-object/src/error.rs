//! Errors, one enum for each boundary: packets, OTI, FDT, names, sending, receiving.

use std::io;

use thiserror::Error;

/// The bytes are not an ALC packet (RFC 5651 section 5, RFC 5775 section 4).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The datagram ends before a field that its flags announce.
    #[error("the datagram ends inside its {field}: {length} bytes are too few; drop it")]
    Truncated {
        /// The field that is truncated.
        field: &'static str,
        /// The datagram's length in bytes.
        length: usize,
    },
    /// The version is not 1.
    #[error("LCT version {0} is not 1; drop the datagram, it belongs to another protocol")]
    Version(u8),
    /// HDR_LEN is smaller than the length of the fields that the flags announce.
    #[error("HDR_LEN is {stated} bytes, but the header's fields take {fields}; drop the datagram")]
    HeaderLength {
        /// The header's length by HDR_LEN, in bytes.
        stated: usize,
        /// The length of the fields that the flags announce, in bytes.
        fields: usize,
    },
    /// A header extension is longer than the header, or of length zero.
    #[error("header extension {het} does not fit in its header; drop the datagram")]
    Extension {
        /// The extension's type.
        het: u8,
    },
    /// A packet without a transport object identifier (TOI) carries a symbol.
    #[error("the packet carries data but no TOI, which FLUTE requires; drop it")]
    NoToi,
}

/// FEC Object Transmission Information (OTI) that no object can have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OtiError {
    /// An FEC scheme other than Compact No-Code (0) and RaptorQ (6).
    #[error("FEC Encoding ID {0} is not supported; the sender must use 0 (no code) or 6 (RaptorQ)")]
    Scheme(u64),
    /// The length of the scheme-specific parameters is not the one that the scheme fixes.
    #[error("the FEC parameters take {0} bytes, which is not the length that their scheme fixes")]
    Length(usize),
    /// A required parameter is missing.
    #[error("the FEC parameters lack the {0}")]
    Missing(&'static str),
    /// The symbol length is 0 or above 65535 bytes.
    #[error("an encoding symbol cannot have {0} bytes; use 1 to 65535")]
    SymbolLength(u64),
    /// The object has more bytes than the scheme can carry.
    #[error(
        "a transfer length of {length} bytes is over the scheme's limit of {limit}; split the object"
    )]
    TransferLength {
        /// The requested length in bytes.
        length: u64,
        /// The scheme's maximum in bytes.
        limit: u64,
    },
    /// A block has more symbols than the scheme permits.
    #[error(
        "{symbols} symbols in a source block are over the scheme's limit of {limit}; use longer symbols or more blocks"
    )]
    BlockSymbols {
        /// Symbols in the largest block.
        symbols: u64,
        /// The scheme's maximum.
        limit: u64,
    },
    /// There are no blocks, or more blocks than the scheme can number.
    #[error("the object has {blocks} source blocks, but must have 1 to {limit}; use longer blocks")]
    Blocks {
        /// The number of blocks.
        blocks: u64,
        /// The largest number of blocks that the scheme can number.
        limit: u64,
    },
    /// The number of sub-blocks or the alignment does not fit the symbol length.
    #[error(
        "{sub_blocks} sub-blocks aligned to {alignment} bytes do not fit a symbol of {symbol_length} bytes"
    )]
    SubBlocks {
        /// The number of sub-blocks in a block (N).
        sub_blocks: u16,
        /// The alignment in bytes (Al).
        alignment: u8,
        /// The symbol's length in bytes (T).
        symbol_length: u16,
    },
}

/// A document that is not an FDT Instance (RFC 6726 section 3.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FdtError {
    /// The XML is not well-formed.
    #[error("the FDT is not well-formed XML ({0}); ask the session's sender")]
    Xml(String),
    /// The document has a document type declaration. An FDT needs none, and entity expansion
    /// attacks depend on it.
    #[error("the FDT has a document type declaration, which FLUTE does not need; it is refused")]
    DocType,
    /// The root element is not `FDT-Instance`, or there is no root element.
    #[error("the document's root element is not FDT-Instance; the document is not an FDT")]
    Root,
    /// A required attribute is missing.
    #[error("an element of the FDT lacks its attribute {0}; ask the session's sender")]
    Missing(&'static str),
    /// An attribute's value cannot be read.
    #[error("the FDT's attribute {attribute} cannot be {value:?}")]
    Value {
        /// The attribute's name.
        attribute: &'static str,
        /// The attribute's value, cut to a few dozen characters.
        value: String,
    },
    /// Two files have the same TOI, or a file has the FDT's own TOI.
    #[error("the FDT assigns TOI {0} to a file, but it is already in use")]
    Toi(u128),
    /// The FDT lists more files than the receiver accepts.
    #[error("the FDT lists more than {0} files; raise the receiver's limit on files to accept it")]
    TooManyFiles(usize),
}

/// A name that no file may be stored or sent under.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("the file name is empty")]
    Empty,
    /// The percent-decoded bytes of the name are not UTF-8.
    #[error("the file name {0:?} is not UTF-8")]
    NotUtf8(String),
    /// The path starts at the root or at a drive.
    #[error("the file name {0:?} is absolute; only names inside the output folder are accepted")]
    Absolute(String),
    /// The path has an empty, `.` or `..` component.
    #[error(
        "the file name {0:?} has an empty, '.' or '..' component, which could lead outside the output folder"
    )]
    Component(String),
    /// A component of the path starts with a dot, and the table of files is not authenticated.
    #[error(
        "the file name {0:?} has a component that starts with a dot, and anyone could have chosen it; \
         receive the session with a description that gives the digest of its table of files"
    )]
    Hidden(String),
    /// The name contains a control character or a backslash.
    #[error("the file name {0:?} contains {1:?}, which is not portable")]
    Character(String, char),
    /// A component of the path or the whole path is too long.
    #[error(
        "the file name {0:?} is too long; the limits are 255 bytes for a component and 4096 bytes in total"
    )]
    TooLong(String),
}

/// A file to send cannot be read, or is no longer the one that the table of files describes.
#[derive(Debug, Error)]
#[error(
    "{name:?} cannot be sent: {error}; send it again, and do not change files while they are sent"
)]
pub struct ReadError {
    /// The file's name.
    pub name: String,
    /// The reason.
    pub error: io::Error,
}

/// Reasons why a sender cannot be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// There are no files to send.
    #[error("there are no files to send; name at least one")]
    NoFiles,
    /// A parameter is outside its range.
    #[error("{parameter} cannot be {value}; {range}")]
    Config {
        /// The parameter's name.
        parameter: &'static str,
        /// The parameter's value.
        value: u64,
        /// Advice on the values that are allowed.
        range: &'static str,
    },
    /// A file's name cannot be sent.
    #[error("cannot send a file under that name: {0}")]
    Name(#[from] NameError),
    /// Two files have the same name.
    #[error("two files have the name {0:?}; rename one of them")]
    DuplicateName(String),
    /// The FEC scheme cannot carry the file.
    #[error("cannot encode {name:?}: {error}")]
    Oti {
        /// The file's name.
        name: String,
        /// The reason.
        error: OtiError,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Reasons why a packet was not used. The receiver has counted it and continues.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The packet belongs to another session.
    #[error("the packet belongs to session {0}; filter the datagrams by session")]
    ForeignSession(u64),
    /// An FDT packet has no EXT_FDT, or one of an unsupported FLUTE version.
    #[error(
        "a packet for TOI 0 has no FLUTE header extension of a supported version (found version {0:?})"
    )]
    FdtHeader(Option<u8>),
    /// The FDT is compressed.
    #[error("the FDT is content-encoded (algorithm {0}); the sender must send it plain")]
    FdtEncoding(u8),
    /// The FDT is larger than the limit.
    #[error(
        "the FDT has {length} bytes, but {limit} are accepted; raise the receiver's limit on the FDT to accept it"
    )]
    FdtLength {
        /// The FDT's length in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A packet carries invalid FEC parameters.
    #[error(transparent)]
    Oti(#[from] OtiError),
    /// A complete document arrived, but it is not an FDT.
    #[error(transparent)]
    Fdt(#[from] FdtError),
    /// A complete table of files does not have the digest that the receiver expects.
    #[error(
        "FDT Instance {0} does not have the digest that the session description gives; it is dropped, as it may be forged"
    )]
    TableDigest(u32),
    /// A table of a section does not have the signature of the session's key.
    #[error(
        "FDT Instance {0} is not signed with the key that the session description gives; it is dropped, as it may be forged"
    )]
    TableSignature(u32),
    /// A signed table does not describe the section that its number stands for, or contradicts
    /// other sections.
    #[error(
        "FDT Instance {0} contradicts the image's other sections; the sender has a fault, report it"
    )]
    Section(u32),
    /// A packet contradicts the object's FEC parameters.
    #[error(
        "the packet's FEC parameters differ from those of its object; two senders may be using one session"
    )]
    OtiChanged,
    /// The block or symbol number is outside the object.
    #[error("block {sbn}, symbol {esi} is outside its object")]
    SymbolId {
        /// Source block number.
        sbn: u32,
        /// Encoding symbol id.
        esi: u32,
    },
    /// The payload is not exactly one symbol long.
    #[error("the payload has {found} bytes, but a symbol has {expected}")]
    PayloadLength {
        /// The payload's length in bytes.
        found: usize,
        /// The length of a symbol in bytes.
        expected: usize,
    },
    /// The table of files has expired (RFC 6726 section 3.3).
    #[error(
        "FDT Instance {0} has expired by this machine's clock, and is not used: check the clock, or ask the session's sender"
    )]
    Expired(u32),
    /// The numbers of the symbols received so far fill the memory that is allowed.
    #[error(
        "unfinished objects fill the memory that is allowed; raise the receiver's limit on memory"
    )]
    Memory,
    /// The symbol differs from one with the same number. Neither is used, because one is false.
    #[error("block {sbn}, symbol {esi} came twice with different contents; neither is used")]
    Contradiction {
        /// Source block number.
        sbn: u32,
        /// Encoding symbol id.
        esi: u32,
    },
    /// A decoded block does not have its digest. The receiver receives it again.
    #[error(
        "block {0} does not have its digest: some of its symbols are false; it is received again"
    )]
    BlockDigest(u32),
    /// The storage for symbols failed.
    #[error("symbols cannot be stored: {message}")]
    Storage {
        /// The kind of the storage's error.
        kind: io::ErrorKind,
        /// The storage's message.
        message: String,
    },
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        ReceiveError::Storage {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

/// Reasons why a file of a session cannot be received, or not yet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file's name is not a safe path below the output folder.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No object can have the FEC parameters that the FDT gives.
    #[error("its FEC parameters are refused: {0}")]
    Oti(#[from] OtiError),
    /// The content is compressed.
    #[error("its content is encoded as {0:?}; the sender must send it plain")]
    ContentEncoding(String),
    /// The FDT gives another number of block digests than the object has blocks.
    #[error("the FDT gives the digests of {0} blocks, but it has {1}")]
    BlockDigests(usize, u32),
    /// The chunks that the FDT gives do not have the file's length together.
    #[error("the FDT gives chunks of {0} bytes, but the file has {1}")]
    Chunks(u64, u64),
    /// The FDT does not give the content's SHA-256, although the FDT itself is authenticated.
    #[error("the FDT does not give its SHA-256, so its content could not be checked")]
    NoDigest,
    /// Another object has the same name.
    #[error("another object of the session has the same name")]
    DuplicateName,
    /// The content's digest differs from the one in the FDT. The receiver receives the file again.
    #[error("its {0} digest differs from the FDT's; the file is received again")]
    Digest(&'static str),
}

impl FileError {
    /// Whether the receiver tries again without further calls.
    pub fn is_retried(&self) -> bool {
        matches!(self, FileError::Digest(_))
    }
}
