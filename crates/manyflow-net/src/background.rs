//! A runtime for a thread of its own.

use std::future::Future;

use tokio::runtime::Runtime;

/// A runtime that can be dropped anywhere. Dropping a [`Runtime`] waits for its threads, which
/// panics within another runtime: for example if the thread that was to run it cannot be started.
#[derive(Debug)]
pub struct Background(Option<Runtime>);

impl Background {
    /// Takes a runtime.
    pub fn new(runtime: Runtime) -> Background {
        Background(Some(runtime))
    }

    /// Returns the runtime.
    pub fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("only drop takes the runtime")
    }

    /// Runs a future to its end on this thread.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime().block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a thread that runs `work`, with a stack for which no host has memory.
    fn start_in_vain(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(1 << 60);
        assert!(thread.spawn(work).is_err());
    }

    #[tokio::test]
    async fn a_thread_that_cannot_start_is_an_error_and_no_panic() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = Background::new(runtime.unwrap());
        start_in_vain(move || runtime.block_on(async {}));
    }
}
