//! Wireshark reads our announcements. Skipped if `tshark` is not installed.

use std::net::SocketAddr;
use std::process::Command;

use manyflow_amt::Flow;
use manyflow_amt::ip::encode_udp;
use manyflow_net::sap::{self, Packet};

const TEXT: &str = "v=0\r\no=- 7 1 IN IP4 192.0.2.1\r\ns=news\r\nt=0 0\r\n";
const FIELDS: [&str; 8] = [
    "sap.flags.v",
    "sap.flags.t",
    "sap.originating_source",
    "sap.originating_source.ipv6",
    "sap.message_identifier_hash",
    "sap.payload_type",
    "sdp.session_name",
    "sdp.version",
];

#[test]
fn wireshark_reads_announcements() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sap.pcap");
    // A classic pcap file of raw IP datagrams (LINKTYPE_RAW).
    let mut pcap: Vec<u8> = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101]
        .map(u32::to_le_bytes)
        .concat();
    let mut expected = String::new();
    for (origin, group) in [("192.0.2.1", "232.1.2.0"), ("2001:db8::1", "ff3e::8000:1")] {
        let (origin, group) = (origin.parse().unwrap(), group.parse().unwrap());
        let packet = Packet::announcement(origin, TEXT);
        let flow = Flow {
            source: SocketAddr::new(origin, 4_000),
            group: SocketAddr::new(sap::group_for(group), sap::PORT),
        };
        let mut datagram = Vec::new();
        encode_udp(&flow, &packet.encode(), &mut datagram).unwrap();
        let length = datagram.len() as u32;
        pcap.extend([0, 0, length, length].map(u32::to_le_bytes).concat());
        pcap.extend(datagram);
        let (ipv4, ipv6) = match origin.is_ipv4() {
            true => (origin.to_string(), String::new()),
            false => (String::new(), origin.to_string()),
        };
        let hash = packet.hash;
        expected += &format!("1|0|{ipv4}|{ipv6}|0x{hash:04x}|application/sdp|news|0\n");
    }
    std::fs::write(&file, pcap).unwrap();
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&file)
        .args(["-T", "fields", "-E", "separator=|"]);
    match tshark.args(fields).output() {
        Ok(output) => {
            let read = String::from_utf8_lossy(&output.stdout);
            // Versions print booleans as 0 and 1, or as words.
            assert_eq!(read.replace("False", "0"), expected);
        }
        Err(error) => println!("skipped, tshark does not run: {error}"),
    }
}
