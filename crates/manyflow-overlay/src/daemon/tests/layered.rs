//! A daemon with a wide and a thin link, and a client that sends layered messages over both.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;

use super::super::*;
use crate::LayerSize;
use crate::cost_benefit::live::LiveCostBenefit;
use crate::hop::Arrival;
use crate::message::Body;

const GROUP: GroupId = GroupId(1);
const STEP: Duration = Duration::from_millis(1);
/// The numbers of the neighbours.
const THIN: usize = 1;
const WIDE: usize = 2;

/// One end of a link that has room while it has bytes of credit left.
#[derive(Debug)]
struct Metered {
    credit: Arc<AtomicI64>,
    out: VecDeque<(Message, Vec<u8>)>,
    arrived: VecDeque<(Message, Vec<u8>)>,
}

impl Hop<Vec<u8>> for Metered {
    fn overhead_bytes(&self) -> u32 {
        42
    }
    fn keeps_order(&self) -> bool {
        true
    }
    fn has_room(&self) -> bool {
        self.credit.load(Ordering::Relaxed) > 0
    }
    fn push(&mut self, _now: Time, message: Message, payload: Vec<u8>) {
        let bytes = 42 + message.wire_bytes() as usize + payload.len();
        self.credit.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.out.push_back((message, payload));
    }
    fn handle_frame(&mut self, _now: Time, frame: &Frame, _ecn: Ecn, payload: Vec<u8>) {
        if let Frame::Stream(message) = frame {
            self.arrived.push_back((*message, payload));
        }
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_transmit(&mut self, _now: Time) -> Option<(Frame, Vec<u8>)> {
        let (message, payload) = self.out.pop_front()?;
        Some((Frame::Stream(message), payload))
    }
    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<Vec<u8>>> {
        let (message, payload) = self.arrived.pop_front()?;
        Some(Arrival { message, payload })
    }
}

/// Three daemons. The first has links to the two others.
struct Star {
    now: Time,
    daemons: Vec<Daemon<Vec<u8>>>,
    thin: Arc<AtomicI64>,
    /// The payloads that the members at each daemon were delivered.
    delivered: [Vec<Vec<u8>>; 3],
    entered: usize,
}

impl Star {
    fn new() -> Star {
        let ids = [0, 1, 2].map(DaemonId);
        let links = [(ids[0], ids[1], 1), (ids[0], ids[2], 1)];
        let topology = Arc::new(Topology::new(ids, &links).unwrap());
        let thin = Arc::new(AtomicI64::new(0));
        let daemon = |here: DaemonId| {
            let ends = topology.neighbours(here).iter();
            let hops = ends.map(|end| -> Box<dyn Hop<Vec<u8>>> {
                let is_thin = (here, *end) == (ids[0], ids[THIN]);
                let wide = || Arc::new(AtomicI64::new(i64::MAX));
                Box::new(Metered {
                    credit: if is_thin { thin.clone() } else { wide() },
                    out: VecDeque::new(),
                    arrived: VecDeque::new(),
                })
            });
            let config = OverlayConfig::default();
            let controller = Box::new(LiveCostBenefit::default());
            Daemon::fixed(config, controller, here, topology.clone(), hops.collect()).unwrap()
        };
        let mut star = Star {
            now: Time::ZERO,
            daemons: ids.into_iter().map(daemon).collect(),
            thin,
            delivered: Default::default(),
            entered: 0,
        };
        for at in [THIN, WIDE] {
            let member = star.daemons[at].connect(star.now, 100);
            let join = ClientFrame::Join(GROUP);
            star.daemons[at].handle_client(star.now, member, &join, Vec::new());
        }
        star.drain();
        star
    }

    /// Passes a millisecond, in which the thin link carries `bytes`.
    fn step(&mut self, bytes: i64) {
        self.now += STEP;
        let credit = self.thin.load(Ordering::Relaxed) + bytes;
        self.thin.store(credit.min(bytes.max(1)), Ordering::Relaxed);
        let thin = DaemonId(THIN as u16);
        self.daemons[0].handle_writable(self.now, thin);
        for daemon in &mut self.daemons {
            daemon.handle_timeout(self.now);
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some((at, transmit)) = (0..3).find_map(|at| {
            let transmit = self.daemons[at].poll_transmit()?;
            Some((at, transmit))
        }) {
            let here = DaemonId(at as u16);
            match transmit {
                Transmit::Daemon(to, frame, payload) => {
                    let to = &mut self.daemons[usize::from(to.0)];
                    to.handle_frame(self.now, here, &frame, Ecn::NotCapable, payload);
                }
                Transmit::Client(client, ClientFrame::Deliver { layered, .. }, payload) => {
                    assert!(layered, "the flag is lost");
                    self.delivered[at].push(payload);
                    let took = ClientFrame::Took { messages: 1 };
                    self.daemons[at].handle_client(self.now, client, &took, Vec::new());
                }
                Transmit::Client(_, ClientFrame::Ready, _) => self.entered += 1,
                Transmit::Client(..) => {}
            }
        }
    }
}

fn any_layers() -> impl Strategy<Value = Vec<LayerSize>> {
    prop::collection::vec((1..2000u16, 1..1000u16), 1..=Layers::MAX).prop_map(|mut layers| {
        let worth = |layer: &(u16, u16)| f64::from(layer.1) / f64::from(layer.0);
        layers.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        let size = |(bytes, dollars)| LayerSize { bytes, dollars };
        layers.into_iter().map(size).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The thin link carries at least the headers of messages: 20 bytes a millisecond are 200 in
    /// the time of the shortest purse.
    #[test]
    fn members_read_prefixes_at_cut_points_and_no_thin_link_delays_a_message_to_others(
        layers in any_layers(),
        kept in 0..20u16,
        purse_ms in 10..40u64,
        thin in 20..400i64,
    ) {
        let mut star = Star::new();
        let sender = star.daemons[0].connect(star.now, 100);
        let mut sent = Vec::new();
        for step in 0..3000u64 {
            star.step(thin);
            if step % purse_ms != 0 {
                continue;
            }
            let purse = Duration::from_millis(purse_ms);
            let mut payload = Layers::encode(purse, kept, &layers).unwrap();
            let bytes = usize::from(kept) + layers.iter().map(|layer| usize::from(layer.bytes)).sum::<usize>();
            payload.extend((0..bytes).map(|place| (place as u64 + step) as u8));
            let groups = GROUP.into();
            let send = ClientFrame::Send { groups, sent_us: 0, layered: true };
            star.daemons[0].handle_client(star.now, sender, &send, payload.clone());
            star.drain();
            sent.push(payload);
            // Neither the client nor the member behind the wide link waits.
            prop_assert_eq!(star.entered, sent.len());
            prop_assert_eq!(star.delivered[WIDE].last(), sent.last());
            let queue = star.daemons[0].queue_messages(DaemonId(THIN as u16));
            prop_assert!(queue < Some(100), "{:?} messages wait", queue);
        }
        for _ in 0..3000 {
            star.step(thin);
        }
        prop_assert_eq!(&star.delivered[WIDE], &sent);
        prop_assert_eq!(star.delivered[THIN].len(), sent.len());
        for (delivered, sent) in star.delivered[THIN].iter().zip(&sent) {
            prop_assert!(sent.starts_with(delivered));
            let layers = Layers::read(delivered).unwrap();
            prop_assert!(layers.cut_points().any(|point| point as usize == delivered.len()));
        }
    }
}

/// A message that a client cuts itself, within a layer, enters up to the layer before.
#[test]
fn a_message_enters_up_to_a_cut_point() {
    let mut star = Star::new();
    let sender = star.daemons[0].connect(star.now, 100);
    let layers = [(40, 10), (200, 5)].map(|(bytes, dollars)| LayerSize { bytes, dollars });
    let mut payload = Layers::encode(Duration::from_millis(20), 0, &layers).unwrap();
    payload.resize(payload.len() + 100, 1);
    let groups = GROUP.into();
    let send = ClientFrame::Send {
        groups,
        sent_us: 0,
        layered: true,
    };
    star.daemons[0].handle_client(star.now, sender, &send, payload.clone());
    star.drain();
    assert_eq!(star.delivered[WIDE], [&payload[..14 + 40]]);
}

/// A layered message that is sent again is cut like the first copy.
#[test]
fn a_message_that_is_sent_again_has_its_layers() {
    let layers = [LayerSize {
        bytes: 9,
        dollars: 1,
    }];
    let mut payload = Layers::encode(Duration::from_millis(20), 0, &layers).unwrap();
    payload.resize(payload.len() + 9, 1);
    let data = crate::Data {
        group: GROUP,
        version: 0,
        sequence: crate::OriginSeq::new(3),
        sender: ClientId(0),
        sent_us: 0,
    };
    let to = DaemonId(2);
    let message = Message {
        origin: DaemonId(0),
        copy: CopyFlags::LAYERED,
        body: Body::Resent(crate::Resent { to, data }),
    };
    let link = LinkId {
        from: DaemonId(0),
        to,
    };
    let mut live = LiveCostBenefit::default();
    live.on_queue(Time::ZERO, link, 1000);
    let cut = cut(&mut live, link, &message, payload.clone());
    assert_eq!(cut, payload[..10]);
}
