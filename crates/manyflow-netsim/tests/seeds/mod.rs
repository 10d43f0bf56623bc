//! Runs tests with random faults for many seeds.
//!
//! `MANYFLOW_SEEDS=n` runs n seeds (40 by default), beginning with `MANYFLOW_FIRST` (0 by default).
//! `MANYFLOW_SEED=k` runs and shows a single seed.

/// Returns the number in an environment variable.
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not \"{value}\"")))
}

/// A seed that runs: its test may panic.
struct Running<'a> {
    test: &'a str,
    seed: u64,
}

impl Running<'_> {
    fn print_how_to_repeat(&self) {
        let (test, seed) = (self.test, self.seed);
        let package = env!("CARGO_PKG_NAME");
        eprintln!("MANYFLOW_SEED={seed} cargo test -p {package} --test {test} -- --nocapture\n");
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_how_to_repeat();
        }
    }
}

/// Runs the seeds. Prints how to repeat each seed that fails, and panics if there is one. `test` is
/// the name of the test's file.
pub(crate) fn run(test: &str, show: impl Fn(u64), run: impl Fn(u64) -> Result<(), String>) {
    if let Some(seed) = variable("MANYFLOW_SEED") {
        show(seed);
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        return;
    }
    let seeds = variable("MANYFLOW_SEEDS").unwrap_or(40);
    let first = variable("MANYFLOW_FIRST").unwrap_or(0);
    let mut failed = 0;
    for seed in first..first + seeds {
        let running = Running { test, seed };
        if let Err(error) = run(seed) {
            failed += 1;
            eprintln!("seed {seed}: {error}");
            running.print_how_to_repeat();
        }
    }
    assert_eq!(failed, 0, "of {seeds} seeds");
}
