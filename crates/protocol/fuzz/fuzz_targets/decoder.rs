//! Throws bytes at the frame decoder.

#![no_main]

#[path = "../../tests/it/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decode::decode_everything(data));
