//! Parses an FDT Instance: a pull parser that reads the root element and its `File` children.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quick_xml::Reader;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesStart, Event};

use super::{
    Attributes, BLOCKS, BUNDLE, CHUNKS, COMPLETE, CONTENT_ENCODING, CONTENT_LENGTH, EXPIRES,
    FEC_BLOCK, FEC_ENCODING_ID, FEC_SPECIFIC, FEC_SYMBOL, FdtInstance, FecAttributes, FileEntry,
    IMAGE_LENGTH, LOCATION, MD5, MODE, MODIFIED, OFFSET, SECTION, SHA256, Section, TOI,
    TRANSFER_LENGTH, ZEROS,
};
use crate::chunks::Chunks;
use crate::error::FdtError;
use crate::fec::BlockDigest;
use crate::name::abbreviate;

pub(super) fn parse(document: &[u8], files_max: usize) -> Result<FdtInstance, FdtError> {
    let mut reader = Reader::from_reader(document);
    let mut parser = Parser {
        files_max,
        root: None,
        tois: BTreeSet::from([0]),
        depth: 0,
    };
    loop {
        match reader
            .read_event()
            .map_err(|error| FdtError::Xml(abbreviate(&error.to_string())))?
        {
            Event::Start(element) => {
                parser.on_element(&element)?;
                parser.depth += 1;
            }
            Event::Empty(element) => parser.on_element(&element)?,
            Event::End(_) => parser.depth = parser.depth.saturating_sub(1),
            Event::DocType(_) => return Err(FdtError::DocType),
            Event::Eof => return parser.finish(),
            _ => {}
        }
    }
}

/// The parts of the document that have been read so far.
struct Parser {
    files_max: usize,
    root: Option<(FdtInstance, Common)>,
    tois: BTreeSet<u128>,
    depth: usize,
}

/// Attributes of the root element, which apply to files without their own.
#[derive(Default)]
struct Common {
    content_encoding: Option<String>,
    fec: FecAttributes,
}

impl Parser {
    fn on_element(&mut self, element: &BytesStart<'_>) -> Result<(), FdtError> {
        match (self.depth, element.local_name().as_ref(), &mut self.root) {
            (0, "FDT-Instance", root @ None) => *root = Some(read_root(element)?),
            (0, _, _) => return Err(FdtError::Root),
            (1, "File", Some((instance, common))) => {
                if instance.files.len() == self.files_max {
                    return Err(FdtError::TooManyFiles(self.files_max));
                }
                let file = read_file(element, common)?;
                if !self.tois.insert(file.toi) {
                    return Err(FdtError::Toi(file.toi));
                }
                instance.files.push(file);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<FdtInstance, FdtError> {
        if self.depth > 0 {
            return Err(FdtError::Xml("the document ends early".to_owned()));
        }
        self.root
            .map(|(instance, _)| instance)
            .ok_or(FdtError::Root)
    }
}

fn read_root(element: &BytesStart<'_>) -> Result<(FdtInstance, Common), FdtError> {
    let (mut expires, mut complete, mut common) = (None, false, Common::default());
    for_each_attribute(element, |name, attribute| {
        match name {
            EXPIRES => expires = Some(number(EXPIRES, attribute)?),
            COMPLETE => complete = matches!(text(attribute)?.as_ref(), "true" | "1"),
            CONTENT_ENCODING => common.content_encoding = content_encoding(attribute)?,
            name => common.fec.take(name, attribute)?,
        }
        Ok(())
    })?;
    let expires = expires.ok_or(FdtError::Missing(EXPIRES))?;
    Ok((
        FdtInstance {
            expires,
            complete,
            files: Vec::new(),
        },
        common,
    ))
}

fn read_file(element: &BytesStart<'_>, common: &Common) -> Result<FileEntry, FdtError> {
    let mut file = FileEntry {
        content_encoding: common.content_encoding.clone(),
        ..FileEntry::default()
    };
    let (mut toi, mut location, mut content_length) = (None, None, None);
    let (mut mode, mut modified_s) = (None, None);
    let (mut section, mut number_of_section) = (Section::default(), None);
    for_each_attribute(element, |name, attribute| {
        match name {
            TOI => toi = Some(number(TOI, attribute)?),
            LOCATION => location = Some(text(attribute)?.into_owned()),
            CONTENT_LENGTH => content_length = Some(number(CONTENT_LENGTH, attribute)?),
            TRANSFER_LENGTH => file.transfer_length = Some(number(TRANSFER_LENGTH, attribute)?),
            CONTENT_ENCODING => file.content_encoding = content_encoding(attribute)?,
            MD5 => file.md5 = Some(digest(MD5, attribute)?),
            SHA256 => file.sha256 = Some(digest(SHA256, attribute)?),
            BLOCKS => file.blocks = digests(BLOCKS, attribute)?,
            CHUNKS => file.chunks = Some(chunks(attribute)?),
            BUNDLE => file.bundle = Some(number(BUNDLE, attribute)?),
            MODE => mode = Some(octal(MODE, attribute)? & Attributes::MODE_MAX),
            MODIFIED => modified_s = Some(number(MODIFIED, attribute)?),
            SECTION => number_of_section = Some(number(SECTION, attribute)?),
            OFFSET => section.offset = number(OFFSET, attribute)?,
            ZEROS => section.zeros = number(ZEROS, attribute)?,
            IMAGE_LENGTH => section.image_length = Some(number(IMAGE_LENGTH, attribute)?),
            name => file.fec.take(name, attribute)?,
        }
        Ok(())
    })?;
    file.section = number_of_section.map(|number| Section { number, ..section });
    file.toi = toi.ok_or(FdtError::Missing(TOI))?;
    file.location = location.ok_or(FdtError::Missing(LOCATION))?;
    file.transfer_length = file.transfer_length.or(content_length);
    file.fec = file.fec.or(&common.fec);
    file.attributes = mode
        .zip(modified_s)
        .map(|(mode, modified_s)| Attributes { mode, modified_s });
    Ok(file)
}

fn for_each_attribute(
    element: &BytesStart<'_>,
    mut take: impl FnMut(&str, &Attribute<'_>) -> Result<(), FdtError>,
) -> Result<(), FdtError> {
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| FdtError::Xml(abbreviate(&error.to_string())))?;
        take(attribute.key.local_name().as_ref(), &attribute)?;
    }
    Ok(())
}

fn text<'a>(attribute: &'a Attribute<'_>) -> Result<Cow<'a, str>, FdtError> {
    quick_xml::escape::unescape(&attribute.value)
        .map_err(|error| FdtError::Xml(abbreviate(&error.to_string())))
}

fn number<N: std::str::FromStr>(
    name: &'static str,
    attribute: &Attribute<'_>,
) -> Result<N, FdtError> {
    let text = text(attribute)?;
    text.trim().parse().map_err(|_| FdtError::Value {
        attribute: name,
        value: abbreviate(&text),
    })
}

fn octal(name: &'static str, attribute: &Attribute<'_>) -> Result<u32, FdtError> {
    let text = text(attribute)?;
    u32::from_str_radix(text.trim(), 8).map_err(|_| FdtError::Value {
        attribute: name,
        value: abbreviate(&text),
    })
}

fn base64(name: &'static str, attribute: &Attribute<'_>) -> Result<Vec<u8>, FdtError> {
    let text = text(attribute)?;
    STANDARD.decode(text.trim()).map_err(|_| FdtError::Value {
        attribute: name,
        value: abbreviate(&text),
    })
}

fn digest<const BYTES: usize>(
    name: &'static str,
    attribute: &Attribute<'_>,
) -> Result<[u8; BYTES], FdtError> {
    let bytes = base64(name, attribute)?;
    bytes.try_into().map_err(|bytes: Vec<u8>| FdtError::Value {
        attribute: name,
        value: format!("{} bytes", bytes.len()),
    })
}

fn digests(name: &'static str, attribute: &Attribute<'_>) -> Result<Vec<BlockDigest>, FdtError> {
    let bytes = base64(name, attribute)?;
    let (digests, rest) = bytes.as_chunks();
    if rest.is_empty() {
        return Ok(digests.to_vec());
    }
    Err(FdtError::Value {
        attribute: name,
        value: format!("{} bytes", bytes.len()),
    })
}

fn chunks(attribute: &Attribute<'_>) -> Result<Chunks, FdtError> {
    let bytes = base64(CHUNKS, attribute)?;
    Chunks::decode(&bytes).ok_or_else(|| FdtError::Value {
        attribute: CHUNKS,
        value: format!("{} bytes", bytes.len()),
    })
}

fn content_encoding(attribute: &Attribute<'_>) -> Result<Option<String>, FdtError> {
    let text = text(attribute)?;
    Ok((!matches!(text.as_ref(), "" | "null" | "identity")).then(|| text.into_owned()))
}

impl FecAttributes {
    fn take(&mut self, name: &str, attribute: &Attribute<'_>) -> Result<(), FdtError> {
        match name {
            FEC_ENCODING_ID => self.encoding_id = Some(number(FEC_ENCODING_ID, attribute)?),
            FEC_SYMBOL => self.symbol_length = Some(number(FEC_SYMBOL, attribute)?),
            FEC_BLOCK => self.block_symbols_max = Some(number(FEC_BLOCK, attribute)?),
            FEC_SPECIFIC => self.scheme_specific = Some(base64(FEC_SPECIFIC, attribute)?),
            _ => {}
        }
        Ok(())
    }
}
