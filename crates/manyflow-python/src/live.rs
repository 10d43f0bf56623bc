//! Clients of the overlay, whose methods return awaitables of asyncio.
//!
//! One runtime of tokio serves all clients of a process. Cancelling an awaitable drops its future.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use manyflow_messages::{
    Client as Inner, ClientError, ClientOptions, Credentials, LayerSize, Message as Sent,
    Messages as Stream, NameError, Service,
};
use manyflow_net::tls::Authorities;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::{Mutex, Notify};

use crate::errors::{in_python, live_error};
use crate::member::Member;
use crate::runtime::{drop_in_runtime, future_into_py, runtime};

/// Connects to the daemon at `address`. `tls` is whether to use TLS, with the authorities in the
/// file `ca` instead of those of the platform.
#[pyfunction]
#[pyo3(signature = (address, name, timeout_s, buffer_messages, tls, ca, user, echo))]
#[allow(
    clippy::too_many_arguments,
    reason = "manyflow.live.connect names each of them"
)]
pub(crate) fn connect(
    py: Python<'_>,
    address: String,
    name: Option<String>,
    timeout_s: f64,
    buffer_messages: usize,
    tls: bool,
    ca: Option<PathBuf>,
    user: Option<(String, String)>,
    echo: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let authorities = tls.then(|| Authorities::read(ca.as_deref())).transpose();
    let authorities =
        authorities.map_err(|error| live_error(py, &address, &of_connect(&error.to_string())))?;
    let options = ClientOptions {
        name,
        echo,
        buffer_messages,
        connect_timeout: Duration::try_from_secs_f64(timeout_s)
            .map_err(|error| PyValueError::new_err(format!("timeout_s: {error}")))?,
        tls: authorities,
        credentials: user.map(|(name, password)| Credentials::Password { name, password }),
        ..ClientOptions::default()
    };
    future_into_py(py, async move {
        let connected = Inner::connect(&address, &options).await;
        let inner = connected.map_err(|error| raise(&address, &error))?;
        Ok(Client { inner })
    })
}

/// Returns a message with the keyword arguments of `connect`, whose `tls` can be a file of
/// authorities.
fn of_connect(message: &str) -> String {
    in_python(message).replace("ca=FILE", "tls=FILE")
}

pub(crate) fn raise(address: &str, error: &ClientError) -> PyErr {
    Python::attach(|py| live_error(py, address, &of_connect(&error.to_string())))
}

/// A client of a daemon. `manyflow.live.Client` wraps it.
#[pyclass(frozen, name = "LiveClient", module = "manyflow._native")]
pub(crate) struct Client {
    inner: Inner,
}

#[pymethods]
impl Client {
    /// The address that the client has connected to.
    #[getter]
    fn address(&self) -> &str {
        self.inner.address()
    }

    /// Publishes to the members of a group.
    fn publish<'py>(
        &self,
        py: Python<'py>,
        subject: String,
        payload: Vec<u8>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner.clone();
        future_into_py(py, async move {
            let published = client.publish(&subject, payload).await;
            published.map_err(|error| raise(client.address(), &error))
        })
    }

    /// Publishes layers, each with its worth, for `purse_s` seconds of the client's salary.
    fn publish_layers<'py>(
        &self,
        py: Python<'py>,
        subject: String,
        layers: Vec<(Vec<u8>, u16)>,
        purse_s: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let purse = Duration::try_from_secs_f64(purse_s)
            .map_err(|error| PyValueError::new_err(format!("purse_s: {error}")))?;
        let sizes = layers.iter().map(|(layer, dollars)| {
            let bytes = u16::try_from(layer.len()).map_err(|_| {
                PyValueError::new_err(format!(
                    "a layer has {} bytes: it can have at most 65,535",
                    layer.len()
                ))
            })?;
            Ok(LayerSize {
                bytes,
                dollars: *dollars,
            })
        });
        let sizes: Vec<_> = sizes.collect::<PyResult<_>>()?;
        let payload: Vec<u8> = layers.into_iter().flat_map(|(layer, _)| layer).collect();
        let client = self.inner.clone();
        future_into_py(py, async move {
            let message = Sent::new(&subject, payload);
            let message = message.and_then(|message| message.in_layers(purse, &sizes));
            let published = match &message {
                Ok(message) => client.publish_message(message).await,
                Err(_) => message.map(|_| ()),
            };
            published.map_err(|error| raise(client.address(), &error))
        })
    }

    /// Joins the groups whose subjects fit `pattern`.
    #[pyo3(signature = (pattern, queue))]
    fn join<'py>(
        &self,
        py: Python<'py>,
        pattern: String,
        queue: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner.clone();
        future_into_py(py, async move {
            let joined = match queue {
                Some(queue) => client.join_queue(&pattern, &queue).await,
                None => client.join(&pattern).await,
            };
            let stream = joined.map_err(|error| raise(client.address(), &error))?;
            let state = State {
                address: client.address().to_owned(),
                stream: Mutex::new(Some(stream)),
                left: Notify::new(),
            };
            Ok(Messages {
                state: Some(Arc::new(state)),
            })
        })
    }

    /// Sends to the members of ordered groups.
    fn multicast<'py>(
        &self,
        py: Python<'py>,
        service: &str,
        groups: Vec<String>,
        payload: Vec<u8>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let service: Service = service
            .parse()
            .map_err(|error: NameError| PyValueError::new_err(error.to_string()))?;
        let client = self.inner.clone();
        future_into_py(py, async move {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let sent = client.multicast(service, &groups, payload).await;
            sent.map_err(|error| raise(client.address(), &error))
        })
    }

    /// Returns the member of ordered groups that stands for this client.
    fn member(&self) -> PyResult<Member> {
        // A fork has no runtime in which the member could end.
        runtime()?;
        let member = self.inner.member();
        let member = member.map_err(|error| raise(self.inner.address(), &error))?;
        Ok(Member::new(self.inner.address(), member))
    }

    /// Returns when the daemon has taken everything that was published before.
    fn flush<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner.clone();
        future_into_py(py, async move {
            let flushed = client.flush().await;
            flushed.map_err(|error| raise(client.address(), &error))
        })
    }

    /// Leaves all groups, flushes, and ends the connection.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner.clone();
        future_into_py(py, async move {
            match client.drain().await {
                Ok(()) | Err(ClientError::Drained { .. }) => Ok(()),
                Err(error) => Err(raise(client.address(), &error)),
            }
        })
    }
}

struct State {
    address: String,
    /// `None` after the groups were left.
    stream: Mutex<Option<Stream>>,
    /// Wakes the readers that wait for a message when the groups are left.
    left: Notify,
}

/// The messages of the groups that a client has joined by one call.
#[pyclass(frozen, name = "LiveMessages", module = "manyflow._native")]
pub(crate) struct Messages {
    /// `None` only while it is dropped.
    state: Option<Arc<State>>,
}

#[pymethods]
impl Messages {
    /// Waits for the next message; `None` after the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            let Some(state) = state else { return Ok(None) };
            let mut stream = state.stream.lock().await;
            let Some(stream) = stream.as_mut() else {
                return Ok(None);
            };
            tokio::select! {
                message = stream.next() => {
                    let message = message.transpose();
                    let message = message.map_err(|error| raise(&state.address, &error))?;
                    Ok(message.map(Message))
                }
                () = state.left.notified() => {
                    // The next one in the queue for the lock may be another reader.
                    state.left.notify_one();
                    Ok(None)
                }
            }
        })
    }

    /// Leaves the groups, and returns when the daemon knows.
    fn leave<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            let Some(state) = state else { return Ok(()) };
            state.left.notify_one();
            let stream = state.stream.lock().await.take();
            match stream {
                None => Ok(()),
                Some(stream) => match stream.leave().await {
                    Ok(()) | Err(ClientError::Drained { .. }) => Ok(()),
                    Err(error) => Err(raise(&state.address, &error)),
                },
            }
        })
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        drop_in_runtime(self.state.take());
    }
}

/// A message of a group. `manyflow.live.Message` is this class.
#[pyclass(frozen, name = "Message", module = "manyflow._native")]
pub(crate) struct Message(manyflow_messages::Message);

#[pymethods]
impl Message {
    /// The subject that the message was published to.
    #[getter]
    fn subject(&self) -> &str {
        self.0.subject()
    }

    /// The subject that the sender expects answers at, or `None`.
    #[getter]
    fn reply(&self) -> Option<&str> {
        self.0.reply()
    }

    /// The bytes that the sender published, or, in layers, a prefix of them.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
    }

    /// The names and values of the headers, in the sender's order.
    #[getter]
    fn headers(&self) -> Vec<(String, String)> {
        let headers = self.0.headers();
        let owned = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        owned.collect()
    }

    /// The number of bytes that the sender published in layers; `None` without layers.
    #[getter]
    fn whole_bytes(&self) -> Option<usize> {
        self.0.whole_bytes()
    }

    /// The layers that have arrived; `None` without layers.
    #[getter]
    fn layers<'py>(&self, py: Python<'py>) -> Option<Vec<Bound<'py, PyBytes>>> {
        let layers = self.0.layers()?.into_iter();
        Some(layers.map(|layer| PyBytes::new(py, &layer)).collect())
    }

    fn __repr__(&self) -> String {
        let (subject, bytes) = (self.0.subject(), self.0.payload().len());
        match self.0.whole_bytes() {
            Some(whole) => format!("<message to {subject} of {bytes} of {whole} B>"),
            None => format!("<message to {subject} of {bytes} B>"),
        }
    }
}
