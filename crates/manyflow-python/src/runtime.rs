//! The runtime of tokio in which the live roles of a process run.
//!
//! A process that is forked has no threads but the one that forked it, so the runtime of its parent
//! stands still in it, and every awaitable would wait forever. Calls in such a process are refused.

use std::future::Future;
use std::process;
use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3_async_runtimes::tokio::get_runtime;
use tokio::runtime::Runtime;

/// The process that has made the runtime.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Returns the runtime.
///
/// # Errors
/// Returns an error in a process that was forked from one that had used the runtime.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let owner = *OWNER.get_or_init(process::id);
    match owner == process::id() {
        true => Ok(get_runtime()),
        false => Err(PyRuntimeError::new_err(format!(
            "this process was forked from process {owner}, which uses manyflow.live: start it with the method \"spawn\" \
             of multiprocessing, or call manyflow.live only in one of the two"
        ))),
    }
}

/// Returns an awaitable of asyncio that completes with the future. Cancelling it drops the future.
///
/// # Errors
/// Returns the error of [`runtime`], or one if no event loop of asyncio runs.
pub(crate) fn future_into_py<T, F>(py: Python<'_>, future: F) -> PyResult<Bound<'_, PyAny>>
where
    F: Future<Output = PyResult<T>> + Send + 'static,
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    runtime()?;
    pyo3_async_runtimes::tokio::future_into_py(py, future)
}

/// Drops a value whose `drop` speaks to its daemon in a task of the runtime around it. In a forked
/// process, the value is still that of its parent, which goes on with it: there it is forgotten.
pub(crate) fn drop_in_runtime<T>(value: T) {
    match runtime() {
        Ok(runtime) => {
            let _runtime = runtime.enter();
            drop(value);
        }
        Err(_) => std::mem::forget(value),
    }
}
