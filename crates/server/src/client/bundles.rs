//! Sessions as bundles.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Body;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use uuid::Uuid;

use crate::api::{Session, SessionBody};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, Transfer, idempotency_key};

/// How much of a bundle is held while it is sent.
const PIECE: usize = 256 * 1024;

/// Which files of a session are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportedFiles {
    /// Those that there are now.
    Latest,
    /// Everything that was captured of them and is kept.
    History,
}

/// A bundle that comes, piece by piece.
#[derive(Debug)]
pub struct Download {
    client: Client,
    answer: reqwest::Response,
}

impl Download {
    /// What the server calls it, if that is the name of a file and no path.
    pub fn name(&self) -> Option<String> {
        let said = self.answer.headers().get(CONTENT_DISPOSITION)?.to_str().ok()?;
        let name = said.split_once("filename*=UTF-8''")?.1;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain);
        is_name.then(|| name.to_owned())
    }

    /// How long it is, if the server says so.
    pub fn bytes(&self) -> Option<u64> {
        self.answer.content_length()
    }

    /// The next piece; nothing, when it is whole.
    ///
    /// # Errors
    /// The connection broke before its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.answer.chunk().await.map_err(|error| self.client.failed(&error))
    }
}

/// A bundle on this machine, to be sent.
#[derive(Clone, Debug)]
pub struct Upload {
    file: Arc<File>,
    /// How long it is, if it is a file: then it can be sent again.
    bytes: Option<u64>,
    transfer: Transfer,
}

impl Upload {
    /// What is in a file, or comes through a pipe.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn of(file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        let bytes = found.is_file().then_some(found.len());
        Ok(Self { file: Arc::new(file), bytes, transfer: Transfer::default() })
    }

    /// How far it is on its way.
    pub fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    fn body(&self) -> Body {
        let is_file = self.bytes.is_some();
        let begin = (Arc::clone(&self.file), 0);
        self.transfer.begin(self.bytes.unwrap_or(0));
        let transfer = self.transfer.clone();
        Body::wrap_stream(futures_util::stream::try_unfold(begin, move |(file, at)| {
            let transfer = transfer.clone();
            async move {
                let read = tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; PIECE];
                    let length = match is_file {
                        true => file.read_at(&mut piece, at)?,
                        false => (&*file).read(&mut piece)?,
                    };
                    piece.truncate(length);
                    Ok::<_, io::Error>((piece, file))
                });
                let (piece, file) = read.await.map_err(io::Error::other)??;
                transfer.add(piece.len());
                let next = (file, at + piece.len() as u64);
                Ok::<_, io::Error>((!piece.is_empty()).then(|| (Bytes::from(piece), next)))
            }
        }))
    }
}

impl Client {
    /// Has a bundle made of a session, with the files as they are or with everything that is kept of them.
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds of every request below.
    pub async fn export(&self, id: Uuid, files: ExportedFiles) -> Result<Download, ClientError> {
        let history = files == ExportedFiles::History;
        let ask = Ask::get(format!("/api/sessions/{id}/export?history={history}"));
        let answer = self.open(&ask, "application/x-tar").await?;
        Ok(Download { client: self.clone(), answer })
    }

    /// Makes the session in a bundle one of the server. What is a file is sent again if the connection breaks.
    pub async fn import_bundle(&self, bundle: &Upload) -> Result<Session, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut request = self.sending("/api/sessions/import", &repeat);
            request = request.header(CONTENT_TYPE, "application/x-tar");
            if let Some(bytes) = bundle.bytes {
                request = request.header(CONTENT_LENGTH, bytes);
            }
            let answer = match self.answered(request.body(bundle.body())).await {
                Ok(answer) => self.read::<SessionBody>(answer).await,
                Err(error) => Err(error),
            };
            let is_last = attempts >= self.patience().request_attempts || bundle.bytes.is_none();
            match answer {
                Ok(answer) => return Ok(answer.session),
                Err(ClientError::Broken { .. }) if !is_last => {
                    tokio::time::sleep(self.patience().pause(attempts)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
