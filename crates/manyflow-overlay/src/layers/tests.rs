use proptest::prelude::*;

use super::*;

/// The paper's stream (section IV-A) in fiftieths of a second.
fn stream() -> Vec<u8> {
    payload(20_000, 0, &[(40, 10), (200, 5), (1000, 2)])
}

fn payload(purse_us: u64, kept: u16, layers: &[(u16, u16)]) -> Vec<u8> {
    let size = |&(bytes, dollars)| LayerSize { bytes, dollars };
    let sizes: Vec<_> = layers.iter().map(size).collect();
    let table = Layers::encode(Duration::from_micros(purse_us), kept, &sizes);
    let mut payload = table.unwrap();
    let rest: usize = layers.iter().map(|(bytes, _)| usize::from(*bytes)).sum();
    payload.resize(payload.len() + usize::from(kept) + rest, 7);
    payload
}

fn sold(payload: &[u8], bought: f64, messages: u64) -> f64 {
    let layers = Layers::read(payload).unwrap();
    let lengths = (1..=messages).map(|number| {
        let bytes = layers.bytes_for(bought, OriginSeq::new(number));
        f64::from(bytes - layers.least_bytes())
    });
    lengths.sum::<f64>() / messages as f64
}

#[test]
fn the_papers_stream_keeps_its_voice_at_prices_that_leave_no_pictures() {
    let payload = stream();
    // Voice is worth 10/17 of the purse and has 40 of 1240 bytes: a fiftieth of a second buys it
    // as soon as the link sells 2.74 messages a second.
    let voice = 50.0 * (40.0 / 1240.0) / ((10.0 / 17.0) / (40.0 / 1240.0));
    assert!((sold(&payload, voice, 1000) - 40.0).abs() < 0.5);
    assert!((sold(&payload, voice / 2.0, 1000) - 20.0).abs() < 0.5);
    assert!((sold(&payload, 3.0 * voice, 1000) - 40.0).abs() < 0.5);
    let half_of_pictures = 50.0 * (140.0 / 1240.0) / ((5.0 / 17.0) / (200.0 / 1240.0));
    assert!((sold(&payload, half_of_pictures, 1000) - 140.0).abs() < 1.0);
    assert_eq!(sold(&payload, 1e6, 10), 1240.0);
    assert_eq!(sold(&payload, 0.0, 10), 0.0);
}

/// A link sells a message in one layer for less than its purse as often as a client of priority 1
/// may send: b messages a second.
#[test]
fn a_stream_of_one_layer_has_the_share_of_an_ordinary_client() {
    let payload = payload(10_000, 100, &[(900, 3)]);
    for bought in [5.0, 20.0, 50.0, 99.0] {
        let messages_per_s = 100.0 * sold(&payload, bought, 10_000) / 900.0;
        assert!(
            (messages_per_s - bought).abs() < 0.01 * bought,
            "{messages_per_s} at {bought}"
        );
    }
}

#[test]
fn tables_outside_their_ranges_are_refused() {
    let encode = |purse_us, layers: &[(u16, u16)]| {
        let size = |&(bytes, dollars)| LayerSize { bytes, dollars };
        let sizes: Vec<_> = layers.iter().map(size).collect();
        Layers::encode(Duration::from_micros(purse_us), 0, &sizes)
    };
    assert_eq!(encode(1, &[]), Err(LayersError::Count(0)));
    assert_eq!(encode(1, &[(1, 1); 9]), Err(LayersError::Count(9)));
    assert_eq!(
        encode(0, &[(1, 1)]),
        Err(LayersError::Purse(Duration::ZERO))
    );
    assert!(matches!(
        encode(1 << 24, &[(1, 1)]),
        Err(LayersError::Purse(_))
    ));
    assert_eq!(encode(1, &[(1, 1), (0, 1)]), Err(LayersError::Empty(1)));
    assert_eq!(encode(1, &[(1, 0)]), Err(LayersError::Empty(0)));
    assert_eq!(encode(1, &[(2, 1), (1, 1)]), Err(LayersError::Order(1)));
    let mut whole = stream();
    whole.push(0);
    assert_eq!(Layers::read(&whole), Err(LayersError::Trailing(1)));
    let (have, want) = (17, 18);
    let short = LayersError::Short { have, want };
    assert_eq!(Layers::read(&whole[..have]), Err(short));
}

fn any_layers() -> impl Strategy<Value = Vec<(u16, u16)>> {
    prop::collection::vec((1..8000u16, 1..1000u16), 1..=Layers::MAX).prop_map(|mut layers| {
        let worth = |layer: &(u16, u16)| f64::from(layer.1) / f64::from(layer.0);
        layers.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        layers
    })
}

proptest! {
    #[test]
    fn a_table_is_read_as_it_was_written(
        layers in any_layers(),
        purse_us in 1..1u64 << 24,
        kept in 0..1000u16,
    ) {
        let payload = payload(purse_us, kept, &layers);
        let read = Layers::read(&payload).unwrap();
        prop_assert_eq!(read.purse(), Duration::from_micros(purse_us));
        let sizes: Vec<_> = read.sizes().map(|layer| (layer.bytes, layer.dollars)).collect();
        prop_assert_eq!(sizes, layers);
        prop_assert_eq!(read.whole_bytes() as usize, payload.len());
        prop_assert_eq!(read.least_bytes(), read.table_bytes() + u32::from(kept));
    }

    /// Every length that is sold is a cut point, and no higher price sells more of one message.
    #[test]
    fn messages_end_at_cut_points_and_a_higher_price_sells_no_more(
        layers in any_layers(),
        purse_us in 1..1u64 << 24,
        kept in 0..1000u16,
        bought in 1e-6..1e6f64,
        dearer in 1.0..100f64,
        number in 1..1u64 << 40,
    ) {
        let payload = payload(purse_us, kept, &layers);
        let read = Layers::read(&payload).unwrap();
        let number = OriginSeq::new(number);
        let cheap = read.bytes_for(bought, number);
        let dear = read.bytes_for(bought / dearer, number);
        prop_assert!(read.cut_points().any(|point| point == cheap));
        prop_assert!(read.cut_points().any(|point| point == dear));
        prop_assert!(dear <= cheap, "{} > {}", dear, cheap);
        // A payload that was cut is read, and cut again, like the whole one.
        let cut = payload.cut(cheap);
        prop_assert_eq!(Layers::read(&cut).map(|again| again.bytes_for(bought, number)), Ok(cheap));
        prop_assert_eq!(read.cut_point_within(cheap), cheap);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(layers) = Layers::read(&bytes) {
            prop_assert!(layers.least_bytes() as usize <= bytes.len());
            prop_assert!(bytes.len() <= layers.whole_bytes() as usize);
        }
    }
}
