//! How our own tools are described to a model, and what a patch set looks like.

use serde_json::{Value, json};

use super::Definition;
use super::change::Edit;
use super::fault::Fault;
use super::input::Input;

/// How many edits one patch set may have.
const MAX_EDITS: usize = 1_000;

/// The definitions, in the order they are offered.
pub(super) fn own() -> Vec<Definition> {
    let path = json!({ "type": "string", "description": "relative to the workspace" });
    vec![
        define(
            "bash",
            "Runs a command in a shell in the workspace and returns what it printed and its exit code. Each call is a new shell. After timeoutMs the command and everything it started is killed. What is started with & goes on after the call; send its output to a file, for the rest of it is not kept.",
            json!({
                "command": { "type": "string" },
                "timeoutMs": { "type": "integer", "description": "default 120000, at most 600000" },
            }),
            &["command"],
        ),
        define(
            "read_file",
            "Reads a file: text with numbered lines, at most 2,000 lines or 100 KB at once, images (png, jpeg, gif, webp; at most 3.75 MB) and PDF documents (at most 4.5 MB) as such. The numbers are not part of the file.",
            json!({
                "path": path,
                "offset": { "type": "integer", "description": "the first line, counted from 1" },
                "limit": { "type": "integer", "description": "how many lines" },
            }),
            &["path"],
        ),
        define(
            "write_file",
            "Writes a whole file, and the directories it needs. What was there is replaced.",
            json!({ "path": path, "content": { "type": "string" } }),
            &["path", "content"],
        ),
        define(
            "edit_file",
            "Replaces a text in a file. The old text must occur exactly once, with its white space as it is in the file.",
            json!({
                "path": path,
                "old": { "type": "string", "description": "empty only to create a file" },
                "new": { "type": "string" },
            }),
            &["path", "old", "new"],
        ),
        define(
            "list_files",
            "Lists a directory, or with a pattern everything below it that matches: * and ? within a name, ** for any directories (**/*.rs). At most 1,000 entries or 60 KB; .git and node_modules are not entered.",
            json!({ "path": path, "pattern": { "type": "string" } }),
            &[],
        ),
        define(
            "apply_patchset",
            "Makes several edits, all or nothing. Each is {path, old, new}, {path, content} for a whole file, or {path, delete: true}, which deletes a link and not what it leads to. Edits of one file apply in order.",
            json!({ "edits": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "path": path,
                    "old": { "type": "string" },
                    "new": { "type": "string" },
                    "content": { "type": "string" },
                    "delete": { "type": "boolean" },
                },
                "required": ["path"],
            } } }),
            &["edits"],
        ),
    ]
}

fn define(name: &str, description: &str, properties: Value, required: &[&str]) -> Definition {
    let input_schema = json!({ "type": "object", "properties": properties, "required": required });
    Definition { name: name.to_owned(), description: description.to_owned(), input_schema }
}

/// The edits of a patch set.
pub(super) fn edits(mut input: Input) -> Result<Vec<Edit>, Fault> {
    let list = input.list("edits")?;
    if list.is_empty() || list.len() > MAX_EDITS {
        return Err(Fault::new("\"edits\" must have between 1 and 1,000 edits"));
    }
    list.into_iter()
        .enumerate()
        .map(|(index, value)| {
            edit(value).map_err(|fault| {
                Fault::new(format!("nothing was changed: edits[{index}]: {fault}"))
            })
        })
        .collect()
}

fn edit(value: Value) -> Result<Edit, Fault> {
    let wanted = "give {path, old, new}, {path, content} or {path, delete: true}";
    let mut fields = Input::from_value(value).ok_or_else(|| Fault::new(wanted))?;
    let path = fields.text("path")?;
    let is_delete = fields.flag("delete")?;
    let content = fields.optional_text("content")?;
    let (old, new) = (fields.optional_text("old")?, fields.optional_text("new")?);
    match (is_delete, content, old, new) {
        (true, None, None, None) => Ok(Edit::Delete { path }),
        (false, Some(content), None, None) => Ok(Edit::Write { path, content }),
        (false, None, Some(old), Some(new)) => Ok(Edit::Replace { path, old, new }),
        _ => Err(Fault::new(wanted)),
    }
}
