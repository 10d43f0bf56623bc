//! Fuzz targets that run in two ways: under libFuzzer (`make fuzz`, nightly Rust), and as plain
//! programs that try some thousand pseudo-random inputs (`make fuzz-short`, stable Rust).
//! [`target!`] makes both from one closure.

pub mod acp;
pub mod overlay;

pub use arbitrary;
#[cfg(fuzzing)]
pub use libfuzzer_sys;

use arbitrary::{Arbitrary, Unstructured};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The number of inputs in a plain run.
const INPUTS: u64 = 5_000;
/// The maximum length of an input in a plain run, in bytes.
const LONGEST: usize = 2_048;

/// Defines a fuzz target: a closure with one argument, `&[u8]` or any type that is `Arbitrary`.
#[macro_export]
macro_rules! target {
    (|$input:ident: $type:ty| $body:expr) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|$input: $type| $body);

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::run(|bytes| {
                let unstructured = $crate::arbitrary::Unstructured::new(bytes);
                if let Ok($input) =
                    <$type as $crate::arbitrary::Arbitrary>::arbitrary_take_rest(unstructured)
                {
                    $body
                }
            });
        }
    };
}

/// Reads values of `T` until the bytes are used up. (A `Vec<T>` made from random bytes has one or
/// two.)
pub fn each<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> impl Iterator<Item = T> {
    let mut rest = Unstructured::new(bytes);
    core::iter::from_fn(move || {
        let read = (!rest.is_empty()).then(|| rest.arbitrary());
        read?.ok()
    })
}

/// Runs `target` with the inputs of a plain run, or with that of the seed that the first argument
/// gives. If it panics, prints the seed that made the input.
pub fn run(target: impl Fn(&[u8])) {
    struct Report(u64);
    impl Drop for Report {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let program = std::env::args().next().unwrap_or_default();
                let seed = self.0;
                eprintln!(
                    "the input of seed {seed} caused the panic; to repeat it: {program} {seed}"
                );
            }
        }
    }
    let mut bytes = [0; LONGEST];
    let only = std::env::args().nth(1);
    let only = only.map(|seed| seed.parse::<u64>().expect("the argument is a seed"));
    let seeds = only.map_or(0..INPUTS, |seed| seed..seed + 1);
    let inputs = seeds.end - seeds.start;
    for seed in seeds {
        let report = Report(seed);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        random.fill_bytes(&mut bytes);
        // Short inputs are as frequent as long ones.
        let length = LONGEST >> (random.next_u32() % 12);
        let length = random.next_u32() as usize % (length + 1);
        target(&bytes[..length]);
        drop(report);
    }
    println!("{inputs} inputs, no finding");
}
