//! `ash-bridge`, the program inside the sandbox.

fn main() {}
