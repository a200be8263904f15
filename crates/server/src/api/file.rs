//! The files of a session on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object;

/// Where the files of a session are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileSource {
    /// In a sandbox that is alive: they may change at any moment.
    Sandbox,
    /// Where the last sandbox left them.
    Snapshot,
}

/// A file of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileInfo {
    /// Where, relative to the workspace. In a name that is no text, what is none is `�`.
    pub path: String,
    /// How many bytes it has.
    pub size: u64,
    /// When it was last changed.
    #[schema(format = DateTime)]
    pub modified_at: String,
    /// Whether it can be run.
    #[serde(default)]
    pub executable: bool,
    /// Only if the path is no text: the path as it has to stand in an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_path: Option<String>,
}

/// The files of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// The files, by path.
    pub files: Vec<FileInfo>,
    /// The directories right beneath the one that was listed, as they have to stand in an address, if they were
    /// asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub directories: Option<Vec<String>>,
    /// Where they are.
    pub source: FileSource,
    /// Whether some were left out: there are too many, they lie too deep, or cannot be read.
    #[serde(default)]
    pub truncated: bool,
}

/// A file of a session, with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileContent {
    /// Where.
    pub path: String,
    /// The content.
    pub content: String,
    /// Whether there are bytes in it that are no text, with U+FFFD in their place: what is written back is not what was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
    /// How many bytes it has.
    pub size: u64,
    /// Where it is.
    pub source: FileSource,
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewFile {
    /// Where, relative to `targetPath`.
    pub path: String,
    /// The content in base64, at most 50 MB.
    #[schema(content_encoding = "base64")]
    pub content: String,
    /// Whether it can be run. If it is not said, it can if the file that it replaces can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
}

/// Files to be written: each whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteFiles {
    /// The files, at most 100 MB together.
    #[serde(deserialize_with = "object::list")]
    #[schema(min_items = 1, max_items = 500)]
    pub files: Vec<NewFile>,
    /// The directory that their paths are relative to; the workspace, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileWritten {
    /// Its path, as it was sent.
    pub path: String,
    /// Whether it was written.
    pub written: bool,
    /// How many bytes it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Why it was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of each file, in the order they were sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilesWritten {
    /// One for each.
    pub files: Vec<FileWritten>,
}

/// A file that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileDeleted {
    /// Where it was.
    pub path: String,
    /// Always true.
    pub deleted: bool,
}

/// A workspace to be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadWorkspace {
    /// A `tar.gz` in base64, at most 100 MB when it is decoded.
    #[schema(content_encoding = "base64")]
    pub bundle: String,
}

/// What became of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceUploaded {
    /// What was done.
    pub message: String,
    /// How many files and links were written.
    pub files: u64,
    /// How many bytes they have together.
    pub bytes: u64,
}
