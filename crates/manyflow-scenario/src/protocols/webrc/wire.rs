//! WEBRC packets in captures and traces.

use manyflow_object::alc::PAYLOAD_ID_BYTES;
use manyflow_object::lct;
use manyflow_webrc::Cci;
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

/// The transport object identifier of a session's data, which all belong to one object. 0 is
/// reserved for the file delivery table (RFC 6726 section 3.1).
pub const TOI: u32 = 1;

/// FEC Encoding ID 0, no code (RFC 5445 section 3.2). The symbols are zeros, so nothing can be
/// decoded from them.
const NO_CODE: u8 = 0;

impl Wire for Cci {
    /// Writes the LCT header around the CCI, and the FEC Payload ID of the first symbol.
    fn encode(&self, flow: &Flow, _payload_bytes: u32, frame: &mut Vec<u8>) {
        let (field, length) = Cci::encode(self);
        let header = lct::Fields {
            cci: &field[..length],
            tsi: flow.session,
            toi: Some(TOI),
            close_session: false,
            close_object: false,
            codepoint: NO_CODE,
            extensions: &[],
        };
        header.encode(frame);
        frame.extend_from_slice(&[0; PAYLOAD_ID_BYTES]);
    }

    fn trace(&self, _payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        line.serialize_entry("channel", &self.channel)?;
        line.serialize_entry("psn", &self.psn)
    }
}
