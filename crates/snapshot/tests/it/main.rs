//! Trees are captured and restored, and are what they were.

#![expect(clippy::unwrap_used, reason = "all of this is tests, also what is no test function")]

mod ahead;
mod cache;
mod careful;
mod collections;
mod compare;
mod crashes;
mod damage;
mod database;
mod edges;
mod in_place;
mod kinds;
mod looks;
mod moments;
mod moto;
mod objects;
mod remote;
mod replicate;
mod server;
mod sources;
mod states;
mod stores;
mod tools;
mod torn;
mod trees;
