//! What happens in a session, as a person reads it on a terminal.
//!
//! Events become rows: text as markdown, a tool as one line, thoughts as a dim one. Rows that are certain stay and scroll away; the text that
//! still comes, the tools that still run, the line that says what goes on and what is being typed are at the bottom, and painted over.

pub(super) mod editor;
#[cfg(test)]
mod emulator;
mod inline;
mod markdown;
pub(super) mod painter;
pub(super) mod status;
mod story;
mod table;
#[cfg(test)]
mod test;
pub(super) mod text;
mod tools;

pub(super) use story::{Detail, Now, Story};
