//! The decoder without a network: tests pass the session's packets to it.

use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};
use manyflow_webrc::CciFormat;

use super::*;

const TSI: u32 = 7;
const SYMBOLS: usize = 50;

/// A sender of a file of one block, whose packets have the numbers of one channel.
struct Numbered {
    sender: ObjectSender,
    psn: u32,
}

impl Numbered {
    fn new(content: &[u8]) -> Numbered {
        let mut config = SenderConfig::new(TSI, 1, 1);
        config.cci_length = CciFormat::Short.wire_bytes();
        let file = SourceFile::new("file", content.to_vec());
        Numbered {
            sender: ObjectSender::new(config, vec![file]).unwrap(),
            psn: 0,
        }
    }

    fn next(&mut self, is_table: bool) -> Vec<u8> {
        let cci = Cci {
            ctsi: 0,
            channel: 0,
            psn: self.psn,
            format: CciFormat::Short,
        };
        self.psn += 1;
        let ((field, length), mut datagram) = (cci.encode(), Vec::new());
        let field = &field[..length];
        match is_table {
            true => self.sender.next_fdt_datagram(field, &mut datagram),
            false => self.sender.next_datagram(0, field, &mut datagram),
        }
        .unwrap();
        datagram
    }
}

async fn next_event(decoder: &mut Decoder) -> DecoderEvent {
    decoder.events.recv().await.expect("the decoder goes on")
}

#[tokio::test]
async fn a_block_that_turns_out_to_be_false_takes_more_symbols_after_enough() {
    let folder = tempfile::tempdir().unwrap();
    let content = [5; SYMBOLS * 1_376];
    let mut sender = Numbered::new(&content);
    let table = sender.sender.table_sha256();
    let mut config = ReceiverConfig::new(TSI.into());
    config.table_sha256 = Some(table);
    let output = folder.path().to_owned();
    let image = ImageOutput::default();
    let started = Decoder::start(config, output, Some(table), Existing::Keep, image, 1);
    let mut decoder = started.unwrap();
    decoder.batch().push(&sender.next(true));
    // All come in one batch. A tenth is false, so that no few symbols can be left out.
    for number in 0..SYMBOLS + 10 {
        let mut datagram = sender.next(false);
        if number % 10 == 9
            && let Some(last) = datagram.last_mut()
        {
            *last ^= 1;
        }
        decoder.batch().push(&datagram);
    }
    assert!(decoder.flush());
    assert!(matches!(
        next_event(&mut decoder).await,
        DecoderEvent::Enough
    ));
    assert!(matches!(next_event(&mut decoder).await, DecoderEvent::More));
    for _ in 0..3 * SYMBOLS {
        decoder.batch().push(&sender.next(false));
    }
    assert!(decoder.flush());
    assert!(matches!(
        next_event(&mut decoder).await,
        DecoderEvent::Enough
    ));
    assert!(matches!(
        next_event(&mut decoder).await,
        DecoderEvent::Done(_)
    ));
    assert!(matches!(
        next_event(&mut decoder).await,
        DecoderEvent::End(Ok(()))
    ));
    let stored = std::fs::read(folder.path().join("file")).unwrap();
    assert!(stored == content);
}
