//! The File Delivery Table (RFC 6726 section 3.4.2): an XML document that lists the objects' files.
//!
//! Besides FLUTE's own attributes, a file has attributes in a namespace of this project, which
//! other implementations ignore: its SHA-256 digest, those of its source blocks, its chunks, the
//! number of files in a bundle, and its mode and time. FLUTE itself has only MD5, which detects
//! accidents but no attacks.

mod parser;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, Event};
use quick_xml::writer::Writer;

use crate::chunks::Chunks;
use crate::error::{FdtError, OtiError};
use crate::fec::{BlockDigest, FecScheme, Oti};

const NAMESPACE: &str = "urn:ietf:params:xml:ns:fdt";
const OUR_NAMESPACE: &str = "urn:manyflow:fdt";

const EXPIRES: &str = "Expires";
const COMPLETE: &str = "Complete";
const TOI: &str = "TOI";
const LOCATION: &str = "Content-Location";
const CONTENT_LENGTH: &str = "Content-Length";
const TRANSFER_LENGTH: &str = "Transfer-Length";
const CONTENT_ENCODING: &str = "Content-Encoding";
const MD5: &str = "Content-MD5";
const SHA256: &str = "SHA-256";
const BLOCKS: &str = "Blocks-BLAKE3";
const CHUNKS: &str = "Chunks";
const BUNDLE: &str = "Bundle";
const MODE: &str = "Mode";
const MODIFIED: &str = "Modified";
const SECTION: &str = "Section";
const OFFSET: &str = "Offset";
const ZEROS: &str = "Zeros";
const IMAGE_LENGTH: &str = "Length";
const FEC_ENCODING_ID: &str = "FEC-OTI-FEC-Encoding-ID";
const FEC_BLOCK: &str = "FEC-OTI-Maximum-Source-Block-Length";
const FEC_SYMBOL: &str = "FEC-OTI-Encoding-Symbol-Length";
const FEC_SPECIFIC: &str = "FEC-OTI-Scheme-Specific-Info";

/// One FDT Instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdtInstance {
    /// When the instance expires, in seconds since 1900 (the upper half of an NTP timestamp).
    pub expires: u64,
    /// Whether the instance lists all files of the session.
    pub complete: bool,
    /// The files, in the document's order.
    pub files: Vec<FileEntry>,
}

/// One file of an FDT Instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileEntry {
    /// The identifier of the object that carries the file; never 0.
    pub toi: u128,
    /// The file's URI as the document has it. It is not a safe name yet: see
    /// [`crate::name::from_location`].
    pub location: String,
    /// The file's length in bytes as it is encoded for transfer; the content's length if the FDT
    /// gives only that.
    pub transfer_length: Option<u64>,
    /// The encoding of the content, such as gzip; `None` for plain content.
    pub content_encoding: Option<String>,
    /// The MD5 digest of the content.
    pub md5: Option<[u8; 16]>,
    /// The SHA-256 digest of the content.
    pub sha256: Option<[u8; 32]>,
    /// The digests of the source blocks, in order. Empty if the FDT does not give them.
    pub blocks: Vec<BlockDigest>,
    /// The content-defined chunks, for receivers with a former version of the file.
    pub chunks: Option<Chunks>,
    /// The number of files in a bundle. `None` for a file.
    pub bundle: Option<u64>,
    /// The file's mode and time, if receivers are to set them. A bundle's entry has some if the
    /// headers of the archive give the modes and times of its files.
    pub attributes: Option<Attributes>,
    /// The place in an image, if the object is a section of one.
    pub section: Option<Section>,
    /// The FEC parameters, as far as the FDT gives them.
    pub fec: FecAttributes,
}

/// Attributes of a file that receivers set. Only a sender on request gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The permission bits: at most [`Attributes::MODE_MAX`].
    pub mode: u32,
    /// The time of the last modification, in seconds since 1970.
    pub modified_s: u64,
}

impl Attributes {
    /// Every permission bit, without setuid, setgid and sticky.
    pub const MODE_MAX: u32 = 0o777;
}

/// The place of an object in an image: see [`image`](crate::image).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Section {
    /// The section's number, at most [`Section::NUMBER_MAX`].
    pub number: u32,
    /// The position of the section's first byte in the image.
    pub offset: u64,
    /// The number of zeros behind the object's content, which are part of the section.
    pub zeros: u64,
    /// The length of the image in bytes, if the sender knows it.
    pub image_length: Option<u64>,
}

impl Section {
    /// The highest number: an FDT Instance ID has 20 bits (RFC 6726 section 3.4.1).
    pub const NUMBER_MAX: u32 = (1 << 20) - 1;

    /// The TOI of the section's object.
    pub fn toi(&self) -> u128 {
        u128::from(self.number) + 1
    }
}

/// The FEC-OTI attributes that this crate supports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FecAttributes {
    /// The FEC Encoding ID.
    pub encoding_id: Option<u64>,
    /// The symbol length in bytes.
    pub symbol_length: Option<u64>,
    /// The maximum number of source symbols in a block.
    pub block_symbols_max: Option<u64>,
    /// The scheme-specific parameters.
    pub scheme_specific: Option<Vec<u8>>,
}

impl FileEntry {
    /// The object's FEC parameters; `None` if the FDT leaves them to EXT_FTI in packets.
    ///
    /// # Errors
    /// [`OtiError`] if they are incomplete, or if no object can have them.
    pub fn oti(&self) -> Result<Option<Oti>, OtiError> {
        let (Some(id), Some(symbol_length)) = (self.fec.encoding_id, self.fec.symbol_length) else {
            return Ok(None);
        };
        let scheme = FecScheme::from_encoding_id(id)?;
        let symbol_length =
            u16::try_from(symbol_length).map_err(|_| OtiError::SymbolLength(symbol_length))?;
        let transfer_length = self
            .transfer_length
            .ok_or(OtiError::Missing("transfer length"))?;
        self.fec
            .oti(scheme, transfer_length, symbol_length)
            .map(Some)
    }
}

impl From<&Oti> for FecAttributes {
    fn from(oti: &Oti) -> Self {
        FecAttributes {
            encoding_id: Some(oti.scheme().encoding_id().into()),
            symbol_length: Some(oti.symbol_length().into()),
            block_symbols_max: Some(oti.block_symbols_max().into()),
            scheme_specific: oti.scheme_specific().map(Vec::from),
        }
    }
}

impl FecAttributes {
    fn oti(
        &self,
        scheme: FecScheme,
        transfer_length: u64,
        symbol_length: u16,
    ) -> Result<Oti, OtiError> {
        match scheme {
            FecScheme::NoCode => {
                let block = self
                    .block_symbols_max
                    .ok_or(OtiError::Missing("maximum source block length"))?;
                Oti::no_code(
                    transfer_length,
                    symbol_length,
                    u32::try_from(block).unwrap_or(u32::MAX),
                )
            }
            FecScheme::RaptorQ => {
                let specific = self
                    .scheme_specific
                    .as_deref()
                    .ok_or(OtiError::Missing("scheme-specific info"))?;
                let &[blocks, high, low, alignment] = specific else {
                    return Err(OtiError::Length(specific.len()));
                };
                Oti::raptorq(
                    transfer_length,
                    symbol_length,
                    blocks,
                    u16::from_be_bytes([high, low]),
                    alignment,
                )
            }
        }
    }

    fn or(self, common: &FecAttributes) -> Self {
        FecAttributes {
            encoding_id: self.encoding_id.or(common.encoding_id),
            symbol_length: self.symbol_length.or(common.symbol_length),
            block_symbols_max: self.block_symbols_max.or(common.block_symbols_max),
            scheme_specific: self
                .scheme_specific
                .or_else(|| common.scheme_specific.clone()),
        }
    }

    /// The attributes that all `files` have in common; the document gives them once, at the root.
    fn common(files: &[FileEntry]) -> Self {
        let first = files
            .first()
            .map_or_else(Self::default, |file| file.fec.clone());
        files.iter().fold(first, |common, file| {
            common.keep_if(|differs| !differs, &file.fec)
        })
    }

    /// Keeps each attribute for which `keep` returns true, given whether it differs from that of
    /// `other`.
    fn keep_if(self, keep: fn(bool) -> bool, other: &FecAttributes) -> Self {
        FecAttributes {
            encoding_id: self
                .encoding_id
                .filter(|_| keep(self.encoding_id != other.encoding_id)),
            symbol_length: self
                .symbol_length
                .filter(|_| keep(self.symbol_length != other.symbol_length)),
            block_symbols_max: self
                .block_symbols_max
                .filter(|_| keep(self.block_symbols_max != other.block_symbols_max)),
            scheme_specific: self
                .scheme_specific
                .filter(|own| keep(Some(own) != other.scheme_specific.as_ref())),
        }
    }

    fn push(&self, element: &mut BytesStart<'_>) {
        let numbers = [
            (FEC_ENCODING_ID, self.encoding_id),
            (FEC_SYMBOL, self.symbol_length),
            (FEC_BLOCK, self.block_symbols_max),
        ];
        for (name, number) in numbers {
            push_number(element, name, number);
        }
        push_base64(element, FEC_SPECIFIC, self.scheme_specific.as_deref());
    }
}

impl FdtInstance {
    /// Encodes the XML document.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        let mut write = |event| writer.write_event(event).expect("a Vec takes all bytes");
        let mut root = BytesStart::new("FDT-Instance");
        root.push_attribute(("xmlns", NAMESPACE));
        root.push_attribute(("xmlns:mf", OUR_NAMESPACE));
        push_number(&mut root, EXPIRES, Some(self.expires));
        root.push_attribute((COMPLETE, if self.complete { "true" } else { "false" }));
        let common = FecAttributes::common(&self.files);
        common.push(&mut root);
        write(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        write(Event::Start(root));
        for file in &self.files {
            write(Event::Empty(file.element(&common)));
        }
        write(Event::End(BytesEnd::new("FDT-Instance")));
        writer.into_inner()
    }

    /// Decodes a document with at most `files_max` files.
    ///
    /// Elements and attributes that FLUTE does not define are skipped, as RFC 6726 section 3.4.2
    /// requires. FEC parameters are not checked here, so that one bad file does not hide the
    /// others.
    ///
    /// # Errors
    /// [`FdtError`] if the document is not an FDT Instance.
    pub fn decode(document: &[u8], files_max: usize) -> Result<Self, FdtError> {
        parser::parse(document, files_max)
    }
}

impl FileEntry {
    fn element(&self, common: &FecAttributes) -> BytesStart<'static> {
        let mut element = BytesStart::new("File");
        element.push_attribute((TOI, self.toi.to_string().as_str()));
        element.push_attribute((LOCATION, self.location.as_str()));
        // For plain content the length is the transfer length (RFC 6726 section 3.4.2).
        match &self.content_encoding {
            None => push_number(&mut element, CONTENT_LENGTH, self.transfer_length),
            Some(encoding) => {
                push_number(&mut element, TRANSFER_LENGTH, self.transfer_length);
                element.push_attribute((CONTENT_ENCODING, encoding.as_str()));
            }
        }
        push_base64(
            &mut element,
            MD5,
            self.md5.as_ref().map(<[u8; 16]>::as_slice),
        );
        push_base64(
            &mut element,
            "mf:SHA-256",
            self.sha256.as_ref().map(<[u8; 32]>::as_slice),
        );
        if !self.blocks.is_empty() {
            push_base64(
                &mut element,
                "mf:Blocks-BLAKE3",
                Some(self.blocks.as_flattened()),
            );
        }
        let chunks = self.chunks.as_ref().map(Chunks::encode);
        push_base64(&mut element, "mf:Chunks", chunks.as_deref());
        push_number(&mut element, "mf:Bundle", self.bundle);
        if let Some(Attributes { mode, modified_s }) = self.attributes {
            element.push_attribute(("mf:Mode", format!("{mode:o}").as_str()));
            push_number(&mut element, "mf:Modified", Some(modified_s));
        }
        if let Some(section) = self.section {
            push_number(&mut element, "mf:Section", Some(section.number.into()));
            push_number(&mut element, "mf:Offset", Some(section.offset));
            let zeros = Some(section.zeros).filter(|zeros| *zeros > 0);
            push_number(&mut element, "mf:Zeros", zeros);
            push_number(&mut element, "mf:Length", section.image_length);
        }
        self.fec
            .clone()
            .keep_if(|differs| differs, common)
            .push(&mut element);
        element
    }
}

fn push_number(element: &mut BytesStart<'_>, name: &str, number: Option<u64>) {
    if let Some(number) = number {
        element.push_attribute((name, number.to_string().as_str()));
    }
}

fn push_base64(element: &mut BytesStart<'_>, name: &str, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        element.push_attribute((name, STANDARD.encode(bytes).as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(toi: u32, location: &str, length: u32, fec: FecAttributes) -> FileEntry {
        FileEntry {
            toi: toi.into(),
            location: location.to_owned(),
            transfer_length: Some(length.into()),
            md5: Some([3; 16]),
            sha256: Some([4; 32]),
            blocks: vec![[5; 16], [6; 16]],
            chunks: toi.is_multiple_of(4).then(|| {
                let content = bytes::Bytes::from(vec![toi as u8; 100_000]);
                Chunks::of(&content, 1 << 14).unwrap()
            }),
            bundle: toi.is_multiple_of(2).then_some(3),
            attributes: toi.is_multiple_of(3).then_some(Attributes {
                mode: toi & Attributes::MODE_MAX,
                modified_s: length.into(),
            }),
            section: toi.is_multiple_of(5).then_some(Section {
                number: toi >> 12,
                offset: length.into(),
                zeros: u64::from(toi % 3) << 40,
                image_length: toi.is_multiple_of(7).then_some(u64::MAX),
            }),
            fec,
            ..FileEntry::default()
        }
    }

    fn decode(document: &str) -> Result<FdtInstance, FdtError> {
        FdtInstance::decode(document.as_bytes(), 100)
    }

    fn with_file(attributes: &str) -> Result<FdtInstance, FdtError> {
        decode(&format!(
            "<FDT-Instance Expires='1'><File {attributes}/></FDT-Instance>"
        ))
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            expires: u32, complete: bool, files in proptest::collection::btree_map(1_u32.., ("\\PC{1,30}", any::<u32>(), any::<bool>()), 0..6),
        ) {
            let files = files.iter().map(|(&toi, (location, length, raptorq))| {
                let scheme = if *raptorq { FecScheme::RaptorQ } else { FecScheme::NoCode };
                let oti = Oti::choose(scheme, u64::from(length % 100_000_000), 1_400, 2_000).unwrap();
                entry(toi, location, length % 100_000_000, FecAttributes::from(&oti))
            });
            let instance = FdtInstance { expires: expires.into(), complete, files: files.collect() };
            let decoded = FdtInstance::decode(&instance.encode(), 6).unwrap();
            // The files' common attributes are at the root, and RaptorQ's scheme-specific info does
            // not disturb a file without code.
            for (file, decoded) in instance.files.iter().zip(&decoded.files) {
                prop_assert_eq!(file.oti(), decoded.oti());
            }
            prop_assert_eq!(decoded, instance);
        }

        #[test]
        fn any_document_gives_an_fdt_or_an_error(document in "(<FDT-Instance Expires='1'>)?[<>/=\"'&;! a-zA-Z0-9-]{0,80}") {
            let _ = decode(&document);
        }
    }

    #[test]
    fn attributes_of_the_root_hold_for_files_without_their_own() {
        let fdt = decode(
            "<?xml version='1.0'?><f:FDT-Instance xmlns:f='urn:ietf:params:xml:ns:fdt' Expires='9' Complete='1' Content-Encoding='gzip'
               FEC-OTI-FEC-Encoding-ID='0' FEC-OTI-Encoding-Symbol-Length='100' FEC-OTI-Maximum-Source-Block-Length='64'>
               <f:File TOI='1' Content-Location='a&amp;b' Content-Length='7' Content-Encoding='null'/>
               <f:File TOI='2' Content-Location='c' Content-Length='70' Transfer-Length='7' FEC-OTI-Encoding-Symbol-Length='5'>
                 <other>File</other></f:File>
             </f:FDT-Instance>",
        )
        .unwrap();
        assert!(fdt.complete);
        assert_eq!(
            (
                fdt.files[0].location.as_str(),
                fdt.files[0].content_encoding.as_deref()
            ),
            ("a&b", None)
        );
        assert_eq!(fdt.files[0].oti(), Oti::no_code(7, 100, 64).map(Some));
        assert_eq!(fdt.files[1].oti(), Oti::no_code(7, 5, 64).map(Some));
        assert_eq!(fdt.files[1].content_encoding.as_deref(), Some("gzip"));
    }

    #[test]
    fn modes_are_octal_and_only_permissions() {
        let attributes = |text: &str| {
            let fdt = with_file(&format!("TOI='1' Content-Location='x' {text}"));
            fdt.map(|fdt| fdt.files[0].attributes)
        };
        let expected = Attributes {
            mode: 0o751,
            modified_s: 7,
        };
        let both = attributes("Mode='751' Modified='7'").unwrap();
        assert_eq!(both, Some(expected));
        let setuid = attributes("Mode='6751' Modified='7'").unwrap();
        assert_eq!(setuid, Some(expected));
        assert_eq!(attributes("Mode='751'").unwrap(), None);
        for wrong in ["Mode='9' Modified='7'", "Mode='7' Modified='-1'"] {
            assert!(matches!(attributes(wrong), Err(FdtError::Value { .. })));
        }
    }

    #[test]
    fn entity_bombs_are_refused() {
        let bomb = "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><FDT-Instance Expires='1'/>";
        assert_eq!(decode(bomb), Err(FdtError::DocType));
        assert!(matches!(
            with_file("TOI='1' Content-Location='&b;'"),
            Err(FdtError::Xml(_))
        ));
    }

    #[test]
    fn documents_that_are_no_fdt_are_refused() {
        assert_eq!(decode(""), Err(FdtError::Root));
        assert_eq!(decode("<html/>"), Err(FdtError::Root));
        assert_eq!(
            decode("<FDT-Instance Expires='1'/><FDT-Instance Expires='1'/>"),
            Err(FdtError::Root)
        );
        assert!(matches!(
            decode("<FDT-Instance Expires='1'>"),
            Err(FdtError::Xml(_))
        ));
        assert_eq!(decode("<FDT-Instance/>"), Err(FdtError::Missing("Expires")));
        assert!(matches!(
            decode("<FDT-Instance Expires='soon'/>"),
            Err(FdtError::Value { .. })
        ));
        assert_eq!(
            with_file("TOI='1'"),
            Err(FdtError::Missing("Content-Location"))
        );
        assert_eq!(
            with_file("Content-Location='x'"),
            Err(FdtError::Missing("TOI"))
        );
        assert_eq!(
            with_file("Content-Location='x' TOI='0'"),
            Err(FdtError::Toi(0))
        );
        assert_eq!(
            with_file("Content-Location='x' TOI='1'/><File Content-Location='y' TOI='1'"),
            Err(FdtError::Toi(1))
        );
        assert!(matches!(
            with_file("Content-Location='x' TOI='1' Content-MD5='AAAA'"),
            Err(FdtError::Value { .. })
        ));
    }

    #[test]
    fn a_list_longer_than_the_bound_is_refused() {
        let files = (1..=3)
            .map(|toi| entry(toi, "x", 1, FecAttributes::default()))
            .collect();
        let document = FdtInstance {
            expires: 1,
            complete: false,
            files,
        }
        .encode();
        assert_eq!(
            FdtInstance::decode(&document, 2),
            Err(FdtError::TooManyFiles(2))
        );
        assert!(FdtInstance::decode(&document, 3).is_ok());
    }
}
