//! The files of a session.

use serde::Serialize;
use uuid::Uuid;

use crate::api::{FileContent, FileInfo, Files, FilesWritten, WriteFiles};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, file_path};

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

    /// What is in a file.
    pub async fn file(&self, id: Uuid, file: &FileInfo) -> Result<Vec<u8>, ClientError> {
        let mut answer = self.open(&Ask::get(at(id, file)), "*/*").await?;
        let mut content = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.failed(&error))? {
            if content.len() + piece.len() > MAX_FILE_BYTES {
                let (status, text) = (answer.status().as_u16(), "(a file without end)".to_owned());
                return Err(ClientError::Unexpected { status, text });
            }
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Writes files.
    pub async fn write_files(
        &self,
        id: Uuid,
        files: &WriteFiles,
    ) -> Result<FilesWritten, ClientError> {
        // To write the same once more changes nothing.
        self.ask(Ask::post(format!("/api/sessions/{id}/files"), files, Repeat::Safe)).await
    }
}

fn at(id: Uuid, file: &FileInfo) -> String {
    let path = file.encoded_path.clone().unwrap_or_else(|| file_path(&file.path));
    format!("/api/sessions/{id}/files/{path}")
}
