//! Frames whose payload is in layers.

use core::time::Duration;

use super::*;
use crate::layers::{LayerSize, Layers, LayersError};

/// Returns whether the payload of a frame is in layers.
pub(super) fn is_layered(frame: &Frame) -> bool {
    match frame {
        Frame::Segment { message, .. }
        | Frame::Stream(message)
        | Frame::Datagram { message, .. }
        | Frame::Direct(message) => { message.copy }.has(CopyFlags::LAYERED),
        Frame::Client(ClientFrame::Send { layered, .. } | ClientFrame::Deliver { layered, .. }) => {
            *layered
        }
        _ => false,
    }
}

/// Returns a payload of one layer, which was cut if it has no bytes.
pub(super) fn in_one_layer(bytes: &[u8]) -> Vec<u8> {
    let layer = LayerSize {
        bytes: bytes.len().max(1) as u16,
        dollars: 1,
    };
    let mut payload = Layers::encode(Duration::from_millis(20), 0, &[layer]).unwrap();
    payload.extend_from_slice(bytes);
    payload
}

#[test]
fn layered_messages_are_encoded_as_documented_and_need_a_valid_table() {
    let groups = GroupId(7).into();
    let send = ClientFrame::Send {
        groups,
        sent_us: 6,
        layered: true,
    };
    let sent = [0x33, 0x08, 0, 0, 0, 0, 0, 7, 0, 0, 0, 6];
    let table = [2, 0, 0x4e, 0x20, 0, 1, 0, 2, 0, 9, 0, 4, 0, 3];
    let whole = [&sent[..], &table, &[0; 7]].concat();
    assert_eq!(ClientFrame::decode(&whole), Ok((send, 12)));
    assert_eq!(send.encode().as_bytes(), sent);
    // The kept byte, and one of the first layer.
    assert_eq!(ClientFrame::decode(&whole[..28]), Ok((send, 12)));
    let (have, want) = (26, 27);
    let short = Err(WireError::Short { have, want });
    assert_eq!(ClientFrame::decode(&whole[..have]), short);
    let longer = [&whole[..], &[0]].concat();
    let error = ClientFrame::decode(&longer).unwrap_err();
    assert_eq!(error, WireError::Layers(LayersError::Trailing(1)));
    let mut many = whole;
    many[12] = 9;
    let error = ClientFrame::decode(&many).unwrap_err();
    assert_eq!(error, WireError::Layers(LayersError::Count(9)));
    // A message that is not a client's has no layers.
    let mut change = message(Body::Request).encode().as_bytes().to_vec();
    change[1] = 0x08;
    assert_eq!(Message::decode(&change), Err(WireError::Reserved));
}
