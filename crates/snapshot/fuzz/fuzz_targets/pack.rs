//! Throws bytes at the decoders of a pack.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ash_snapshot::decoders::pack(data);
});
