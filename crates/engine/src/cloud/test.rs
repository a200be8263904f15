//! What a bucket is worth, and what goes from it.

mod heads;
mod removal;
