//! A client of the API: what the command line speaks to a server with.
//!
//! Requests that may be repeated are repeated when the connection breaks before the answer: reads,
//! and whatever carries an `Idempotency-Key`. Streams come back by themselves and continue where
//! they were cut, see [`EventStream`].

mod account;
mod agents;
mod bundles;
mod error;
mod files;
mod queue;
mod request;
mod sessions;
mod sse;
mod stream;

pub use account::Health;
pub use bundles::{Download, ExportedFiles, Upload};
pub use error::{Cause, ClientError};
pub use files::FileQuery;
pub(crate) use request::is_loopback;
pub use request::{BearerKey, Client, Patience, Transfer};
pub use sessions::{SessionQuery, Until};
pub use sse::{Frame, Parser, TooLong};
pub use stream::{Cursor, EventStream, Incoming, ServerEvent};
