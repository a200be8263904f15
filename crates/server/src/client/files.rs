//! The files of a session.

use serde::Serialize;
use uuid::Uuid;

use crate::api::{FileContent, FileInfo, Files, FilesWritten, WriteFiles};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, Transfer, file_path};

/// The largest file that is read: what a server sends.
const MAX_FILE_BYTES: usize = 100 << 20;

/// Which files to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileQuery {
    /// Those beneath this directory, or this file alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Also what is left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everything: Option<bool>,
}

impl Client {
    /// The files of a session, by path.
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds of every request below.
    pub async fn files(&self, id: Uuid, query: &FileQuery) -> Result<Files, ClientError> {
        let query = serde_urlencoded::to_string(query).expect("a query of ours can be written");
        self.ask(Ask::get(format!("/api/sessions/{id}/files?{query}"))).await
    }

    /// A file as text.
    pub async fn file_text(&self, id: Uuid, file: &FileInfo) -> Result<FileContent, ClientError> {
        self.ask(Ask::get(format!("{}?format=json", at(id, file)))).await
    }

    /// What is in a file. `transfer` tells how much of it is here.
    pub async fn file(
        &self,
        id: Uuid,
        file: &FileInfo,
        transfer: &Transfer,
    ) -> Result<Vec<u8>, ClientError> {
        let mut answer = self.open(&Ask::get(at(id, file)), "*/*").await?;
        transfer.begin(answer.content_length().unwrap_or(file.size));
        let mut content = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.failed(&error))? {
            if content.len() + piece.len() > MAX_FILE_BYTES {
                let (status, text) = (answer.status().as_u16(), "(a file without end)".to_owned());
                return Err(ClientError::Unexpected { status, text });
            }
            content.extend_from_slice(&piece);
            transfer.add(piece.len());
        }
        Ok(content)
    }

    /// Writes files. `transfer` tells how far they are.
    pub async fn write_files(
        &self,
        id: Uuid,
        files: &WriteFiles,
        transfer: &Transfer,
    ) -> Result<FilesWritten, ClientError> {
        // To write the same once more changes nothing.
        let mut ask = Ask::post(format!("/api/sessions/{id}/files"), files, Repeat::Safe);
        ask.transfer = Some(transfer.clone());
        self.ask(ask).await
    }
}

fn at(id: Uuid, file: &FileInfo) -> String {
    let path = file.encoded_path.clone().unwrap_or_else(|| file_path(&file.path));
    format!("/api/sessions/{id}/files/{path}")
}
