//! A whole session from an enemy: FDTs with lies in them, symbols of any object, raw datagrams.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Write;

use arbitrary::Arbitrary;
use manyflow_object::alc::Packet;
use manyflow_object::receiver::{ObjectReceiver, ReceiverConfig};

#[derive(Debug, Arbitrary)]
enum Input {
    /// One FDT Instance without code, in one packet.
    Fdt { instance: u8, files: Vec<File> },
    /// A run of symbols of one block.
    Symbols {
        toi: u8,
        payload_id: u32,
        count: u8,
        step: u16,
        length: u16,
        fti: Option<(bool, [u8; 14])>,
    },
    /// Anything.
    Raw(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct File {
    toi: u8,
    name: String,
    length: u64,
    short: bool,
    scheme: bool,
    symbol_length: u16,
    block: u16,
    specific: [u8; 4],
}

const SESSION: u32 = 1;

manyflow_fuzz::target!(|inputs: Vec<Input>| {
    let config = ReceiverConfig {
        memory_max: 1 << 20,
        early_max: 1 << 16,
        files_max: 50,
        ..ReceiverConfig::new(SESSION.into())
    };
    let mut receiver = ObjectReceiver::new(config);
    for input in inputs {
        for datagram in datagrams(input) {
            if let Ok(packet) = Packet::decode(&datagram) {
                let _ = receiver.handle_packet(&packet);
            }
        }
        while receiver.poll_event().is_some() {}
    }
    let progress = receiver.progress();
    assert!(progress.files_complete + progress.files_refused <= progress.files);
});

fn datagrams(input: Input) -> Vec<Vec<u8>> {
    match input {
        Input::Raw(bytes) => vec![bytes],
        Input::Fdt { instance, files } => vec![fdt(instance, &files)],
        Input::Symbols {
            toi,
            payload_id,
            count,
            step,
            length,
            fti,
        } => (0..u32::from(count))
            .map(|number| {
                let extension =
                    fti.map(|(raptorq, content)| (raptorq, [&[64, 4][..], &content].concat()));
                let (raptorq, extension) = extension.unwrap_or_default();
                let id = payload_id.wrapping_add(number * u32::from(step));
                let mut bytes = header(toi, raptorq, &extension);
                bytes.extend_from_slice(&id.to_be_bytes());
                bytes.resize(bytes.len() + usize::from(length % 64), number as u8);
                bytes
            })
            .collect(),
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
    for file in files {
        let length = if file.short {
            file.length % 4_096
        } else {
            file.length
        };
        let name: String = file
            .name
            .chars()
            .filter(|character| !"<&'".contains(*character))
            .collect();
        let id = if file.scheme { 6 } else { 0 };
        write!(
            xml,
            "<File TOI='{}' Content-Location='{name}' Content-Length='{length}' FEC-OTI-FEC-Encoding-ID='{id}' \
             FEC-OTI-Encoding-Symbol-Length='{}' FEC-OTI-Maximum-Source-Block-Length='{}' \
             FEC-OTI-Scheme-Specific-Info='{}'/>",
            file.toi, file.symbol_length % 64, file.block, base64(file.specific),
        )
        .unwrap();
    }
    xml.push_str("</FDT-Instance>");
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
