//! A whole session from an attacker: FDTs with false contents, symbols of any object, raw
//! datagrams.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Write;

use arbitrary::Arbitrary;
use manyflow_object::alc::Packet;
use manyflow_object::image::TableKey;
use manyflow_object::receiver::{ObjectReceiver, ReceiverConfig};

#[derive(Debug, Arbitrary)]
enum Input {
    /// One FDT Instance without code, in one packet; the TOIs of its files count from 1.
    Fdt { instance: u8, files: Vec<File> },
    /// A run of symbols of one block, usually of the length that the last FDT stated.
    Symbols {
        toi: u8,
        sbn: u8,
        esi: u16,
        count: u8,
        step: u8,
        wrong_length: Option<u8>,
        fti: Option<[u8; 14]>,
    },
    /// Any bytes.
    Raw(Vec<u8>),
}

#[derive(Debug, Clone, Default, Arbitrary)]
struct File {
    name: String,
    length: u16,
    huge: Option<u64>,
    raptorq: bool,
    symbol_length: u8,
    block: u8,
    specific: Option<[u8; 4]>,
    /// The number, offset and zeros of a section of an image.
    section: Option<(u8, u16, u64)>,
}

impl File {
    fn symbol_length(&self) -> usize {
        usize::from(self.symbol_length % 16 + 1)
    }
}

const SESSION: u32 = 1;
/// A digest of zeros in base64.
const ZERO_DIGEST: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

manyflow_fuzz::target!(|session: (bool, Vec<File>, Vec<Input>)| {
    let (is_image, mut files, inputs) = session;
    let config = ReceiverConfig {
        memory_max: 1 << 20,
        early_max: 1 << 16,
        files_max: 50,
        // The attacker has the key: a sender may be hostile.
        table_key: is_image.then(|| TableKey::new(|_, _| true)),
        ..ReceiverConfig::new(SESSION.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    let first = vec![fdt(255, &files)];
    let later = inputs.into_iter().map(|input| datagrams(input, &mut files));
    for datagrams in std::iter::once(first).chain(later) {
        for datagram in datagrams {
            if let Ok(packet) = Packet::decode(&datagram) {
                let _ = receiver.handle_packet(&packet);
            }
        }
        while receiver.poll_event().is_some() {}
    }
    receiver.set_released(u64::from(is_image) << 10, 1 << 16);
    let progress = receiver.progress();
    assert!(progress.files_complete + progress.files_refused <= progress.files);
});

fn datagrams(input: Input, files: &mut Vec<File>) -> Vec<Vec<u8>> {
    match input {
        Input::Raw(bytes) => vec![bytes],
        Input::Fdt {
            instance,
            files: listed,
        } => {
            *files = listed;
            vec![fdt(instance, files)]
        }
        Input::Symbols {
            toi,
            sbn,
            esi,
            count,
            step,
            wrong_length,
            fti,
        } => {
            let toi = toi % 3 + 1;
            let file = files
                .get(usize::from(toi).wrapping_sub(1))
                .cloned()
                .unwrap_or_default();
            let extension = fti.map_or(Vec::new(), |content| [&[64, 4][..], &content].concat());
            let symbol = |number: u32| {
                let esi = u32::from(esi % 256) + number * u32::from(step % 8);
                let id = u32::from(sbn % 4) << if file.raptorq { 24 } else { 16 } | esi;
                let mut bytes = header(toi, file.raptorq, &extension);
                bytes.extend_from_slice(&id.to_be_bytes());
                bytes.resize(
                    bytes.len() + wrong_length.map_or(file.symbol_length(), usize::from),
                    number as u8,
                );
                bytes
            };
            (0..u32::from(count)).map(symbol).collect()
        }
    }
}

fn header(toi: u8, raptorq: bool, extensions: &[u8]) -> Vec<u8> {
    let words = 4 + extensions.len() / 4;
    let mut bytes = vec![
        0x10,
        0xa0,
        words as u8,
        if raptorq { 6 } else { 0 },
        0,
        0,
        0,
        0,
    ];
    bytes.extend_from_slice(&SESSION.to_be_bytes());
    bytes.extend_from_slice(&u32::from(toi).to_be_bytes());
    bytes.extend_from_slice(extensions);
    bytes
}

fn fdt(instance: u8, files: &[File]) -> Vec<u8> {
    let mut xml = "<FDT-Instance Expires='1' Complete='1'>".to_owned();
    for (place, file) in (1_u32..).zip(files) {
        let toi = file
            .section
            .map_or(place, |(number, ..)| u32::from(number) + 1);
        let length = file.huge.unwrap_or(file.length.into());
        let name: String = file
            .name
            .chars()
            .filter(|character| !"<&'".contains(*character))
            .collect();
        let id = if file.raptorq { 6 } else { 0 };
        let specific = base64(file.specific.unwrap_or([file.block % 4 + 1, 0, 1, 1]));
        let (symbol_length, block) = (file.symbol_length(), file.block);
        write!(
            xml,
            "<File TOI='{toi}' Content-Location='{toi}{name}' Content-Length='{length}' FEC-OTI-FEC-Encoding-ID='{id}' \
             FEC-OTI-Encoding-Symbol-Length='{symbol_length}' FEC-OTI-Maximum-Source-Block-Length='{block}' \
             FEC-OTI-Scheme-Specific-Info='{specific}'",
        )
        .unwrap();
        if let Some((number, offset, zeros)) = file.section {
            let digest = ZERO_DIGEST;
            write!(
                xml,
                " SHA-256='{digest}' Section='{number}' Offset='{offset}' Zeros='{zeros}'"
            )
            .unwrap();
        }
        xml.push_str("/>");
    }
    xml.push_str("</FDT-Instance>");
    // The signature of an image's table is a comment for others.
    let signature = "A".repeat(86);
    write!(xml, "<!--ed25519 {signature}==-->").unwrap();
    let instance = match files {
        [
            File {
                section: Some((number, ..)),
                ..
            },
        ] => *number,
        _ => instance,
    };
    let length = u16::try_from(xml.len()).unwrap_or(u16::MAX);
    let mut extensions = vec![192, 0x20, 0, instance, 64, 4, 0, 0, 0, 0];
    extensions.extend_from_slice(&length.to_be_bytes());
    extensions.extend_from_slice(&[0, 0]);
    extensions.extend_from_slice(&length.to_be_bytes());
    extensions.extend_from_slice(&[0, 0, 0, 1]);
    let mut bytes = header(0, false, &extensions);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(xml.as_bytes());
    bytes
}

fn base64(bytes: [u8; 4]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let word = u64::from(u32::from_be_bytes(bytes)) << 4;
    let digit = |shift: u32| char::from(DIGITS[(word >> shift & 63) as usize]);
    [30, 24, 18, 12, 6, 0]
        .map(digit)
        .into_iter()
        .chain("==".chars())
        .collect()
}
