//! What can go wrong, one enum a boundary: packets, OTI, FDT, names, sending, receiving.

use thiserror::Error;

/// Bytes that are no ALC packet (RFC 5651 section 5, RFC 5775 section 4).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The datagram ends before a field that its flags promise.
    #[error("the datagram ends inside its {field}: {length} bytes are too few; drop it")]
    Truncated {
        /// The field that is cut.
        field: &'static str,
        /// The datagram's length in bytes.
        length: usize,
    },
    /// The version is not 1.
    #[error("LCT version {0} is not 1; drop the datagram, it belongs to another protocol")]
    Version(u8),
    /// HDR_LEN is smaller than the fields that the flags promise.
    #[error("HDR_LEN says {said} bytes where the header's fields take {fields}; drop the datagram")]
    HeaderLength {
        /// What HDR_LEN says, in bytes.
        said: usize,
        /// What the flags say, in bytes.
        fields: usize,
    },
    /// A header extension is longer than the header, or of length zero.
    #[error("header extension {het} does not fit in its header; drop the datagram")]
    Extension {
        /// The extension's type.
        het: u8,
    },
    /// A packet without a transport object identifier carries a symbol.
    #[error("the packet carries data but no TOI; drop it, FLUTE sessions need one")]
    NoToi,
}

/// FEC Object Transmission Information that no object can have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OtiError {
    /// An FEC scheme other than Compact No-Code (0) and RaptorQ (6).
    #[error("FEC Encoding ID {0} is unknown here; the sender must use 0 (no code) or 6 (RaptorQ)")]
    Scheme(u64),
    /// The scheme's parameters do not have their fixed length.
    #[error("the FEC parameters take {0} bytes, which is not their scheme's length")]
    Length(usize),
    /// A needed parameter is not given.
    #[error("the FEC parameters do not say the {0}")]
    Missing(&'static str),
    /// Symbols of no bytes, or of more than 65535.
    #[error("an encoding symbol cannot have {0} bytes; 1 to 65535 can be")]
    SymbolLength(u64),
    /// More bytes than the scheme can carry.
    #[error(
        "a transfer length of {length} bytes is over the scheme's limit of {limit}; split the object"
    )]
    TransferLength {
        /// The length asked for, in bytes.
        length: u64,
        /// The most that the scheme can carry, in bytes.
        limit: u64,
    },
    /// Blocks with more symbols than the scheme permits.
    #[error(
        "{symbols} symbols in a source block are over the scheme's limit of {limit}; use longer symbols or more blocks"
    )]
    BlockSymbols {
        /// Symbols in the largest block.
        symbols: u64,
        /// The most that the scheme permits.
        limit: u64,
    },
    /// No block, or more blocks than the scheme can number.
    #[error("{blocks} source blocks are not between 1 and {limit}; use longer blocks")]
    Blocks {
        /// How many there would be.
        blocks: u64,
        /// The most that the scheme can number.
        limit: u64,
    },
    /// Sub-blocks or alignment that do not divide a symbol.
    #[error(
        "{sub_blocks} sub-blocks aligned to {alignment} bytes do not fit a symbol of {symbol_length} bytes"
    )]
    SubBlocks {
        /// Sub-blocks in a block (N).
        sub_blocks: u16,
        /// The alignment in bytes (Al).
        alignment: u8,
        /// The symbol's length in bytes (T).
        symbol_length: u16,
    },
}

/// A document that is no FDT Instance (RFC 6726 section 3.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FdtError {
    /// The XML is not well-formed.
    #[error("the FDT is not well-formed XML ({0}); ask the session's sender")]
    Xml(String),
    /// A document type declaration: nothing in an FDT needs one, and entity bombs live there.
    #[error("the FDT has a document type declaration, which FLUTE has no use for; it is refused")]
    DocType,
    /// The root is not `FDT-Instance`, or there is none.
    #[error("the document's root is not FDT-Instance; it is no FDT")]
    Root,
    /// A required attribute is missing.
    #[error("an element of the FDT lacks its attribute {0}")]
    Missing(&'static str),
    /// An attribute's value cannot be read.
    #[error("the FDT's attribute {attribute} cannot be {value:?}")]
    Value {
        /// Which attribute.
        attribute: &'static str,
        /// Its value, cut to some tens of characters.
        value: String,
    },
    /// Two files with one TOI, or a file with the FDT's own.
    #[error("the FDT gives TOI {0} to a file though it is taken")]
    Toi(u128),
    /// More files than the receiver's bound.
    #[error("the FDT lists more than {0} files; raise the receiver's bound on files to accept it")]
    TooManyFiles(usize),
}

/// A name under which no file may be stored or sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// No name is left.
    #[error("the file name is empty")]
    Empty,
    /// The decoded bytes are not UTF-8.
    #[error("the file name {0:?} is not UTF-8")]
    NotUtf8(String),
    /// A path that starts at the root or at a drive.
    #[error("the file name {0:?} is absolute; only names inside the output folder are accepted")]
    Absolute(String),
    /// `.`, `..` or an empty component.
    #[error(
        "the file name {0:?} has an empty, '.' or '..' component, which could lead outside the output folder"
    )]
    Component(String),
    /// Control characters, backslashes.
    #[error("the file name {0:?} contains {1:?}, which no portable file name has")]
    Character(String, char),
    /// A component or the whole is too long.
    #[error("the file name {0:?} is too long: 255 bytes a component and 4096 in all")]
    TooLong(String),
}

/// Why a sender cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Nothing to send.
    #[error("there are no files to send; name at least one")]
    NoFiles,
    /// A parameter outside its range.
    #[error("{parameter} cannot be {value}; {range}")]
    Config {
        /// Which one.
        parameter: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// A file's name cannot be sent.
    #[error("cannot send a file under that name: {0}")]
    Name(#[from] NameError),
    /// Two files have one name.
    #[error("two files have the name {0:?}; rename one")]
    DuplicateName(String),
    /// The file does not fit in the scheme.
    #[error("cannot encode {name:?}: {error}")]
    Oti {
        /// The file.
        name: String,
        /// Why.
        error: OtiError,
    },
    /// Encoders would need more memory than the bound.
    #[error(
        "encoding takes {needed} bytes of memory where {limit} are allowed; send fewer files, use no FEC or raise the bound"
    )]
    Memory {
        /// What is needed, in bytes.
        needed: u64,
        /// The bound, in bytes.
        limit: u64,
    },
}

/// Why a packet was not used. The receiver has counted it and goes on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Another session's packet.
    #[error("the packet belongs to session {0}; the driver's filter lets it through")]
    ForeignSession(u64),
    /// An FDT packet without EXT_FDT, or of another FLUTE version.
    #[error("a packet for TOI 0 without a FLUTE header extension that we know (version {0:?})")]
    FdtHeader(Option<u8>),
    /// The FDT is compressed.
    #[error("the FDT is content-encoded (algorithm {0}); the sender must send it plain")]
    FdtEncoding(u8),
    /// The FDT is larger than the bound.
    #[error(
        "the FDT has {length} bytes where {limit} are accepted; raise the receiver's bound on the FDT to accept it"
    )]
    FdtLength {
        /// Its length in bytes.
        length: u64,
        /// The bound in bytes.
        limit: u64,
    },
    /// Bad FEC parameters in a packet.
    #[error(transparent)]
    Oti(#[from] OtiError),
    /// A whole FDT arrived, and it is none.
    #[error(transparent)]
    Fdt(#[from] FdtError),
    /// A packet contradicts the object's FEC parameters.
    #[error(
        "the packet's FEC parameters differ from those its object has; two senders may use one session"
    )]
    OtiChanged,
    /// Symbol identifiers outside the object.
    #[error("block {sbn}, symbol {esi} is outside its object")]
    SymbolId {
        /// Source block number.
        sbn: u32,
        /// Encoding symbol id.
        esi: u32,
    },
    /// The payload is not one symbol.
    #[error("the payload has {found} bytes where one symbol has {expected}")]
    PayloadLength {
        /// Bytes found.
        found: usize,
        /// Bytes of a symbol.
        expected: usize,
    },
    /// The bound on memory is reached.
    #[error(
        "the objects being received fill the memory allowed; raise the receiver's bound on memory"
    )]
    Memory,
}

/// Why a file of a session cannot be had, or not yet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileError {
    /// It would be stored outside the output folder, or nowhere.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The FDT's FEC parameters are none that an object can have.
    #[error("its FEC parameters are refused: {0}")]
    Oti(#[from] OtiError),
    /// The content is compressed.
    #[error("its content is encoded as {0:?}; the sender must send it plain")]
    ContentEncoding(String),
    /// All blocks are there, but not the bytes that the FDT promised; the file is received anew.
    #[error("its {0} digest differs from the FDT's; it is received anew")]
    Digest(&'static str),
}

impl FileError {
    /// Whether the receiver tries again by itself.
    pub fn is_retried(&self) -> bool {
        matches!(self, FileError::Digest(_))
    }
}
