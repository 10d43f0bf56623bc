//! A man in the middle adds hostile datagrams to a receiver's tunnel. The transfer completes
//! intact, and memory remains bounded. The test runs in a process of its own, because it measures
//! the memory of the process.

use crate::stage;

use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, ip};
use manyflow_core::units::Rate;
use manyflow_files::image::ImageOutput;
use manyflow_files::session::Received;
use manyflow_object::alc;
use manyflow_object::fdt::{FdtInstance, FileEntry};
use manyflow_object::fec::Oti;
use manyflow_webrc::Cci;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use stage::{Receiving, Stage, TSI, TestFile, random_file};
use tempfile::TempDir;
use tokio::net::UdpSocket;

/// Instances from this number on are not those of sections that the image has.
const IMAGE_INSTANCE: u16 = 1_000;
/// The length of the image.
const IMAGE_BYTES: usize = 5_000_000;
/// Is set in the process of its own.
const ALONE: &str = "MANYFLOW_TEST_ALONE";
/// Size of the hostile objects: large, so that a flood of some thousand packets reaches every
/// limit.
const SYMBOL: u16 = 8192;
/// Packets of the flood, of which some 300 MB are of objects that nobody announced.
const FLOOD: u64 = 60_000;
/// The same for an image.
const IMAGE_FLOOD: u64 = 15_000;
/// Hostile datagrams for each datagram of the session.
const FLOOD_FACTOR: u64 = 120;
/// Maximum growth of the process's memory. The receiver has 32 MiB for early symbols, 32 MiB of
/// datagrams that wait for the decoder or are in it, and some for blocks; the test has the rest.
const GROWTH_MAX_KIB: u64 = 128 << 10;
/// Datagrams of the session for each false symbol.
const POISON_EVERY: u64 = 10;

#[test]
fn hostile_datagrams_neither_spoil_a_transfer_nor_fill_the_memory() {
    let name = "hostile::hostile_datagrams_neither_spoil_a_transfer_nor_fill_the_memory";
    run_alone(name, transfer_among_hostile_datagrams());
}

#[test]
fn hostile_datagrams_neither_spoil_an_image_for_a_pipe_nor_fill_the_memory() {
    let name = "hostile::hostile_datagrams_neither_spoil_an_image_for_a_pipe_nor_fill_the_memory";
    run_alone(name, async {
        let (reader, writer) = std::io::pipe().unwrap();
        let reading = std::thread::spawn(|| {
            let (mut reader, mut read) = (reader, Vec::new());
            reader.read_to_end(&mut read).unwrap();
            read
        });
        let writer = File::from(OwnedFd::from(writer));
        let stage = image_stage().await;
        let (folder, _) = transfer_image_among(&stage, ImageOutput::Pipe(Arc::new(writer))).await;
        assert!(reading.join().unwrap() == image().1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    });
}

#[test]
fn hostile_datagrams_neither_spoil_an_image_for_a_device_nor_fill_the_memory() {
    let name = "hostile::hostile_datagrams_neither_spoil_an_image_for_a_device_nor_fill_the_memory";
    run_alone(name, async {
        let device = tempfile::NamedTempFile::new().unwrap();
        let old = vec![0x33; IMAGE_BYTES + 100_000];
        std::fs::write(&device, &old).unwrap();
        let stage = image_stage().await;
        let output = ImageOutput::Device(device.path().to_owned());
        let (folder, _) = transfer_image_among(&stage, output).await;
        let written = std::fs::read(&device).unwrap();
        assert!(written[..IMAGE_BYTES] == image().1);
        assert!(
            written[IMAGE_BYTES..] == old[IMAGE_BYTES..],
            "bytes behind the image"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    });
}

fn image() -> TestFile {
    random_file("image", IMAGE_BYTES, 3)
}

async fn image_stage() -> Stage {
    let rate = Rate::from_bits_per_s(20_000_000);
    Stage::start_image(rate, SYMBOL, image()).await
}

async fn transfer_image_among(stage: &Stage, output: ImageOutput) -> (TempDir, Received) {
    let before = peak_memory_kib();
    let hostile = Hostile::start(stage, IMAGE_INSTANCE, IMAGE_FLOOD).await;
    let receiving = stage.receive_image(hostile.address, output);
    let (folder, received) = attack(receiving, &hostile, before).await;
    (folder, received)
}

/// Runs a test in a process of its own.
fn run_alone(name: &str, test: impl Future<Output = ()>) {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        return runtime.unwrap().block_on(test);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let texts = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy);
    print!("{}{}", texts[0], texts[1]);
    assert!(output.status.success() && texts[0].contains("1 passed"));
}

async fn transfer_among_hostile_datagrams() {
    let files = vec![
        random_file("file", 12_000_000, 1),
        random_file("folder/small", 100, 2),
    ];
    let stage = Stage::start(Rate::from_bits_per_s(20_000_000), SYMBOL, files);
    let before = peak_memory_kib();
    let hostile = Hostile::start(&stage, 0, FLOOD).await;
    let receiving = stage.receive(hostile.address);
    let (folder, _) = attack(receiving, &hostile, before).await;
    stage.assert_intact(folder.path(), "hostile");
}

/// Attacks a receiver in all ways, until it has received everything. `before` is the memory of the
/// process before it began.
async fn attack(mut receiving: Receiving, hostile: &Hostile, before: u64) -> (TempDir, Received) {
    // Time slots that run ahead are refused, and the session is not left.
    receiving
        .until(|progress| progress.packets.received > 100)
        .await;
    hostile.attack(TIME_SLOTS);
    receiving
        .until(|progress| {
            assert!(progress.webrc.is_some(), "the session was left");
            progress.packets.forged.time_slot > 1_000
        })
        .await;
    hostile.attack(NOTHING);

    // False symbols are added once the table of files is known.
    receiving
        .until(|progress| progress.objects.useful_symbols > 10)
        .await;
    hostile.attack(POISON);
    receiving
        .until(|progress| progress.objects.useful_symbols > 300)
        .await;
    hostile.attack(FLOODING);

    let (folder, received) = receiving.finish("hostile").await;
    let growth = peak_memory_kib() - before;
    assert!(
        hostile.injected() >= hostile.flood,
        "the transfer ended before the flood"
    );

    let (objects, packets) = (received.progress.objects, received.progress.packets);
    assert!(packets.refused > hostile.flood / 10, "{packets:?}");
    let refused = objects.refused;
    assert!(
        refused.contradiction > 0 && objects.withdrawn_symbols > 0,
        "nothing was poisoned: {objects:?}"
    );
    assert!(
        refused.table > 0
            && refused.fdt > 0
            && refused.oti > 0
            && refused.payload_length > 0
            && refused.symbol_id > 0,
        "{refused:?}"
    );
    eprintln!(
        "growth {growth} {:?} {objects:?} {packets:?}",
        received.elapsed
    );
    assert!(growth < GROWTH_MAX_KIB, "memory grew by {growth} KiB");
    (folder, received)
}

/// Returns the maximum of the process's resident memory so far.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The behaviour of the man in the middle.
const NOTHING: u64 = 0;
const POISON: u64 = 1;
const FLOODING: u64 = 2;
const TIME_SLOTS: u64 = 3;

/// Forwards messages between a gateway and its relay, and adds its own.
struct Hostile {
    flood: u64,
    address: SocketAddr,
    mode: Arc<AtomicU64>,
    injected: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Hostile {
    /// Forges FDT Instances with numbers above `instance`, and `flood` packets of a flood.
    async fn start(stage: &Stage, instance: u16, flood: u64) -> Hostile {
        let any = (Ipv4Addr::LOCALHOST, 0);
        let (gateway_side, relay_side) = (
            UdpSocket::bind(any).await.unwrap(),
            UdpSocket::bind(any).await.unwrap(),
        );
        relay_side.connect(stage.relay).await.unwrap();
        let address = gateway_side.local_addr().unwrap();
        let (mode, injected) = (
            Arc::new(AtomicU64::new(NOTHING)),
            Arc::new(AtomicU64::new(0)),
        );
        let middle = Middle {
            gateway: None,
            gateway_side,
            relay_side,
            flood,
            mode: Arc::clone(&mode),
            injected: Arc::clone(&injected),
            wave_channels: stage.description.channels() as u16 - 1,
            forger: Forger::new(instance),
        };
        let task = tokio::spawn(middle.run());
        Hostile {
            flood,
            address,
            mode,
            injected,
            task,
        }
    }

    fn attack(&self, mode: u64) {
        self.mode.store(mode, Ordering::Relaxed);
    }

    /// Packets of the flood so far.
    fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Middle {
    flood: u64,
    gateway: Option<SocketAddr>,
    gateway_side: UdpSocket,
    relay_side: UdpSocket,
    mode: Arc<AtomicU64>,
    injected: Arc<AtomicU64>,
    wave_channels: u16,
    forger: Forger,
}

impl Middle {
    async fn run(mut self) {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                received = self.gateway_side.recv_from(&mut up) => {
                    let Ok((length, from)) = received else { continue };
                    self.gateway = Some(from);
                    let _ = self.relay_side.send(&up[..length]).await;
                }
                received = self.relay_side.recv(&mut down) => {
                    let (Ok(length), Some(gateway)) = (received, self.gateway) else { continue };
                    // The first copy of a symbol counts: a receiver ignores the second.
                    self.inject(&down[..length], gateway).await;
                    let _ = self.gateway_side.send_to(&down[..length], gateway).await;
                }
            }
        }
    }

    async fn inject(&mut self, message: &[u8], gateway: SocketAddr) {
        let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
            return;
        };
        let (flow, payload) = ip::decode_udp(datagram).unwrap();
        match self.mode.load(Ordering::Relaxed) {
            POISON if self.forger.is_due(POISON_EVERY) => {
                let forged = self.forger.flip_a_bit(payload);
                self.send(&flow, &forged, gateway).await;
                let broken = self.forger.flip_a_bit(message);
                let _ = self.gateway_side.send_to(&broken, gateway).await;
            }
            TIME_SLOTS => {
                for ahead in 1..20 {
                    let forged = run_ahead(payload, 2 * ahead, self.wave_channels);
                    self.send(&flow, &forged, gateway).await;
                }
            }
            FLOODING if self.injected.load(Ordering::Relaxed) < self.flood => {
                for _ in 0..FLOOD_FACTOR {
                    let number = self.injected.fetch_add(1, Ordering::Relaxed);
                    let forged = self.forger.forge(number, payload);
                    self.send(&flow, &forged, gateway).await;
                }
            }
            _ => {}
        }
    }

    /// Returns the tunnel message that the relay would make, with correct checksums.
    async fn send(&self, flow: &Flow, payload: &[u8], gateway: SocketAddr) {
        let (mut datagram, mut message) = (Vec::new(), Vec::new());
        ip::encode_udp(flow, payload, &mut datagram).unwrap();
        Message::MulticastData {
            datagram: &datagram,
        }
        .encode(&mut message);
        let _ = self.gateway_side.send_to(&message, gateway).await;
    }
}

/// Returns a packet whose time slot index is ahead of that of a real packet.
fn run_ahead(real: &[u8], slots: u16, wave_channels: u16) -> Vec<u8> {
    let mut cci = Cci::decode(alc::Packet::decode(real).unwrap().cci()).unwrap();
    cci.ctsi = (cci.ctsi + slots) % wave_channels;
    let (field, length) = cci.encode();
    packet(&field[..length], TSI, u32::MAX, &[], [0; 4], &[0; 100])
}

/// Returns the congestion control information of a packet that the sender will send soon. Several
/// packets with the number of a real one would only show that all but one are false.
fn soon(real: &[u8], number: u64) -> Vec<u8> {
    let mut cci = Cci::decode(alc::Packet::decode(real).unwrap().cci()).unwrap();
    cci.psn = (cci.psn + 1 + number as u32 % 50) & 0xffff;
    let (field, length) = cci.encode();
    field[..length].to_vec()
}

/// Returns the TOI of a real packet, or 1 if it carries a table.
fn toi_of(real: &[u8]) -> u32 {
    let symbol = alc::Packet::decode(real).unwrap().symbol;
    symbol.map_or(1, |symbol| symbol.toi.max(1) as u32)
}

/// Makes hostile packets after a real one.
struct Forger {
    /// The number below those of forged FDT Instances.
    instance: u16,
    random: Pcg64Mcg,
    turns: u64,
    /// A well-formed table of more files than a receiver accepts.
    long_table: Vec<u8>,
}

impl Forger {
    fn new(instance: u16) -> Forger {
        let files = (1..12_000u128).map(|toi| FileEntry {
            location: toi.to_string(),
            toi,
            ..FileEntry::default()
        });
        let table = FdtInstance {
            files: files.collect(),
            expires: u32::MAX.into(),
            complete: false,
        };
        Forger {
            instance,
            random: Pcg64Mcg::seed_from_u64(1),
            turns: 0,
            long_table: table.encode(),
        }
    }

    /// Returns true in each `every`-th call.
    fn is_due(&mut self, every: u64) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(every)
    }

    fn flip_a_bit(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let bit = self.random.random_range(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    }

    fn forge(&mut self, number: u64, real: &[u8]) -> Vec<u8> {
        let cci = soon(real, number);
        let symbol = vec![0x5a; usize::from(SYMBOL)];
        let turn = (number / 20) as u32;
        let toi = toi_of(real);
        match number % 20 {
            0 => real[..self.random.random_range(0..real.len())].to_vec(),
            1 => {
                let mut noise = vec![0; self.random.random_range(0..2_000)];
                self.random.fill_bytes(&mut noise);
                noise
            }
            2 => packet(&cci, TSI + 1, 1, &[], [0; 4], &symbol),
            // The header claims wrong lengths.
            3 => {
                let mut lying = real.to_vec();
                lying[2] = self.random.random();
                lying
            }
            // A table with a file of 2^48 - 1 bytes, or of half of that, which our encoder could
            // produce.
            4 => {
                let mut fti = Oti::no_code(1 << 47, u16::MAX, 65_535)
                    .unwrap()
                    .encode_extension();
                if turn.is_multiple_of(2) {
                    fti[2..8].fill(0xff);
                }
                self.table_packet(&cci, 1, &fti, 0, &symbol[..1_000])
            }
            5 => self.long_table_packet(&cci, turn),
            // Symbols that the file cannot have: of another length, or of a block beyond the last.
            6 => packet(&cci, TSI, toi, &[], [0, 0xff, 0, 0], &symbol[..100]),
            7 => packet(&cci, TSI, toi, &[], [0xff, 0, 0, 0], &symbol),
            // A false end of the session (LCT flag A).
            9 => {
                let mut end = packet(&cci, TSI, 1, &[], [0; 4], &[]);
                end[1] |= 0x02;
                end
            }
            // A table that empties the file, and one that adds files with other names.
            10 => self.forged_table_packet(&cci, turn),
            // Longer than any packet of the session.
            8 => packet(&cci, TSI, 1, &[], [0; 4], &[0; 3 * SYMBOL as usize]),
            _ => packet(&cci, TSI, self.random.random(), &[], [0; 4], &symbol),
        }
    }

    /// Returns a whole table in one packet.
    fn forged_table_packet(&self, cci: &[u8], turn: u32) -> Vec<u8> {
        let toi = if turn.is_multiple_of(2) { 1 } else { 77 };
        let names = ["file", "folder/small", "forged"];
        let file = FileEntry {
            toi,
            location: names[turn as usize % names.len()].to_owned(),
            transfer_length: Some(0),
            ..FileEntry::default()
        };
        let table = FdtInstance {
            files: vec![file],
            expires: u32::MAX.into(),
            complete: true,
        };
        let table = table.encode();
        let oti = Oti::no_code(table.len() as u64, table.len() as u16, 1).unwrap();
        self.table_packet(cci, 3, &oti.encode_extension(), 0, &table)
    }

    /// A packet of a table of files without code.
    fn table_packet(
        &self,
        cci: &[u8],
        instance: u16,
        fti: &[u8],
        number: u16,
        symbol: &[u8],
    ) -> Vec<u8> {
        let [instance_high, instance_low] = (self.instance + instance).to_be_bytes();
        let mut extensions = vec![192, 0x20, instance_high, instance_low];
        extensions.extend_from_slice(fti);
        let [high, low] = number.to_be_bytes();
        packet(cci, TSI, 0, &extensions, [0, 0, high, low], symbol)
    }

    fn long_table_packet(&self, cci: &[u8], turn: u32) -> Vec<u8> {
        let length = 1_000;
        let symbols = self.long_table.chunks(length);
        let number = turn as usize % symbols.len();
        let oti = Oti::no_code(self.long_table.len() as u64, length as u16, 65_535).unwrap();
        let symbol = self.long_table.chunks(length).nth(number).unwrap();
        self.table_packet(cci, 2, &oti.encode_extension(), number as u16, symbol)
    }
}

/// An ALC packet: LCT version 1 with 32-bit identifiers (RFC 5651 section 5.1).
fn packet(
    cci: &[u8],
    tsi: u32,
    toi: u32,
    extensions: &[u8],
    payload_id: [u8; 4],
    symbol: &[u8],
) -> Vec<u8> {
    let header_words = 3 + (cci.len() + extensions.len()) / 4;
    let mut packet = vec![0x10, 0xa0, header_words as u8, 0];
    packet.extend_from_slice(cci);
    packet.extend_from_slice(&tsi.to_be_bytes());
    packet.extend_from_slice(&toi.to_be_bytes());
    packet.extend_from_slice(extensions);
    packet.extend_from_slice(&payload_id);
    packet.extend_from_slice(symbol);
    packet
}
